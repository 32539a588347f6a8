"""Host memory and a container's limit, read from folders that look like a machine's."""

import pytest

from gpu_probe.device import describe, gib
from gpu_probe.errors import ProbeError
from gpu_probe.host import host_memory

GIB = 1 << 30


@pytest.fixture
def machine(tmp_path):
    """A file system root of a machine with 64 GiB, 48 of them available."""

    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    write("proc/meminfo", f"MemTotal: {64 * GIB // 1024} kB\nMemAvailable: {48 * GIB // 1024} kB\n")
    return tmp_path, write


def test_without_a_container(machine):
    """The machine's own figures hold where no group sets a limit."""
    root, write = machine
    write("proc/self/cgroup", "0::/\n")
    memory = host_memory(root)
    assert memory[:3] == (64 * GIB, 48 * GIB, None)


def test_version_two_takes_the_tightest_parent(machine):
    """With cgroup v2 the tightest limit on the way up counts, and reclaimable cache is free."""
    root, write = machine
    write("proc/self/cgroup", "0::/pod/box\n")
    write("sys/fs/cgroup/pod/box/memory.max", "max\n")
    write("sys/fs/cgroup/pod/box/memory.current", f"{2 * GIB}\n")
    write("sys/fs/cgroup/pod/memory.max", f"{8 * GIB}\n")
    write("sys/fs/cgroup/pod/memory.high", f"{7 * GIB}\n")
    write("sys/fs/cgroup/pod/memory.current", f"{5 * GIB}\n")
    write("sys/fs/cgroup/pod/memory.stat", f"anon 1\ninactive_file {GIB}\n")
    memory = host_memory(root)
    assert memory[:3] == (7 * GIB, 3 * GIB, 7 * GIB)


def test_version_one(machine):
    """With cgroup v1 the memory controller's limit counts."""
    root, write = machine
    write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/box\n")
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n")
    write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", f"{4 * GIB}\n")
    write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", f"{3 * GIB}\n")
    write("sys/fs/cgroup/memory/box/memory.stat", f"inactive_file 7\ntotal_inactive_file {GIB}\n")
    memory = host_memory(root)
    assert memory[:3] == (4 * GIB, 2 * GIB, 4 * GIB)


def test_a_path_from_outside_the_container(machine):
    """Where the group's path is not mounted, the mount's root is the container's own group."""
    root, write = machine
    write("proc/self/cgroup", "0::/../elsewhere/box\n")
    write("sys/fs/cgroup/memory.max", f"{GIB}\n")
    write("sys/fs/cgroup/memory.current", f"{2 * GIB}\n")
    memory = host_memory(root)
    assert (memory.container, memory.available, memory.usable) == (GIB, 0, 0)


def test_this_machine_is_described():
    """The host has a name, a kernel, and less free than it has."""
    info = describe("cpu")
    assert 0 < info.free <= info.total
    assert info.name
    assert info.source == "proc"
    assert info.driver in info.line
    with pytest.raises(ProbeError, match="meta holds no memory"):
        describe("meta")


@pytest.mark.parametrize(("size", "text"), [(5, "5 B"), (3 << 19, "1.5 MiB"), (5 << 29, "2.50 GiB")])
def test_sizes_read_well(size, text):
    """Bytes are told in the largest unit that fits."""
    assert gib(size) == text
