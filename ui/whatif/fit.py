"""The step-time model fitted to the passes that a run made."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median_high
from typing import TYPE_CHECKING, Any, Final, Protocol

from controller.engines.replay.step_time import FS_PER_NS, PLAIN_DECODE_NS, StepTimeModel
from estimator.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ui.whatif.measured import Decode, Measured, Prefill

LEAST_PREFILLS: Final = 8
"""Fewer prefill steps than these make no fit."""
LEAST_DECODES: Final = 3
HELD_UP: Final = 5.0
"""A step that took so many times as long as what is said of it was held up by something else, and is left out."""
_ROUNDS: Final = 4
_TINY: Final = 1e-300

_Row = tuple[float, ...]


class _Solve(Protocol):
    def __call__(self, rows: Sequence[_Row], durations: Sequence[float], said: Sequence[float]) -> list[float]:
        """The costs of the columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitError:
    """How far a fit is off for steps it was not fitted to, as shares of their duration."""

    steps: int
    median: float
    p90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fitted model with its errors."""

    model: StepTimeModel
    prefill: FitError
    decode: FitError | None
    """None where too little was decoded to fit it; a step is then taken to last as long as the mean one."""

    def words(self) -> str:
        """In words, for people."""
        told = (
            f"fitted to {self.prefill.steps:,} prefill steps: off by {100 * self.prefill.median:.1f} % (median), "
            f"{100 * self.prefill.p90:.1f} % (p90)"
        )
        if self.decode is not None:
            told += f"; decode steps off by {100 * self.decode.median:.1f} % (median)"
        return told

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "model": asdict(self.model),
            "prefill": asdict(self.prefill),
            "decode": None if self.decode is None else asdict(self.decode),
        }


def fit_step_time(measured: Measured, run: str) -> Fit:
    """Fit a model: a prefill step costs a constant, and so much a member, a computed and a cached token, and a pair.

    A decode step costs a constant, and so much a member and a token of context. No cost is below 0. Durations count by
    their error as a share of what is said, without those that something else held up. The error told is that of every
    other step under a fit to the rest. Raises NotFoundError for a run with too few steps, UsageError without SciPy.
    """
    if len(measured.prefills) < LEAST_PREFILLS:
        raise NotFoundError(
            f"run {run}: the record holds {len(measured.prefills)} prefill steps with their durations, and a fit wants "
            f"{LEAST_PREFILLS}; use --model preset"
        )
    solve = _solver()
    rows = [_prefill_row(each) for each in measured.prefills]
    durations = [float(each.ns) for each in measured.prefills]
    constant, member, token, prefix, pair = _trimmed(solve, rows, durations)
    prefill_error = _held_out(solve, rows, durations)
    decode_error = None
    decode = (float(_mean_decode(measured.decodes)), 0.0, 0.0)
    if len(measured.decodes) >= LEAST_DECODES:
        decode_rows = [(1.0, each.batch, each.context_tokens) for each in measured.decodes]
        spans = [each.ns for each in measured.decodes]
        decode = _trimmed(solve, decode_rows, spans)  # type: ignore[assignment]  # three costs for three columns
        decode_error = _held_out(solve, decode_rows, spans)
    model = StepTimeModel(
        name="fitted",
        basis=f"fitted to {len(rows)} prefill steps of run {run}",
        prefill_overhead_ns=round(constant),
        head_fs=round(member * FS_PER_NS),
        token_fs=round(token * FS_PER_NS),
        prefix_fs=round(prefix * FS_PER_NS),
        pair_fs=round(pair * FS_PER_NS),
        decode_overhead_ns=max(1, round(decode[0])),
        decode_token_fs=round(decode[1] * FS_PER_NS),
        scan_fs=round(decode[2] * FS_PER_NS),
    )
    return Fit(model=model, prefill=prefill_error, decode=decode_error)


def _prefill_row(step: Prefill) -> _Row:
    return 1.0, float(step.members), float(step.extend_tokens), float(step.cached_tokens), float(step.pairs)


def _mean_decode(decodes: Sequence[Decode]) -> float:
    steps = sum(each.steps for each in decodes)
    return sum(each.ns * each.steps for each in decodes) / steps if steps else PLAIN_DECODE_NS


def _solver() -> _Solve:
    """What finds the costs, none below 0, by which durations are nearest, each error a share of what was said."""
    try:
        import numpy as np  # noqa: PLC0415 - with SciPy, only where a fit is asked for
        from scipy.optimize import nnls  # noqa: PLC0415 - the same
    except ImportError:
        raise UsageError(
            "step times cannot be fitted without SciPy; install glassgate[tune], or use --model preset"
        ) from None

    def solve(rows: Sequence[_Row], durations: Sequence[float], said: Sequence[float]) -> list[float]:
        weighed = np.asarray(rows) / np.asarray(said)[:, None]
        scale = np.maximum(np.abs(weighed).max(axis=0), _TINY)
        costs, _ = nnls(weighed / scale, np.asarray(durations) / np.asarray(said))
        return [float(cost) for cost in costs / scale]

    return solve


def _trimmed(solve: _Solve, rows: Sequence[_Row], durations: Sequence[float]) -> list[float]:
    """Costs fitted again and again, without the steps that are far off.

    At first each step counts by its own length, which long ones that something held up move little. After that it
    counts by what was said of it, since else short ones by chance would count for more.
    """
    costs = solve(rows, durations, durations)
    kept = [place for place, each in enumerate(_far(costs, rows, durations)) if each <= HELD_UP]
    rows, durations = [rows[place] for place in kept], [durations[place] for place in kept]
    for _ in range(_ROUNDS):
        costs = solve(rows, durations, [max(_said(costs, row), 1.0) for row in rows])
    return costs


def _held_out(solve: _Solve, rows: Sequence[_Row], durations: Sequence[float]) -> FitError:
    """The errors of every other step under a fit to the rest."""
    errors: list[float] = []
    for part in (0, 1):
        costs = _trimmed(solve, rows[part::2], durations[part::2])
        errors += _errors(costs, rows[1 - part :: 2], durations[1 - part :: 2])
    errors.sort()
    return FitError(steps=len(rows), median=median_high(errors), p90=errors[int(0.9 * (len(errors) - 1))])


def _errors(costs: Sequence[float], rows: Sequence[_Row], durations: Sequence[float]) -> list[float]:
    """How far each step is off, as a share of its length."""
    return [abs(_said(costs, row) - duration) / duration for row, duration in zip(rows, durations, strict=True)]


def _far(costs: Sequence[float], rows: Sequence[_Row], durations: Sequence[float]) -> list[float]:
    """How many times longer or shorter each step is than what is said of it."""
    found = []
    for row, duration in zip(rows, durations, strict=True):
        said = max(_said(costs, row), 1.0)
        found.append(max(said / duration, duration / said))
    return found


def _said(costs: Sequence[float], row: _Row) -> float:
    return sum(cost * value for cost, value in zip(costs, row, strict=True))
