"""Owner-only files that are seen whole or not at all, and owner-only folders."""

import contextlib
import os
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def write_whole(path: Path, content: bytes) -> None:
    """Put content at path so that a reader sees the old file or all of this one; owner-only permissions.

    Written beside its place and renamed into it. Not synced to the disk: it survives the process, not the machine.
    Raises OSError, and then leaves no scrap behind.
    """
    scrap = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(scrap, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - Path.open cannot take a descriptor with its mode
            file.write(content)
        scrap.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            scrap.unlink()
        raise


def make_folders(path: Path) -> None:
    """Make the folder and those above it that are missing, each for its owner only. Raises OSError."""
    if not path.is_dir():
        if not path.parent.exists():
            make_folders(path.parent)
        path.mkdir(mode=FOLDER_MODE, exist_ok=True)
