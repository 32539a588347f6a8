"""Requests to change a live run's knobs: small files left in a folder, taken in order by the engine.

What a request asks is checked by whoever applies it; here only its shape is.
"""

import json
import os
import secrets
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from controller.whole_file import FOLDER_MODE, write_whole
from estimator.errors import StorageError

MAX_REQUEST_BYTES = 65_536


class KnobRequest(NamedTuple):
    """A request as taken: its file name, and either its content or why it cannot be read."""

    name: str
    content: dict[str, Any] | None
    error: str | None


def leave_request(folder: Path, content: Mapping[str, Any]) -> str:
    """Leave a request (a JSON object) for the engine and return its name. Raises StorageError if it cannot be written.

    Requests are ordered by the wall clock at which they were left.
    """
    name = f"{time.time_ns():020d}-{os.getpid()}-{secrets.token_hex(4)}.json"
    try:
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        write_whole(folder / name, json.dumps(dict(content)).encode() + b"\n")
    except OSError as error:
        raise StorageError(
            f"no request can be left in {folder}: {error.strerror}; free space or run as the engine's user"
        ) from None
    return name


def take_requests(folder: Path) -> list[KnobRequest]:
    """Take the requests waiting in folder, oldest first, and remove them. Never raises for what a file holds.

    A request that is not the engine user's own, is too long or is no JSON object comes with its error. One that cannot
    be removed stays and is not taken: it would come again and again.
    """
    try:
        names = sorted(each.name for each in folder.iterdir() if each.suffix == ".json" and each.name[0] != ".")
    except OSError:
        return []
    taken = []
    for name in names:
        request = _read(folder / name)
        try:
            (folder / name).unlink()
        except OSError:
            continue
        taken.append(request)
    return taken


def _read(path: Path) -> KnobRequest:
    """Read one request; who may have written it is judged on the open file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            error = _refusal(status)
            text = b"" if error else os.read(descriptor, MAX_REQUEST_BYTES)
        finally:
            os.close(descriptor)
    except OSError as failure:
        return KnobRequest(path.name, None, f"knob request {path.name} cannot be read: {failure.strerror}")
    if error:
        return KnobRequest(path.name, None, f"knob request {path.name} {error}")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        return KnobRequest(path.name, None, f"knob request {path.name} is not a JSON object; use glassgate knobs set")
    return KnobRequest(path.name, content, None)


def _refusal(status: os.stat_result) -> str | None:
    """Say why a file is not read as a request, None if it may be."""
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file; use glassgate knobs set"
    if status.st_uid not in {0, os.geteuid()} or status.st_mode & 0o022:
        return (
            f"belongs to user {status.st_uid} with mode {stat.S_IMODE(status.st_mode):04o}; "
            "it must be the engine's user's own, writable by no one else"
        )
    if status.st_size > MAX_REQUEST_BYTES:
        return f"has {status.st_size} bytes, the limit is {MAX_REQUEST_BYTES}; ask for fewer changes at once"
    return None
