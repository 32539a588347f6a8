"""vLLM whole, in this process, with a tiny model: what it answers, what is recorded of it, and what adds up."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING, Any

import bare
import pytest
from vllm import LLM, SamplingParams
from vllm.config import KVTransferConfig
from vllm.inputs import TokensPrompt

from controller.engines.vllm import install, settings, smoke
from controller.engines.vllm.model import estimate_of
from controller.run_directory import RunDirectory, list_runs
from gpu_probe.smoke import SmokeResult
from store.collect import Collector
from store.queries import run_query
from store.telling import tell
from store.why import why

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BLOCK = 32
"""The least that vLLM's CPU attention takes."""
_HOST = {"cpu_bytes_to_use": 64 << 20, "spec_name": "HostSpec", "spec_module_path": "host_offload"}
HOST_CACHE = KVTransferConfig(kv_connector="OffloadingConnector", kv_role="kv_both", kv_connector_extra_config=_HOST)


@pytest.fixture(autouse=True)
def _taken_out() -> Iterator[None]:
    yield
    install.uninstall()


@contextlib.contextmanager
def engine(model: Path, *, on: bool, **arguments: Any) -> Iterator[LLM]:
    """An engine, with the plug-in or without it."""
    if on:
        install.install()
    chosen = {
        "model": str(model), "max_model_len": 1024, "max_num_batched_tokens": 256, "max_num_seqs": 6,
        "enforce_eager": True, "block_size": BLOCK, "num_gpu_blocks_override": 120, "seed": 0,
        "disable_log_stats": False,
    }  # fmt: skip
    made = LLM(**(chosen | arguments))
    try:
        yield made
    finally:
        made.llm_engine.engine_core.shutdown()
        del made
        gc.collect()
        install.uninstall()


def traffic(count: int = 30) -> list[TokensPrompt]:
    """Prompts of which many share a beginning, some longer than one step computes."""
    return [TokensPrompt(prompt_token_ids=prompt) for prompt in bare.prompts(count, BLOCK)]


def serve(llm: LLM, prompts: list[TokensPrompt], output: int = 12) -> list[Any]:
    """What the engine answers, greedily."""
    return llm.generate(prompts, SamplingParams(temperature=0, max_tokens=output, ignore_eos=True), use_tqdm=False)


def answers(outputs: list[Any]) -> list[list[int]]:
    """The tokens answered."""
    return [list(each.outputs[0].token_ids) for each in outputs]


def counted(llm: LLM, name: str) -> int:
    """The sum of one of the engine's own counters."""
    return int(sum(metric.value for metric in llm.get_metrics() if metric.name == name))


def stored(home: Path) -> tuple[RunDirectory, Path]:
    """The one run there is, taken into a database."""
    (listed,) = list_runs(home / "runs")
    database = home / "test.db"
    with Collector(listed.run, database) as collector:
        while collector.poll():
            pass
    return listed.run, database


def rows(database: Path, sql: str) -> list[dict[str, Any]]:
    """The rows of a query."""
    return run_query(database, sql, limit=10_000).as_dicts()


def test_the_answers_are_the_same_and_every_request_adds_up(glassgate, tiny_model, home):
    """On and off the engine answers alike; the record's requests, tokens and hits are the engine's own counts."""
    with engine(tiny_model, on=False) as llm:
        off = serve(llm, traffic())
    glassgate()
    with engine(tiny_model, on=True) as llm:
        on = serve(llm, traffic())
        prompt_tokens = counted(llm, "vllm:prompt_tokens")
        generated = counted(llm, "vllm:generation_tokens")
        hits = counted(llm, "vllm:prefix_cache_hits")
        served = counted(llm, "vllm:request_success")
    assert answers(on) == answers(off)
    assert [each.num_cached_tokens for each in on] == [each.num_cached_tokens for each in off]
    run, database = stored(home)
    assert run.info.end_reason == "finished"
    (whole,) = rows(
        database,
        "SELECT count(*) AS requests, sum(ended = 'finish') AS finished, sum(prompt_tokens) AS prompts, "
        "sum(generated_tokens) AS generated, sum(device_hit_tokens) AS hits, sum(first_token_ns IS NULL) AS silent "
        "FROM requests",
    )
    assert whole == {
        "requests": 30, "finished": served, "prompts": prompt_tokens, "generated": generated, "hits": hits, "silent": 0,
    }  # fmt: skip
    assert hits > 0
    by_request = {row["id"]: row for row in rows(database, "SELECT id, device_hit_tokens FROM requests")}
    for each in on:
        assert by_request[each.request_id]["device_hit_tokens"] == each.num_cached_tokens
    # Each prompt's chunks and hits make it up, token by token.
    computed = rows(
        database,
        "SELECT request_id, sum(extend_tokens) + max(device_hit_tokens) AS tokens, count(*) AS chunks, "
        "max(prompt_tokens) AS prompt FROM members GROUP BY request_id",
    )
    assert all(row["tokens"] == row["prompt"] for row in computed)
    assert max(row["chunks"] for row in computed) > 1
    assert rows(database, "SELECT * FROM alarms") == []
    assert rows(database, "SELECT * FROM losses") == []
    bad = "SELECT number FROM v_passes WHERE queue <> not_reached + "
    looked = "(SELECT count(*) FROM decisions d WHERE d.run = v_passes.run AND d.pass = number AND d.done_tokens = 0)"
    assert rows(database, bad + looked) == []


def test_each_gate_that_binds_is_named_in_the_store(glassgate, tiny_model, home):
    """Under limits that bind every gate stands in the store with what it saw and its limit, and `why` tells it."""
    glassgate(max_requests=2, max_extend_tokens=400, max_cached_tokens=96, max_buffer_bytes=500_000)
    with engine(tiny_model, on=True, num_gpu_blocks_override=60, max_num_batched_tokens=512) as llm:
        outputs = serve(llm, traffic(60))
    assert len(outputs) == 60
    _, database = stored(home)
    found = {
        row["gate"]: row
        for row in rows(
            database,
            "SELECT gate, min(observed) AS least, max(limit_value) AS most, count(*) AS times FROM v_decisions "
            "WHERE outcome = 'wait' AND reason = 'limit' GROUP BY gate",
        )
    }
    limits = {"request_count": 2, "extend_tokens": 400, "cached_tokens": 96, "buffer_bytes": 500_000}
    assert {gate: row["most"] for gate, row in found.items()} == limits
    assert all(row["least"] > limits[gate] for gate, row in found.items())
    stops = {(row["gate"], row["reason"]) for row in run_query(database, "stops").as_dicts()}
    assert {("request_slots", "slots"), *((gate, "limit") for gate in limits)} <= stops
    waited = rows(
        database, "SELECT request_id FROM v_decisions WHERE gate = 'extend_tokens' AND outcome = 'wait' LIMIT 1"
    )[0]["request_id"]
    told = "\n".join(tell(why(database, waited)))
    assert "behind extend_tokens" in told
    assert "entered pass" in told
    assert "first token" in told


def test_a_host_hit_is_loaded_and_the_answer_is_the_same(glassgate, tiny_model, home):
    """A prefix that was evicted comes back from the host: asked, loaded, used, and told; the answers do not change."""
    prompts = [TokensPrompt(prompt_token_ids=bare.tokens(400, 50 + number)) for number in range(6)]
    with engine(tiny_model, on=False, num_gpu_blocks_override=40) as llm:
        plain = [answers(serve(llm, [prompt], 4)) for prompt in prompts]
    glassgate()
    with engine(tiny_model, on=True, num_gpu_blocks_override=40, kv_transfer_config=HOST_CACHE) as llm:
        first = [answers(serve(llm, [prompt], 4)) for prompt in prompts]
        again = [answers(serve(llm, [prompt], 4)) for prompt in prompts]
        at_once = answers(serve(llm, prompts, 4))
        loaded_by_engine = counted(llm, "vllm:external_prefix_cache_hits")
    assert first == again == plain
    assert [[each] for each in at_once] == plain
    _, database = stored(home)
    loads = rows(database, "SELECT count(*) AS loads, sum(tokens) AS tokens FROM loads")[0]
    used = rows(database, "SELECT sum(host_loaded_tokens) AS used FROM requests")[0]["used"]
    assert used == loads["tokens"] == loaded_by_engine
    assert loads["loads"] >= 6
    held = {row["stop"] for row in rows(database, "SELECT gate || '/' || reason AS stop FROM v_decisions")}
    assert {"load_back/loading", "kv_capacity/pool"} <= held
    # Six hits at once are more than the pool has room for.
    skips = rows(
        database,
        "SELECT host_hit, matched_tokens FROM v_decisions WHERE host_status = 'skipped' AND matched_tokens > 0",
    )
    assert {row["host_hit"] for row in skips} == {"allocator"}
    assert rows(database, "SELECT * FROM alarms") == []


def test_a_host_hit_below_the_threshold_is_not_loaded(glassgate, tiny_model, home):
    """A hit shorter than load_back_threshold is computed again, with the cause and the tokens in the store."""
    glassgate(load_back_threshold=385)
    prompts = [TokensPrompt(prompt_token_ids=bare.tokens(400, 50 + number)) for number in range(6)]
    with engine(tiny_model, on=True, num_gpu_blocks_override=40, kv_transfer_config=HOST_CACHE) as llm:
        first = [answers(serve(llm, [prompt], 4)) for prompt in prompts]
        again = [answers(serve(llm, [prompt], 4)) for prompt in prompts]
    assert first == again
    _, database = stored(home)
    assert rows(database, "SELECT * FROM loads") == []
    (skipped,) = run_query(database, "host-hit-skips").as_dicts()
    assert skipped["reason"] == "below_threshold"
    told = rows(
        database,
        "SELECT outcome, matched_tokens, device_hit_tokens, extend_tokens FROM v_decisions "
        "WHERE host_hit = 'below_threshold' LIMIT 1",
    )
    assert told[0]["matched_tokens"] + told[0]["device_hit_tokens"] == 384


@pytest.mark.parametrize("named", ["GlassgateScheduler", "GlassgateAsyncScheduler"])
def test_the_class_can_be_named_to_the_engine(glassgate, tiny_model, home, named):
    """`--scheduler-cls` takes our classes without the plug-in being switched on, and the run is recorded."""
    glassgate()
    with engine(tiny_model, on=False, scheduler_cls=f"controller.engines.vllm.scheduler.{named}") as llm:
        assert len(serve(llm, traffic(3))) == 3
    _, database = stored(home)
    assert rows(database, "SELECT count(*) AS served FROM requests WHERE ended = 'finish'") == [{"served": 3}]


def test_smoke_is_made_by_the_workers_and_recorded(glassgate, tiny_model, home, monkeypatch):
    """What max_buffer_bytes allows is allocated once the engine stands; it and the watch have one estimator."""
    made = []
    monkeypatch.setattr(settings, "estimate_of", lambda *each: made.append(each) or estimate_of(*each))
    glassgate(max_buffer_bytes=24 << 20, smoke="require")
    with engine(tiny_model, on=True):
        pass
    assert len(made) == 1
    _, database = stored(home)
    (found,) = rows(database, "SELECT device, asked_bytes, passed, why FROM smoke")
    assert found == {"device": "cpu", "asked_bytes": 24 << 20, "passed": 1, "why": ""}


def test_the_schedulers_process_makes_no_smoke_allocation(glassgate, tiny_model, home, monkeypatch):
    """Workers that are processes of their own make the allocation; one made here would fail."""
    monkeypatch.setattr(smoke, "smoke", _does_not_fit)
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # so that the workers know nothing of that stand-in
    glassgate(max_buffer_bytes=24 << 20)
    with engine(tiny_model, on=True, distributed_executor_backend="mp"):
        pass
    _, database = stored(home)
    assert rows(database, "SELECT passed, why FROM smoke") == [{"passed": 1, "why": ""}]


@pytest.mark.parametrize("wanted", ["warn", "require"])
def test_a_smoke_allocation_that_fails(glassgate, tiny_model, home, monkeypatch, wanted):
    """With require the start is refused in words to act on; with warn the engine serves, and it is recorded."""
    monkeypatch.setattr(smoke, "smoke", _does_not_fit)
    glassgate(max_buffer_bytes=24 << 20, smoke=wanted)
    if wanted == "require":
        with pytest.raises(SystemExit, match=r"start is refused.*worker 0: no room; set --max-buffer-bytes 7 or less"):
            _start(tiny_model)
        assert not (home / "runs").exists()
        return
    with engine(tiny_model, on=True) as llm:
        assert len(serve(llm, traffic(2))) == 2
    _, database = stored(home)
    assert rows(database, "SELECT passed, why FROM smoke") == [
        {"passed": 0, "why": "no room; set --max-buffer-bytes 7 or less"}
    ]


def _start(model: Path) -> None:
    with engine(model, on=True):
        pass


def _does_not_fit(device: str, asked: int, pieces: Callable[..., Any] | None) -> SmokeResult:
    """A smoke allocation that found no room."""
    del pieces
    return SmokeResult(
        at_ns=1, device=device, name="", asked=asked, pieces=1, requested=0, allocated=0, reserved=0, peak=0,
        free_before=7, free_after=7, total=7, keep_free=0, largest=7, trials=1, took_ns=1, passed=False,
        why="no room; set --max-buffer-bytes 7 or less",
    )  # fmt: skip
