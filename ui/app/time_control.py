"""When the screen looks: following the run, resting at a moment, or playing on from one at a speed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from ui.app.moments import SECOND

if TYPE_CHECKING:
    from ui.view.snapshot import Head

Mode = Literal["follow", "paused", "playing"]
SPEEDS: Final = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds of the run a second."""
_REAL_TIME: Final = SPEEDS.index(1.0)


class TimeControl:
    """The moment that is shown. Times are ns of the run's clock; `now_ns` is any clock that only goes forward."""

    def __init__(self) -> None:
        self.mode: Mode = "follow"
        self.at_ns: int | None = None
        """The moment; None follows the run."""
        self._speed = _REAL_TIME
        self._began_ns = 0
        self._began_at_ns = 0

    @property
    def speed(self) -> float:
        """Seconds of the run a second."""
        return SPEEDS[self._speed]

    @property
    def past(self) -> bool:
        """The moment is one that was chosen, not the newest."""
        return self.at_ns is not None

    def follow(self) -> None:
        """Show the newest moment and move with the run."""
        self.mode, self.at_ns = "follow", None

    def pause(self, at_ns: int | None) -> None:
        """Rest at a moment."""
        if at_ns is not None:
            self.mode, self.at_ns = "paused", at_ns

    def play(self, head: Head, now_ns: int) -> None:
        """Go on from the moment shown; from the end of a run that is over, from its beginning."""
        at_ns = head.at_ns if self.at_ns is None else self.at_ns
        if at_ns is None:
            return
        over = head.presence not in ("live", "idle")
        if over and head.first_ns is not None and head.last_ns is not None and at_ns >= head.last_ns:
            at_ns = head.first_ns
        self.mode, self.at_ns = "playing", at_ns
        self._began_ns, self._began_at_ns = now_ns, at_ns

    def change_speed(self, by: int, now_ns: int) -> None:
        """Faster or slower by steps."""
        self._speed = max(0, min(len(SPEEDS) - 1, self._speed + by))
        self._began_ns, self._began_at_ns = now_ns, self.at_ns or 0

    def set_speed(self, speed: float, now_ns: int) -> None:
        """The speed nearest to this one."""
        nearest = min(range(len(SPEEDS)), key=lambda at: abs(SPEEDS[at] - speed))
        self.change_speed(nearest - self._speed, now_ns)

    def tick(self, head: Head, now_ns: int) -> bool:
        """Move on while playing; at the end follow a run that lives, rest at the end of one that does not."""
        if self.mode != "playing":
            return False
        moved = self._began_at_ns + int((now_ns - self._began_ns) * self.speed)
        if moved == self.at_ns:
            return False
        if head.last_ns is not None and moved >= head.last_ns:
            if head.presence in ("live", "idle"):
                self.follow()
            else:
                self.pause(head.last_ns)
            return True
        self.at_ns = moved
        return True

    def words(self) -> str:
        """How time goes, in a word or two."""
        if self.mode == "playing":
            return f"▶ playing {self.speed:g}x"
        return "‖ paused" if self.mode == "paused" else "at the end"


def place(head: Head, part: float) -> int | None:
    """The moment at a part of the run, 0 its beginning and 1 its end."""
    if head.first_ns is None or head.last_ns is None:
        return None
    return head.first_ns + int(max(0.0, min(1.0, part)) * (head.last_ns - head.first_ns))


def part_of(head: Head, at_ns: int) -> float | None:
    """Where in the run a moment is, 0 to 1."""
    if head.first_ns is None or head.last_ns is None or head.last_ns - head.first_ns < SECOND // 1000:
        return None
    return max(0.0, min(1.0, (at_ns - head.first_ns) / (head.last_ns - head.first_ns)))
