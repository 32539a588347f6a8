"""A real server under Glassgate: answers, gates, host hits, knobs, and what survives its death."""

from __future__ import annotations

import functools
import os
import signal
import urllib.error
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from serving import CHUNK, PAGE, POOL, SLOTS, answers_to_reference, reference, tokens

from controller.records import PrefixHashes

if TYPE_CHECKING:
    from serving import Server

TOLD = """SELECT d.outcome, g.gate, r.reason, d.observed, d.limit_value, d.short_by, q.id, d.pass FROM decisions d
JOIN requests q ON q.run = d.run AND q.number = d.request LEFT JOIN gates g ON g.id = d.gate
LEFT JOIN reasons r ON r.id = d.reason WHERE q.id LIKE ? ORDER BY d.pass, d.position"""


def told(engine: Server, names: str, gate: str) -> list[tuple[Any, ...]]:
    """(reason, observed, limit, short by, request, pass) of each time a gate told requests of such names to wait."""
    return [row[2:] for row in engine.ask(TOLD, names) if row[:2] == (3, gate)]


def closed(engine: Server, names: str, gate: str) -> int:
    """How many looks at requests of such names were in passes that a gate closed."""
    found = engine.ask(
        """SELECT count(*) FROM passes p JOIN gates g ON g.id = p.closed_gate JOIN decisions d ON d.run = p.run
        AND d.pass = p.number JOIN requests q ON q.run = d.run AND q.number = d.request
        WHERE g.gate = ? AND q.id LIKE ?""",
        gate, names,
    )  # fmt: skip
    return int(found[0][0])


def all_finished(engine: Server, names: str, count: int) -> bool:
    """Whether the store has so many finished requests of such names."""
    found = engine.ask("SELECT count(*) FROM requests WHERE id LIKE ? AND ended = 'finish'", names)
    return bool(found[0][0] == count)


def burst(name: str, count: int, prompt: int, output: int = 4, shared: int = 0) -> list[tuple[str, list[int], int]]:
    """Requests that begin alike in `shared` tokens."""
    head = tokens(shared, zlib.crc32(name.encode()))
    return [
        (f"{name}-{place}", head + tokens(prompt, 7919 * place + zlib.crc32(name.encode())), output)
        for place in range(count)
    ]


def test_answers_are_those_of_the_engine_alone(engine, stock_answers):
    """Greedy answers to traffic with shared prefixes are the same with Glassgate in force as without it."""
    assert all(len(answer) == 8 for answer in stock_answers.values())
    assert answers_to_reference(engine) == stock_answers
    assert engine.status.in_force
    assert engine.status.replaced == ("sglang.srt.managers.schedule_policy.PrefillAdder",)


def test_requests_add_up_with_the_engines_own_metrics(engine):
    """Requests, prompt tokens, generated tokens and cached tokens in the store are what /metrics counts."""
    engine.until(lambda: all_finished(engine, "ref-%", len(reference())), "the end of the reference traffic")
    served = "SELECT count(*), sum(prompt_tokens), sum(generated_tokens) FROM requests WHERE id NOT LIKE 'HEALTH%'"
    ((requests, prompts, generated),) = engine.ask(served)
    assert requests == engine.metric("sglang:num_requests_total")
    assert prompts == engine.metric("sglang:prompt_tokens_total")
    assert generated == engine.metric("sglang:generation_tokens_total")
    ((cached,),) = engine.ask("SELECT sum(device_hit_tokens + host_loaded_tokens) FROM requests")
    assert cached == engine.metric("sglang:cached_tokens_total")


def test_counts_of_every_pass_add_up(engine):
    """Admitted, waiting, refused and not reached are the queue that a pass began with."""
    wrong = """SELECT p.number, p.queue, p.not_reached, count(d.request) FROM passes p LEFT JOIN decisions d
        ON d.run = p.run AND d.pass = p.number AND d.done_tokens = 0 AND d.outcome <> 2
        GROUP BY p.run, p.number HAVING p.queue <> p.not_reached + count(d.request)"""
    assert engine.ask("SELECT count(*) FROM passes")[0][0] > 20
    assert engine.ask(wrong) == []


def test_a_prompt_longer_than_a_chunk_is_named_with_what_cut_it(engine):
    """A prompt is cut by chunk_tokens, with the chunk as the limit, and goes on with its done tokens recorded."""
    engine.generate("long-0", tokens(1200, 9001), 4)
    engine.until(lambda: all_finished(engine, "long-%", 1), "the long request")
    rows = engine.ask(
        """SELECT d.outcome, g.gate, d.observed, d.limit_value, d.done_tokens, d.extend_tokens FROM decisions d
        JOIN requests q ON q.run = d.run AND q.number = d.request LEFT JOIN gates g ON g.id = d.gate
        WHERE q.id = 'long-0' ORDER BY d.pass"""
    )
    assert [(row[0], row[4], row[5]) for row in rows] == [(1, 0, CHUNK), (1, CHUNK, CHUNK), (0, 2 * CHUNK, 176)]
    assert rows[0][1:4] == ("chunk_tokens", 1200, CHUNK)
    ((number,),) = engine.ask("SELECT number FROM requests WHERE id = 'long-0'")
    hashes = engine.until(
        lambda: [each for each in engine.records(PrefixHashes) if each.number == number], "the hashes"
    )
    assert len(hashes[0].hashes) == 1200 // 512


@pytest.mark.parametrize(
    ("name", "knobs", "shape", "gate", "limit"),
    [
        ("count", {"max_requests": 2}, {"prompt": 40}, "request_count", 2),
        ("extend", {"max_extend_tokens": 160}, {"prompt": 90}, "extend_tokens", 160),
        ("cached", {"max_cached_tokens": 300}, {"prompt": 20, "shared": 256}, "cached_tokens", 300),
        ("buffer", {"max_buffer_bytes": 500_000}, {"prompt": 90, "count": 8}, "buffer_bytes", 500_000),
        ("input", {"max_prefill_tokens": 64}, {"prompt": 90}, "input_tokens", 64),
        ("chunk", {"chunked_prefill_size": 128}, {"prompt": 64}, "chunk_tokens", 128),
    ],
    ids=lambda value: value if isinstance(value, str) and "_" in value else "",
)
def test_each_limit_binds_and_is_named(engine, name, knobs, shape, gate, limit):
    """A limit turned on a live engine tells requests to wait, or closes passes, with its number; all are served."""
    engine.set_knobs(**knobs)
    sent = 0
    for turn in range(5):  # to bind it wants them in the queue together, which is a matter of the machine's luck
        requests = burst(f"{name}-{turn}", **{"count": 6, **shape})
        if "shared" in shape:
            engine.generate(f"warm-{turn}", [*requests[0][1][: shape["shared"]], 5], 2)
        assert len(engine.behind_a_plug(requests)) == len(requests)
        sent += len(requests)
        engine.until(functools.partial(all_finished, engine, f"{name}-%", sent), "the end of the burst")
        if closed(engine, f"{name}-%", gate):
            break
    engine.set_knobs(
        **{knob: {"max_prefill_tokens": 1024, "chunked_prefill_size": CHUNK}.get(knob, "off") for knob in knobs}
    )
    found = told(engine, f"{name}-%", gate)
    assert closed(engine, f"{name}-%", gate)
    if gate not in ("input_tokens", "chunk_tokens"):  # those close a pass once they are spent, before the next is tried
        assert found
    for _, observed, seen, short_by, *_ in found:
        assert seen == limit
        assert observed > limit or gate == "input_tokens"
        assert short_by >= observed - limit
    if name == "count":
        assert {row[1] for row in found} == {3}


def test_too_little_room_is_told_with_the_pools_numbers(engine):
    """A request for which the pool has no room waits at kv_capacity, with what it needs and what there is."""
    requests = burst("room", 6, 400, output=700)
    engine.burst(requests)
    engine.until(lambda: all_finished(engine, "room-%", 6), "the end of the burst")
    found = told(engine, "room-%", "kv_capacity")
    assert found
    for reason, observed, limit, short_by, _, _ in found:
        assert reason == "pool"
        assert 0 < observed < POOL
        assert short_by == observed - limit + 1 > 0
        # prompt, output and one page, less what of the prompt is cached in whole pages
        assert (400 + 700 + PAGE - observed) % PAGE == 0 or observed < 400 + 700 + PAGE


def test_taken_slots_are_told_and_so_is_the_engines_mark(engine):
    """With all request slots taken, the next in the queue waits at request_slots, then at the engine's own mark."""
    requests = burst("slots", 3 * SLOTS, 16, output=60)
    engine.burst(requests)
    engine.until(lambda: all_finished(engine, "slots-%", len(requests)), "the end of the burst")
    assert {row[1:4] for row in told(engine, "slots-%", "request_slots")} == {(SLOTS + 1, SLOTS, 1)}
    assert {row[:4] for row in told(engine, "slots-%", "batch_full")} == {("slots", SLOTS + 1, SLOTS, 1)}


def test_what_can_never_fit_is_refused_with_a_clear_word_and_the_queue_goes_on(engine):
    """A request that the empty pool could not hold is an error of the client's, told in numbers; others are served.

    The engine lets it into its queue, where it would wait for ever and everybody behind it too.
    """
    never = ("never-0", tokens(POOL - 11, 77), 4)
    others = burst("behind", 3, 40)
    found = engine.burst([never, *others])
    assert all("output_ids" in found[name] for name, _, _ in others)
    error = found["never-0"]["error"]
    assert isinstance(error, urllib.error.HTTPError)
    assert error.code == 400
    message = error.read().decode()
    assert "can never be served" in message
    assert f"holds {POOL}" in message
    engine.until(
        lambda: engine.ask("SELECT 1 FROM requests WHERE id = 'never-0' AND ended = 'can_never'"), "the refusal"
    )
    assert "it can never fit" in engine.glassgate("why", "never-0")


def test_a_host_hit_is_loaded_and_one_is_skipped_with_its_cause(engine):
    """What was pushed out to the host is loaded again, with its tokens; one too short is named, and computed again."""
    kept = tokens(640, 4242)
    engine.generate("host-0", [*kept, 9], 2)
    push_out(engine, "first")
    engine.generate("host-1", [*kept, 10, 11], 2)
    engine.set_knobs(load_back_threshold=4000)
    push_out(engine, "second")
    engine.generate("host-2", [*kept, 12, 13], 2)
    engine.set_knobs(load_back_threshold=10)
    engine.until(lambda: all_finished(engine, "host-%", 3), "the requests")
    rows = engine.ask(
        """SELECT q.id, h.host_hit, d.matched_tokens, d.asked_tokens, d.device_hit_tokens, d.extend_tokens
        FROM decisions d JOIN requests q ON q.run = d.run AND q.number = d.request JOIN host_hits h ON h.id = d.host_hit
        WHERE q.id LIKE 'host-%' AND d.outcome IN (0, 1) AND d.done_tokens = 0 ORDER BY q.id"""
    )
    first, loaded, skipped = rows
    assert first[1] == "none_resident"
    assert loaded[1] == "loaded"
    assert loaded[2] == loaded[3] > 0
    assert loaded[4] + loaded[3] + loaded[5] == 642
    assert skipped[1] == "below_threshold"
    assert skipped[2] > 0
    landed = engine.until(
        lambda: engine.ask(
            "SELECT l.tokens FROM loads l JOIN requests q ON q.number = l.request WHERE q.id = 'host-1'"
        ),
        "the end of the load",
    )
    assert landed == [(loaded[3],)]
    assert "loaded from the host" in engine.glassgate("why", "host-1")
    assert "was not loaded (below_threshold)" in engine.glassgate("why", "host-2")


def push_out(engine: Server, name: str) -> None:
    """Fill the device's pool with other prompts, until nothing of before is left there."""
    for place in range(2 * POOL // 1000 + 1):
        engine.generate(f"push-{name}-{place}", tokens(1000, zlib.crc32(name.encode()) + place), 2)


def test_a_live_change_is_recorded_and_a_bad_one_refused_with_its_reason(engine):
    """Old and new value, who asked and the revision are recorded; a bad one is refused, and serving goes on."""
    ((before,),) = engine.ask("SELECT max(revision) FROM knob_changes WHERE accepted")
    engine.glassgate("knobs", "set", "--who", "night shift", "max_requests=3")
    row = engine.ask(
        "SELECT who, revision, old, new FROM knob_changes WHERE knob = 'max_requests' AND accepted ORDER BY rowid DESC"
    )[0]
    assert row == ("night shift", before + 1, None, 3)
    refused = engine.glassgate("knobs", "set", "chunked_prefill_size=100_000", code=3)
    assert "started with 512" in refused
    assert "--chunked-prefill-size" in refused
    assert engine.post("/set_internal_state", {"server_args": {"glassgate_no_such": 1}}) == [False]
    engine.set_knobs(max_requests="off")
    whys = [why for (why,) in engine.ask("SELECT why FROM knob_changes WHERE NOT accepted ORDER BY rowid")]
    assert any("started with 512" in why for why in whys)
    assert any("glassgate_no_such" in why for why in whys)
    assert engine.generate("after-knobs", tokens(30, 5), 4)["output_ids"]


def test_the_engines_own_numbers_still_reach_it(engine):
    """A broadcast of the engine's own keys is its own, also beside Glassgate's; an unknown key of its is its error."""
    assert engine.post("/set_internal_state", {"server_args": {"pp_max_micro_batch_size": SLOTS}}) == [True]
    assert engine.post("/set_internal_state", {"server_args": {"no_such_key": 1}}) == [False]


def test_a_killed_collector_that_is_started_again_goes_on(engine):
    """With the collector killed the engine serves on, and a new one brings the store up to the last request."""
    pid = engine.status.collector_pid
    os.kill(pid, signal.SIGKILL)
    engine.until(lambda: engine.run.state == "collector_gone", "the end of the collector")
    engine.generate("uncollected-0", tokens(50, 6), 4)
    assert not all_finished(engine, "uncollected-%", 1)
    engine.start_collector()
    engine.until(lambda: all_finished(engine, "uncollected-%", 1), "the request of between")
    ((missing,),) = engine.ask(
        "SELECT count(*) FROM passes p WHERE p.number > 1 AND p.number - 1 > (SELECT max("
        "coalesce(t.last_pass, b.number)) FROM passes b LEFT JOIN repeats t ON t.run = b.run "
        "AND t.first_pass = b.number WHERE b.number < p.number)"
    )
    assert missing == 0


def test_a_killed_engine_leaves_a_record_that_can_be_read_to_the_last_pass(engine):
    """After kill -9 in the middle of traffic, why tells of a request in the last pass, and the engine shows as gone."""
    with engine.load() as answers:
        engine.until(lambda: len(answers) > 16, "traffic")
        engine.kill_scheduler()
        engine.until(lambda: engine.run.state == "engine_gone", "the engine's end")
    last = engine.journal_end()
    engine.until(lambda: engine.ask("SELECT 1 FROM passes WHERE number = ?", last.number), "the last pass")
    request = engine.ask(
        "SELECT q.id FROM decisions d JOIN requests q ON q.run = d.run AND q.number = d.request WHERE d.pass = ?",
        last.number,
    )[0][0]
    said = engine.glassgate("why", request)
    assert f"request {request} of run" in said
