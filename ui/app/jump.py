"""What is typed after `:`: where to go, by pass, time, event, run, request or panel, or the name of any command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from controller.vocabulary import Gate
from ui.app.panel_list import PLACES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ui.app.command import Command

HINT: Final = "pass 18204 · at 12:03:10 · at +5m · next GATE · prev GATE · live · speed 10 · request ID · a command"
_GATES: Final = tuple(gate.word for gate in Gate)


class Jump(msgspec.Struct, frozen=True):
    """One order: what to do and with what."""

    what: Literal["pass", "at", "next", "prev", "live", "speed", "run", "request", "panel", "command"]
    text: str = ""
    number: float = 0


def parse_jump(text: str, commands: Sequence[Command]) -> Jump:
    """The order that was typed. Raises ValueError, with what could be written instead, when it is none."""
    words = text.strip().split()
    if not words:
        raise ValueError(f"write where to go: {HINT}")
    what, rest = words[0].lower(), " ".join(words[1:])
    if what.replace(",", "").isdecimal() and not rest:
        what, rest = "pass", what
    if not rest and (what[0] in "+-" or ":" in what):
        what, rest = "at", what
    if what in _ORDERS:
        return _ORDERS[what](rest)
    if what in {place.name for place in PLACES} and not rest:
        return Jump("panel", what)
    for command in commands:
        if command.name.lower() == text.strip().lower():
            return Jump("command", command.name)
    raise ValueError(f"{text.strip()!r} is no order; write {HINT}")


def _pass(rest: str) -> Jump:
    digits = rest.replace(",", "").replace("_", "")
    if not digits.isdecimal() or len(digits) > 18:
        raise ValueError(f"{rest!r} is no pass; write pass and its number, such as pass 18204")
    return Jump("pass", number=int(digits))


def _at(rest: str) -> Jump:
    if not rest:
        raise ValueError("write the time: at 12:03:10 (UTC), at +5m into the run, at -30 before its end")
    return Jump("at", rest)


def _event(what: Literal["next", "prev"], rest: str) -> Jump:
    wanted = rest.lower().replace("-", "_")
    if wanted in ("", "stop", "*"):
        return Jump(what)
    if wanted in ("knob", "fault", "pass"):
        return Jump(what, wanted)
    found = [gate for gate in _GATES if gate.startswith(wanted)]
    if len(found) != 1:
        raise ValueError(f"{rest!r} is no gate; gates are {', '.join(_GATES)}; also: knob, fault, pass")
    return Jump(what, found[0])


def _speed(rest: str) -> Jump:
    try:
        speed = float(rest.rstrip("x"))
    except ValueError:
        speed = -1.0
    if not 0 < speed < 1e6:
        raise ValueError(f"{rest!r} is no speed; write speed 10 for ten seconds of the run a second")
    return Jump("speed", number=speed)


def _named(what: Literal["run", "request"], rest: str) -> Jump:
    if not rest:
        raise ValueError(f"write the id of the {what}, or the beginning of one: {what} 7f3a")
    return Jump(what, rest)


_ORDERS: Final[dict[str, Callable[[str], Jump]]] = {
    "pass": _pass,
    "p": _pass,
    "at": _at,
    "next": lambda rest: _event("next", rest),
    "prev": lambda rest: _event("prev", rest),
    "previous": lambda rest: _event("prev", rest),
    "live": lambda _: Jump("live"),
    "follow": lambda _: Jump("live"),
    "end": lambda _: Jump("live"),
    "speed": _speed,
    "run": lambda rest: _named("run", rest),
    "request": lambda rest: _named("request", rest) if rest else Jump("panel", "request"),
}
