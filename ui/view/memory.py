"""What the view remembers between two snapshots of one run, every part of it bounded."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

from ui.view.limits import InForce
from ui.view.moment import BUCKETS
from ui.view.snapshot import MOST_ROWS
from ui.view.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.vocabulary import Gate
    from ui.view.bucket import Bucket
    from ui.view.head import Bound
    from ui.view.looks import Counted
    from ui.view.moment import Moment
    from ui.view.passes import Batch
    from ui.view.waiting import Overtaken, Room

K = TypeVar("K")
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """The values made last, at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value of a key, which then is the last to go."""
        value = self._held.get(key)
        if value is not None:
            self._held.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> V:
        """Keep a value; the one not used for longest goes where there are too many."""
        self._held[key] = value
        self._held.move_to_end(key)
        while len(self._held) > self._most:
            self._held.popitem(last=False)
        return value

    def __len__(self) -> int:
        return len(self._held)


class Memory:
    """What is remembered of one run while it is looked at. It goes when the database is another one or was pruned."""

    def __init__(self) -> None:
        self.batches: Bounded[int, Batch] = Bounded(4 * MOST_ROWS)
        self.window = Window()
        self.bound: Bound | None = None
        self.looks: Bounded[int, Counted] = Bounded(4 * MOST_ROWS)
        self.overtaken: Bounded[int, Overtaken] = Bounded(4 * MOST_ROWS)
        self.room: Room | None = None
        self._headroom: Bounded[Bucket, tuple[int, dict[Gate, float]]] = Bounded(4 * BUCKETS)
        self._limits: Bounded[int | None, InForce] = Bounded(64)

    def headroom(self, bucket: Bucket, made: Callable[[], dict[Gate, float]]) -> dict[Gate, float]:
        """What each gate had left in a stretch, worked out anew when passes were added to it."""
        known = self._headroom.get(bucket)
        if known is None or known[0] != bucket.passes:
            known = self._headroom.put(bucket, (bucket.passes, made()))
        return known[1]

    def limits(self, moment: Moment, revision: int | None) -> InForce:
        """The knobs in force under a revision. Raises sqlite3.Error."""
        found = self._limits.get(revision)
        if found is None:
            found = InForce(moment.connection, moment.run, revision)
            if found.knobs:  # they may yet come
                self._limits.put(revision, found)
        return found
