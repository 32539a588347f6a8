"""On a CUDA device, wherever one is present: the smoke allocation, an executed plan, a measured step."""

import pytest

from estimator import RunContext, estimate_batch, preset
from estimator.allocation import allocation_plan, play
from gpu_probe.device import describe
from gpu_probe.measure import FAMILIES, random_batches, ratios, run_plan
from gpu_probe.smoke import smoke

MIB = 1 << 20


@pytest.fixture
def card(torch):
    """The first CUDA device."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device is present")
    return "cuda:0"


def test_device_is_described(card):
    """The card has a name, a driver, and less free than it has."""
    info = describe(card)
    assert 0 < info.free <= info.total
    assert info.name
    assert info.source in {"nvml", "torch"}


def test_smoke_passes_and_leaves_nothing_behind(card, torch):
    """What fits is reserved in full, and afterwards the allocator holds what it held before."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved(card)
    result = smoke(card, 200 * MIB + 1, [64 * MIB, 100 * MIB])
    assert result.passed, result.why
    assert result.requested == 200 * MIB + 1 <= result.allocated <= result.reserved
    assert torch.cuda.memory_reserved(card) == before


def test_smoke_fails_in_words(card):
    """More than the card has is refused; a size close to its free memory did fit."""
    info = describe(card)
    result = smoke(card, 2 * info.total)
    assert not result.passed
    assert 0.8 * info.free < result.largest <= info.total
    assert "mem_fraction_static" in result.why


def test_plan_peaks_at_its_estimate(card):
    """The allocator's peak of requested bytes is the estimate; its blocks are those of the counting allocator."""
    geometry = preset("deepseek-v3.2")
    estimate = estimate_batch(geometry, RunContext.default_for(geometry, tp=8), [(8192, 1024)] * 4)
    measured, counted = run_plan(estimate, card), play(allocation_plan(estimate))
    assert measured.requested == estimate.requested
    assert measured.allocated == counted.rounded


@pytest.mark.parametrize("name", FAMILIES)
def test_estimate_covers_the_step(card, name):
    """A step that was not built from the plan peaks at no more than the estimate."""
    geometry = preset(name)
    run = RunContext.default_for(geometry, tp=8)
    row = ratios(geometry, run, random_batches(1, 5, tokens=2048, context=8192), card)
    assert row.under == 0
    assert row.most < 1.1
