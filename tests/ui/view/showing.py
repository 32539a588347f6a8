"""What the tests of the view share: every panel, seconds, and a clock that stands still."""

from dataclasses import dataclass

import msgspec

ALL = frozenset({"live", "waiting", "gates", "hits", "buffers", "knobs", "request", "log"})
S = 1_000_000_000


@dataclass
class StillClock:
    """A clock that a test sets."""

    monotonic: int = 0
    wall: int = 1_767_225_600 * S

    def monotonic_ns(self):
        """What the test set."""
        return self.monotonic

    def wall_ns(self):
        """What the test set."""
        return self.wall

    def go_on(self, ns):
        """Let time pass."""
        self.monotonic += ns
        self.wall += ns


def differences(one, other, path=""):
    """Where two snapshots differ, as (path, one value, other value)."""
    if type(one) is not type(other):
        yield path, one, other
    elif isinstance(one, msgspec.Struct):
        for name in one.__struct_fields__:
            yield from differences(getattr(one, name), getattr(other, name), f"{path}.{name}")
    elif isinstance(one, tuple) and len(one) == len(other):
        for place, (each, their) in enumerate(zip(one, other, strict=True)):
            yield from differences(each, their, f"{path}[{place}]")
    elif one != other:
        yield path, one, other
