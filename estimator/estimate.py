"""An estimate explained: every buffer, every phase, and the peak."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from estimator.buffers import BUFFERS, PARTS
from estimator.context import RunContext
from estimator.geometry import Geometry
from estimator.scores import ScoreShape
from estimator.sizes import Measured, Request, Sizes, check_requests, measure
from estimator.timeline import Window, live_buffers, windows_of


@dataclass(frozen=True, slots=True)
class Estimate:
    """The temporary device buffers of one batch on its fullest rank. All figures in bytes unless said otherwise.

    `requested` is the plain sum at the peak; `peak_bytes` is that times the safety factor, rounded up. `buffers`
    lists each buffer that this batch has, whether or not it is alive at the peak; `phases` the sum alive in each
    phase.
    """

    geometry: Geometry
    context: RunContext
    rank: int
    sizes: Sizes
    score: ScoreShape
    buffers: dict[str, int]
    phases: dict[str, int]
    live: dict[str, tuple[str, ...]]
    peak_phase: str
    requested: int
    peak_bytes: int

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows that are open for this batch and hold at least one byte, in timeline order."""
        return tuple(
            window
            for window in windows_of(self.geometry, self.context, several=self.sizes.B > 1)
            if self.window_bytes(window)
        )

    def window_bytes(self, window: Window) -> int:
        """Return the bytes that a window's buffers hold."""
        return sum(self.buffers.get(name, 0) for name in window.buffers)

    def at_phase(self, phase: str) -> dict[str, int]:
        """Return the buffers alive in a phase with their bytes; one that is alive twice has twice its bytes."""
        alive: dict[str, int] = {}
        for name in self.live[phase]:
            if size := self.buffers.get(name, 0):
                alive[name] = alive.get(name, 0) + size
        return alive

    @property
    def parts(self) -> tuple[int, ...]:
        """Bytes by group at the peak, in the order of `PARTS`; they add up to `peak_bytes`."""
        groups = dict.fromkeys(PARTS, 0)
        for name, size in self.at_phase(self.peak_phase).items():
            groups[BUFFERS[name].part] += size
        groups["margin"] = self.peak_bytes - self.requested
        return tuple(groups.values())


def with_factor(requested: int, factor: Fraction) -> int:
    """Return `requested` bytes times the safety factor, rounded up, in integers only."""
    return -(-requested * factor.numerator // factor.denominator)


def explain_measured(geometry: Geometry, context: RunContext, ranks: Sequence[Measured]) -> Estimate:
    """Return the estimate of the rank with the largest peak; of equals, the one with most rows, then the lowest."""
    live = live_buffers(geometry, context, several=ranks[0].sizes.B > 1)
    fullest: tuple[tuple[int, int, int], Measured, dict[str, int], dict[str, int]] | None = None
    for measured in ranks:
        buffers = {name: buffer.bytes(geometry, context, measured.sizes) for name, buffer in BUFFERS.items()}
        phases = {phase: sum(buffers[name] for name in names) for phase, names in live.items()}
        key = (max(phases.values()), measured.sizes.Tl, -measured.rank)
        if fullest is None or key > fullest[0]:
            fullest = key, measured, buffers, phases
    if fullest is None:  # pragma: no cover - `measure` answers for at least one rank
        raise AssertionError
    (requested, _, _), measured, buffers, phases = fullest
    return Estimate(
        geometry=geometry,
        context=context,
        rank=measured.rank,
        sizes=measured.sizes,
        score=measured.score,
        buffers={name: size for name, size in buffers.items() if size},
        phases=phases,
        live=live,
        peak_phase=next(phase for phase, size in phases.items() if size == requested),
        requested=requested,
        peak_bytes=with_factor(requested, context.safety_factor),
    )


def estimate_batch(geometry: Geometry, context: RunContext, requests: Sequence[Sequence[int]]) -> Estimate:
    """Estimate a whole batch of (prefix, extend) or (prefix, extend, loaded) tokens at once.

    Shares no arithmetic with `BatchEstimator`. Raises InputError for a request that cannot be one, or a run that does
    not fit the model.
    """
    members = [Request(*request) for request in requests]
    check_requests(members)
    context.check_against(geometry)
    return explain_measured(geometry, context, measure(geometry, context, members))
