"""The reference page of the screen's keys, made from the commands that the screen itself binds."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ui.app.batches import CURSOR_COMMANDS, BatchesPanel
from ui.app.beside import BesideScreen
from ui.app.colours import COMPUTED, DEVICE, GATE_LETTERS, LOADED, NO_PASS, NOTHING_BOUND, PRESENCES, ROOM, VERDICTS
from ui.app.command import Command, key_words
from ui.app.commands import LOOK_COMMANDS, PANEL_COMMANDS, TIME_COMMANDS
from ui.app.dialogs import RawDialog, RunsDialog
from ui.app.opened_pass import OpenedPass
from ui.app.panel_list import PLACES, panel_class
from ui.app.strip import KNOB_CHANGE

if TYPE_CHECKING:
    from ui.app.panel import Panel

Table = Callable[[Sequence[str], Iterable[Sequence[Any]]], str]


_STRIP: Final = (
    f"\nIn the strip, `{NOTHING_BOUND.sign}` is {NOTHING_BOUND.word}, a blank is {NO_PASS.word}, and `{KNOB_CHANGE}` a"
    " change of knobs.\n"
)


def keys_page(table: Table) -> str:
    """Every key, everywhere and in each panel; and every letter and mark."""
    panels: list[type[Panel]] = [BatchesPanel, OpenedPass]
    panels += [panel_class(place.name) for place in PLACES if place.name != "live"]
    parts = [
        "# Keys and marks of the screen\n\n",
        "Every command is also in the palette (`ctrl+p`), and can be typed after `:` by its name.\n",
    ]
    sections: list[tuple[str, Sequence[Command]]] = [
        ("Panels", PANEL_COMMANDS),
        ("Time", TIME_COMMANDS),
        ("Everywhere", LOOK_COMMANDS),
        ("Lists", CURSOR_COMMANDS),
        *((panel.TITLE, _own(panel.COMMANDS)) for panel in panels),
        ("Raw record", _own(RawDialog.KEYS)),
        ("Choice of a run", _own(RunsDialog.KEYS)),
        ("Two runs beside each other", _own(BesideScreen.KEYS)),
    ]
    for name, commands in sections:
        if commands:
            rows = [(_keys(each), each.name, each.help + (" Off with --readonly." if each.changes else ""))
                    for each in commands]  # fmt: skip
            parts.append(f"\n## {name}\n\n{table(('key', 'command', 'what it does'), rows)}")
    marks = (DEVICE, LOADED, COMPUTED, ROOM)
    parts += [
        "\n## Letters of gates\n\n",
        table(("letter", "gate"), ((f"`{letter}`", f"`{gate}`") for gate, letter in GATE_LETTERS.items())),
        _STRIP,
        "\n## Marks\n\n",
        table(("mark", "of", "stands for"), (
            *((f"`{mark.sign}`", "tokens", mark.word) for mark in marks),
            *((f"`{mark.sign}`", "presence", mark.word) for mark in PRESENCES.values()),
            *((f"`{mark.sign}`" if mark.sign.strip() else "", "verdict", mark.word) for mark in VERDICTS.values()),
        )),
    ]  # fmt: skip
    return "".join(parts)


def _own(commands: Sequence[Command]) -> Sequence[Command]:
    """Without the keys that every list has."""
    return [each for each in commands if each not in CURSOR_COMMANDS]


def _keys(command: Command) -> str:
    """The keys as people write them, each as code."""
    return " ".join(f"`{key_words(key)}`" for key in command.keys.split(",") if key)
