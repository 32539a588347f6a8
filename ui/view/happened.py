"""What happened in a run up to a moment, as lines of its log: one function for each kind of thing."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.knobs import SPEC_BY_NAME
from controller.vocabulary import Gate, Reason, unit_of
from store.words import amount, count, counted, duration, size
from ui.view.words import named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ui.view.moment import Moment

RUN_SQL: Final = """SELECT engine, version, model, simulated, pool_tokens, host_tokens, slots, largest_prompt_tokens,
    start_ns, end_ns, end_reason, passes, requests FROM runs WHERE id = :run"""
KNOBS_SQL: Final = """SELECT at_ns, who, revision, knob, old, new, accepted, why, request FROM knob_changes
WHERE run = :run AND at_ns <= :at ORDER BY id DESC LIMIT :limit"""
REFUSED_SQL: Final = """SELECT p.start_ns, d.pass, d.request, q.id, d.gate, d.reason, d.observed, d.limit_value,
    d.short_by, d.prompt_tokens, d.output_tokens
FROM decisions d INDEXED BY decisions_refused JOIN passes p ON p.run = d.run AND p.number = d.pass
LEFT JOIN requests q ON q.run = d.run AND q.number = d.request
WHERE d.run = :run AND d.outcome = 4 AND d.pass <= :pass ORDER BY d.pass DESC, d.position DESC LIMIT :limit"""
ABORTED_SQL: Final = """SELECT end_ns, number, id, why, arrival_ns, admit_ns FROM requests INDEXED BY requests_aborted
WHERE run = :run AND ended = 'abort' AND end_ns <= :at ORDER BY end_ns DESC LIMIT :limit"""
BACK_SQL: Final = """SELECT t.at_ns, t.request, q.id, t.generated_tokens, t.freed_tokens, t.by_request, b.id AS by_id
FROM retractions t INDEXED BY retractions_at LEFT JOIN requests q ON q.run = t.run AND q.number = t.request
LEFT JOIN requests b ON b.run = t.run AND b.number = t.by_request
WHERE t.run = :run AND t.at_ns <= :at AND t.kind = :kind ORDER BY t.at_ns DESC LIMIT :limit"""
SMOKE_SQL: Final = """SELECT at_ns, device, asked_bytes, reserved_bytes, peak_bytes, free_before_bytes, passed, why
FROM smoke WHERE run = :run AND at_ns <= :at ORDER BY id DESC LIMIT :limit"""
LOSSES_SQL: Final = """SELECT coalesce(first_ns, last_ns) AS at_ns, reason, frames, bytes, first_ns, last_ns, segment,
    byte_offset, detail FROM losses
WHERE run = :run AND (coalesce(first_ns, last_ns) <= :at OR :following) ORDER BY id DESC LIMIT :limit"""
PRUNED_SQL: Final = """SELECT whole, first_pass, last_pass, first_ns, last_ns, passes, decisions, requests, at_unix_ns,
    why FROM pruned WHERE run = :run AND :following ORDER BY id DESC LIMIT :limit"""

Values = dict[str, Any]
_AT_THE_END: Final = frozenset({"end_ns", "end_reason", "passes", "requests"})
"""Columns of a run that are filled when it ends."""


class Happening(NamedTuple):
    """One thing that happened."""

    at_ns: int
    text: str
    raw: dict[str, Any]
    fault: bool = False
    pass_number: int | None = None
    request: str | None = None


def _rows(moment: Moment, sql: str, values: Values) -> list[dict[str, Any]]:
    cursor = moment.connection.execute(sql, values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _run(moment: Moment, values: Values) -> Iterator[Happening]:
    """The run's beginning and its end."""
    (row,) = _rows(moment, RUN_SQL, values)
    if row["start_ns"] is not None and row["start_ns"] <= moment.at_ns:
        facts = [" ".join(filter(None, (row["engine"], row["version"])))]
        facts += [f"model {row['model']}"] if row["model"] else []
        facts += [f"a pool of {counted(row['pool_tokens'], 'token')}"] if row["pool_tokens"] is not None else []
        facts += [counted(row["slots"], "slot")] if row["slots"] is not None else []
        if row["largest_prompt_tokens"] is not None:
            facts.append(f"prompts up to {counted(row['largest_prompt_tokens'], 'token')}")
        begun = {name: value for name, value in row.items() if name not in _AT_THE_END}
        yield Happening(row["start_ns"], f"run begun: {', '.join(facts)}", begun)
    if row["end_ns"] is not None and row["end_ns"] <= moment.at_ns:
        text = f"run ended: {row['end_reason']}"
        if row["passes"] is not None and row["requests"] is not None:
            text += f", {counted(row['passes'], 'pass', 'passes')}, {counted(row['requests'], 'request')}"
        yield Happening(row["end_ns"], text, row, fault=row["end_reason"] == "failed")


def _knobs(moment: Moment, values: Values) -> Iterator[Happening]:
    """Changes of knobs, those of one request together."""
    rows = _rows(moment, KNOBS_SQL, values)
    same = itemgetter("at_ns", "who", "accepted", "request", "revision")
    for (at_ns, who, accepted, *_), group in groupby(rows, same):
        changes = list(group)[::-1]
        told = ", ".join(
            f"{row['knob']} {_value(row['knob'], row['old'])} to {_value(row['knob'], row['new'])}"
            for row in changes
            if row["knob"]
        )
        if accepted:
            text = f"{who} turned {told}: revision {changes[-1]['revision']}"
        else:
            text = f"{who} asked for {told or 'a change'}; refused: {changes[-1]['why']}"
        yield Happening(at_ns, text, {"changes": changes}, fault=not accepted)


def _value(knob: str, value: int | None) -> str:
    spec = SPEC_BY_NAME.get(knob)
    if value is None:
        return "off"
    if spec is not None and spec.kind == "switch":
        return "on" if value else "off"
    return size(value) if spec is not None and spec.kind == "bytes" else count(value)


def _refused(moment: Moment, values: Values) -> Iterator[Happening]:
    """Requests that can never fit."""
    for row in _rows(moment, REFUSED_SQL, values):
        name = named(row["id"], row["request"])
        text = f"{name} can never fit"
        if row["gate"] is not None and row["reason"] is not None:
            unit = unit_of(Gate(row["gate"]), Reason(row["reason"]))
            text += f": needs {amount(row['observed'], unit)} of {amount(row['limit_value'], unit)} {unit}"
        yield Happening(row["start_ns"], text, row, fault=True, pass_number=row["pass"], request=name)


def _aborted(moment: Moment, values: Values) -> Iterator[Happening]:
    """Requests that left without being served."""
    for row in _rows(moment, ABORTED_SQL, values):
        name = named(row["id"], row["number"])
        waited = ""
        if row["arrival_ns"] is not None:
            waited = f" {duration(row['end_ns'] - row['arrival_ns'])} after it arrived"
        text = f"{name} was aborted{waited}" + (f": {row['why']}" if row["why"] else "")
        yield Happening(row["end_ns"], text, row, fault=True, request=name)


def _gave_back(kind: str) -> Callable[[Moment, Values], Iterator[Happening]]:
    """Requests that gave their KV back, of one kind."""

    def read(moment: Moment, values: Values) -> Iterator[Happening]:
        for row in _rows(moment, BACK_SQL, {**values, "kind": kind}):
            name = named(row["id"], row["request"])
            text = f"{name} gave its KV back and waits again"
            if row["generated_tokens"] is not None:
                text += f", {counted(row['generated_tokens'], 'token')} generated"
            if row["freed_tokens"] is not None:
                text += f", {counted(row['freed_tokens'], 'token')} freed"
            if row["by_id"] is not None or row["by_request"] is not None:
                text += f", put aside for {named(row['by_id'], row['by_request'])}"
            yield Happening(row["at_ns"], text, row, fault=True, request=name)

    return read


def _smoke(moment: Moment, values: Values) -> Iterator[Happening]:
    """Start-up allocations."""
    for row in _rows(moment, SMOKE_SQL, values):
        text = f"smoke allocation of {size(row['asked_bytes'])} on {row['device']} "
        text += "passed" if row["passed"] else f"failed: {row['why']}"
        yield Happening(row["at_ns"], text, row, fault=not row["passed"])


def _losses(moment: Moment, values: Values) -> Iterator[Happening]:
    """What the record does not hold. Of some it is not known when: they stand at its end."""
    for row in _rows(moment, LOSSES_SQL, values):
        text = f"lost from the record ({row['reason']}): {counted(row['frames'], 'frame')}, {size(row['bytes'])}"
        text += f"; {row['detail']}" if row["detail"] else ""
        at_ns = moment.at_ns if row["at_ns"] is None else row["at_ns"]
        yield Happening(at_ns, text, row, fault=True)


def _pruned(moment: Moment, values: Values) -> Iterator[Happening]:
    """What was dropped to keep the database within bounds; it stands where it was in the run."""
    for row in _rows(moment, PRUNED_SQL, values):
        what = "all" if row["whole"] else f"passes {count(row['first_pass'])} to {count(row['last_pass'])}"
        at_ns = moment.at_ns if row["last_ns"] is None else row["last_ns"]
        yield Happening(at_ns, f"pruned: {what} ({row['why']})", row)


HAPPENED: Final[dict[str, Callable[[Moment, Values], Iterator[Happening]]]] = {
    "run": _run, "knob": _knobs, "refuse": _refused, "abort": _aborted, "retract": _gave_back("retract"),
    "preempt": _gave_back("preempt"), "smoke": _smoke, "loss": _losses, "prune": _pruned,
}  # fmt: skip
"""What reads each kind; the values are run, at, pass, limit and following. They raise sqlite3.Error."""
