"""What the screen looks at: run, moment, panels, filters and the pass that is open, kept as one `Ask`."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ui.app.moments import within
from ui.app.time_control import TimeControl
from ui.view.snapshot import MOST_ROWS, Ask

if TYPE_CHECKING:
    from collections.abc import Callable

    from ui.view.clock import Clock
    from ui.view.snapshot import Panel, RunChoice, Seek, Snapshot

_MORE: Final = 100
"""Passes that are asked for beyond those known, when the cursor comes to their end."""


_MOST_SEEKS: Final = 20
"""Seeks that wait for the one before them; a key held down asks for no more."""


class Looking:
    """Keeps what is asked for, and sends it whenever it changes."""

    def __init__(self, send: Callable[[Ask], None], clock: Clock, ask: Ask) -> None:
        self.ask = ask
        self.time = TimeControl()
        self.snapshot: Snapshot | None = None
        self.words = ""
        """What the last jump did not find."""
        self._send = send
        self._clock = clock
        self._wanted_pass: int | None = None
        self._before = self.time
        """Where one was before a jump to a pass, to stay there when it is not in the record."""
        self._seeks: list[tuple[Seek, bool, str]] = []
        self._resume: Callable[[], None] | None = None

    def want(self, **changes: Any) -> None:
        """Ask with these changes, at the moment of the time control."""
        self.ask = msgspec.structs.replace(self.ask, at_ns=self.time.at_ns, **changes)
        self._send(self.ask)

    def answered(self, snapshot: Snapshot) -> None:
        """Take a snapshot, and go where a seek or a jump to a pass has led."""
        self.snapshot = snapshot
        if self.ask.seek:
            self._sought(snapshot)
        elif self._wanted_pass is not None and snapshot.ask == self.ask:
            self._arrived(snapshot, self._wanted_pass)

    def _sought(self, snapshot: Snapshot) -> None:
        """Take the answer to a seek: it has moved, or it says why not. Any other is of an older ask."""
        there = msgspec.structs.replace(self.ask, at_ns=snapshot.ask.at_ns, seek=snapshot.ask.seek)
        moved = snapshot.ask.at_ns != self.ask.at_ns
        if snapshot.ask != there or not (moved or snapshot.sought or snapshot.problem):
            return
        if moved:
            self.time.pause(snapshot.ask.at_ns)
        self.words = snapshot.sought
        self.want(seek="")
        if self._seeks:
            what, back, gate = self._seeks.pop(0)
            self.seek(what, back=back, gate=gate)

    def _arrived(self, snapshot: Snapshot, number: int) -> None:
        """The answer to a jump to a pass: rest at its moment; a pass that repeats a refusal stands with the first."""
        self._wanted_pass, self.words = None, ""
        row = snapshot.passes[0] if snapshot.passes else None
        if row is None or not row.number <= number <= row.number + row.repeats:
            last = snapshot.head.last_pass
            self.words = f"pass {number:,} is not in this record" + ("" if last is None else f"; its last is {last:,}")
            self.time = self._before
            self.want(open_pass=None, passes_before=None)
            return
        self.time.pause(row.start_ns + row.decide_ns)
        self.want(open_pass=None, passes_before=None)

    def follow(self) -> None:
        """Go to the end and move with the run."""
        self.time.follow()
        self._unpage()

    def pause(self) -> None:
        """Rest at the moment shown; or go on as it went before."""
        if self.snapshot is None:
            return
        head = self.snapshot.head
        plays = self.time.mode == "playing" or head.presence not in ("live", "idle")
        if self.time.mode != "paused":
            self._resume = self.play if plays else self.follow
            self.time.pause(head.at_ns if self.time.at_ns is None else self.time.at_ns)
            self.want()
        elif self._resume is not None:
            self._resume()
        else:
            (self.play if plays else self.follow)()

    def play(self) -> None:
        """Play on from the moment shown."""
        if self.snapshot is not None:
            self.time.play(self.snapshot.head, self._clock.monotonic_ns())
            self._resume = self.play
            self._unpage()

    def change_speed(self, by: int) -> None:
        """Play faster or slower by steps."""
        self.time.change_speed(by, self._clock.monotonic_ns())

    def set_speed(self, speed: float) -> None:
        """Play at the speed nearest to this."""
        self.time.set_speed(speed, self._clock.monotonic_ns())

    def tick(self) -> bool:
        """Let time go on; whether it did."""
        if self.snapshot is None or not self.time.tick(self.snapshot.head, self._clock.monotonic_ns()):
            return False
        self.want()
        return True

    def at(self, at_ns: int | None) -> None:
        """Rest at a moment."""
        if at_ns is None:
            return
        if self.snapshot is not None:
            at_ns, _ = within(self.snapshot.head, at_ns)
        self.time.pause(at_ns)
        self._unpage()

    def seek(self, what: Seek, *, back: bool, gate: str = "") -> None:
        """Go to the nearest pass, stop, knob change or fault before or after the moment shown."""
        if self.ask.seek:
            self._seeks = [*self._seeks, (what, back, gate)][:_MOST_SEEKS]
            return
        if self.time.at_ns is None and self.snapshot is not None and self.snapshot.head.at_ns is not None:
            self.time.pause(self.snapshot.head.at_ns)
        self.time.pause(self.time.at_ns)
        self.words = ""
        self.want(seek=what, seek_gate=gate, seek_back=back, open_pass=None, passes_before=None)

    def to_pass(self, number: int) -> None:
        """Go to the moment of a pass."""
        if self._wanted_pass is None:
            self._before = copy.copy(self.time)
        self._wanted_pass, self.words = number, ""
        self.time.follow()
        self.want(open_pass=number, passes_before=number + 1)

    def open(self, number: int | None) -> None:
        """Open the pass under the cursor; None is the newest."""
        if number != self.ask.open_pass:
            self.want(open_pass=number)

    def more(self, *, older: bool) -> None:
        """Passes beyond those known: more of them, and from 500 on a window that moves."""
        snapshot = self.snapshot
        if snapshot is None or not snapshot.passes:
            return
        if not older:
            self._unpage()
        elif self.ask.rows + _MORE <= MOST_ROWS and self.ask.passes_before is None:
            self.want(rows=self.ask.rows + _MORE)
        else:
            middle = snapshot.passes[len(snapshot.passes) // 2]
            self.want(passes_before=middle.number + 1)

    def show(self, panels: frozenset[Panel]) -> None:
        """Ask for what these panels show."""
        if panels != self.ask.panels:
            self.want(panels=panels)

    def run(self, choice: RunChoice) -> None:
        """Look at another run, at its end."""
        self.time.follow()
        self._resume = None
        self.ask = choice.asked(self.ask)
        self.want()

    def _unpage(self) -> None:
        self.words, self._seeks = "", []
        self.want(open_pass=None, passes_before=None, seek="")
