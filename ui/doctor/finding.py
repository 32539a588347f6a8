"""Finding: what one check of `glassgate doctor` came to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from estimator.errors import GlassgateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "fail"


class Finding(NamedTuple):
    """One line: which check, how it stands, what was found, and what to do about it."""

    check: str
    state: Literal["ok", "warn", "fail"]
    found: str
    remedy: str = ""


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(check, OK, found)


def warn(check: str, found: str, remedy: str) -> Finding:
    """Something an operator should know; it may be meant."""
    return Finding(check, WARN, found, remedy)


def fail(check: str, found: str, remedy: str) -> Finding:
    """Something that keeps Glassgate from doing what it is asked for."""
    return Finding(check, FAIL, found, remedy)


def examine(check: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """What a check finds. Whatever it meets, there is a finding and no error."""
    try:
        return list(look())
    except GlassgateError as error:
        return [fail(check, str(error), "mend what it names and ask again")]
    except Exception as error:  # noqa: BLE001 - a doctor that dies of what it sees is no help
        words = f"{type(error).__name__}: {error}"
        return [fail(check, f"this could not be looked at ({words})", "tell the Glassgate project what you see here")]
