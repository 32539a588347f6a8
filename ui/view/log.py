"""The log: alarms and what happened up to a moment, the newest first, filtered."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from ui.view.alarms import alarm_lines, count_open, read_alarms
from ui.view.happened import HAPPENED
from ui.view.snapshot import MOST_ROWS, Log, LogLine

if TYPE_CHECKING:
    from collections.abc import Callable

    from ui.view.happened import Happening
    from ui.view.moment import Moment
    from ui.view.snapshot import Ask


def read_log(moment: Moment, ask: Ask) -> Log:
    """Alarms and log up to a moment; of each kind of thing the last MOST_ROWS are looked at. Raises sqlite3.Error."""
    values = {
        "run": moment.run.id, "at": moment.at_ns, "pass": moment.number, "limit": MOST_ROWS,
        "following": moment.following,
    }  # fmt: skip
    alarms = read_alarms(moment)
    told: list[tuple[int, Callable[[], LogLine]]] = []
    hidden = 0
    for line in alarm_lines(alarms):
        if _fits(ask, line.kind, line.text, line.request, fault=line.fault):
            told.append((line.at_ns, partial(_same, line)))
        else:
            hidden += 1
    for kind, read in HAPPENED.items():
        for each in read(moment, values):
            if _fits(ask, kind, each.text, each.request, fault=each.fault):
                told.append((each.at_ns, partial(_line, kind, each)))
            else:
                hidden += 1
    told.sort(key=lambda line: -line[0])
    wanted = max(1, min(ask.rows, MOST_ROWS))
    return Log(alarms, count_open(moment), tuple(make() for _, make in told[:wanted]), hidden)


def _line(kind: str, each: Happening) -> LogLine:
    raw = json.dumps(each.raw, indent=2, ensure_ascii=False)
    return LogLine(each.at_ns, kind, each.text, each.fault, each.pass_number, each.request, raw)


def _same(line: LogLine) -> LogLine:
    return line


def _fits(ask: Ask, kind: str, text: str, request: str | None, *, fault: bool) -> bool:
    """Whether the filter lets a line through."""
    if ask.faults_only and not fault:
        return False
    asked = ask.log_filter.strip()
    wanted = asked.lstrip("! ").lower()
    if not wanted:
        return True
    found = any(wanted in word.lower() for word in (kind, text, request or ""))
    return found is not asked.startswith("!")
