"""Numbers as people read them: grouped by thousands, durations and sizes in the unit that fits."""

from typing import Final

_STEPS: Final = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
_SIZES: Final = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_MINUTE_NS: Final = 60 * 1_000_000_000
_HOUR_NS: Final = 60 * _MINUTE_NS


def count(number: int) -> str:
    """A whole number with its thousands grouped."""
    return f"{number:,}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """A number with its noun, in the plural where it is not 1."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def times(number: int) -> str:
    """How often."""
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def duration(ns: int) -> str:
    """Nanoseconds as two or three digits and a unit; from a minute on, in whole seconds."""
    if ns >= _MINUTE_NS:
        seconds = round(ns / 1_000_000_000)
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours:,} h {minutes} min {seconds} s" if hours else f"{minutes} min {seconds} s"
    for step, unit in _STEPS:
        if ns >= 0.9995 * step:  # what rounds to one of this unit is not shown as a thousand of the next
            value = ns / step
            text = f"{value:.1f}" if value < 100 and unit == "s" else f"{value:.3g}" if value < 100 else f"{value:.0f}"
            return f"{text} {unit}"
    return f"{ns} ns"


def size(number: int) -> str:
    """Bytes in the largest unit that leaves at least one of it."""
    for step, unit in _SIZES:
        if abs(number) >= step:
            return f"{number / step:.2f} {unit}"
    return f"{number:,} B"


def amount(number: int, unit: str) -> str:
    """A number in its unit: bytes as a size, anything else grouped and without the unit's name."""
    return size(number) if unit == "bytes" else count(number)
