"""Where a scheduler stands among those of its engine, and how it is put under watch, without a server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from controller.engines.plugin import Faults
from controller.engines.sglang import start

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE, THERE = "here", "there"


def place(monkeypatch: pytest.MonkeyPatch, hosts: Sequence[str], rank: int, **parallel: int) -> start.Place:
    """The place of one rank of a world that spans these hosts."""
    sizes = dict.fromkeys(("attn_tp_size", "attn_cp_size", "pp_size"), 1)
    ranks = dict.fromkeys(("attn_dp_rank", "dp_rank", "pp_rank", "attn_tp_rank", "attn_cp_rank"), 0)
    attention_dp = bool(parallel.pop("attention_dp", False))
    first = int(parallel.get("dp_rank", 0)) * len(hosts) if not attention_dp else 0
    world = SimpleNamespace(
        rank_in_group=rank, world_size=len(hosts),
        all_gather_object=lambda mine: [
            mine if each == rank else (host, first + each, f"run-{each}") for each, host in enumerate(hosts)
        ],
    )  # fmt: skip
    monkeypatch.setattr(start, "get_parallel", lambda: SimpleNamespace(**{**sizes, **ranks, **parallel}))
    monkeypatch.setattr(start.socket, "gethostname", lambda: hosts[rank])
    monkeypatch.setattr(start, "shared_run_id", lambda: f"run-{rank}")
    return start._place(SimpleNamespace(world_group=world, attn_dp_enabled=attention_dp))


@pytest.mark.parametrize(
    ("hosts", "rank", "parallel", "told"),
    [
        # rank, group, ranks of the group, leads, first rank here, run
        ((HERE,), 0, {}, (0, "dp0", 1, True, 0, "run-0")),
        ((HERE, HERE), 1, {"attn_tp_size": 2, "attn_tp_rank": 1}, (1, "dp0", 2, False, 0, "run-0")),
        ((HERE, THERE), 1, {"attn_cp_size": 2, "attn_cp_rank": 1}, (1, "dp0", 2, False, 1, "run-0")),
        ((HERE, HERE), 1, {"attention_dp": 1, "attn_dp_rank": 1}, (1, "dp1", 1, True, 0, "run-0")),
        ((HERE, HERE), 0, {"dp_rank": 1, "attn_tp_size": 2}, (2, "dp1", 2, True, 0, "run-0")),
        ((HERE, HERE), 1, {"pp_size": 2, "pp_rank": 1}, (1, "dp0.pp1", 1, False, 0, "run-0")),
    ],
    ids=["alone", "tensor", "context on two machines", "data with attention", "data, a replica", "pipeline"],
)
def test_ranks_that_decide_alike_share_a_group_and_its_first_one_leads(monkeypatch, hosts, rank, parallel, told):
    """Tensor and context ranks are one group, data-parallel ones each their own; every machine has a first rank."""
    assert place(monkeypatch, hosts, rank, **parallel) == told


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"host": "127.0.0.1"}, "http://127.0.0.1:30000/set_internal_state"),
        ({"host": "0.0.0.0"}, "http://127.0.0.1:30000/set_internal_state"),  # noqa: S104 - what an operator gives
        ({"host": "::"}, "http://[::1]:30000/set_internal_state"),
        ({"host": "fd00::7"}, "http://[fd00::7]:30000/set_internal_state"),
        ({"host": "node-1", "ssl_certfile": "cert.pem"}, "https://node-1:30000/set_internal_state"),
    ],
)
def test_the_way_to_the_engines_own_endpoint(given, url):
    """Wherever the server listens, the collector on this machine has an address at which it is reached."""
    args = {"port": 30_000, "ssl_certfile": None, "admin_api_key": None, "api_key": None}
    way = start._way(SimpleNamespace(**args | given))
    assert (way.url, way.wrap, way.needs_key) == (url, "server_args", False)
    assert start._way(SimpleNamespace(**args | given | {"api_key": "of the test"})).needs_key


class Other:
    """A class that another plug-in has put in the adder's place."""


@pytest.mark.parametrize(
    ("scheduler", "words"),
    [
        ({"get_prefill_adder_class": lambda: Other}, "another plug-in has put"),
        ({"get_prefill_adder_class": lambda: start.PrefillAdder, "dllm_config": object()}, "diffusion model"),
    ],
)
def test_what_it_does_not_know_it_leaves_alone_and_says_so(monkeypatch, caplog, scheduler: dict[str, Any], words):
    """Beside another plug-in's adder, or another loop, the engine serves as it is, and the log says why."""
    monkeypatch.setattr(start, "FAULTS", Faults("SGLang"))
    assert start.begin_watch(SimpleNamespace(**scheduler)) is None
    assert words in caplog.text
    assert start.FAULTS.count("sglang.start") == 1
