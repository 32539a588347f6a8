"""Turning knobs while a run goes on: what a request asks for, and the answer to one that was taken.

The answer is a function of the request, the knobs in force and the engine's setting alone, so that every rank of a run
gives the same one. It never raises: a request that cannot be followed comes back with the reason, for the record.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

import msgspec

from controller.knob_requests import KnobRequest, plain
from controller.knobs import KNOB_SPECS, Knobs
from controller.limits import Limits, Setting, effective
from controller.records import KnobChange
from estimator.errors import KnobError

FORMAT: Final = 1
LONGEST_NAME: Final = 120
"""Characters in the name of whoever asks, at most."""
_LONGEST_WHY: Final = 600

Change = tuple[str, int | bool | None, int | bool | None]
"""(knob, old, new); None is unlimited."""

FIXED: Final[Mapping[str, str]] = {"page_size": "the KV pool is laid out in such pages"}
"""Knobs that no engine can turn while it runs, and why. An engine adds those that it cannot turn safely."""


class AskedChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a request: who asks for which values, and when it was left (Unix ns).

    With `expect_revision` it is refused unless that revision is in force when it is taken.
    """

    format: Literal[1]
    who: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]
    changes: Annotated[dict[str, int | str | bool | None], msgspec.Meta(min_length=1, max_length=len(KNOB_SPECS))]
    left_unix_ns: int
    expect_revision: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of a request: the knobs to put in force, or why there are none."""

    request: str
    who: str
    changes: tuple[Change, ...]
    """What differs from the knobs in force; of a refused request, what could be read of it."""
    revision: int
    """In force after the answer."""
    knobs: Knobs | None
    """Under the next revision; None when the request is refused."""
    limits: Limits | None
    """What `knobs` mean in the engine's setting."""
    why: str = ""
    """Why it is refused."""

    @property
    def accepted(self) -> bool:
        """Whether there are knobs to put in force."""
        return self.knobs is not None

    def record(self, at_ns: int) -> KnobChange:
        """The record of the answer at a time of the run's clock."""
        return KnobChange(at_ns, self.who, self.revision, self.changes, self.accepted, self.why, self.request)


def asked_change(changes: Mapping[str, Any], who: str, *, expect_revision: int | None = None) -> dict[str, Any]:
    """The content of a request for new values, as people write them ("4GiB", "off", -1), to be left in a run.

    Raises KnobError for an unknown knob, a value it cannot have, no change at all, or a `who` that is empty, too long
    or not printable.
    """
    if not changes:
        raise KnobError("no change was asked for; name a knob and its value, for instance max_requests=8")
    if not 0 < len(who) <= LONGEST_NAME or not who.isprintable():
        raise KnobError(f"who asks is {who[:40]!r}; it is a name of 1 to {LONGEST_NAME} printable characters")
    parsed = Knobs.parse(changes)
    content: dict[str, Any] = {
        "format": FORMAT,
        "who": who,
        "changes": {name: getattr(parsed, name) for name in changes},
        "left_unix_ns": time.time_ns(),
    }
    return content if expect_revision is None else {**content, "expect_revision": expect_revision}


def answer(request: KnobRequest, knobs: Knobs, setting: Setting, fixed: Mapping[str, str] = FIXED) -> Answer:
    """The answer to a request that was taken, given the knobs in force. `fixed`: knobs that stay, and why."""
    nobody = "unknown" if request.uid is None else f"user {request.uid}"
    if request.content is None:
        return _refused(request, nobody, (), knobs, request.error or f"knob request {request.name} is empty")
    try:
        asked = msgspec.convert(request.content, AskedChange)
    except (msgspec.ValidationError, UnicodeEncodeError, RecursionError) as error:
        why = f"knob request {request.name} is not one: {error}; use glassgate knobs set"
        return _refused(request, nobody, (), knobs, why)
    who = asked.who if asked.who.isprintable() else nobody
    try:
        wanted = _wanted(asked, knobs, fixed)
        limits = effective(wanted, setting)
    except KnobError as error:
        return _refused(request, who, _legible(asked.changes, knobs), knobs, str(error))
    return Answer(request.name, who, _differing(knobs, wanted), wanted.revision, wanted, limits)


def _wanted(asked: AskedChange, knobs: Knobs, fixed: Mapping[str, str]) -> Knobs:
    """The knobs a request asks for, under the next revision. Raises KnobError where it cannot have them."""
    if asked.expect_revision not in (None, knobs.revision):
        raise KnobError(
            f"it was made for revision {asked.expect_revision}, and {knobs.revision} is in force; look at the knobs "
            "and ask again"
        )
    wanted = knobs.changed(asked.changes)
    differing = _differing(knobs, wanted)
    if not differing:
        same = ", ".join(f"{name} is {_told(getattr(knobs, name))} already" for name in asked.changes)
        raise KnobError(f"nothing would change: {same}")
    for name, old, new in differing:
        if name in fixed:
            raise KnobError(
                f"{name} is fixed at {_told(old)} for a run: {fixed[name]}; {_told(new)} takes effect in another run"
            )
    return wanted


def _refused(request: KnobRequest, who: str, changes: tuple[Change, ...], knobs: Knobs, why: str) -> Answer:
    why = plain(why)
    if len(why) > _LONGEST_WHY:
        why = why[: _LONGEST_WHY - 3] + "..."
    return Answer(request.name, who, changes, knobs.revision, None, None, why)


def _differing(before: Knobs, after: Knobs) -> tuple[Change, ...]:
    old, new = before.as_dict(), after.as_dict()
    return tuple((name, old[name], new[name]) for name in old if old[name] != new[name])


def _legible(changes: Mapping[str, Any], knobs: Knobs) -> tuple[Change, ...]:
    """What of refused changes is a knob and a value it could have, for the record; `why` tells the rest."""
    bare = replace(knobs, chunked_prefill_size=None, page_size=1)  # a chunk is measured against the page
    found: list[Change] = []
    for spec in KNOB_SPECS:
        if spec.name in changes:
            try:
                value = getattr(Knobs.parse({spec.name: changes[spec.name]}, bare), spec.name)
            except KnobError:
                continue
            found.append((spec.name, getattr(knobs, spec.name), value))
    return tuple(found)


def _told(value: int | bool | None) -> str:
    if value is None:
        return "unlimited"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}"
