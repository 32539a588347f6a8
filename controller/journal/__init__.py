"""The flight recorder: an append-only folder of frames that survives the process, its reader, and its cursors."""

from controller.journal.cursors import read_cursor, read_cursors, remove_cursor, write_cursor
from controller.journal.frames import DATA, LOSS, SEGMENT, Cursor, Frame
from controller.journal.losses import Loss, LossTotals
from controller.journal.reader import JournalReader, Skipped
from controller.journal.segments import SegmentHeader
from controller.journal.writer import LOST, JournalWriter

__all__ = [
    "DATA",
    "LOSS",
    "LOST",
    "SEGMENT",
    "Cursor",
    "Frame",
    "JournalReader",
    "JournalWriter",
    "Loss",
    "LossTotals",
    "SegmentHeader",
    "Skipped",
    "read_cursor",
    "read_cursors",
    "remove_cursor",
    "write_cursor",
]
