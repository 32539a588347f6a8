"""A knob request as the numbers an engine's own broadcast carries to every rank, and back again.

A broadcast takes numbers only, so -1 is unlimited and a switch is 0 or 1. Which request it was travels as a number made
from its name; who asked stays with the file that `forwarded` finds in the run's folder.
"""

from __future__ import annotations

import contextlib
import hashlib
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import msgspec

from controller.knob_requests import KnobRequest
from controller.knobs import SPEC_BY_NAME, Knobs
from controller.whole_file import FOLDER_MODE, read_json, write_whole
from estimator.errors import KnobError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PREFIX: Final = "glassgate_"
REQUEST: Final = "glassgate_request"
EXPECT_REVISION: Final = "glassgate_expect_revision"
KEYS: Final = (*(PREFIX + name for name in SPEC_BY_NAME), REQUEST, EXPECT_REVISION)
"""The keys that a plug-in adds to its engine's broadcast."""
FOLDER: Final = "forwarded"
"""Under the run's knob-requests: what the collector has passed on."""
_ANSWERED: Final = ".answered"


class Forwarded(msgspec.Struct, frozen=True):
    """What the collector leaves of a request that it took; with `why` the request got no further than it."""

    name: str
    at_unix_ns: int
    uid: int | None
    content: dict[str, Any] | None
    error: str | None
    why: str = ""

    @property
    def request(self) -> KnobRequest:
        """The request as it was taken."""
        return KnobRequest(self.name, self.content, self.error, self.uid)


def number_of(name: str) -> int:
    """The number, 48 bits, under which the request of that name travels."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=6).digest(), "big")


def to_numbers(request: KnobRequest) -> dict[str, int]:
    """The broadcast of a request. Raises KnobError for one whose content is not that of a request."""
    content = request.content or {}
    changes = content.get("changes")
    if request.error is not None or not isinstance(changes, dict) or not changes:
        raise KnobError(request.error or f"knob request {request.name} names no change; use glassgate knobs set")
    alone = Knobs(chunked_prefill_size=None)
    numbers = {}
    for name, value in changes.items():
        parsed = getattr(Knobs.parse({name: value}, alone), name)
        numbers[PREFIX + name] = -1 if parsed is None else int(parsed)
    numbers[REQUEST] = number_of(request.name)
    expected = content.get("expect_revision")
    numbers[EXPECT_REVISION] = expected if isinstance(expected, int) else -1
    return numbers


def from_numbers(numbers: Mapping[str, float]) -> tuple[KnobRequest, int]:
    """The request that a broadcast stands for, as `controller.knob_turning.answer` takes it, and its number.

    The same on every rank. A number for another key is left out; one a knob cannot have is refused by `answer`.
    """
    changes: dict[str, Any] = {}
    for name, spec in SPEC_BY_NAME.items():
        value = numbers.get(PREFIX + name)
        if value is None:
            continue
        whole: Any = int(value) if isfinite(value) and value == int(value) else value
        if spec.kind == "switch":
            whole = bool(whole) if whole in (0, 1) else whole
        elif spec.kind in ("limit", "bytes") and whole == -1:
            whole = None
        changes[name] = whole
    number = _whole(numbers.get(REQUEST, 0))
    content: dict[str, Any] = {"format": 1, "who": "the engine's endpoint", "changes": changes, "left_unix_ns": 0}
    expected = _whole(numbers.get(EXPECT_REVISION, -1))
    if expected >= 0:
        content["expect_revision"] = expected
    return KnobRequest(f"broadcast-{number}", content, None, None), number


def _whole(value: float) -> int:
    """The number as a whole one, -1 where it is none."""
    return int(value) if isfinite(value) else -1


def leave_forwarded(requests: Path, forwarded: Forwarded) -> None:
    """Leave word beside a run, in its folder of requests, before a request is posted. Raises OSError."""
    folder = requests / FOLDER
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    write_whole(folder / f"{number_of(forwarded.name)}.json", msgspec.json.encode(forwarded) + b"\n")


def answer_forwarded(requests: Path, number: int) -> Forwarded | None:
    """What was left of the request with that number, which counts as answered from here on; None if nothing was."""
    path = requests / FOLDER / f"{number}.json"
    with contextlib.suppress(OSError, msgspec.DecodeError):
        path.rename(path.with_suffix(_ANSWERED))
        return _read(path.with_suffix(_ANSWERED))
    return None


def find_forwarded(requests: Path, number: int) -> Forwarded | None:
    """What was left of the request with that number, answered or not. Nothing is changed."""
    for suffix in (".json", _ANSWERED):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return _read(requests / FOLDER / f"{number}{suffix}")
    return None


def clear_answered(requests: Path, older_than_ns: int) -> None:
    """Remove what was answered and was left before a moment, Unix ns."""
    with contextlib.suppress(OSError):
        for path in (requests / FOLDER).glob(f"[!.]*{_ANSWERED}"):
            if path.stat().st_mtime_ns < older_than_ns:
                path.unlink()


def _read(path: Path) -> Forwarded:
    return read_json(path, Forwarded)


def is_forwarded(requests: Path, name: str) -> bool:
    """Whether the request of that name was passed on and has no answer yet."""
    return (requests / FOLDER / f"{number_of(name)}.json").exists()


def list_forwarded(requests: Path) -> list[Forwarded]:
    """What was left and nobody has answered yet, the oldest first. Nothing is taken."""
    found = []
    with contextlib.suppress(OSError):
        for path in (requests / FOLDER).iterdir():
            with contextlib.suppress(OSError, msgspec.DecodeError):
                if path.suffix == ".json" and path.name[0] != ".":
                    found.append(_read(path))
    return sorted(found, key=lambda each: each.at_unix_ns)
