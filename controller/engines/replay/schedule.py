"""KnobsAt: knobs that are turned at a known moment of a replay, as when a record is replayed."""

from typing import Any, NamedTuple


class KnobsAt(NamedTuple):
    """New values for some knobs and the moment from which they hold: between two steps, at the first that fits."""

    at_ns: int
    """Not before this time, simulated ns."""
    after_passes: int
    """Not before so many passes were made."""
    values: dict[str, Any]
    """By knob, as `Knobs.parse` takes them."""
    who: str
    """Who turned them, for the record."""
