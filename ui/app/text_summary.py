"""What the screen would show, as a few lines of text, for where there is no terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.words import counted
from ui.app.head import head_lines
from ui.app.moments import clock, day_and_clock, wall_of
from ui.app.notice import notice_of
from ui.app.pass_line import legend, pass_line, scale_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ui.view.snapshot import Log, Snapshot

_PASSES = 12
_WIDTH = 120


def summary_lines(snapshot: Snapshot, wall_ns: int, width: int = _WIDTH) -> Iterator[str]:
    """Headline, what is wrong, the last passes, the alarms; each line at most `width` cells."""
    head = snapshot.head
    for line in head_lines(head, width, past=not head.following):
        yield line.plain.rstrip()
    notice = notice_of(snapshot, "", wall_ns).plain
    if notice:
        yield notice.strip()
    if head.at_ns is not None:
        yield f"at {day_and_clock(wall_of(head, head.at_ns))} UTC"
    rows = snapshot.passes[:_PASSES]
    if rows:
        scale = scale_of(rows, joined=False)
        yield ""
        yield legend(width, scale).plain.rstrip()
        for row in rows:
            yield pass_line(row, width, scale, time=clock(head, row.start_ns)).plain.rstrip()
    if snapshot.log is not None:
        yield ""
        yield from _alarms(snapshot.log)


def _alarms(log: Log) -> Iterator[str]:
    if not log.open_alarms:
        yield "no alarm stands"
        return
    yield f"{counted(log.open_alarms, 'alarm')} standing:"
    for alarm in log.alarms:
        if alarm.closed_ns is None:
            about = f" {alarm.request}" if alarm.request else ""
            yield f"  {alarm.alarm}{about}  {alarm.detail or alarm.meaning}"
