"""SQL that a panel offers for copying: the named queries and others, about the run that is shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from store.named import NAMED
from ui.app.copying import quoted
from ui.view.snapshot import MOST_ROWS

if TYPE_CHECKING:
    from ui.view.snapshot import Head


def of_run(sql: str, head: Head) -> str:
    """SQL with `:run` and `:limit` filled in, so that it asks about the run shown wherever it is pasted."""
    run = f"(SELECT id FROM runs WHERE name = {quoted(head.run)} AND rank = {head.rank})"  # noqa: S608 - it is quoted
    filled = {":run": run, ":limit": str(MOST_ROWS)}
    return re.sub(r":(?:run|limit)\b", lambda found: filled[found[0]], sql)


def named(name: str, head: Head) -> str:
    """A named query about the run that is shown."""
    return of_run(NAMED[name].sql, head)
