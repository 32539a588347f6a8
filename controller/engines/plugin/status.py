"""PluginStatus: the file in a run's folder by which a plug-in proves that it is in force."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import msgspec

from controller.whole_file import read_json, write_whole

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "plugin.json"


class InProcess(msgspec.Struct, frozen=True, tag="in_process"):
    """Knob requests are taken by the engine's own process, between two passes."""


class Http(msgspec.Struct, frozen=True, tag="http"):
    """Knob requests go to the engine's own endpoint, which tells every rank at the same step; the collector posts them.

    The body is `{wrap: numbers}` with the numbers of `controller.engines.plugin.broadcast`.
    """

    url: str
    wrap: str
    needs_key: bool = False
    """The endpoint asks for a key, which stands in GLASSGATE_ENGINE_KEY of the collector's environment."""


class NoWay(msgspec.Struct, frozen=True, tag="none"):
    """There is no safe way to turn a knob of this run; every request is refused with this reason."""

    why: str


Way = InProcess | Http | NoWay


class PluginStatus(msgspec.Struct):
    """What a plug-in says of itself. Times are Unix ns, written about once a second while something moves."""

    engine: str
    engine_version: str
    glassgate_version: str
    pid: int
    since_ns: int
    rank: int
    group: str
    ranks: int
    """Ranks of the group, which decide alike."""
    leads: bool
    """Whether this rank records its passes whole; the others of its group record digests."""
    replaced: tuple[str, ...]
    """The engine's classes that Glassgate's stand in for."""
    way: Way
    in_force: bool = True
    """False once the plug-in has stepped aside for the stock class."""
    why_not: str = ""
    at_ns: int = 0
    passes: int = 0
    last_pass_ns: int = 0
    losses: dict[str, int] = {}
    """Frames the journal could not take, by reason."""
    collector_pid: int = 0
    """The collector that was started beside the engine; 0 when none was."""
    collector_log: str = ""
    python: str = ""
    """The interpreter, by which the engine's environment is known."""
    cautions: tuple[str, ...] = ()
    """What an operator should know of how this engine runs."""


def write_status(folder: Path, status: PluginStatus) -> None:
    """Leave the file in a run's folder. Raises OSError."""
    write_whole(folder / FILE, msgspec.json.encode(status) + b"\n")


def read_status(folder: Path) -> PluginStatus | None:
    """What the plug-in of a run said last; None for a run without one, or a file that cannot be read."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return read_json(folder / FILE, PluginStatus)
    return None
