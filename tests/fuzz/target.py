"""Target: one parser, the input it is tried on, and the valid input that is made from."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from hypothesis.strategies import SearchStrategy

Parse = Callable[[Any], object]


class Aim(NamedTuple):
    """What a target does in a room: the inputs, and the parser that takes one."""

    inputs: SearchStrategy[Any]
    parse: Parse


@dataclass(frozen=True)
class Target:
    """One parser. `cost` is about how many times longer it takes than a quick one, so that fewer are tried."""

    name: str
    aim: Callable[["Room"], Aim]
    cost: int = 1
    is_bytes: bool = False
    """Its inputs are bytes, so that atheris can make them too."""


class Room(NamedTuple):
    """Where targets work: a folder of their own, and a finished run with its database in it."""

    folder: Path
    run: Path
    database: Path

    @property
    def home(self) -> Path:
        """Where commands keep runs."""
        return self.folder / "home"

    def file(self, name: str, content: bytes) -> Path:
        """A file of the folder with this content."""
        path = self.folder / name
        path.write_bytes(content)
        return path


TARGETS: Final[dict[str, Target]] = {}


def target(name: str, *, cost: int = 1, is_bytes: bool = False) -> Callable[[Callable[[Room], Aim]], Target]:
    """Keep what a function aims at as a target of that name."""

    def keep(aim: Callable[[Room], Aim]) -> Target:
        TARGETS[name] = made = Target(name, aim, cost, is_bytes)
        return made

    return keep
