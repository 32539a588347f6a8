"""Schedulers, records and engines of vLLM for the tests in this folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

# Before vLLM is imported: one process, nothing fetched, no reports sent.
os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_NO_USAGE_STATS="1",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    HF_HUB_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false",
)
os.environ.setdefault("OMP_NUM_THREADS", "1")
for name in [each for each in os.environ if each.startswith("GLASSGATE")]:
    del os.environ[name]

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

import bare  # noqa: E402 - the environment comes first
import reading  # noqa: E402 - the environment comes first

from controller.engines.vllm import start  # noqa: E402 - the environment comes first
from controller.engines.vllm.scheduler import GlassgateScheduler, with_glassgate  # noqa: E402 - the environment comes first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def glassgate(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Settings of Glassgate for what this test starts in its own process; without a collector."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLASSGATE_HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("GLASSGATE_COLLECTOR", "off")
    monkeypatch.setattr(start, "FAULTS", start.Faults("vLLM"))

    def set_to(**knobs: Any) -> None:
        for knob, value in knobs.items():
            monkeypatch.setenv(f"GLASSGATE_{knob.upper()}", str(value))

    return set_to


@pytest.fixture
def scene(glassgate: Callable[..., None], tiny_model: Path) -> Iterator[Callable[..., tuple[Any, reading.Record]]]:
    """A watched scheduler of the real class and its record: `scene(blocks, knobs, stock=..., **engine arguments)`."""
    made: list[Any] = []

    def make(
        blocks: int = 1000, knobs: dict[str, Any] | None = None, *, stock: type | None = None, **arguments: Any
    ) -> tuple[Any, reading.Record]:
        glassgate(**(knobs or {}))
        chosen = GlassgateScheduler if stock is None else with_glassgate(stock)
        scheduler = bare.build(chosen, bare.configure(str(tiny_model), **arguments), blocks)
        made.append(scheduler)
        return scheduler, reading.Record(scheduler)

    yield make
    for scheduler in made:
        scheduler.shutdown()
