"""Moments and ages as the screen writes them. Wall times are UTC."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

from store.words import duration
from ui.app.figures import ABSENT

if TYPE_CHECKING:
    from ui.view.snapshot import Head

SECOND: Final = 1_000_000_000
"""ns."""
_DAY: Final = 86_400 * SECOND
_GOING_ON: Final = frozenset({"live", "idle", "collector_gone", "recording"})


def wall_of(head: Head, at_ns: int | None) -> int | None:
    """Unix ns of a moment of the run's clock; None where the record does not anchor its clock."""
    if at_ns is None or head.at_ns is None or head.wall_ns is None:
        return None
    return at_ns + head.wall_ns - head.at_ns


def clock(head: Head, at_ns: int | None) -> str:
    """The time of day of a moment, UTC, as `12:03:10`; the time into the run where there is no anchor."""
    wall = wall_of(head, at_ns)
    if wall is None:
        return into_run(head, at_ns)
    return f"{dt.datetime.fromtimestamp(wall // SECOND, tz=dt.UTC):%H:%M:%S}"


def day_and_clock(wall_ns: int | None) -> str:
    """A Unix time as `2026-03-01 12:03:10`, UTC."""
    if wall_ns is None:
        return ABSENT
    return f"{dt.datetime.fromtimestamp(wall_ns // SECOND, tz=dt.UTC):%Y-%m-%d %H:%M:%S}"


def into_run(head: Head, at_ns: int | None) -> str:
    """How far into the run a moment is: `+6 min 34 s`."""
    if at_ns is None or head.first_ns is None:
        return ABSENT
    return f"+{duration(max(0, at_ns - head.first_ns))}"


def age(ns: int | None) -> str:
    """How long ago, calm enough to be repainted four times a second: tenths below ten seconds, seconds below a day."""
    if ns is None:
        return ABSENT
    if ns < 10 * SECOND:
        return f"{max(0, ns) / SECOND:.1f} s ago"
    if ns < 60 * SECOND:
        return f"{ns // SECOND} s ago"
    return f"{duration(ns)} ago" if ns < _DAY else f"{ns // _DAY} d ago"


def moment_of_day(head: Head, text: str) -> int:
    """The moment of the run's clock that `12:03`, `12:03:10`, `+90` or `-30` names.

    A time of day is the one at or after the run's beginning; `+` counts seconds (`5m`, `1h`) from the beginning, `-`
    back from the newest thing recorded. Raises ValueError with words when it names none.
    """
    if text[:1] in ("+", "-"):
        return _counted(head, text)
    first_wall = wall_of(head, head.first_ns)
    if first_wall is None or head.first_ns is None:
        raise ValueError("this record does not say what time it was; write +SECONDS into the run, such as +90")
    try:
        time_of_day = dt.time.fromisoformat(text if len(text) > 4 else text.zfill(5)).replace(tzinfo=dt.UTC)
    except ValueError:
        raise ValueError(f"{text!r} is no time; write 12:03, 12:03:10 (UTC), +90, +5m or -30") from None
    begun = dt.datetime.fromtimestamp(first_wall / SECOND, tz=dt.UTC)
    wanted = dt.datetime.combine(begun.date(), time_of_day)
    if (begun - wanted).total_seconds() >= 1:
        wanted += dt.timedelta(days=1)
    return head.first_ns + max(0, int(wanted.timestamp() * SECOND) - first_wall)


def within(head: Head, at_ns: int) -> tuple[int, str]:
    """A moment of the run, and in words what was done to one that is none: the nearest one there is stands for it."""
    if head.first_ns is None or head.last_ns is None:
        return at_ns, ""
    if at_ns < head.first_ns:
        return head.first_ns, f"is before the run began, at {clock(head, head.first_ns)}; its beginning is shown"
    if at_ns > head.last_ns:
        told = "is after what was recorded last" if head.presence in _GOING_ON else "is after the run's end"
        return head.last_ns, f"{told}, at {clock(head, head.last_ns)}; that is shown"
    return at_ns, ""


def _counted(head: Head, text: str) -> int:
    """A moment counted from the beginning or back from the end."""
    factor = {"s": 1, "m": 60, "h": 3600}.get(text[-1:], 0)
    digits = text[1:-1] if factor else text[1:]
    start = head.first_ns if text[0] == "+" else head.last_ns
    if start is None:
        raise ValueError("this run has recorded nothing yet")
    try:
        seconds = float(digits) * (factor or 1)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise ValueError(f"{text!r} is no time; write +90, +5m, +1h or -30")
    return start + (1 if text[0] == "+" else -1) * int(seconds * SECOND)
