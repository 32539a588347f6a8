"""Guard: what every parser owes whoever hands it bad input: an answer or a plain error, soon, in bounded memory."""

import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, Self

from estimator.errors import LONGEST_WORDS, GlassgateError

CPU_SECONDS: Final = 20.0
"""Processor time of this process that one input may take, so that a busy machine fails nothing."""
MOST_MIB: Final = 384
"""By how much one input may make the process grow, MiB."""

_CLEAR: Final = Path("/proc/self/clear_refs")


class HangError(BaseException):
    """An input was not done with in its time. Not an Exception: nobody contains it, and Hypothesis tries no other."""


class Guard:
    """Runs a parser on one input after another, and lets nothing through but an answer or a plain Glassgate error.

    As a context manager it watches the time; two system calls an input, since a busy machine makes each of them dear.
    """

    def __init__(self, seconds: float = CPU_SECONDS, mib: int = MOST_MIB) -> None:
        self.executions = 0
        self.refused = 0
        self._seconds, self._mib = seconds, mib
        self._given: Any = None
        self._peak_kib = 0

    def __enter__(self) -> Self:
        """Begin to measure the process's peak anew, where the kernel lets us, and to watch the time."""
        with suppress(OSError):
            _CLEAR.write_bytes(b"5")
        self._peak_kib = _peak_kib()
        self._before = signal.signal(signal.SIGVTALRM, self._out_of_time)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Watch no longer."""
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, self._before)

    def __call__(self, parse: Callable[[Any], object], given: Any) -> None:
        """Try one input."""
        self.executions += 1
        self._given = given
        signal.setitimer(signal.ITIMER_VIRTUAL, self._seconds)
        try:
            parse(given)
        except GlassgateError as error:
            self.refused += 1
            check_words(str(error))
        before, self._peak_kib = self._peak_kib, _peak_kib()
        grown = (self._peak_kib - before) // 1024
        assert grown <= self._mib, f"{grown} MiB more for {_shown(given)}"

    def _out_of_time(self, _signal: int, _frame: FrameType | None) -> None:
        raise HangError(f"more than {self._seconds:g} s of processor time for {_shown(self._given)}")


def check_words(words: str) -> None:
    """An error says something, on one line that steers no terminal, and does not hand the whole input back."""
    assert words.strip(), "an error without words"
    assert words.isprintable(), f"an error with what is not printable: {words[:500]!r}"
    assert len(words) <= LONGEST_WORDS, f"an error of {len(words)} characters: {words[:200]!r}"


def _shown(given: Any) -> str:
    try:
        text = repr(given)
    except (ValueError, RecursionError):
        text = "a value too long to show"
    return text if len(text) < 2_000 else f"{text[:2_000]}... ({len(text)} characters)"


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
