"""One pass opened: every decision with its full ladder, and what the pass had to decide with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from controller.vocabulary import HostHit, Reason
from ui.view.ladder import read_ladder
from ui.view.passes import read_pass
from ui.view.snapshot import MOST_ROWS, DecisionView, PassDetail
from ui.view.window import parts_of
from ui.view.words import OUTCOMES, named, stop_of

if TYPE_CHECKING:
    import sqlite3

    from ui.view.memory import Memory
    from ui.view.moment import Moment

ROW_SQL: Final = "SELECT * FROM passes WHERE run = ? AND number = ?"
DECISIONS_SQL: Final = """SELECT d.*, q.id
FROM decisions d LEFT JOIN requests q ON q.run = d.run AND q.number = d.request
WHERE d.run = ? AND d.pass = ? ORDER BY d.position LIMIT ?"""


def read_detail(moment: Moment, number: int, memory: Memory) -> PassDetail | None:
    """A pass that began by the moment; None for none. Raises sqlite3.Error."""
    row = read_pass(moment, number, memory)
    if row is None:
        return None
    run = moment.run.id
    (passed,) = _dicts(moment.connection.execute(ROW_SQL, (run, number)))
    decisions = _dicts(moment.connection.execute(DECISIONS_SQL, (run, number, MOST_ROWS)))
    lanes = json.loads(passed["lanes"]) if passed["lanes"] else []
    return PassDetail(
        row, tuple(map(_decision, decisions)), passed["free_tokens"], passed["evictable_tokens"],
        passed["reserved_tokens"], passed["running"], passed["quota_after"], passed["room_after"],
        tuple((free, evictable) for free, evictable in lanes), parts_of(passed["parts"]), _raw(passed, decisions),
    )  # fmt: skip


def _dicts(cursor: sqlite3.Cursor) -> list[dict[str, Any]]:
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _decision(d: dict[str, Any]) -> DecisionView:
    host = HostHit(d["host_hit"])
    gate, reason = d["gate"], d["reason"]
    name = named(d["id"], d["request"])
    stop = None
    if gate is not None and reason is not None:
        stop = stop_of(gate, reason, (d["observed"], d["limit_value"], d["short_by"]), name)
    lane = reason == Reason.LANE
    return DecisionView(
        name, OUTCOMES[d["outcome"]], stop, d["prompt_tokens"], d["done_tokens"], d["output_tokens"],
        d["extend_tokens"], d["device_hit_tokens"], host.status, host.word if host.status == "skipped" else None,
        d["resident_tokens"], d["matched_tokens"], d["asked_tokens"], d["evicted_tokens"],
        read_ladder(d["checks"], lane=lane), read_ladder(d["checks_before_load_failure"]),
    )  # fmt: skip


def _raw(passed: dict[str, Any], decisions: list[dict[str, Any]]) -> str:
    """The rows as indented JSON."""
    whole = {**_opened(passed), "decisions": [_opened(decision) for decision in decisions]}
    return json.dumps(whole, indent=2, ensure_ascii=False)


def _opened(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its JSON columns as values."""
    packed = ("parts", "lanes", "checks", "checks_before_load_failure")
    return {name: json.loads(value) if name in packed and value else value for name, value in row.items()}
