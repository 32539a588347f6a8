"""Repeats: how many passes met the same refusal by a moment.

The record has their number, the first time and the last; between the two they are taken to be evenly spread, as the
named query `stops-over-time` takes them.
"""


def repeated_by(at_ns: int, count: int | None, first_ns: int | None, last_ns: int | None) -> int:
    """How many of `count` repeats, the first at `first_ns` and the last at `last_ns`, had come by a moment."""
    if not count or first_ns is None or last_ns is None or at_ns < first_ns:
        return 0
    if at_ns >= last_ns:
        return count
    return 1 + (count - 1) * (at_ns - first_ns) // (last_ns - first_ns)


def last_repeat_ns(at_ns: int, count: int | None, first_ns: int | None, last_ns: int | None) -> int | None:
    """When the last repeat by a moment began; None when none had."""
    come = repeated_by(at_ns, count, first_ns, last_ns)
    if not come or not count or first_ns is None or last_ns is None:
        return None
    return last_ns if come == count else first_ns + (come - 1) * (last_ns - first_ns) // (count - 1)
