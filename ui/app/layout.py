"""How the screen is laid out, as Textual CSS: narrow, normal and wide by its width."""

from __future__ import annotations

from typing import Final

BREAKPOINTS: Final = [(0, "-narrow"), (100, "-normal"), (140, "-wide")]
"""Columns from which each layout holds. Narrow is the left column alone."""

CSS: Final = """
Screen { layout: vertical; background: $background; color: $foreground; }

#body { height: 1fr; }
#live { height: 1fr; }
#left { width: 1fr; height: 1fr; }
#right { width: 46; height: 1fr; margin-left: 1; }
.-wide #right { width: 56; }
.-narrow #right { display: none; }

.panel { height: 1fr; padding: 0 1; border-top: solid $line; border-title-color: $foreground; }
.panel { border-title-style: bold; border-subtitle-color: $foreground; }
.panel:focus-within { border-top: heavy $line-focus; }
.legend { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }

#left BatchesPanel { height: 3fr; min-height: 4; }
#left OpenedPass { height: 2fr; min-height: 4; }
#left OpenedPass:focus-within { height: 6fr; }
#left WaitingPanel { height: 6; }
.-narrow #left WaitingPanel { height: 5; }
#right GatesPanel { height: 11; }
#right HitsPanel { height: 4; }
#right HitsPanel .told { height: 3; }
#right BuffersPanel { height: 4; }
#right BuffersPanel .said { height: 3; }
#right LogPanel { height: 1fr; min-height: 2; }
#right LogPanel .few { height: 1fr; }

Lines { scrollbar-gutter: stable; scrollbar-color: $line; scrollbar-background: $background; }
Lines > .lines--cursor { background: $cursor; text-style: bold; }
Lines > .lines--cursor-blurred { background: $panel; }
DataTable { scrollbar-color: $line; scrollbar-background: $background; }
DataTable { background: $background; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0; }
DataTable > .datatable--header { background: $background; color: $foreground; text-style: dim; }
DataTable > .datatable--cursor { background: $panel; color: $foreground; text-style: none; }
DataTable:focus > .datatable--cursor { background: $cursor; text-style: bold; }
DataTable:ansi:focus > .datatable--cursor { text-style: reverse; }

#body.old { opacity: 65%; }
Toast { background: $panel; color: $foreground; border-left: outer $line-focus; }
ToastRack { margin-bottom: 1; }

Dialog { align: center middle; background: $background 60%; }
Dialog > Vertical { width: 90%; height: 90%; max-width: 120; background: $background; border: solid $line-focus; }
Dialog > Vertical { padding: 0 1; border-title-style: bold; border-subtitle-color: $foreground; }
Dialog .help { height: auto; }
"""
