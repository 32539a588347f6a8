"""A change that was asked for: left in the run's folder, and followed until the record holds the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from controller.knobs import SPEC_BY_NAME
from controller.run_directory import RunDirectory
from estimator.errors import GlassgateError
from ui.app.panels.words import value_of
from ui.saving import overruled, save_knobs
from ui.turning import WAIT_SECONDS, ask_for_change

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ui.app.panels.knob_draft import Value
    from ui.view.snapshot import KnobPanel

State = Literal["asked", "accepted", "refused", "no answer"]
_TAKEN: Final = "the engine took the request; its answer has not come here. glassgate knobs get shows what is in force"


class Asked:
    """One request. `state` is `asked` until the answer is known, `words` says it."""

    def __init__(
        self, folder: str, changes: Mapping[str, Value], who: str, *, revision: int | None, save: bool
    ) -> None:
        """Leave the request. Raises GlassgateError where it cannot be left."""
        self.folder = folder
        self.changes = dict(changes)
        self.save = save
        self.state: State = "asked"
        self.name = ask_for_change(RunDirectory(folder), changes, who, expect_revision=revision)
        self.words = f"asked for {self._told}; the engine answers between two passes"

    @property
    def _told(self) -> str:
        """What was asked for: `max_requests 8 req`."""
        units = {name: SPEC_BY_NAME[name].unit for name in self.changes if name in SPEC_BY_NAME}
        return ", ".join(f"{name} {value_of(value, units.get(name, ''))}" for name, value in self.changes.items())

    def look(self, panel: KnobPanel) -> None:
        """Take the answer from the record, if it is there."""
        if self.state not in ("asked", "no answer"):
            return
        answers = [change for change in panel.changes if change.request == self.name]
        if not answers:
            return
        answer = answers[0]
        if not answer.accepted:
            self.state, self.words = "refused", f"{self._told} refused: {answer.why}"
            return
        self.state, self.words = "accepted", f"{self._told} accepted as revision {answer.revision:,}"
        if self.save:
            self.words += f"; {_saved(self.changes)}"

    def wait(self, seconds: float) -> None:
        """So long no answer came: after `WAIT_SECONDS` a request that nobody took is withdrawn."""
        if self.state != "asked" or seconds < WAIT_SECONDS:
            return
        self.state = "no answer"
        self.words = f"no answer after {WAIT_SECONDS:g} s: "
        try:
            if RunDirectory(self.folder).withdraw_request(self.name):
                self.words += "the engine may be gone. The request was withdrawn; nothing was changed"
                return
        except GlassgateError as error:
            self.words += f"the engine may be gone. {error}"
            return
        self.words += _TAKEN


def cannot_leave(folder: str) -> str:
    """Why no request can be left in a run's folder; empty where one can."""
    return "" if folder and Path(folder).is_dir() else "this record stands apart from its run's folder"


def _saved(changes: Mapping[str, Value]) -> str:
    """Save them in the config, and say where or why not."""
    try:
        path = save_knobs(changes)
    except GlassgateError as error:
        return f"not saved: {error}"
    before = overruled(changes)
    return f"saved in {path}" + (f"; {', '.join(before)} goes before it" if before else "")
