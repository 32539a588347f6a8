"""Requests to change a live run's knobs: small files left in a folder, taken in order by whoever serves the run.

What a request asks is judged in `controller.knob_turning`; here only its shape as a file is.
"""

import errno
import json
import os
import secrets
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from controller.whole_file import FOLDER_MODE, decode_json, is_strangers, write_whole
from estimator.errors import StorageError

MAX_REQUEST_BYTES: Final = 65_536
MOST_AT_ONCE: Final = 32
"""Requests taken in one look, so that a folder full of them does not hold up whoever takes them."""


class KnobRequest(NamedTuple):
    """A request as taken: its file name, and either its content or why it cannot be read.

    The name is printable; `uid` is the user whose file it was, None where that could not be told.
    """

    name: str
    content: dict[str, Any] | None
    error: str | None
    uid: int | None = None


def leave_request(folder: Path, content: Mapping[str, Any]) -> str:
    """Leave a request (a JSON object) for the engine and return its name. Raises StorageError if it cannot be written.

    Requests are ordered by the wall clock at which they were left.
    """
    name = f"{time.time_ns():020d}-{os.getpid()}-{secrets.token_hex(4)}.json"
    try:
        _make_folder(folder)
        write_whole(folder / name, json.dumps(dict(content)).encode() + b"\n")
    except OSError as error:
        raise StorageError(
            f"no request can be left in {folder}: {error.strerror}; free space or run as the engine's user"
        ) from None
    return name


def _make_folder(folder: Path) -> None:
    """Make the folder of requests. Raises OSError, also for a link, which may lead where its maker cannot write."""
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    if folder.is_symlink():
        raise OSError(errno.ELOOP, "it is a link")


def withdraw_request(folder: Path, name: str) -> bool:
    """Take back a request that nobody has taken; False if it is not there any more, so that its answer will come.

    Raises StorageError where it stays because the folder cannot be written.
    """
    try:
        (folder / name).unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StorageError(
            f"request {name} cannot be taken back from {folder}: {error.strerror}; run as the engine's user"
        ) from None
    return True


def take_requests(folder: Path) -> list[KnobRequest]:
    """Take the requests waiting in folder, oldest first, and remove them. Never raises for what a file holds.

    At most MOST_AT_ONCE come at a time. A request that is not the engine user's own, is too long or is no JSON object
    comes with its error. One that cannot be removed stays and is not taken: it would come again and again.
    """
    try:
        names = sorted(each.name for each in folder.iterdir() if each.suffix == ".json" and each.name[0] != ".")
    except OSError:
        return []
    taken: list[KnobRequest] = []
    for name in names:
        if len(taken) == MOST_AT_ONCE:
            break
        request = _read(folder / name)
        try:
            (folder / name).unlink()
        except OSError:
            continue
        taken.append(request)
    return taken


def plain(text: str) -> str:
    """The text with every character that is not printable, and every half of a surrogate pair, as a question mark."""
    return "".join(each if each.isprintable() else "?" for each in text)


def _read(path: Path) -> KnobRequest:
    """Read one request; who may have written it is judged on the open file."""
    name, owner = plain(path.name), None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            owner = status.st_uid
            error = _refusal(status)
            text = b"" if error else os.read(descriptor, MAX_REQUEST_BYTES)
        finally:
            os.close(descriptor)
    except OSError as failure:
        return KnobRequest(name, None, f"knob request {name} cannot be read: {failure.strerror}", owner)
    if error:
        return KnobRequest(name, None, f"knob request {name} {error}", owner)
    try:
        return KnobRequest(name, decode_json(text, dict[str, Any]), None, owner)
    except msgspec.DecodeError:
        return KnobRequest(name, None, f"knob request {name} is not a JSON object; use glassgate knobs set", owner)


def _refusal(status: os.stat_result) -> str | None:
    """Say why a file is not read as a request, None if it may be."""
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file; use glassgate knobs set"
    if is_strangers(status) or status.st_mode & 0o022:
        return (
            f"belongs to user {status.st_uid} with mode {stat.S_IMODE(status.st_mode):04o}; "
            "it must be the engine's user's own, writable by no one else"
        )
    if status.st_size > MAX_REQUEST_BYTES:
        return f"has {status.st_size} bytes, the limit is {MAX_REQUEST_BYTES}; ask for fewer changes at once"
    return None
