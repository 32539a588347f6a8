"""The limits in force under a knob revision, as the record has them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.knobs import KNOB_SPECS, stored_value
from controller.limits import Setting
from controller.vocabulary import Gate

if TYPE_CHECKING:
    import sqlite3

    from ui.view.moment import RunRow

KNOBS_SQL: Final = "SELECT knob, unit, set_to, effective, state, why, at_ns FROM knobs WHERE run = ? AND revision = ?"
KNOB_OF: Final = {Gate[spec.gate.upper()]: spec.name for spec in KNOB_SPECS if spec.gate}
"""The knob that bounds what a gate lets through."""


class KnobInForce(NamedTuple):
    """One knob under one revision."""

    unit: str
    set_to: int | bool | None
    effective: int | bool | None
    state: str
    why: str
    at_ns: int


class InForce:
    """The knobs of one revision; empty where the record does not hold them."""

    def __init__(self, connection: sqlite3.Connection, run: RunRow, revision: int | None) -> None:
        rows = () if revision is None else connection.execute(KNOBS_SQL, (run.id, revision))
        self.knobs: dict[str, KnobInForce] = {
            knob: KnobInForce(unit, stored_value(knob, set_to), stored_value(knob, effective), state, why, at_ns)
            for knob, unit, set_to, effective, state, why, at_ns in rows
        }
        self._pool_tokens, self._slots = run.pool_tokens, run.slots

    def number(self, knob: str) -> int | None:
        """The effective value of a knob; None for one that is off or not known."""
        found = self.knobs.get(knob)
        return None if found is None or found.effective is None else int(found.effective)

    @property
    def page(self) -> int:
        """Tokens of a page, 1 where it is not known."""
        return self.number("page_size") or 1

    @property
    def shadow(self) -> bool:
        """Whether soft gates only record what they would do."""
        enforce = self.knobs.get("enforce")
        return enforce is not None and enforce.effective is False

    @property
    def compute(self) -> dict[Gate, int]:
        """The limits on tokens that one batch computes, by the gate that holds them."""
        found = {
            gate: self.number(KNOB_OF[gate]) for gate in (Gate.EXTEND_TOKENS, Gate.INPUT_TOKENS, Gate.CHUNK_TOKENS)
        }
        return {gate: limit for gate, limit in found.items() if limit is not None}

    def limit_of(self, gate: Gate) -> int | None:
        """The limit of a gate where it is the same for every pass: tokens, requests, slots or bytes; None for none."""
        fixed = {Gate.BATCH_MODE: None, Gate.REQUEST_SLOTS: self._slots, Gate.KV_CAPACITY: self._pool_tokens}
        return fixed[gate] if gate in fixed else self.number(KNOB_OF.get(gate, ""))


def setting_of(run: RunRow) -> Setting | None:
    """How the engine runs; None where the record does not say it in words of ours."""
    try:
        words = json.loads(run.setting) if run.setting else None
        if not isinstance(words, dict):
            return None
        slots = {} if run.slots is None else {"slots": run.slots}
        return Setting(**{name: words[name] for name in Setting.__slots__ if name in words} | slots)
    except (ValueError, TypeError):
        return None
