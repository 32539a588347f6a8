"""`glassgate decide`: one pass on a case written by hand."""

from typing import Any

import click

from controller.case import decide as decide_case
from estimator.given_file import read_given_json
from ui.options import json_option
from ui.output import cell, data, print_json, print_table


@click.command()
@click.argument("case", metavar="CASE.json")
@click.option("--table", is_flag=True, help="Print tables for people instead of JSON.")
@json_option
def decide(case: str, table: bool, as_json: bool) -> None:
    """Decide one pass on a case written by hand and print every decision.

    CASE.json may be - for standard input. The keys of a case and of the answer are in docs/decide.md. The answer is
    JSON; --table prints it for people.
    """
    answer = decide_case(read_given_json(case))
    if as_json or not table:
        print_json(answer)
    else:
        _print_tables(answer)


def _print_tables(answer: dict[str, Any]) -> None:
    print_table(
        ("member", "outcome", "extend tokens", "cached tokens", "from host"),
        [tuple(member.values()) for member in answer["batch"]],
        title="Batch",
    )
    data().print()
    print_table(
        ("request", "outcome", "gate", "reason", "observed", "limit", "short by", "unit", "host hit"),
        [
            (
                *(row[key] for key in ("id", "outcome", "gate", "reason", "observed", "limit", "short_by", "unit")),
                _hit(row),
            )
            for row in answer["decisions"]
        ],
        title="Decisions",
    )
    closed = answer["closed_by"]
    data().print()
    data().print("closed by " + (f"{closed['gate']} ({closed['reason']})" if closed else "nothing"))
    data().print(f"not reached: {', '.join(answer['not_reached']) or 'none'}")
    data().print(f"largest prompt that can be served: {cell(answer['largest_prompt_tokens'])} tokens")
    notes = [row for row in answer["effective"] if row["state"] not in ("as set", "off")]
    if notes:
        data().print()
        print_table(
            ("knob", "set", "effective", "state", "why"),
            [(row["name"], row["set_to"], row["effective"], row["state"], row["why"]) for row in notes],
            title="Knobs not in force as they were set",
        )


def _hit(row: dict[str, Any]) -> str:
    hit = row["host_hit"]
    return "-" if hit["reason"] == "none_resident" else hit["reason"] or hit["status"]
