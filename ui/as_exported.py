"""AsExported: a trace that Glassgate exported, replayed as its run was served but for what the command sets."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from controller.engines.replay import KnobsAt
from controller.engines.replay.exported import Exported
from controller.engines.replay.step_time import StepTimeModel
from controller.limits import Setting
from estimator.batch import BatchEstimator
from estimator.context import RunContext
from ui.replaying import ReplayOptions

_SETTING: Final = frozenset({"context_parallel", "data_parallel"})
_MODEL: Final = frozenset({"model", "kv_dtype"})
_STEPS: Final = frozenset({"step_time", "prefill_tokens_per_second"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AsExported(ReplayOptions):
    """Options of which those not in `given` are the exported run's. `speed` is how much faster the trace is played."""

    exported: Exported
    given: frozenset[str]
    set_knobs: frozenset[str]
    """Knobs that are set to other values than the run's; the changes of the record leave them alone."""
    speed: float = 1.0

    def setting(self) -> Setting:
        """How the engine runs."""
        if self.given & _SETTING:
            return ReplayOptions.setting(self)
        has_model = self.estimator() is not None
        return replace(self.exported.served(), slots=self.slots, has_model=has_model)

    def estimator(self) -> BatchEstimator | None:
        """The estimator for the model, in the run that was exported."""
        if self.given & _MODEL:
            return ReplayOptions.estimator(self)
        found = self.exported.estimator()
        if found is None or found.context.page_size == self.knobs.page_size:
            return found
        run = {**found.context.as_run(), "page_size": self.knobs.page_size}
        return BatchEstimator(found.geometry, RunContext.from_run(run, found.geometry))

    def step_time_model(self) -> StepTimeModel:
        """How long steps take."""
        steps = None if self.given & _STEPS else self.exported.steps()
        return ReplayOptions.step_time_model(self) if steps is None else steps

    def changes(self) -> Sequence[KnobsAt]:
        """The knobs turned on the way: at their passes where all else is as it was, else by the clock."""
        as_it_was = not self.set_knobs and self.speed == 1.0
        found = []
        for change in self.exported.turned():
            values = {name: value for name, value in change.values.items() if name not in self.set_knobs}
            if values:
                passes = change.after_passes if as_it_was else 0
                found.append(KnobsAt(int(change.at_ns / self.speed), passes, values, change.who))
        return found

    def stretch_ns(self) -> int | None:
        """The bound on decode steps taken in one piece."""
        return self.exported.stretch_ns


def all_exported(exported: Exported, **more: Any) -> AsExported:
    """The options that serve a trace in everything as its run was served."""
    served = as_exported({"slots": exported.served().slots}, exported, ())
    nothing: frozenset[str] = frozenset()
    return AsExported(**served, knobs=exported.started(), exported=exported, given=nothing, set_knobs=nothing, **more)


def as_exported(options: dict[str, Any], exported: Exported, given: Collection[str]) -> dict[str, Any]:
    """A command's options with the exported run's for those that were not `given`."""
    theirs = {
        "device_tokens": exported.device_tokens,
        "host_tokens": exported.host_tokens,
        "slots": exported.setting.get("slots", options["slots"]),
        "role": exported.role,
        "write_policy": exported.write_policy,
        "new_token_ratio": exported.new_token_ratio,
        "model": exported.model or None,
    }
    return {**options, **{name: value for name, value in theirs.items() if name not in given}}
