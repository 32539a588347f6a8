"""What is done on a CUDA device, run against a card that only keeps books, so that it is exercised without one."""

import sys
import types

import pytest

from gpu_probe import device as device_module
from gpu_probe import errors as errors_module
from gpu_probe import holders as holders_module
from gpu_probe.device import describe
from gpu_probe.smoke import smoke

MIB = 1 << 20
SEGMENT = 2 * MIB


class OutOfMemoryError(RuntimeError):
    """What torch raises when the card is full."""


class _Tensor:
    """Bytes on the card, given back when the last reference goes."""

    def __init__(self, card, size):
        self.card, self.size = card, 0
        card.take(size)
        self.size = size

    def __getitem__(self, pages):
        card, count = self.card, -(-self.size // pages.step)

        class Pages:
            def fill_(self, _value):
                card.touched += count

        return Pages()

    def __del__(self):
        self.card.give(self.size)


class _Card:
    """A card of so many bytes with a caching allocator that takes segments of 2 MiB and keeps them until emptied."""

    OutOfMemoryError = OutOfMemoryError

    def __init__(self, total, taken, lies=0):
        self.total, self.taken, self.lies = total, taken, lies
        self.requested = self.reserved = self.peak = self.touched = 0

    def take(self, size):
        block = -(-size // SEGMENT) * SEGMENT
        if self.taken + self.reserved + block > self.total - self.lies:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate\nmore")
        self.requested += size
        self.reserved += block
        self.peak = max(self.peak, self.requested)

    def give(self, size):
        self.requested -= size

    def empty_cache(self):
        if not self.requested:
            self.reserved = 0

    def memory_stats(self, _device):
        return {
            "requested_bytes.all.current": self.requested,
            "allocated_bytes.all.current": self.requested,
            "reserved_bytes.all.current": self.reserved,
            "allocated_bytes.all.peak": self.peak,
        }

    def reset_peak_memory_stats(self, _device):
        self.peak = self.requested

    def mem_get_info(self, _device):
        return self.total - self.taken - self.reserved, self.total

    def get_device_properties(self, _device):
        return types.SimpleNamespace(name="Card of books", uuid="0000")

    def is_available(self):
        return True

    def device_count(self):
        return 1

    def init(self):
        pass

    def synchronize(self, _device):
        pass


@pytest.fixture
def plug(monkeypatch):
    """Put a card in place of torch's."""

    def insert(card):
        fake = types.SimpleNamespace(
            cuda=card,
            uint8="uint8",
            __version__="0",
            version=types.SimpleNamespace(cuda="0.0"),
            empty=lambda size, **_where: _Tensor(card, size),
        )
        for module in (errors_module, device_module, holders_module):
            monkeypatch.setattr(module, "need_torch", lambda: fake)
        monkeypatch.setitem(sys.modules, "pynvml", None)
        return card

    return insert


def test_a_card_that_holds_it(plug):
    """What fits is touched page by page, read, and given back with the cache emptied."""
    card = plug(_Card(1024 * MIB, 100 * MIB))
    result = smoke("cuda", 300 * MIB + 1, [200 * MIB])
    assert (result.passed, result.device, result.name) == (True, "cuda:0", "Card of books")
    assert result.requested == result.peak == 300 * MIB + 1
    assert result.reserved == 302 * MIB
    assert card.touched == 200 * 256 + 100 * 256 + 1
    assert (card.requested, card.reserved) == (0, 0)
    assert result.free_before == result.free_after == 924 * MIB


def test_a_card_without_room(plug):
    """What does not fit is not tried beyond what is free; the answer tells sizes and both remedies."""
    card = plug(_Card(1024 * MIB, 1000 * MIB))
    result = smoke("cuda:0", 512 * MIB, keep_free=4 * MIB)
    assert not result.passed
    assert result.largest == 20 * MIB
    assert "mem_fraction_static" in result.why
    assert "--max-buffer-bytes 20971520" in result.why
    assert card.reserved == 0


def test_a_card_that_says_more_than_it_has(plug):
    """If the card refuses what it said was free, bisection finds what it does hold, and the reason is told."""
    card = plug(_Card(1024 * MIB, 0, lies=300 * MIB))
    result = smoke("cuda:0", 900 * MIB)
    assert not result.passed
    assert 712 * MIB <= result.largest <= 724 * MIB
    assert result.trials > 1
    assert "CUDA out of memory. Tried to allocate)" in result.why
    assert "\n" not in result.why
    assert (card.requested, card.reserved) == (0, 0)


def test_nvml_is_asked_first(plug, monkeypatch):
    """With NVML the card's name, memory and driver come from there, found by UUID and not by number."""
    plug(_Card(1024 * MIB, 0))
    asked = []
    nvml = types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: asked.append("shut"),
        nvmlDeviceGetHandleByUUID=lambda uuid: asked.append(uuid) or "handle",
        nvmlDeviceGetMemoryInfo=lambda _handle: types.SimpleNamespace(total=7 * MIB, free=5 * MIB),
        nvmlDeviceGetName=lambda _handle: b"NVML card",
        nvmlSystemGetDriverVersion=lambda: "999.1",
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    info = describe("cuda:0")
    assert (info.name, info.total, info.free, info.driver, info.source) == (
        "NVML card",
        7 * MIB,
        5 * MIB,
        "999.1",
        "nvml",
    )
    assert asked == ["GPU-0000", "shut"]


def test_torch_answers_where_nvml_does_not(plug, monkeypatch):
    """A card that NVML does not know is described by torch."""
    plug(_Card(1024 * MIB, 24 * MIB))

    def refuse(_uuid):
        raise RuntimeError("not found")

    nvml = types.SimpleNamespace(nvmlInit=lambda: None, nvmlShutdown=lambda: None, nvmlDeviceGetHandleByUUID=refuse)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    info = describe("cuda:0")
    assert (info.source, info.name, info.free) == ("torch", "Card of books", 1000 * MIB)


def test_the_watch_reads_peaks_above_its_base(torch, monkeypatch):
    """A card's watch counts above what was there, and forgets what was allocated within a kernel."""
    from gpu_probe.watch import CudaWatch  # noqa: PLC0415 - imports torch

    now = {"requested": 100, "allocated": 512, "reserved": 2048}
    peak = dict(now)

    def stats(_device):
        found = {f"{name}_bytes.all.current": size for name, size in now.items()}
        return found | {f"{name}_bytes.all.peak": size for name, size in peak.items()}

    def grow(by):
        now.update({name: size + by for name, size in now.items()})
        peak.update({name: max(size, now[name]) for name, size in peak.items()})

    monkeypatch.setattr(torch.cuda, "memory_stats", stats)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda _device: peak.update(now))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _device: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    with CudaWatch("cuda:0") as watch:
        grow(50)
        grow(-20)
        with watch.kernel():
            grow(1000)
            grow(-1000)
        grow(5)
        with watch.stream("compute"):
            pass
    assert watch.peaks() == (50, 50, 50, 50)
