"""Knobs turned while SGLang serves, by its own `set_internal_state`: every rank gets the numbers at the same loop step.

Read in SGLang 0.5.23: `SchedulerInternalStateController.set_internal_state`, which takes numbers only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from controller.engines.plugin import from_numbers
from controller.engines.plugin.broadcast import KEYS, PREFIX
from controller.engines.sglang.hooks import Hooks
from controller.engines.sglang.settings import FIXED
from controller.engines.sglang.terms import Terms
from controller.knob_turning import answer
from estimator.errors import KnobError

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.engines.sglang.desk import Desk
    from controller.engines.sglang.settings import EngineSettings
    from controller.knob_turning import Answer

_KEYS: Final = frozenset(KEYS)


class KnobHandlers:
    """The handlers for Glassgate's keys, in front of the engine's own ones."""

    def __init__(self, controller: Any, desk: Desk, found: EngineSettings, threshold: Callable[[int], None]) -> None:
        self._desk, self._found, self._threshold = desk, found, threshold
        self._hooks = Hooks()
        self._hooks.around(controller, "set_internal_state", self._set_internal_state)

    def let_go(self) -> None:
        """Leave the controller as it was."""
        self._hooks.let_go()

    def _set_internal_state(self, stock: Callable[..., Any], recv_req: Any) -> Any:
        """Turn Glassgate's knobs among the numbers, and hand the engine the others."""
        numbers = recv_req.server_args
        ours = {name: value for name, value in numbers.items() if name.startswith(PREFIX)}
        if not ours:
            return stock(recv_req)
        done = self._turn(ours)
        recv_req.server_args = {name: value for name, value in numbers.items() if name not in ours}
        said = stock(recv_req)
        said.updated = bool(said.updated and done)
        return said

    def _turn(self, numbers: dict[str, float]) -> bool:
        desk, found = self._desk, self._found
        try:
            request, number = from_numbers(numbers)
            unknown = sorted(set(numbers) - _KEYS)
            told = answer(request, desk.record.knobs, found.setting, FIXED)
            if unknown:
                told = _refuse(told, f"{unknown[0]!r} is no knob of this plug-in; its keys are {', '.join(KEYS)}", desk)
            if told.knobs is not None:
                try:
                    found.own.check(told.knobs)
                except KnobError as error:
                    told = _refuse(told, str(error), desk)
            if told.knobs is not None and told.limits is not None:
                whole = found.estimate.estimator
                estimator = None if whole is None else whole.with_safety(told.knobs.buffer_safety_percent)
                desk.terms = Terms(told.limits, estimator, park=desk.terms.park)
                self._threshold(told.limits.load_back_threshold)
            desk.record.turned(told, number=number)
        except Exception as error:  # noqa: BLE001 - whatever it is, the engine serves on
            desk.fail(error)
            return False
        return told.accepted


def _refuse(told: Answer, why: str, desk: Desk) -> Answer:
    return replace(told, knobs=None, limits=None, revision=desk.record.revision, why=why)
