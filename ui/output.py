"""stdout is data, stderr is narration: the two consoles and the few shapes that commands print."""

import contextlib
import csv
import io
import json
import math
import os
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from store.named import Column
from store.queries import Answer
from store.runs import StoredRun
from store.words import duration, size

_LONG_WORD: Final = 16
"""Characters of a word that a table may break."""
_DAY: Final = len("2026-01-01")


class DataConsole(Console):
    """A console that leaves a reader who has gone to `ui.cli`, which ends quietly."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, where rich would exit with code 1."""
        raise BrokenPipeError


def narration() -> Console:
    """The console for progress and remarks."""
    return Console(stderr=True, highlight=False)


def narrate(text: str) -> None:
    """One remark on stderr, where that can be written; a remark is never worth a failure."""
    with contextlib.suppress(OSError):
        narration().print(printable(text), markup=False, soft_wrap=True)


def data() -> Console:
    """The console for what a command was asked for; as wide as its content where it is not a terminal."""
    wide = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 160
    return DataConsole(highlight=False, width=wide)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    plain_ascii = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
    sys.stdout.write(json.dumps(_finite(value), indent=2, ensure_ascii=plain_ascii, default=str) + "\n")


def _finite(value: Any) -> Any:
    """The value with null for numbers that JSON does not know."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def printable(text: str) -> str:
    """The text without characters that could steer a terminal."""
    return "".join(each if each.isprintable() or each == "\n" else f"\\x{ord(each):02x}" for each in text)


def print_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows as CSV on stdout, with a header."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    sys.stdout.write(text.getvalue())


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None, *, whole: Collection[int] = ()
) -> None:
    """Rows as a plain table, numbers grouped by thousands and set to the right; columns in `whole` are never folded.

    Where the words of a row have no room beside each other, each row is told in lines of its own.
    """
    held = [list(row) for row in rows]
    heads = [printable(column) for column in columns]
    cells = [[printable(cell(value)) for value in row] for row in held]
    console = data()
    if _least_width(heads, cells, whole) > console.width:
        _print_records(console, heads, cells, title)
        return
    table = _plain(title)
    for at, head in enumerate(heads):
        told = [row[at] for row in held if row[at] not in (None, "", "-")]
        numeric = bool(told) and all(isinstance(value, int | float) or str(value)[:1].isdigit() for value in told)
        table.add_column(Text(head), justify="right" if numeric else "left", overflow="fold", no_wrap=at in whole)
    for row in cells:
        table.add_row(*(Text(each) for each in row))
    console.print(table)


def _plain(title: str | None) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")


def _least_width(heads: Sequence[str], cells: Sequence[Sequence[str]], whole: Collection[int]) -> int:
    """Columns of the terminal that a table needs to break no word but long ones, which are ids and names of files."""
    least = 2 * (len(heads) - 1)
    for at, head in enumerate(heads):
        texts = [head, *(row[at] for row in cells)]
        words = texts if at in whole else (word for text in texts for word in text.split())
        longest = max(map(len, words), default=0)
        least += longest if at in whole else min(longest, _LONG_WORD)
    return least


def _print_records(console: Console, heads: Sequence[str], cells: Sequence[Sequence[str]], title: str | None) -> None:
    for number, row in enumerate(cells):
        table = _plain(None if number else title)
        table.show_header = False
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for head, text in zip(heads, row, strict=True):
            table.add_row(Text(head), Text(text))
        if number:
            console.print()
        console.print(table)


def print_answer(answer: Answer, title: str | None = None) -> None:
    """What a query found as a table, times and sizes in the unit that fits."""
    shown: dict[str, Callable[[int], str]] = {"ns": duration, "bytes": size, "at": partial(_moment, answer.run)}
    rows = [
        [
            shown[column.unit](value) if column.unit in shown and isinstance(value, int) else value
            for column, value in zip(answer.columns, row, strict=True)
        ]
        for row in answer.rows
    ]
    moments = {at for at, column in enumerate(answer.columns) if column.unit == "at"}
    print_table([_header(column) for column in answer.columns], rows, title, whole=moments)


def _moment(run: StoredRun | None, at_ns: int) -> str:
    """A moment of the run's clock in UTC, on another day than its first with that; of a simulated run the time in."""
    if run is None:
        return duration(at_ns)
    began = run.start_ns or 0
    told, day = run.utc(at_ns), (run.utc(began) or "")[:_DAY]
    if told is None:
        return duration(at_ns - began)
    return told[_DAY + 1 : -1] if told[:_DAY] == day else told


def _header(column: Column) -> str:
    """A column's name, with its unit where neither the name nor the values show it."""
    name = column.name.removesuffix("_ns").removesuffix("_bytes").replace("_", " ")
    return f"{name} (%)" if column.unit == "percent" else name


def knob_value(value: Any) -> str:
    """A knob's value, none in the word by which it is set."""
    return "off" if value is None else cell(value)


def cell(value: Any) -> str:
    """One value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return str(value)
