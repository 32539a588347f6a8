"""What becomes of a start whose smoke allocation failed somewhere."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_log: Final = logging.getLogger("glassgate")


def warn_or_refuse(failed: Sequence[str], asked: int, noun: str, wanted: str) -> None:
    """Log what each of those that failed said; `asked` is how many `noun` tried, `wanted` the setting `smoke`.

    Raises SystemExit where one failed and the setting is `require`.
    """
    refuses = wanted == "require"
    for line in failed:
        _log.log(logging.ERROR if refuses else logging.WARNING, "glassgate: %s", line)
    if failed and refuses:
        raise SystemExit(
            f"glassgate: the start is refused, since GLASSGATE_SMOKE is require and {len(failed)} of {asked} {noun} "
            f"cannot hold max_buffer_bytes: {failed[0]}"
        )
