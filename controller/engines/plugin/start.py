"""The start of a watch: it begins, or stands aside, or refuses the engine's start for settings that cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from controller.engines.plugin.supported import fit
from estimator.errors import GlassgateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.engines.plugin.faults import Faults
    from controller.engines.plugin.supported import SupportedEngine

Watch = TypeVar("Watch")


def begin_or_stand_aside(
    engine: SupportedEngine, faults: Faults, where: str, lost: str, begin: Callable[[], Watch]
) -> Watch | None:
    """What `begin` gives, in a version of the engine that is known; None where that failed, and the engine serves on.

    A failure is told among the faults as `where`, with what is `lost`. Raises SystemExit where the operator's settings
    cannot be followed.
    """
    try:
        fits = fit(engine)
        if not fits.supported:
            raise RuntimeError(fits.words)  # noqa: TRY301 - told like whatever else keeps the watch out
        return begin()
    except GlassgateError as error:
        raise SystemExit(f"glassgate: {error}") from None
    except Exception as error:  # noqa: BLE001 - whatever it is, the engine serves on
        faults.add(where, error, lost)
        return None
