"""The space that a search goes through: for each knob the values it may have, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.knobs import SPEC_BY_NAME, Knobs, parse_knob
from estimator.errors import KnobError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ui.whatif.recorded import Recorded

Value = int | bool | None

_SEARCHED: Final = ("max_requests", "max_extend_tokens", "max_cached_tokens", "max_buffer_bytes")
"""What is searched of any run; an engine takes the rest from its flags when it starts."""
_OF_A_REPLAY: Final = ("chunked_prefill_size", "max_prefill_tokens")
_BOUNDS: Final = {
    "max_requests": (1, 256),
    "max_extend_tokens": (1 << 10, 1 << 20),
    "max_cached_tokens": (1 << 12, 1 << 24),
    "max_buffer_bytes": (1 << 28, 1 << 37),
    "buffer_safety_percent": (100, 200),
    "chunked_prefill_size": (1 << 9, 1 << 18),
    "max_prefill_tokens": (1 << 10, 1 << 20),
    "load_back_threshold": (1, 1 << 15),
}
_MOST_STEPS: Final = 200


class Ladder(NamedTuple):
    """One knob's values in order, unlimited last."""

    knob: str
    values: tuple[Value, ...]


def space_of(recorded: Recorded, knobs: Knobs, asked: Sequence[str] = ()) -> tuple[Ladder, ...]:
    """The ladders to search, each with the value that `knobs` have.

    `asked` names knobs, with bounds or without: `max_requests`, `max_extend_tokens=4096:131072`. Without any those are
    searched that can matter for the run. Raises UsageError for what is no knob or no range, KnobError for bounds that a
    knob cannot have.
    """
    names = asked or _of_interest(recorded)
    ladders = [_ladder(text, knobs) for text in names]
    if len({each.knob for each in ladders}) < len(ladders):
        raise UsageError(f"--knob names a knob twice: {', '.join(each.knob for each in ladders)}; give each once")
    return tuple(ladders)


def _of_interest(recorded: Recorded) -> list[str]:
    found = [name for name in _SEARCHED if name != "max_buffer_bytes" or recorded.estimator() is not None]
    if recorded.simulated:
        found += _OF_A_REPLAY
    if recorded.setting.context_parallel:
        found.insert(0, "shared_kv_batching")
    if recorded.host_tokens:
        found.append("load_back_threshold")
    return found


def _ladder(text: str, knobs: Knobs) -> Ladder:
    name, sign, bounds = text.partition("=")
    name = name.strip()
    spec = SPEC_BY_NAME.get(name)
    if spec is None or name == "page_size":
        known = ", ".join(each for each in SPEC_BY_NAME if each != "page_size")
        raise UsageError(f"--knob {name!r} cannot be searched; those that can are {known}")
    current: Value = getattr(knobs, name)
    if spec.kind == "switch":
        if sign:
            raise UsageError(f"--knob {name} is on or off; name it without a range")
        return Ladder(name, (False, True))
    low, high = _bounds(name, bounds) if sign else _BOUNDS[name]
    page = knobs.page_size if spec.unit == "tokens" and name != "load_back_threshold" else 1
    values: dict[int, None] = {}
    step = low
    while step <= high:
        for each in (step, step * 3 // 2):
            rounded = max(page, each // page * page)
            if low <= rounded <= high:
                values[rounded] = None
        step *= 2
    values[high // page * page or page] = None
    if len(values) > _MOST_STEPS:
        raise UsageError(f"--knob {text} has {len(values)} steps, at most {_MOST_STEPS}; give a narrower range")
    open_ended: list[Value] = [None] if spec.kind in ("limit", "bytes") and (not sign or current is None) else []
    if isinstance(current, int):
        values[current] = None
    ladder: list[Value] = [each for each in sorted(values) if each >= spec.minimum]
    return Ladder(name, tuple(ladder + open_ended))


def _bounds(name: str, text: str) -> tuple[int, int]:
    """A range such as `4096:131072` or `1GiB:8GiB`. Raises UsageError, KnobError."""
    low, sign, high = text.partition(":")
    found = [parse_knob(SPEC_BY_NAME[name], each) for each in (low, high)]
    if not sign or not all(isinstance(each, int) and not isinstance(each, bool) for each in found):
        raise UsageError(f"--knob {name}={text} is no range; write for instance {name}=4096:131072")
    for each in found:
        if each < max(1, SPEC_BY_NAME[name].minimum):
            raise KnobError(f"--knob {name}={text}: {each} is below {max(1, SPEC_BY_NAME[name].minimum)}")
    if found[0] > found[1]:
        raise UsageError(f"--knob {name}={text} goes down; write the smaller bound first")
    return found[0], found[1]


def values_at(space: Sequence[Ladder], places: Mapping[str, int]) -> dict[str, Any]:
    """Knobs and values at places on the ladders; a place beyond an end is that end."""
    return {each.knob: each.values[min(max(0, places[each.knob]), len(each.values) - 1)] for each in space}


def places_of(space: Sequence[Ladder], knobs: Knobs) -> dict[str, int]:
    """Where knobs stand on the ladders; a value that is on none counts as the last."""
    found = {}
    for each in space:
        value = getattr(knobs, each.knob)
        found[each.knob] = each.values.index(value) if value in each.values else len(each.values) - 1
    return found
