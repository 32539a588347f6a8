"""The commands that work everywhere on the screen. Footer, help, palette and the `:` prompt are made from them."""

from __future__ import annotations

from typing import Final

from ui.app.command import Command
from ui.app.panel_list import PLACES

PANEL_COMMANDS: Final = tuple(
    Command(
        place.name,
        f"{place.digit}{',k' if place.name == 'knobs' else ''}",
        f"show('{place.name}')",
        place.name,
        f"Show the panel: {place.help}.",
    )
    for place in PLACES
)
TIME_COMMANDS: Final = (
    Command("pause", "space", "pause", "pause", "Rest at this moment; again goes on as before."),
    Command("earlier pass", "left_square_bracket", "step(-1)", "step", "Step to the pass before."),
    Command("later pass", "right_square_bracket", "step(1)", "step", "Step to the pass after."),
    Command("previous stop", "left_curly_bracket", "event(-1)", "stop", "Go to the previous stop by the same gate."),
    Command("next stop", "right_curly_bracket", "event(1)", "stop", "Go to the next stop by the same gate."),
    Command("play", "p", "play", "play", "Play on from this moment."),
    Command("slower", "minus", "speed(-1)", "", "Play slower."),
    Command("faster", "plus,equals_sign", "speed(1)", "", "Play faster."),
    Command("go live", "l", "live", "", "Go to the end of the run and follow it."),
    Command("jump", "colon,g", "jump", "jump", "Go to a pass, a time or an event, or run a command by its name."),
)
LOOK_COMMANDS: Final = (
    Command("filter", "slash", "filter", "filter", "Filter this panel; ! in front turns the filter round."),
    Command("faults only", "exclamation_mark,f", "faults", "faults", "Show faults alone, or everything."),
    Command("runs", "r", "runs", "runs", "Choose another run or rank."),
    Command("beside", "B", "beside", "", "Show another run beside this one, such as its what-if, and where they part."),
    Command("raw record", "y", "raw", "raw", "Show the raw record of what the cursor is on."),
    Command("copy as JSON", "c", "copy_json", "", "Copy what the panel shows as JSON."),
    Command("copy as SQL", "C", "copy_sql", "", "Copy SQL for glassgate query that asks for what the panel shows."),
    Command("screenshot", "s,ctrl+s", "picture", "", "Write the screen to an SVG file in the current folder."),
    Command("theme", "t", "next_theme", "", "Dark, light, or without colour."),
    Command("next part", "tab", "app.focus_next", "", "Move the focus to the next part of the screen."),
    Command("previous part", "shift+tab", "app.focus_previous", "", "Move the focus to the part before."),
    Command("palette", "ctrl+p", "command_palette", "", "Search all commands."),
    Command("help", "question_mark", "help", "help", "What the panel shows, and every key."),
    Command("suspend", "ctrl+z", "suspend_process", "", "Rest in the background of the shell; fg comes back."),
    Command("quit", "q,ctrl+q,ctrl+c", "quit", "quit", "Leave."),
)
APP_COMMANDS: Final = (*PANEL_COMMANDS, *TIME_COMMANDS, *LOOK_COMMANDS)
