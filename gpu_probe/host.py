"""Host memory that may be used: the machine's, a container's limit on it, and this process's own."""

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# A cgroup v1 without a limit says a number near 2^63; no machine has that much.
_NO_LIMIT = 1 << 60
_V2_LIMITS = ("memory.max", "memory.high")
_V1_LIMITS = ("memory.limit_in_bytes",)


class HostMemory(NamedTuple):
    """Bytes. `total` is the machine's memory or the container's limit, `available` what may still be taken of it.

    `container` is the tightest limit of this process's control groups, or None; `address_space` what RLIMIT_AS leaves
    this process, or None without a limit.
    """

    total: int
    available: int
    container: int | None
    address_space: int | None

    @property
    def usable(self) -> int:
        """Bytes this process could take at most, by whichever bound is the tightest."""
        return self.available if self.address_space is None else min(self.available, self.address_space)


def host_memory(root: Path = Path("/")) -> HostMemory:
    """Read the memory there is. `root` stands for the file system's root.

    Machine: MemTotal and MemAvailable of /proc/meminfo. Container: for every control group this process is in and
    each of its parents, limit minus what it holds; page cache that the kernel gives up under pressure counts as free.
    """
    machine = _fields(root / "proc/meminfo")
    total, available = machine.get("MemTotal", 0) * 1024, machine.get("MemAvailable", 0) * 1024
    container: int | None = None
    for limit, held in _groups(root):
        container = limit if container is None else min(container, limit)
        available = min(available, max(0, limit - held))
    soft, _hard = resource.getrlimit(resource.RLIMIT_AS)
    address_space = None
    if soft != resource.RLIM_INFINITY:
        pages = _words(root / "proc/self/statm")
        address_space = max(0, soft - (int(pages[0]) if pages else 0) * resource.getpagesize())
    return HostMemory(total if container is None else min(total, container), available, container, address_space)


def _groups(root: Path) -> Iterator[tuple[int, int]]:
    """Give limit and use, in bytes, of every control group that bounds this process's memory."""
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            yield from _climb(root / "sys/fs/cgroup", path, _V2_LIMITS, "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            yield from _climb(base, path, _V1_LIMITS, "memory.usage_in_bytes", "total_inactive_file")


def _climb(base: Path, path: str, limits: tuple[str, ...], usage: str, cache: str) -> Iterator[tuple[int, int]]:
    # Inside a container the path may name a group outside of what is mounted; the mount's root then is ours.
    steps = [part for part in path.split("/") if part and part != ".."]
    for depth in range(len(steps), -1, -1):
        folder = base.joinpath(*steps[:depth])
        found = [value for name in limits if (value := _number(folder / name)) is not None and value < _NO_LIMIT]
        held = _number(folder / usage)
        if found and held is not None:
            yield min(found), max(0, held - _fields(folder / "memory.stat").get(cache, 0))


def _number(path: Path) -> int | None:
    words = _words(path)
    return int(words[0]) if words and words[0].isdecimal() else None


def _fields(path: Path) -> dict[str, int]:
    """Read `name value` lines, with or without a colon."""
    pairs = (line.replace(":", " ").split() for line in _lines(path))
    return {words[0]: int(words[1]) for words in pairs if len(words) > 1 and words[1].isdecimal()}


def _words(path: Path) -> list[str]:
    lines = _lines(path)
    return lines[0].split() if lines else []


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
