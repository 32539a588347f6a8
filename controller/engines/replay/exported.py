"""Exported: how the run was served that a trace was exported from; it stands in the trace's first line."""

import json
from typing import Annotated, Any, Final, Literal

import msgspec

from controller.engines.replay.schedule import KnobsAt
from controller.engines.replay.step_time import StepTimeModel
from controller.knobs import Knobs
from controller.limits import Setting
from estimator.batch import BatchEstimator
from estimator.context import RunContext
from estimator.errors import GlassgateError, InputError
from estimator.geometry import Geometry

FORMAT: Final = 1
KEY: Final = "glassgate"
"""The key of the first line's object under which it stands; readers of plain traces pass it over."""
WHO: Final = "trace"
"""Who turned the knobs of a replayed trace, for its record."""

_Tokens = Annotated[int, msgspec.Meta(ge=0)]
_Knob = int | bool | None


class ExportedChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """Knobs that were turned: when, after how many passes (0: by the clock alone), and which to what."""

    at_ns: int
    knobs: dict[str, _Knob]
    after_passes: int = 0


class _Versioned(msgspec.Struct):
    format: int


class Exported(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a run was served. Times are ns from where the trace begins, sizes tokens."""

    format: int
    engine: str
    version: str
    run: str
    knobs: dict[str, _Knob]
    """By name, those it began with."""
    setting: dict[str, int | bool]
    """How the engine ran; the fields of `controller.limits.Setting`."""
    device_tokens: Annotated[int, msgspec.Meta(ge=1)]
    host_tokens: _Tokens
    changes: tuple[ExportedChange, ...] = ()
    role: Literal["unified", "prefill"] = "unified"
    write_policy: Literal["write_through", "write_back"] = "write_through"
    new_token_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.7
    stretch_ns: Annotated[int, msgspec.Meta(ge=1)] | None = None
    grain: Annotated[int, msgspec.Meta(ge=1, le=1 << 16)] = 512
    """Tokens of the blocks in which requests share their beginnings; below 512 `like` and `shared_length` tell them."""
    model: str = ""
    geometry: dict[str, Any] | None = None
    """The model's dimensions; None where buffers are not estimated."""
    context: dict[str, Any] | None = None
    """The estimator's run context."""
    step_time: dict[str, int | str] | None = None
    """Fields of `StepTimeModel`: that of a replay, or fitted to the passes of an engine."""
    since_ns: _Tokens = 0
    """What arrives before is there to warm the cache."""
    whole: bool = True
    """The trace begins where the run began, with an empty cache; else nobody knows what was in it."""
    smoke_bytes: int | None = None
    """What the start-up allocation reached."""

    def started(self) -> Knobs:
        """The knobs it began with. Raises KnobError."""
        return Knobs.parse(self.knobs)

    def served(self) -> Setting:
        """How the engine ran. Raises KnobError, InputError."""
        try:
            fields: dict[str, Any] = dict(self.setting)
            return Setting(**fields)
        except TypeError as error:
            raise InputError(f"{KEY}: setting: {error}; export the run again") from None

    def turned(self) -> tuple[KnobsAt, ...]:
        """The knobs turned on the way."""
        return tuple(KnobsAt(each.at_ns, each.after_passes, dict(each.knobs), WHO) for each in self.changes)

    def steps(self) -> StepTimeModel | None:
        """How long its steps took; None where that is not known. Raises UsageError, InputError."""
        if self.step_time is None:
            return None
        try:
            fields: dict[str, Any] = self.step_time
            return StepTimeModel(**fields)
        except TypeError as error:
            raise InputError(f"{KEY}: step_time: {error}; export the run again") from None

    def estimator(self) -> BatchEstimator | None:
        """The estimator of its model; None where it had none. Raises InputError."""
        if self.geometry is None or self.context is None:
            return None
        try:
            geometry = Geometry(**self.geometry)
        except TypeError as error:
            raise InputError(f"{KEY}: geometry: {error}; export the run again") from None
        return BatchEstimator(geometry, RunContext.from_run(self.context, geometry))


def read_exported(line: bytes) -> Exported | None:
    """What the first line of a trace says of the run it was exported from; None for a plain trace.

    Raises InputError for what cannot be read as that, or was written by a newer Glassgate.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        if f'"{KEY}"'.encode() in line:  # ours, and not to be taken for a plain one
            raise InputError(f"{KEY}: the line cannot be read ({error}); export the run again") from None
        return None
    if not isinstance(found, dict) or KEY not in found:
        return None
    try:
        _check_version(msgspec.convert(found[KEY], _Versioned).format)
        exported = msgspec.convert(found[KEY], Exported)
        exported.started()
        exported.served()
        exported.steps()
        exported.estimator()
    except (msgspec.ValidationError, UnicodeEncodeError, RecursionError) as error:
        raise InputError(f"{KEY}: {error}; export the run again") from None
    except InputError:
        raise
    except GlassgateError as error:
        raise InputError(f"{KEY}: {error}; export the run again") from None
    return exported


def _check_version(version: int) -> None:
    if version > FORMAT:
        raise InputError(
            f"{KEY}: format version {version}, this Glassgate reads up to {FORMAT}; use the one that exported it"
        )
