"""What the record of any engine begins with: the setting in words, and the knobs in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.limits import explain
from controller.records import KnobsInForce

if TYPE_CHECKING:
    from controller.knobs import Knobs
    from controller.limits import Setting


def setting_words(setting: Setting) -> dict[str, int | bool | float | str]:
    """What a `RunStart` says of how the engine runs; an engine adds what it alone knows."""
    return {
        "context_parallel": setting.context_parallel,
        "data_parallel": setting.data_parallel,
        "lanes": setting.lanes,
        "has_model": setting.has_model,
    }


def knobs_in_force(at_ns: int, knobs: Knobs, setting: Setting) -> KnobsInForce:
    """The record of every knob with the value set, the one in effect, and why they differ; at ns of the run's clock."""
    rows = tuple(
        (each.name, each.unit, each.set_to, each.effective, each.state, each.why) for each in explain(knobs, setting)
    )
    return KnobsInForce(at_ns, knobs.revision, rows)
