"""A draft of knob changes: what was typed and not asked for yet, checked, and what it would do.

Values are checked and effects worked out by the controller's own code, from the knobs and the setting of the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from controller.knob_turning import FIXED
from controller.knobs import SPEC_BY_NAME, Knobs, parse_knob
from controller.limits import explain
from estimator.errors import KnobError
from ui.app.panels.words import value_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from controller.limits import EffectiveKnob, Setting
    from ui.view.snapshot import KnobPanel

Value = int | bool | None
"""A knob's value; None is no limit."""

NO_SETTING: Final = "what it does cannot be told: this record does not say how the engine runs"
NO_KNOBS: Final = "this record does not hold the knobs in force, so nothing can be checked against them"
_BYTES: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class Checked(msgspec.Struct, frozen=True):
    """What was typed: the value it stands for and what it would do, or why it cannot be."""

    value: Value = None
    effects: tuple[str, ...] = ()
    problem: str = ""


def in_force(panel: KnobPanel) -> Knobs | None:
    """The knobs a panel shows; None where the record does not hold them all."""
    values = {row.name: row.set_to for row in panel.knobs if row.name in SPEC_BY_NAME}
    try:
        return Knobs.parse(values)
    except KnobError:
        return None


def check(panel: KnobPanel, draft: Mapping[str, Value], name: str, text: str | Value) -> Checked:
    """A knob's new value as it was typed, and its effect on top of the rest of the draft."""
    knobs, spec = in_force(panel), SPEC_BY_NAME.get(name)
    if knobs is None or spec is None:
        return Checked(problem=NO_KNOBS if knobs is None else f"{name!r} is no knob that this Glassgate knows")
    if name in FIXED:
        return Checked(problem=f"{name} is fixed for a run: {FIXED[name]}; another value takes effect in another run")
    try:
        value: Value = parse_knob(spec, text)
        before = knobs.changed({each: held for each, held in draft.items() if each != name})
        told = effects(before, before.changed({name: value}), panel.setting)
    except KnobError as error:
        return Checked(problem=str(error))
    return Checked(value, told)


def effects(before: Knobs, after: Knobs, setting: Setting | None) -> tuple[str, ...]:
    """What would be in force otherwise, a line for each knob that was changed or whose effect changes with it.

    Raises KnobError where the knobs cannot be in this setting.
    """
    if setting is None:
        return (NO_SETTING,)
    was = {each.name: each for each in explain(before, setting)}
    changed = {name for name, value in after.as_dict().items() if value != before.as_dict()[name]}
    told = sorted(explain(after, setting), key=lambda each: each.name not in changed)
    return tuple(
        _effect(was[each.name], each)
        for each in told
        if each.name in changed or each.effective != was[each.name].effective or each.state != was[each.name].state
    )


def expected(panel: KnobPanel, draft: Mapping[str, Value]) -> dict[str, EffectiveKnob]:
    """What a draft would put in force, by knob; empty where that cannot be told."""
    knobs = in_force(panel)
    if knobs is None or panel.setting is None or not draft:
        return {}
    try:
        return {each.name: each for each in explain(knobs.changed(draft), panel.setting)}
    except KnobError:
        return {}


def _effect(was: EffectiveKnob, each: EffectiveKnob) -> str:
    """`max_extend_tokens effective 65,536 tok -> 131,072 tok, raised: why`."""
    old, new = value_of(was.effective, was.unit), value_of(each.effective, each.unit)
    told = f"effective stays {new}" if old == new else f"effective {old} -> {new}"
    if each.state != "as set":
        told += f", {each.state}"
    return f"{each.name} {told}" + (f": {each.why}" if each.why else "")


def typed(value: Value, unit: str) -> str:
    """A value as a person would type it, and as it is read again: `65,536`, `4GiB`, `off`."""
    if value is None or isinstance(value, bool):
        return "on" if value else "off"
    if unit == "bytes":
        for step, name in _BYTES:
            if value and value % step == 0:
                return f"{value // step}{name}"
    return f"{value:,}"


def told_change(name: str, old: Value, new: Value, unit: str | None = None) -> str:
    """`max_extend_tokens 65,536 tok -> 131,072 tok`."""
    spec = SPEC_BY_NAME.get(name)
    known = (spec.unit if spec is not None else "") if unit is None else unit
    return f"{name} {value_of(old, known)} -> {value_of(new, known)}"
