"""The start-up smoke allocation, on the host."""

import resource
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.records import Smoke
from estimator import RunContext, estimate_batch, preset
from estimator.errors import GlassgateError, InputError
from gpu_probe import smoke as module
from gpu_probe.errors import ProbeError
from gpu_probe.holders import HostHolder
from gpu_probe.host import HostMemory
from gpu_probe.smoke import SmokeError, pieces_of, shape_pieces, smoke

MIB = 1 << 20


def test_what_fits_passes_and_is_touched():
    """A size that fits is held in full, every page of it, and its record says so."""
    result = smoke("cpu", 24 * MIB + 5, [16 * MIB, 8 * MIB], clock=lambda: 7)
    assert result.passed
    assert result.requested == result.largest == 24 * MIB + 5
    assert result.pieces == 3
    # The last page is held whole.
    assert result.allocated == result.reserved == result.peak == 24 * MIB + 4096
    assert result.check() is result
    record = Smoke(**result.record_fields())
    assert (record.at_ns, record.device, record.asked, record.passed, record.why) == (7, "cpu", 24 * MIB + 5, True, "")


def test_pages_are_resident_while_they_are_held(monkeypatch):
    """While the last step is about to be touched, the process holds the others in memory."""
    seen = []

    def resident():
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - read within a patched reader
            return int(file.read().split()[1]) * resource.getpagesize()

    before = resident()
    holder = HostHolder(0)
    check = holder._check
    monkeypatch.setattr(holder, "_check", lambda *given: (seen.append(resident() - before), check(*given)))
    holder.hold([128 * MIB])
    assert len(seen) == 3
    assert seen[-1] >= 60 * MIB
    assert resident() - before < 60 * MIB


def _room(monkeypatch, *, available, address_space=None, container=None):
    """Pretend that the host has this much, less what the holder has mapped and touched."""
    memory = HostMemory(1 << 40, available, container, address_space)
    monkeypatch.setattr("gpu_probe.holders.host_memory", lambda: memory)
    monkeypatch.setattr("gpu_probe.device.host_memory", lambda: memory)


def test_what_does_not_fit_fails_before_it_is_touched(monkeypatch):
    """A size beyond the room is refused without taking a page; the answer names sizes and what to set."""
    _room(monkeypatch, available=80 * MIB, container=100 * MIB)
    result = smoke("cpu", 1 << 40, keep_free=48 * MIB)
    assert not result.passed
    assert result.requested == result.peak == 0
    assert result.largest == 32 * MIB
    assert result.trials == 1
    assert "\n" not in result.why
    for part in ("1024.00 GiB", "32.0 MiB", "80.0 MiB", f"--max-buffer-bytes {32 * MIB}", "container limit 100.0 MiB"):
        assert part in result.why
    with pytest.raises(SmokeError, match="max-buffer-bytes"):
        result.check()


def test_address_space_limit_counts(monkeypatch):
    """What RLIMIT_AS leaves is a bound too."""
    _room(monkeypatch, available=1 << 40, address_space=12 * MIB)
    result = smoke("cpu", 16 * MIB, keep_free=0)
    assert not result.passed
    assert result.largest == 12 * MIB
    assert "RLIMIT_AS leaves 12.0 MiB" in result.why


def test_nothing_fits(monkeypatch):
    """Without any room the answer says so and offers no size."""
    _room(monkeypatch, available=MIB)
    result = smoke("cpu", 16 * MIB, keep_free=4 * MIB)
    assert (result.passed, result.largest, result.trials) == (False, 0, 0)
    assert "nothing did fit" in result.why


def test_memory_that_shrinks_meanwhile_ends_it(monkeypatch):
    """If others take memory while pages are touched, touching stops before the reserve is reached."""
    left = iter([1 << 40, 1 << 40, 1 << 40, 10 * MIB])
    monkeypatch.setattr("gpu_probe.holders.host_memory", lambda: HostMemory(1 << 40, next(left, 10 * MIB), None, None))
    result = smoke("cpu", 512 * MIB, keep_free=8 * MIB)
    assert not result.passed
    assert result.reserved == 128 * MIB
    assert result.largest == 2 * MIB


def test_bisection_finds_what_the_holder_takes():
    """Where the room is not known beforehand, a bounded bisection comes within 1/128 of what fits."""
    limit = 77_000_000

    class Moody:
        def room(self):
            return 1 << 60

        def hold(self, pieces):
            if sum(pieces) > limit:
                raise module.OutOfRoomError("too much", module.Held())
            return module.Held(sum(pieces))

    low, trials = module._largest(Moody(), 100_000_000, None)
    assert limit - 100_000_000 // 128 <= low <= limit
    assert trials <= module.TRIALS


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS of a child is set on Linux")
def test_a_real_address_space_limit_is_survived():
    """Under a real RLIMIT_AS the process lives and reports a size below the limit."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20));"
        "from gpu_probe.smoke import smoke; r = smoke('cpu', 1 << 30, keep_free=0);"
        "print(r.passed, 16 << 20 < r.largest < 256 << 20)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 5 << 30), st.lists(st.integers(1, 2 << 30), max_size=6))
def test_pieces_add_up(asked, pieces):
    """Pieces add up to what is asked; none is empty."""
    shaped = shape_pieces(asked, pieces)
    assert sum(shaped) == asked
    assert min(shaped) >= 1


def test_pieces_of_an_estimate_are_its_peak():
    """The pieces of an estimate are the buffers alive at its peak."""
    geometry = preset("deepseek-v3.2")
    estimate = estimate_batch(geometry, RunContext.default_for(geometry, tp=8), [(32768, 1024)] * 8)
    pieces = pieces_of(estimate)
    assert sum(pieces) == estimate.requested
    assert pieces == sorted(pieces, reverse=True)


@pytest.mark.parametrize("given", [(0, None, None), (1, [0], None), (1, None, -1)])
def test_sizes_that_cannot_be(given):
    """Nothing asked, an empty piece or a negative reserve is refused in words."""
    asked, pieces, keep_free = given
    with pytest.raises(InputError, match="at least"):
        smoke("cpu", asked, pieces, keep_free=keep_free)


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cuda:-1", "", "cuda:99"])
def test_a_device_that_is_not_there(device, torch):
    """A name that is no device, or a card that is not there, is an error of the command's kind."""
    assert torch is not None
    with pytest.raises(ProbeError, match="device") as raised:
        smoke(device, 1)
    assert isinstance(raised.value, GlassgateError)
    assert raised.value.exit_code == 9


def test_no_torch_is_imported_for_the_host():
    """Importing the probe and trying the host needs no torch; asking for CUDA without it names the extra."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from gpu_probe.smoke import smoke\n"
        "print(smoke('cpu', 4096).passed)\n"
        "try:\n    smoke('cuda:0', 4096)\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("True\nProbeError torch:")
    assert "glassgate[gpu]" in done.stdout
