"""Goals: which figure is to be great or small, and which ones have bounds."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.knobs import parse_bytes
from estimator.errors import KnobError, UsageError
from ui.whatif.figures import Figures

if TYPE_CHECKING:
    from collections.abc import Sequence

METRICS: Final = tuple(field.name for field in fields(Figures) if field.name != "stops")
"""Figures that may be searched by."""
_TIMES: Final = ("queue_", "ttft_")
_BYTES: Final = frozenset({"peak_buffer", "buffer_mean"})
_SECONDS: Final = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "": 1.0}
_BOUND: Final = re.compile(r"\s*(\w+)\s*(<=|>=|<|>|=<|=>)\s*(.+?)\s*")
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([a-zA-Zµ]*)")


class Aim(NamedTuple):
    """A figure that is to be as great or as small as can be."""

    metric: str
    maximise: bool

    def of(self, figures: Figures) -> float:
        """The figure; where it cannot be told, the worst there is."""
        value = getattr(figures, self.metric)
        return float(value) if value is not None else float("-inf" if self.maximise else "inf")


class Bound(NamedTuple):
    """A bound that a figure has to keep."""

    metric: str
    upper: bool
    limit: float
    text: str
    """As it was written."""

    def excess(self, figures: Figures) -> float:
        """By how much a figure is beyond the bound, as a share of it; at most 0 where it keeps it.

        A figure that cannot be told is taken for 0, but for a time: who never got a token waited for ever.
        """
        value = getattr(figures, self.metric)
        if value is None:
            value = float("inf") if is_time(self.metric) and figures.requests else 0.0
        beyond = value - self.limit if self.upper else self.limit - value
        return float(beyond / (self.limit or 1.0))


def read_aim(metric: str, *, maximise: bool) -> Aim:
    """A goal by the name of its figure. Raises UsageError for a figure there is not."""
    _check(metric)
    return Aim(metric, maximise)


def read_bound(text: str) -> Bound:
    """A bound such as `ttft_p99<5s`, `peak_buffer<4GiB` or `refused<=0`. Raises UsageError for what is none."""
    found = _BOUND.fullmatch(text)
    if found is None:
        raise UsageError(f"--subject-to {text!r} is no bound; write for instance 'ttft_p99<5s' or 'peak_buffer<4GiB'")
    metric, sign, amount = found.groups()
    _check(metric)
    return Bound(metric, "<" in sign, _amount(metric, amount), text.strip())


def keeps(bounds: Sequence[Bound], figures: Figures) -> bool:
    """Whether every bound is kept."""
    return all(bound.excess(figures) <= 0 for bound in bounds)


def is_time(metric: str) -> bool:
    """Whether a figure is in seconds."""
    return metric.startswith(_TIMES)


def is_bytes(metric: str) -> bool:
    """Whether a figure is in bytes."""
    return metric in _BYTES


def _check(metric: str) -> None:
    if metric not in METRICS:
        raise UsageError(f"{metric!r} is no figure; the figures are {', '.join(METRICS)}")


def _amount(metric: str, text: str) -> float:
    """A limit in the figure's unit. Raises UsageError."""
    if metric in _BYTES:
        try:
            return float(parse_bytes(text, metric))
        except KnobError:
            raise UsageError(f"{text!r} is no size for {metric}; write for instance 4GiB") from None
    read = _AMOUNT.fullmatch(text)
    if read is not None:
        number, unit = read.groups()
        if is_time(metric) and unit in _SECONDS:
            return float(number) * _SECONDS[unit]
        if not is_time(metric) and not unit:
            return float(number)
    what = "time for {}; write for instance 5s or 200ms" if is_time(metric) else "number for {}"
    raise UsageError(f"{text!r} is no {what.format(metric)}")
