"""Pictures of each panel on the committed recording, narrow and wide. `pytest --snapshot-update` makes them anew."""

import pytest

from tests.ui.app.script import still
from tests.ui.app.test_snapshots import on_recording

PANELS = {
    "waiting": ("2",),
    "gates": ("3",),
    "hits": ("4",),
    "buffers": ("5",),
    "knobs": ("6", "down", "down", "down"),
    "request": ("2", "down", "enter"),
    "log": ("8",),
}


@pytest.mark.parametrize("size", [(80, 24), (140, 45)], ids=["80x24", "140x45"])
@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_on_the_recording(recording, snap_compare, panel, size):
    """The panel with the screen to itself, at a moment of the recording at which five requests wait."""
    app = on_recording(recording, at="+300")

    async def show(pilot):
        await still(pilot)
        for key in PANELS[panel]:
            await pilot.press(key)
            await still(pilot)

    assert snap_compare(app, terminal_size=size, run_before=show)
