"""Settings beside the real engine: its own flags are aliases, the operator's win, and what cannot be is refused."""

from __future__ import annotations

import json
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from sglang.srt.runtime_context import get_context

from controller.engines.sglang.settings import engine_settings
from estimator.errors import InputError, KnobError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of Glassgate is set here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def scheduler(server_args: Any, tiny_model: Path) -> Any:
    """As much of a scheduler as its settings are read from, under `--chunked-prefill-size 512` and so on."""
    config = json.loads((tiny_model / "config.json").read_text())
    return SimpleNamespace(
        chunked_prefill_size=512, max_prefill_tokens=1024, page_size=16, kv_shard_widening=1, max_running_requests=8,
        enable_overlap=True, tree_cache=SimpleNamespace(load_back_threshold=10), server_args=server_args,
        token_to_kv_pool_allocator=SimpleNamespace(size=4096),
        model_config=SimpleNamespace(hf_text_config=SimpleNamespace(to_dict=lambda: config)),
    )  # fmt: skip


@contextmanager
def flags(**given: Any) -> Iterator[None]:
    """The engine's own flags, as it publishes them."""
    with get_context().override_server_args(**given):
        yield


def test_the_engines_flags_are_the_knobs_of_the_same_meaning(scheduler):
    """Page, chunk, input budget, request cap and load-back threshold are the engine's until somebody sets them."""
    with flags(prefill_max_requests=3):
        found = engine_settings(scheduler)
    knobs, sources = found.settings.knobs, found.settings.sources
    assert (knobs.page_size, knobs.chunked_prefill_size, knobs.max_prefill_tokens) == (16, 512, 1024)
    assert (knobs.max_requests, knobs.load_back_threshold) == (3, 10)
    assert sources["max_requests"] == "--prefill-max-requests"
    assert sources["chunked_prefill_size"] == "--chunked-prefill-size"
    assert found.setting.slots == 8
    assert found.estimate.estimator is not None
    assert engine_settings(scheduler).settings.knobs.max_requests is None


def test_environment_and_file_win_over_the_engines_flags(scheduler, monkeypatch, tmp_path):
    """A variable wins over the TOML file, the file over the flag; the engine's own limits stay what they are."""
    (tmp_path / "gate.toml").write_text("max_requests = 5\nmax_extend_tokens = 256\nchunked_prefill_size = 128\n")
    monkeypatch.setenv("GLASSGATE_CONFIG", str(tmp_path / "gate.toml"))
    monkeypatch.setenv("GLASSGATE_CHUNKED_PREFILL_SIZE", "256")
    with flags(prefill_max_requests=3):
        found = engine_settings(scheduler)
    knobs = found.settings.knobs
    assert (knobs.max_requests, knobs.max_extend_tokens, knobs.chunked_prefill_size) == (5, 256, 256)
    assert found.own == (512, 1024)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("page_size", "64", ("page_size is '64' in GLASSGATE_PAGE_SIZE", "runs with 16", "--page-size 64")),
        (
            "chunked_prefill_size",
            "4096",
            ("chunked_prefill_size is 4096", "started with 512", "--chunked-prefill-size"),
        ),
        ("chunked_prefill_size", "off", ("chunked_prefill_size is unlimited", "started with 512")),
        ("max_prefill_tokens", "2048", ("max_prefill_tokens is 2048", "started with 1024", "--max-prefill-tokens")),
        ("max_requests", "-3", ("GLASSGATE_MAX_REQUESTS", "-3")),
        ("smoke", "perhaps", ("GLASSGATE_SMOKE", "perhaps", "off, warn or require")),
    ],
)
def test_what_cannot_be_is_refused_with_its_name_its_value_and_the_remedy(scheduler, monkeypatch, name, value, words):
    """A setting that contradicts the engine's own flags, or is none, is one line that says which and what to do."""
    monkeypatch.setenv(f"GLASSGATE_{name.upper()}", value)
    with pytest.raises((InputError, KnobError)) as refused:
        engine_settings(scheduler)
    for each in words:
        assert each in str(refused.value)


def test_an_engine_without_chunks_takes_no_chunk(scheduler, monkeypatch):
    """Where the engine runs without chunked prefill there is no chunk to be lowered."""
    scheduler.chunked_prefill_size = None
    assert engine_settings(scheduler).settings.knobs.chunked_prefill_size is None
    monkeypatch.setenv("GLASSGATE_CHUNKED_PREFILL_SIZE", "256")
    with pytest.raises(KnobError, match="runs without chunks; start it with --chunked-prefill-size"):
        engine_settings(scheduler)


def test_a_model_without_a_formula_is_said(scheduler):
    """For a model that the estimator does not know `max_buffer_bytes` cannot bind, which is a caution."""
    scheduler.model_config.hf_text_config.to_dict = lambda: {"model_type": "no_such", "hidden_size": 3}
    found = engine_settings(scheduler)
    assert found.estimate.estimator is None
    assert "max_buffer_bytes cannot bind" in found.estimate.caution
    assert not found.setting.has_model
