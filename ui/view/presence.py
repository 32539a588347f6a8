"""Whether a run lives: from the locks in its folder, and from what its record brings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.run_directory import LIVE
from estimator.errors import GlassgateError
from ui.view.head import Life
from ui.view.lag import JournalEnd

if TYPE_CHECKING:
    from controller.run_directory import RunDirectory, RunState
    from ui.view.clock import Clock
    from ui.view.head import Standing
    from ui.view.moment import RunRow
    from ui.view.snapshot import Presence

LOOK_NS: Final = 500_000_000
"""The locks are looked at again after so long."""
IDLE_NS: Final = 2_000_000_000
"""An engine with nobody waiting is idle when no pass has come for so long."""


def is_gone(folder: RunDirectory) -> bool:
    """Whether nothing is left of a run's folder that would make it one."""
    return not (folder.path / "run.json").exists()


class Pulse:
    """The presence of one run, looked at twice a second at most."""

    def __init__(self, folder: RunDirectory | None, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._end = None if folder is None else JournalEnd(folder.journal)
        self._looked_ns = -1
        self._state: RunState | None = None
        self._end_reason: str | None = None
        self._seen: tuple[int, int, bool] | None = None
        """The last pass, when it was first seen here, and whether it was there at the first look."""

    @property
    def folder(self) -> RunDirectory | None:
        """The run's folder; None where there is none, or none any more."""
        return None if self.gone else self._folder

    @property
    def gone(self) -> bool:
        """Whether the run's folder was removed since it was found."""
        return self._folder is not None and is_gone(self._folder)

    @property
    def state(self) -> RunState | None:
        """What the folder's locks say, `ended` also after it was removed; None without a folder."""
        now_ns = self._clock.monotonic_ns()
        if self._folder is not None and (self._looked_ns < 0 or now_ns - self._looked_ns >= LOOK_NS):
            self._looked_ns = now_ns
            if self._end is not None:
                self._end.look(now_ns)
            try:
                self._state = self._folder.state
                if self._state == "ended":
                    self._end_reason = self._folder.info.end_reason
            except GlassgateError:  # what cannot be read for once: what was known of it stands
                if self._state != "ended" and self.gone:
                    self._state = None
        return self._state

    def life(
        self, run: RunRow | None = None, standing: Standing | None = None, place: tuple[int, int] | None = None
    ) -> Life:
        """The presence at this moment, the age of the last pass in real time, and how far the store is behind.

        `standing` is that of the record's end, also where a past moment is shown.
        `place` is the segment and offset that the store has come to in the journal.
        """
        state = self.state
        if state is None:
            return Life("recording" if run is None or run.end_ns is None else "ended")
        if state == "ended":
            return Life("ended", end_reason=self._end_reason)
        quiet_ns, found = self._quiet(run, standing)
        presence: Presence = state
        if state == "live" and (standing is None or not standing.queue) and quiet_ns >= IDLE_NS:
            presence = "idle"
        return Life(presence, None if found else quiet_ns, self._lag(run, place))

    def now_ns(self, run: RunRow) -> int | None:
        """The time of the run's clock; None where that is simulated, or the record does not go on."""
        if run.simulated or run.wall_ns is None or run.start_ns is None or self.state != "live":
            return None
        return run.start_ns + self._clock.wall_ns() - run.wall_ns

    def uncollected(self, place: tuple[int, int] | None) -> int:
        """Bytes at least that the journal of a run that is over holds behind a place; 0 for one that goes on."""
        if self.state in (None, *LIVE) or self._end is None or place is None:
            return 0
        return self._end.bytes_behind(*place)

    def _lag(self, run: RunRow | None, place: tuple[int, int] | None) -> int | None:
        """How long the store has been behind the journal, ns; None where that cannot be told."""
        if run is None or place is None or self._end is None:
            return None
        if self._end.bytes_behind(*place) and not run.simulated and (wall_ns := run.wall_of(run.last_ns)) is not None:
            return max(0, self._clock.wall_ns() - wall_ns)
        return self._end.since_ns(*place, self._clock.monotonic_ns())

    def _quiet(self, run: RunRow | None, standing: Standing | None) -> tuple[int, bool]:
        """Real time since the last pass; in simulated time since it was seen here, and whether it was there before."""
        if run is not None and standing is not None and not run.simulated:
            wall_ns = run.wall_of(standing.last_ns)
            if wall_ns is not None:
                return max(0, self._clock.wall_ns() - wall_ns), False
        now_ns = self._clock.monotonic_ns()
        passes = standing.passes if standing is not None else 0
        if self._seen is None or self._seen[0] != passes:
            self._seen = passes, now_ns, self._seen is None
        return now_ns - self._seen[1], self._seen[2]
