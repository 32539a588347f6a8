"""The panels by their digit, imported when they are first shown."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from ui.app.panel import Panel
    from ui.view.snapshot import Panel as PanelName


class Place(msgspec.Struct, frozen=True):
    """Where a panel is found, and by which digit it is shown."""

    name: PanelName
    digit: int
    module: str
    cls: str
    help: str


PLACES: Final[tuple[Place, ...]] = (
    Place("live", 1, "ui.app.batches", "BatchesPanel", "batches as they happen, with the small panels beside them"),
    Place("waiting", 2, "ui.app.panels.waiting", "WaitingPanel", "who waits, why and since when"),
    Place("gates", 3, "ui.app.panels.gates", "GatesPanel", "how often each gate stopped a batch, and its headroom"),
    Place("hits", 4, "ui.app.panels.hits", "HitsPanel", "the host cache: what was found, loaded, skipped"),
    Place("buffers", 5, "ui.app.panels.buffers", "BuffersPanel", "temporary device buffers against their limit"),
    Place("knobs", 6, "ui.app.panels.knobs", "KnobsPanel", "every knob, set and effective, and its changes"),
    Place("request", 7, "ui.app.panels.request", "RequestPanel", "the life of one request"),
    Place("log", 8, "ui.app.panels.log", "LogPanel", "alarms and what happened"),
)
PLACE_OF: Final[dict[str, Place]] = {place.name: place for place in PLACES}
"""The panels by name."""
BESIDE: Final[tuple[PanelName, ...]] = ("gates", "hits", "buffers", "log")
"""The small panels of the right column, from the top."""


def panel_class(name: PanelName) -> type[Panel]:
    """The class of a panel."""
    place = PLACE_OF[name]
    found: type[Panel] = getattr(importlib.import_module(place.module), place.cls)
    return found
