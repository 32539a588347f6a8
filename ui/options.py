"""The options that several commands share."""

import math
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from controller.knobs import KNOB_SPECS, KnobSpec, parse_bytes
from estimator.errors import KnobError, shown
from store.words import size

_MOST_DIGITS: Final = 20
_METAVARS: Final = {"bytes": "SIZE|off", "limit": "N|off", "switch": "on|off", "int": "N"}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")


def record_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Which record a command reads."""
    run = click.option("--run", help="The run, by id or the beginning of one [default: the newest].")
    database = click.option(
        "--database", type=click.Path(path_type=Path), help="Read this database instead of a run's."
    )
    decorated: Callable[..., Any] = database(run(function))
    return decorated


def span_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Which stretch of a run a command looks at."""
    since = click.option(
        "--since", metavar="MOMENT", help="From 10m before its end, +10m into it, or 12:03:10 UTC [default: its start]."
    )
    until = click.option("--until", metavar="MOMENT", help="Up to then, written alike [default: its end].")
    rank = click.option("--rank", type=click.IntRange(min=0), help="This rank of the run [default: its lowest].")
    decorated: Callable[..., Any] = since(until(rank(function)))
    return decorated


def model_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """How long the steps of a replayed record take."""
    option = click.option(
        "--model",
        metavar="recorded|fitted|preset|NAME",
        help="Step times: a replay's own, fitted to the run's passes, the default preset or a preset by name "
        "[default: recorded for a replay, else fitted].",
    )
    decorated: Callable[..., Any] = option(function)
    return decorated


def knob_option(spec: KnobSpec) -> Callable[[Any], Any]:
    """The option that sets one knob; what it was given is read by `Knobs.parse`, so that its words are everywhere."""
    return click.option(
        "--" + spec.name.replace("_", "-"), spec.name, metavar=_METAVARS[spec.kind], help=f"Knob: {spec.bounds}."
    )


def knob_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """One option for each knob; those that were given arrive as the dict `knobs`."""

    @wraps(function)
    def wrapper(**kwargs: Any) -> Any:
        given = {spec.name: kwargs.pop(spec.name) for spec in KNOB_SPECS}
        return function(knobs={name: value for name, value in given.items() if value is not None}, **kwargs)

    decorated: Callable[..., Any] = wrapper
    for spec in reversed(KNOB_SPECS):
        decorated = knob_option(spec)(decorated)
    return decorated


class Finite(click.FloatRange):
    """A number in a range; `nan` and `inf` are in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number in a range", param, ctx)
        return number


class Bytes(click.ParamType[Any]):
    """A size in bytes as `parse_bytes` reads it, such as 500MiB, 10GiB or 1000000, and no smaller than `least`."""

    name = "size"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The size in bytes."""
        if isinstance(value, int):
            return value
        try:
            found = parse_bytes(value)
        except KnobError:
            self.fail(
                f"{shown(value)} is no size in whole bytes; write for instance 500MiB, 10GiB or 1000000", param, ctx
            )
        if found < self._least:
            self.fail(f"{shown(value)} is less than {size(self._least)}; write that or more", param, ctx)
        return found


class Size(click.ParamType[Any]):
    """A count of tokens: 1000000, 1_000_000, 1M, 512k, or `unbounded` (None)."""

    name = "tokens"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """How the value is named in the help."""
        del param, ctx
        return "TOKENS|unbounded"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Tokens, or `UNBOUNDED_WORD` as it stands."""
        text = str(value).strip().lower().replace("_", "").replace(",", "")
        if text == UNBOUNDED_WORD:
            return text
        factor = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}.get(text[-1:], 1)
        digits = text if factor == 1 else text[:-1]
        if not digits.isdecimal() or len(digits) > _MOST_DIGITS or int(digits) * factor > 1 << 50:
            words = "is no count of tokens; write for instance 1000000, 512k, 4M or unbounded"
            self.fail(f"{shown(value)} {words}", param, ctx)
        return int(digits) * factor


UNBOUNDED_WORD: Final = "unbounded"
