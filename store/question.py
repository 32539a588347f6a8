"""A named query and its columns, as `store.named` collects them.

In its SQL `:run` is the number of the run asked about, `:limit` the most rows wanted.
"""

from typing import NamedTuple


class Column(NamedTuple):
    """One column of an answer; `unit` is empty for names, counts of things named by the column, and text.

    `ns` is a length of time, `at` a moment in nanoseconds of the run's clock.
    """

    name: str
    unit: str = ""


class NamedQuery(NamedTuple):
    """A question with a name."""

    name: str
    description: str
    columns: tuple[Column, ...]
    sql: str


def columns_of(text: str) -> tuple[Column, ...]:
    """Columns written as `name` or `name:unit`, separated by spaces."""
    return tuple(Column(*each.split(":")) for each in text.split())
