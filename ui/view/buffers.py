"""Estimated buffers over the window, and when each buffer of the last batch is alive."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from controller.vocabulary import Outcome
from estimator.errors import GlassgateError
from ui.view.snapshot import MOST_ROWS, BufferPoint, Buffers, WindowBar

if TYPE_CHECKING:
    from estimator import BatchEstimator, Estimate
    from ui.view.limits import InForce
    from ui.view.memory import Memory
    from ui.view.moment import Moment, RunRow
    from ui.view.window import WindowView

# The tightest device tells what there is.
SMOKE_SQL: Final = """SELECT asked_bytes, peak_bytes, device, passed FROM smoke
WHERE run = ? AND at_ns <= ? ORDER BY passed, reserved_bytes, id LIMIT 1"""
LAST_BATCH_SQL: Final = """SELECT number, revision, peak_bytes FROM passes
WHERE run = ? AND number <= ? AND members > 0 ORDER BY number DESC LIMIT 1"""
MEMBERS_SQL: Final = f"""SELECT device_hit_tokens, CASE host_hit WHEN 1 THEN asked_tokens ELSE 0 END, done_tokens,
    extend_tokens
FROM decisions WHERE run = ? AND pass = ? AND outcome <= {int(Outcome.ADMIT_CHUNK)}
ORDER BY position"""  # noqa: S608 - our own constant


def read_buffers(moment: Moment, window: WindowView, memory: Memory, *, windows: bool) -> Buffers:
    """The estimates of the window; with `windows` also the timeline of the last batch. Raises sqlite3.Error."""
    execute, run = moment.connection.execute, moment.run.id
    limits = memory.limits(moment, moment.revision)
    smoke = execute(SMOKE_SQL, (run, moment.at_ns)).fetchone()
    batch = execute(LAST_BATCH_SQL, (run, moment.number)).fetchone()
    points = []
    for stretch in window.stretches:
        peak = window.peak_of(stretch.bucket)
        points.append(
            BufferPoint(stretch.from_ns, peak[0] if peak is not None else None, peak[1] if peak is not None else ())
        )
    peaks = [point.peak for point in points if point.peak is not None]
    shown = _timeline(moment, batch[0], memory.limits(moment, batch[1])) if windows and batch is not None else None
    return Buffers(
        points=tuple(points),
        limit=limits.number("max_buffer_bytes"),
        safety_percent=limits.number("buffer_safety_percent") or _own_safety(moment.run),
        smoke_asked=smoke[0] if smoke is not None else None,
        smoke_peak=smoke[1] if smoke is not None else None,
        smoke_device=smoke[2] if smoke is not None else None,
        smoke_passed=bool(smoke[3]) if smoke is not None else None,
        last=batch[2] if batch is not None else None,
        most=max(peaks) if peaks else None,
        phases=shown[0] if shown is not None else (),
        phase_bytes=shown[1] if shown is not None else (),
        windows=shown[2] if shown is not None else (),
        of_pass=batch[0] if shown is not None else None,
    )


def _timeline(
    moment: Moment, number: int, limits: InForce
) -> tuple[tuple[str, ...], tuple[int, ...], tuple[WindowBar, ...]] | None:
    """Phases, the bytes alive in each, and the buffers' windows of one batch; None where it cannot be worked out."""
    run = moment.run
    estimator = _estimator(run.model, run.setting, run.context, limits.number("buffer_safety_percent"))
    if estimator is None:
        return None
    state = estimator.empty
    for device, loaded, done, extend in moment.connection.execute(MEMBERS_SQL, (moment.run.id, number)):
        if extend > 0:
            state = estimator.add(state, device + loaded + done, extend, loaded)
    if state is estimator.empty:
        return None
    return bars_of(estimator.explain(state))


def bars_of(estimate: Estimate) -> tuple[tuple[str, ...], tuple[int, ...], tuple[WindowBar, ...]]:
    """The phases that hold anything, their bytes, and the windows, the largest first."""
    phases = tuple(phase for phase, held in estimate.phases.items() if held)
    windows = sorted(estimate.windows, key=lambda window: -estimate.window_bytes(window))
    return (
        phases,
        tuple(estimate.phases[phase] for phase in phases),
        tuple(
            WindowBar(
                window.name, window.stream, estimate.window_bytes(window),
                tuple(phase in window.phases for phase in phases),
            )
            for window in windows[:MOST_ROWS]
        ),
    )  # fmt: skip


@lru_cache(maxsize=8)
def _estimator(
    model: str | None, setting: str | None, context: str | None, percent: int | None
) -> BatchEstimator | None:
    """The estimator of a run; None where the record does not say enough.

    The model's shape is in the record, since an engine serves it under any name; else its name is a known one.
    """
    if not context:
        return None
    from estimator import BatchEstimator, RunContext  # noqa: PLC0415 - not needed before somebody looks at the windows
    from estimator import model as geometry_of  # noqa: PLC0415 - the same
    from estimator.geometry import Geometry  # noqa: PLC0415 - the same

    try:
        shape = json.loads(setting or "{}").get("geometry")
        geometry = Geometry(**json.loads(shape)) if shape else geometry_of(model or "")
        run = RunContext.from_run(json.loads(context), geometry)
        return BatchEstimator(geometry, run).with_safety(percent)
    except (GlassgateError, ValueError, TypeError, AttributeError):  # a context that is no object has no members
        return None


def _own_safety(run: RunRow) -> int | None:
    """The run's own safety factor in percent."""
    try:
        context: Any = json.loads(run.context or "")
        return int(Fraction(context["safety_factor"]) * 100)
    except (ValueError, TypeError, KeyError, ZeroDivisionError):
        return None
