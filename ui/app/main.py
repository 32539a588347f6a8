"""Opening the screen on what a source names: in the terminal, or as one picture without one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from ui.app.screen import Glassgate
from ui.stopping import run_in_loop
from ui.view.reader import Reader

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from ui.app.colours import ThemeName
    from ui.view.clock import Clock
    from ui.view.reader import SnapshotReader
    from ui.view.snapshot import Ask
    from ui.view.source import Source

_LOOK_SECONDS: Final = 0.01
_SIGNALLED: Final = 128
"""What a shell adds to the number of the signal that ended a process."""


def run_screen(
    source: Source,
    *,
    theme: ThemeName | None = None,
    readonly: bool = False,
    ask: Ask | None = None,
    at: str = "",
    beside: Source | None = None,
) -> None:
    """Show the screen until the operator leaves it.

    `ask` is what to look at first, by default the run the source names; `at` a time to go to, as the `:` prompt takes
    it; `beside` is another run to be shown beside it at once, and `theme` follows NO_COLOR and the terminal unless it
    is given. Raises SystemExit with 128 and the signal's number added when SIGINT, SIGTERM or SIGHUP ended it, the
    terminal already given back.
    """
    reader = Reader(source)
    both = None if beside is None else (source, beside)
    app = Glassgate(reader, theme=theme or terminal_theme(), readonly=readonly, ask=ask, at=at, beside=both)
    run_in_loop(app.run_async)
    if app.return_code is not None and app.return_code > _SIGNALLED:
        raise SystemExit(app.return_code)


def terminal_theme() -> ThemeName:
    """`plain` where NO_COLOR asks for it, `light` where COLORFGBG says so, else `dark`."""
    if os.environ.get("NO_COLOR"):
        return "plain"
    background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if background in ("7", "15") else "dark"


async def picture(
    reader: SnapshotReader,
    size: tuple[int, int],
    *,
    theme: ThemeName = "dark",
    ask: Ask | None = None,
    at: str = "",
    clock: Clock | None = None,
    keys: tuple[str, ...] = (),
) -> str:
    """The screen of that many columns and lines as an SVG, after these keys."""
    app = Glassgate(reader, theme=theme, readonly=True, ask=ask, at=at, clock=clock)
    async with app.run_test(size=size) as pilot:
        await settled(app, pilot)
        for key in keys:
            await pilot.press(key)
            await settled(app, pilot)
        return app.export_screenshot(title="glassgate ui")


async def settled(app: Glassgate, pilot: Pilot[None]) -> None:
    """Wait until everything is mounted and nothing is left to be drawn; an app that failed is not waited for."""
    while not app.complete.is_set() and app.return_code is None:
        await pilot.pause(_LOOK_SECONDS)
    await pilot.pause()
    await pilot.pause()
