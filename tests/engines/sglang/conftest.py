"""The real classes of SGLang without a server: its trees, allocators and requests, on a CPU."""

import logging
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
sys.path[:0] = [str(HERE.parents[1] / "controller" / "golden"), str(HERE)]

HOST_CACHE = {
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
    with get_context().override_server_args(enable_hierarchical_cache=True, **HOST_CACHE) as published:
        yield published
