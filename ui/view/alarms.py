"""Alarms up to a moment: those that stand first, then the latest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from store.alarms import LONG_WAIT
from store.words import amount, duration
from ui.view.snapshot import MOST_ROWS, AlarmRow, LogLine
from ui.view.words import named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ui.view.moment import Moment

_LOOKED_AT: Final = 2_000
"""So many of the alarms raised last are looked at, beside those that were never over."""
_RAISED: Final = f"""SELECT number FROM (
    SELECT number FROM alarms WHERE run = :run AND opened_ns <= :at ORDER BY number DESC LIMIT {_LOOKED_AT})
UNION SELECT number FROM (
    SELECT number FROM alarms INDEXED BY alarms_open WHERE run = :run AND closed_ns IS NULL AND opened_ns <= :at
    ORDER BY number DESC LIMIT {_LOOKED_AT})"""  # noqa: S608 - our own constants
ALARMS_SQL: Final = f"""SELECT a.number, a.alarm, a.opened_ns, a.last_ns, a.closed_ns, a.count, a.measured, a.threshold,
    a.unit, a.request, q.id, g.gate, a.detail, k.meaning
FROM ({_RAISED}) f CROSS JOIN alarms a ON a.run = :run AND a.number = f.number
JOIN alarm_kinds k ON k.alarm = a.alarm
LEFT JOIN requests q ON q.run = a.run AND q.number = a.request LEFT JOIN gates g ON g.id = a.gate
ORDER BY a.closed_ns IS NOT NULL AND a.closed_ns <= :at, a.opened_ns DESC, a.number DESC LIMIT :limit"""  # noqa: S608
OPEN_SQL: Final = f"""SELECT count(*) FROM ({_RAISED}) f CROSS JOIN alarms a ON a.run = :run AND a.number = f.number
WHERE a.closed_ns IS NULL OR a.closed_ns > :at"""  # noqa: S608 - our own text


def read_alarms(moment: Moment) -> tuple[AlarmRow, ...]:
    """The alarms that had been raised by the moment. Raises sqlite3.Error."""
    values = {"run": moment.run.id, "at": moment.at_ns, "limit": MOST_ROWS}
    return tuple(_row(moment.at_ns, row) for row in moment.connection.execute(ALARMS_SQL, values))


def count_open(moment: Moment) -> int:
    """How many alarms stand at the moment. Raises sqlite3.Error."""
    values = {"run": moment.run.id, "at": moment.at_ns}
    return int(moment.connection.execute(OPEN_SQL, values).fetchone()[0])


def _row(at_ns: int, row: tuple[Any, ...]) -> AlarmRow:
    """An alarm as it stood at a time: what it came to after that is not in the record for then."""
    number, alarm, opened_ns, last_ns, closed_ns, count, measured, threshold, unit, request, identity, *rest = row
    gate, detail, meaning = rest
    if closed_ns is not None and closed_ns > at_ns:
        closed_ns = None
    at_least = last_ns > at_ns
    if at_least:
        last_ns, count, detail = at_ns, 1, ""
        # How long somebody waits is known at any time: it stands since its threshold.
        measured = threshold + at_ns - opened_ns if alarm == LONG_WAIT.name else threshold
    return AlarmRow(
        number, alarm, "open" if closed_ns is None else "closed", opened_ns, last_ns, closed_ns, count, measured,
        threshold, unit, None if request is None else named(identity, request), gate, detail, meaning, at_least,
    )  # fmt: skip


def alarm_lines(alarms: tuple[AlarmRow, ...]) -> Iterator[LogLine]:
    """When each alarm was raised and when it was over, as lines of the log."""
    for alarm in alarms:
        about = ", ".join(filter(None, (alarm.request, alarm.gate)))
        measured = (
            duration(alarm.measured) if alarm.unit == "ns" else f"{amount(alarm.measured, alarm.unit)} {alarm.unit}"
        )
        raw = msgspec.json.format(msgspec.json.encode(alarm), indent=2).decode()
        yield LogLine(
            alarm.opened_ns, "alarm", f"{alarm.alarm} raised" + (f" for {about}" if about else "") + f": {measured}",
            fault=True, pass_number=None, request=alarm.request, raw=raw,
        )  # fmt: skip
        if alarm.closed_ns is not None:
            text = f"{alarm.alarm} over" + (f" for {about}" if about else "")
            yield LogLine(alarm.closed_ns, "alarm", text, fault=False, pass_number=None, request=alarm.request, raw=raw)
