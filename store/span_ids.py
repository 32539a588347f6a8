"""Trace and span ids in SQL: derived by `store.identity` from run, rank and number, as the spans themselves are.

Kept as columns they would take 22 bytes a decision. `register` gives a connection the functions and, as temporary
views, the ids beside the rows they belong to; docs/datasette/plugins does the same for Datasette.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from store.identity import Identity

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

VIEWS: Final = {
    "pass_spans": """SELECT p.run, p.number AS pass, pass_trace_id(r.name, r.rank, p.number) AS trace_id,
    pass_span_id(r.name, r.rank, p.number) AS span_id
FROM main.passes p JOIN main.runs r ON r.id = p.run""",
    "decision_spans": """SELECT d.run, d.pass, d.position, d.request, pass_trace_id(r.name, r.rank, d.pass) AS trace_id,
    decision_span_id(r.name, r.rank, d.pass, d.position) AS span_id,
    pass_span_id(r.name, r.rank, d.pass) AS parent_span_id
FROM main.decisions d JOIN main.runs r ON r.id = d.run""",
    "repeat_spans": """SELECT t.run, t.first_pass, pass_trace_id(r.name, r.rank, t.first_pass) AS trace_id,
    repeat_span_id(r.name, r.rank, t.first_pass) AS span_id,
    decision_span_id(r.name, r.rank, t.first_pass, 0) AS parent_span_id
FROM main.repeats t JOIN main.runs r ON r.id = t.run""",
    # A request without a traceparent of its own has a derived trace; a wait after a retraction has a span of its own.
    "queue_spans": """SELECT q.run, q.number AS request, w.start_ns,
    request_trace_id(r.name, q.id, q.traceparent) AS trace_id,
    queue_span_id(r.name, r.rank, q.number, w.start_ns) AS span_id
FROM main.requests q JOIN main.runs r ON r.id = q.run JOIN (
    SELECT run, number, arrival_ns AS start_ns FROM main.requests WHERE arrival_ns IS NOT NULL
    UNION ALL SELECT run, request, at_ns FROM main.retractions
) w ON w.run = q.run AND w.number = q.number""",
}
"""Temporary views and their SQL; the ids are hexadecimal, as OpenTelemetry prints them."""

_TRACEPARENT: Final = re.compile(
    r"[ \t]*(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(-[^\n]*|[ \t]*)\n?"
)
_LONGEST_TRACEPARENT: Final = 512
"""Characters, as OpenTelemetry has it."""


def caller_of(traceparent: str) -> tuple[str, str] | None:
    """Trace and span id, hexadecimal, that a request came with; None where it names none.

    W3C Trace Context, level 1, 3.2: a later version may say more behind its flags, version 00 may not.
    """
    if len(traceparent) > _LONGEST_TRACEPARENT:
        return None
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None or (found[1] == "00" and found[4].startswith("-")):
        return None
    return found[2], found[3]


def _pass_trace(run: str, rank: int, number: int) -> str:
    return Identity(run, rank).of_pass(number).trace_hex


def _pass_span(run: str, rank: int, number: int) -> str:
    return Identity(run, rank).of_pass(number).span_hex


def _decision_span(run: str, rank: int, number: int, position: int) -> str:
    return f"{Identity(run, rank).of_decision(number, position):016x}"


def _repeat_span(run: str, rank: int, first_pass: int) -> str:
    return f"{Identity(run, rank).of_repeat(first_pass):016x}"


def _queue_span(run: str, rank: int, number: int, start_ns: int) -> str:
    return f"{Identity(run, rank).of_queue(number, start_ns):016x}"


def _request_trace(run: str, request: str | None, traceparent: str | None) -> str | None:
    caller = caller_of(traceparent or "")
    if caller is not None:
        return caller[0]
    return None if request is None else f"{Identity(run, 0).request_trace(request):032x}"


FUNCTIONS: Final[dict[str, tuple[int, Callable[..., Any]]]] = {
    "pass_trace_id": (3, _pass_trace),
    "pass_span_id": (3, _pass_span),
    "decision_span_id": (4, _decision_span),
    "repeat_span_id": (3, _repeat_span),
    "queue_span_id": (4, _queue_span),
    "request_trace_id": (3, _request_trace),
}
"""SQL functions: how many arguments, and what is called. The first is a run's name; but for the last, then its rank."""


def register(connection: sqlite3.Connection) -> None:
    """Give a connection the functions and views. It may be read-only; nothing is written to its database."""
    for name, (arguments, function) in FUNCTIONS.items():
        connection.create_function(name, arguments, function, deterministic=True)
    for name, sql in VIEWS.items():
        connection.execute(f"CREATE TEMP VIEW IF NOT EXISTS {name} AS {sql}")
