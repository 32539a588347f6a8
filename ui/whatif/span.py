"""Span: the stretch of a run that is looked at, and from where it is replayed to warm the cache."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from estimator.errors import NotFoundError, UsageError, shown
from store.database import reading
from store.words import duration
from ui.whatif.requests import Asked, read_beginnings, read_requests

if TYPE_CHECKING:
    import sqlite3

    from ui.whatif.recorded import Recorded

MOST_WARM_REQUESTS: Final = 50_000
"""How many requests before the span are replayed at most to warm the cache."""
_SECOND: Final = 1_000_000_000
_UNITS: Final = {"ms": 1_000_000, "s": _SECOND, "m": 60 * _SECOND, "min": 60 * _SECOND, "h": 3_600 * _SECOND}
_LONGEST_NS: Final = 1 << 62
_PARTS: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)?")

_PASSES: Final = "SELECT count(*) FROM passes WHERE run = ? AND members > 0 AND start_ns BETWEEN ? AND ?"
_WARM: Final = """SELECT arrival_ns FROM requests WHERE run = ? AND arrival_ns < ?
ORDER BY number DESC LIMIT 1 OFFSET ?"""
_ANSWERED: Final = """SELECT max(coalesce(first_token_ns, ?)) FROM requests
WHERE run = ? AND arrival_ns BETWEEN ? AND ? AND end_ns IS NOT NULL"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of a run with what is needed to replay it. Times are ns of the run's clock."""

    since_ns: int
    until_ns: int
    begin_ns: int
    """From here on the record is replayed; what is before the span warms the cache."""
    whole: bool
    """The replay begins with the run, so that the cache begins empty as it did; else nobody knows what was in it."""
    requests: tuple[Asked, ...]
    """Those that arrived from the beginning until the span is answered."""
    before: tuple[tuple[int, int, int, int], ...]
    """What is known of the beginnings of earlier ones, which those share."""

    @property
    def words(self) -> str:
        """How the cache began, for people."""
        if self.whole:
            return "replayed from the run's start"
        warm = self.since_ns - self.begin_ns
        return f"replayed from {duration(warm)} before the span; what the cache held then is not known"


def read_span(
    recorded: Recorded, since: str | int | None = None, until: str | int | None = None,
    *, warm_requests: int = MOST_WARM_REQUESTS,
) -> Span:  # fmt: skip
    """The stretch between two moments (see `moment`), by default all of the run.

    At most `warm_requests` requests before it are replayed to warm the cache. Raises UsageError for what is no moment
    or no stretch, NotFoundError where it holds no pass or part of it was pruned, or where the record lacks what is
    needed.
    """
    since_ns = recorded.start_ns if since is None else moment(recorded, since)
    until_ns = recorded.last_ns if until is None else moment(recorded, until)
    name, lasted = recorded.name, duration(recorded.last_ns - recorded.start_ns)
    if since_ns > recorded.last_ns:
        raise UsageError(f"the run lasted {lasted}, and the span would begin after that; give an earlier --since")
    if until is not None and until_ns <= recorded.start_ns < recorded.last_ns:
        raise UsageError(f"the run lasted {lasted}, and the span would end where it began; give a later --until")
    if since_ns > until_ns:
        raise UsageError(
            f"the span would begin {duration(since_ns - until_ns)} after its end; give --since before --until"
        )
    if recorded.pruned_ns is not None and recorded.pruned_ns >= since_ns:
        if recorded.pruned_ns >= recorded.last_ns:
            raise NotFoundError(f"run {name} was pruned: nothing of it is left to replay")
        left = duration(recorded.last_ns - recorded.pruned_ns)
        raise NotFoundError(
            f"run {name}: the beginning of that span was pruned; its last {left} are left, give a later --since"
        )
    with reading(recorded.database) as connection:
        passes = connection.execute(_PASSES, (recorded.id, since_ns, until_ns)).fetchone()[0]
        if not passes:
            raise NotFoundError(
                f"run {name}: no batch was formed in that span; the run lasted {lasted}, give an earlier --since"
            )
        begin_ns, whole = _beginning(connection, recorded, since_ns, warm_requests)
        served_ns = connection.execute(_ANSWERED, (until_ns, recorded.id, since_ns, until_ns)).fetchone()[0]
        requests = read_requests(connection, recorded.id, begin_ns, max(until_ns, served_ns or 0))
        if not requests:
            raise NotFoundError(f"run {name}: no request of that span is in the record; give an earlier --since")
        _check_prefixes(recorded, requests)
        before = [] if whole else read_beginnings(connection, recorded.id, requests[-1].number)
    taken = {each.number for each in requests}
    return Span(
        since_ns=since_ns, until_ns=until_ns, begin_ns=begin_ns, whole=whole, requests=tuple(requests),
        before=tuple(row for row in before if row[0] not in taken),
    )  # fmt: skip


def _beginning(
    connection: sqlite3.Connection, recorded: Recorded, since_ns: int, warm_requests: int
) -> tuple[int, bool]:
    """From where to replay, and whether that is the run's start."""
    start_ns = recorded.start_ns
    if recorded.pruned_ns is not None:
        start_ns = recorded.pruned_ns + 1
    row = connection.execute(_WARM, (recorded.id, since_ns, warm_requests)).fetchone()
    if row is not None and row[0] > start_ns:
        return int(row[0]), False
    return start_ns, recorded.pruned_ns is None and not recorded.lost_frames


def _check_prefixes(recorded: Recorded, requests: list[Asked]) -> None:
    """Refuse a record that had cache hits and does not say of what. Raises NotFoundError."""
    if any(each.known_tokens for each in requests):
        return
    hits = sum((each.device_hit_tokens or 0) + (each.host_loaded_tokens or 0) for each in requests)
    if hits:
        raise NotFoundError(
            f"run {recorded.name}: {hits:,} prompt tokens hit the cache, but the record holds no prefix hashes, so "
            "nothing can be said of a replay; record it again with a Glassgate that keeps them"
        )


def moment(recorded: Recorded, text: str | int) -> int:
    """The moment that a text or a number names, ns of the run's clock.

    A number is one already. `10m`, `90s` or `1h30m` counts back from the end of the record, `+10m` from its start; a
    time such as `12:03`, `12:03:10` or `2026-03-01T12:03` is UTC. What is before the record is its start, what is after
    it just behind its end. Raises UsageError for anything else.
    """
    if isinstance(text, int):
        return text
    word = text.strip()
    counted = _counted(word.lstrip("+"))
    wall = _wall(recorded, word) if counted is None else None
    if counted is not None:
        found = recorded.start_ns + counted if word.startswith("+") else recorded.last_ns - counted
    elif wall is not None:
        found = recorded.start_ns + wall - (recorded.wall_ns or 0)
    else:
        raise UsageError(
            f"{shown(text)} is no moment of a run; write 10m (before its end), +10m (after its start) or 12:03:10"
        )
    return max(recorded.start_ns, min(recorded.last_ns + 1, found))


def _counted(word: str) -> int | None:
    """A duration in ns, seconds without a unit; one longer than any run is cut."""
    parts = _PARTS.findall(word)
    if not parts or "".join(number + unit for number, unit in parts) != word.replace(" ", ""):
        return None
    return int(min(_LONGEST_NS, sum(float(number) * _UNITS[unit or "s"] for number, unit in parts)))


def _wall(recorded: Recorded, word: str) -> int | None:
    """The Unix ns of a time of day, or of a date and time; None for neither, or where the run has no date."""
    if recorded.wall_ns is None:
        return None
    try:
        begun = dt.datetime.fromtimestamp(recorded.wall_ns / _SECOND, tz=dt.UTC)
        if "-" in word:
            wanted = dt.datetime.fromisoformat(word)
            wanted = wanted if wanted.tzinfo is not None else wanted.replace(tzinfo=dt.UTC)
        else:
            wanted = dt.datetime.combine(begun.date(), dt.time.fromisoformat(word), dt.UTC)
            if wanted < begun - dt.timedelta(seconds=1):
                wanted += dt.timedelta(days=1)
        return int(wanted.timestamp() * _SECOND)
    except (ValueError, OverflowError):
        return None
