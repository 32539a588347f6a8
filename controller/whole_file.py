"""Owner-only files that are seen whole or not at all, and owner-only folders."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TypeVar

import msgspec

FILE_MODE = 0o600
FOLDER_MODE = 0o700
MOST_READ_BYTES = 1 << 20
"""Of a small file that is read back; none that Glassgate writes comes near."""

Content = TypeVar("Content")


def followed(path: Path) -> Path:
    """Where the links of a path lead, as an absolute path, there or not. Raises OSError for links in a ring."""
    try:
        return path.resolve()
    except RuntimeError:  # a ring, before Python 3.13
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from None


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, of which a reader of path sees nothing, or the old one, until the block has ended well.

    Written beside its place and renamed into it, with owner-only permissions. Not synced to the disk: it survives the
    process, not the machine. Raises OSError, and whatever ends the block leaves no scrap behind.
    """
    scrap = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(scrap, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, FILE_MODE)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - Path.open cannot take a descriptor with its mode
            yield file
        scrap.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            scrap.unlink()
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Put content at path so that a reader sees the old file or all of this one; see `whole_file`. Raises OSError."""
    with whole_file(path) as file:
        file.write(content)


def make_folders(path: Path) -> None:
    """Make the folder and those above it that are missing, each for its owner only. Raises OSError."""
    if not path.is_dir():
        if not path.parent.exists():
            make_folders(path.parent)
        path.mkdir(mode=FOLDER_MODE, exist_ok=True)


def is_strangers(status: os.stat_result) -> bool:
    """Whether a file belongs to a user who is neither root nor us."""
    return status.st_uid not in {0, os.geteuid()}


def read_small(path: Path, most: int = MOST_READ_BYTES) -> bytes:
    """The content of a file of at most `most` bytes, whatever somebody may have put in its place.

    Raises OSError, also for one that is larger or no regular file, and never waits.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - as above
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return content


def read_json(path: Path, kind: type[Content]) -> Content:
    """What a small JSON file holds, read as `kind`. Raises OSError and msgspec.DecodeError, nothing else."""
    return decode_json(read_small(path), kind)


def decode_json(content: bytes, kind: type[Content]) -> Content:
    """JSON read as `kind`. Raises msgspec.DecodeError, also for nesting without end and text that is no UTF-8."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None
