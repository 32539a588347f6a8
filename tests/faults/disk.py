"""A disk that is full when a test wants it: a small tmpfs where one may be mounted here, else a file size limit."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.processes import limit

_LITTLE = 4096
"""Bytes a file may have where a limit stands for a full disk: what a process says has room, its record has not."""
_MOUNT, _UMOUNT = (shutil.which(each) or "" for each in ("mount", "umount"))


class SmallDisk:
    """A folder that can be made full for some processes, and empty again."""

    def __init__(self, path: Path, *, mounted: bool) -> None:
        self.path = path
        self.mounted = mounted
        self._ballast = path / ".ballast"

    @property
    def how(self) -> str:
        """What makes it full, for the table."""
        return "a small tmpfs" if self.mounted else "RLIMIT_FSIZE"

    @property
    def word(self) -> str:
        """What SQLite says where it is full."""
        return "disk is full" if self.mounted else "disk I/O error"

    def resize(self, size: int) -> None:
        """Give it so many bytes. Only where it is mounted."""
        subprocess.run([_MOUNT, "-o", f"remount,size={size}", str(self.path)], check=True)

    def fill(self, *pids: int) -> None:
        """Leave no room for anybody, or for these processes."""
        if not self.mounted:
            for pid in pids:
                limit(pid, _LITTLE)
            return
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass

    def free(self, *pids: int) -> None:
        """Make room again."""
        if self.mounted:
            self._ballast.unlink(missing_ok=True)
        for pid in () if self.mounted else pids:
            limit(pid, None)


def can_mount(folder: Path) -> bool:
    """Whether this user may mount a tmpfs here."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0 or not _MOUNT:
        return False
    words = [_MOUNT, "-t", "tmpfs", "-o", "size=65536", "tmpfs", str(folder)]
    if subprocess.run(words, capture_output=True, check=False).returncode != 0:
        return False
    return subprocess.run([_UMOUNT, str(folder)], capture_output=True, check=False).returncode == 0


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[SmallDisk]:
    """A disk of so many bytes at a path."""
    mounted = can_mount(path)
    if mounted:
        words = [_MOUNT, "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", str(path)]
        subprocess.run(words, check=True)
    try:
        yield SmallDisk(path, mounted=mounted)
    finally:
        if mounted:
            subprocess.run([_UMOUNT, "-l", str(path)], check=True)
