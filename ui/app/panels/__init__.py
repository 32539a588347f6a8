"""The panels of the screen beside the batches, each a file."""

from ui.app.panels.buffers import BuffersPanel
from ui.app.panels.gates import GatesPanel
from ui.app.panels.hits import HitsPanel
from ui.app.panels.knobs import KnobsPanel
from ui.app.panels.log import LogPanel
from ui.app.panels.request import RequestPanel
from ui.app.panels.waiting import WaitingPanel

__all__ = [
    "BuffersPanel",
    "GatesPanel",
    "HitsPanel",
    "KnobsPanel",
    "LogPanel",
    "RequestPanel",
    "WaitingPanel",
]
