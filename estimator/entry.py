"""The entry points by which an engine finds Glassgate's plug-in. Without GLASSGATE set they return at once.

They stand in the room with the least common name, so that they can say so when another module called controller is
found first. Engines swallow what an entry point raises, except for SystemExit, by which a bad setting stops the start.
"""

import importlib
import logging
import os
from typing import Final

from estimator.errors import GlassgateError
from estimator.launch import find_shadow

_OFF: Final = frozenset({"", "0", "false", "off", "no"})
_log: Final = logging.getLogger("glassgate")


def sglang() -> None:
    """Put Glassgate's plug-in for SGLang in place, if GLASSGATE asks for it. Raises SystemExit for a bad setting."""
    _install("sglang")


def vllm() -> None:
    """Put Glassgate's plug-in for vLLM in place, if GLASSGATE asks for it. Raises SystemExit for a bad setting."""
    _install("vllm")


def _install(engine: str) -> None:
    if os.environ.get("GLASSGATE", "").strip().lower() in _OFF:
        return
    shadow = find_shadow()
    if shadow is not None:
        _log.error(
            "glassgate: not in force: another module named %r is found before ours, at %s; take its folder out of "
            "PYTHONPATH or start the engine from another folder. %s serves as it is.", *shadow, engine,
        )  # fmt: skip
        return
    plugin = importlib.import_module("controller.engines.plugin")
    try:
        plugin.switched_on()
        fits = plugin.fit(plugin.SUPPORTED[engine])
        if not fits.supported:
            _log.error("glassgate: not in force: %s", fits.words)
            return
        plugin.check_settings()
        importlib.import_module(f"controller.engines.{engine}.install").install()
    except GlassgateError as error:
        raise SystemExit(f"glassgate: {error}") from None
    except Exception:  # noqa: BLE001 - whatever it is, the engine serves
        _log.exception("glassgate: not in force: its plug-in could not be put in place. %s serves as it is.", engine)
