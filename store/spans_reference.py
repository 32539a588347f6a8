"""The reference page of telemetry, made from the module of names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from store import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WORDS: Final = (
    "What they mean together, and how to send them, is in [the guide to telemetry](../telemetry.md). Units are UCUM. An"
    " attribute is absent where the record does not hold it. Arrays under one prefix have the same length and order.\n"
)
_MADE: Final = "<!-- Generated from the code by `make docs`; do not edit. -->\n\n"


def telemetry_page() -> str:
    """Every span, event, attribute and metric as Markdown."""
    return "".join((
        _MADE,
        "# Telemetry: spans, attributes, metrics\n\n",
        _WORDS,
        "\n## Resource\n\n",
        _attributes(names.RESOURCE),
        "\n## Spans\n",
        *(_name(span) for span in names.SPANS),
        "\n## Span events\n",
        *(_name(event) for event in names.EVENTS),
        "\n## Metrics\n\n",
        f"Each point also carries `{names.RUN_ID.key}` and `{names.RUN_RANK.key}`.\n\n",
        _table(("metric", "instrument", "unit", "meaning", "attributes"), (_metric(each) for each in names.METRICS)),
        "\n## Histogram boundaries\n\n",
        _table(
            ("metric", "unit", "boundaries"),
            (
                (f"`{each.name}`", f"`{each.unit}`", ", ".join(f"{bound:,.10g}" for bound in each.boundaries))
                for each in names.METRICS
                if each.boundaries
            ),
        ),
        "\n## Attributes\n\n",
        _attributes(names.attributes()),
    ))  # fmt: skip


def _name(each: names.Name) -> str:
    keys = ", ".join(f"`{attribute.key}`" for attribute in each.attributes)
    return f"\n### `{each.name}`\n\n{each.meaning}\n\nAttributes: {keys}.\n"


def _metric(each: names.Metric) -> tuple[str, ...]:
    keys = ", ".join(f"`{attribute.key}`" for attribute in each.attributes)
    return f"`{each.name}`", each.instrument, f"`{each.unit}`", each.meaning, keys


def _attributes(each: Iterable[names.Attribute]) -> str:
    rows = ((f"`{key}`", f"`{kind}`", _unit(unit), meaning) for key, kind, unit, meaning in each)
    return _table(("attribute", "type", "unit", "meaning"), rows)


def _unit(unit: str) -> str:
    return unit if not unit or "`" in unit or " " in unit or "'" in unit else f"`{unit}`"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns)]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"
