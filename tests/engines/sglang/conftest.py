"""SGLang for the tests in this folder: its real classes without a server, and real servers, on a CPU."""

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from glassgate_sglang_cpu.host import register
from sglang.srt.runtime_context import get_context

HERE = Path(__file__).parent
# sglang_pass, make_sglang_golden; and what stands beside the tests
sys.path[:0] = [str(HERE.parents[1] / "controller" / "golden"), str(HERE.parent / "support"), str(HERE)]

from serving import HOST_CACHE, Server, answers_to_reference  # noqa: E402 - the folder comes first

BARE_HOST_CACHE = {
    "hicache_ratio": 2.0,
    "hicache_io_backend": "direct",
    "hicache_mem_layout": "layer_first",
    "hicache_write_policy": "write_through",
}


@pytest.fixture(scope="session")
def server_args() -> Iterator[Any]:
    """The engine's settings as its own unit tests publish them, with a host cache on plain memory."""
    logging.getLogger("sglang").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    register()
    with get_context().override_server_args(enable_hierarchical_cache=True, **BARE_HOST_CACHE) as published:
        yield published


def server_environment(folder: Path, **glassgate: str) -> dict[str, str]:
    """The environment of a server: nothing of Glassgate from outside but what is given, one thread, nothing fetched."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("GLASSGATE", "OTEL_", "SGLANG"))}
    return {
        **bare,
        "GLASSGATE_HOME": str(folder / "home"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **{f"GLASSGATE{'_' + name.upper() if name != 'on' else ''}": value for name, value in glassgate.items()},
    }


@pytest.fixture(scope="session")
def stock_answers(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """What the engine answers to the reference traffic without Glassgate."""
    folder = tmp_path_factory.mktemp("stock")
    with Server(tiny_model, folder, server_environment(folder), *HOST_CACHE) as server:
        return answers_to_reference(server)


@pytest.fixture(scope="session")
def engine(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with Glassgate in force, shared by the tests of a session; each leaves its knobs off."""
    folder = tmp_path_factory.mktemp("engine")
    environment = server_environment(folder, on="1", can_never="on")
    with Server(tiny_model, folder, environment, *HOST_CACHE) as server:
        yield server
