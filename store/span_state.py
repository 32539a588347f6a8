"""What making spans needs of the records before, so that another maker can go on from there."""

import msgspec

from store.alarms import Alarm
from store.waiting import Waiting


class RequestState(msgspec.Struct, array_like=True):
    """What is known of a request that is in the engine."""

    id: str = ""
    prompt: int = 0
    output: int = 0
    traceparent: str = ""
    verdict: tuple[int, int] = (-1, -1)
    """Outcome and stop of the last look."""
    since_ns: int = 0
    """Start of the first of an unbroken row of passes that said the same."""


class SpanState(msgspec.Struct):
    """What making spans needs of the records before; kept beside the cursor, so that a restart goes on from there."""

    run: str = ""
    rank: int = 0
    origin_ns: int | None = None
    """Unix time of the run clock's zero; None before it is known."""
    model: str = ""
    smoke_bytes: int | None = None
    requests: dict[int, RequestState] = {}
    waiting: Waiting = msgspec.field(default_factory=Waiting)
    told: list[tuple[int, int]] = []
    """Request and stop of those the last pass told to wait."""
    leaving: list[int] = []
    """Of these, those that have left: their repeats may be told yet."""
    second: int = 0
    made: int = 0
    """Spans made in that second of the run's clock."""
    change_ns: int = -1
    change_place: int = 0
    watch: str = ""
    """What the alarms know; see `store.alarms`."""
    raised: list[Alarm] = []
    """Alarms whose event waits for the next span of a pass."""
