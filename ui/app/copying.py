"""What is copied from the screen: SQL for `glassgate query`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ui.view.snapshot import Head


def sql_of_run(template: str, head: Head, **values: int | str) -> str:
    """SQL with `{run}` filled by the condition on the run's row `r`, and the values quoted as SQL wants them."""
    filled = {name: str(value) if isinstance(value, int) else quoted(value) for name, value in values.items()}
    return template.format(run=f"r.name = {quoted(head.run)} AND r.rank = {head.rank}", **filled)


def quoted(text: str) -> str:
    """A text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
