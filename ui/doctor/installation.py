"""Is it installed, and would an engine that is started from here take it? The environment that doctor runs in."""

from __future__ import annotations

import os
import shutil
import socket
from importlib.metadata import entry_points, packages_distributions, version
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from controller.engines.plugin import SUPPORTED, fit, read_settings, switched_on
from controller.knobs import SHARED_KV_CAUTION
from controller.run_directory import default_base
from controller.settings import config_file, read_given
from estimator.errors import GlassgateError
from estimator.launch import ROOMS
from store.otel_environment import check_environment
from store.words import size
from ui.doctor.finding import Finding, examine, fail, ok, warn
from ui.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.engines.plugin.supported import SupportedEngine

_LITTLE_BYTES: Final = 1 << 30
_ROOM_BYTES: Final = 5 << 30
"""A journal of 2 GiB and its database of about as much."""
_CONNECT_SECONDS: Final = 2.0
_ENDPOINTS: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
)  # fmt: skip
_PORTS: Final = {"https": 443, "http": 80}


def examine_installation() -> list[Finding]:
    """What is to be said of this environment, in the order in which an engine meets it."""
    checks = (
        ("package", _package), ("names", _names), ("working folder", _here),
        ("engine", _engines), ("entry point", _entry_points), ("switch", _switch), ("settings", _settings),
        ("runs folder", _runs_folder),
    )  # fmt: skip
    return [finding for name, look in checks for finding in examine(name, look)]


def _package() -> Iterator[Finding]:
    yield ok("package", f"glassgate {version('glassgate')} in {Path(__file__).resolve().parents[2]}")


def _names() -> Iterator[Finding]:
    """Other distributions that bring a package of one of our names: which one wins is a matter of luck."""
    owners = packages_distributions()
    found = False
    for room in ROOMS:
        others = sorted({each for each in owners.get(room, []) if each.lower() != "glassgate"})
        if others:
            found = True
            yield fail(
                "names", f"{', '.join(others)} also brings a package called {room}",
                "uninstall it, or keep engine and Glassgate in an environment without it",
            )  # fmt: skip
    if not found:
        yield ok("names", f"{', '.join(ROOMS)} are Glassgate's own here")


def _here() -> Iterator[Finding]:
    try:
        folder = Path.cwd()
    except FileNotFoundError:
        yield fail("working folder", "the folder that this shell stands in was removed", "cd to one that is there")
        return
    yield from working_folder(folder, python_path=os.environ.get("PYTHONPATH", ""))


def working_folder(folder: Path, check: str = "working folder", python_path: str = "") -> Iterator[Finding]:
    """What stands where `python -m` starts an engine, or on PYTHONPATH, is imported before what is installed."""
    ours = Path(__file__).resolve().parents[2]
    places = [folder, *(Path(each) for each in python_path.split(os.pathsep) if each)]
    sound = True
    for place in places:
        shadows = [name for name in ROOMS if (place / name).is_dir() or (place / f"{name}.py").is_file()]
        if shadows and place.resolve() != ours:
            sound = False
            here = "start the engine from another folder, or set PYTHONSAFEPATH=1"
            remedy = here if place == folder else "take that folder out of PYTHONPATH"
            names = ", ".join(shadows)
            yield warn(check, f"{place} holds {names}: python -m would import that instead of ours", remedy)
    if sound:
        yield ok(check, f"{folder} shadows none of our packages")


def _engines() -> Iterator[Finding]:
    installed = False
    for engine in SUPPORTED.values():
        found = fit(engine)
        if found.supported:
            yield ok("engine", found.words)
        elif found.installed is not None:
            remedy = f"install {engine.distributions[0]}=={engine.versions[-1]}, or a Glassgate made for it"
            yield fail("engine", found.words.partition("; install")[0], remedy)
        installed = installed or found.installed is not None
    if not installed:
        names = " or ".join(f"{each.title} {'/'.join(each.versions)}" for each in SUPPORTED.values())
        yield warn("engine", "no engine is installed in this environment", f"pip install glassgate beside {names}")


def _entry_points() -> Iterator[Finding]:
    for engine in SUPPORTED.values():
        if fit(engine).installed is not None:
            yield from _entry_point(engine, os.environ)


def _entry_point(engine: SupportedEngine, environ: Mapping[str, str]) -> Iterator[Finding]:
    found = [each for each in entry_points(group=engine.entry_group) if each.name == "glassgate"]
    wanted = f"estimator.entry:{engine.name}"
    if not found or found[0].value != wanted:
        what = (
            f"{engine.entry_group} has {found[0].value}" if found else f"{engine.entry_group} does not list glassgate"
        )
        yield fail("entry point", what, "install glassgate with pip, not by a path alone")
    else:
        yield from plugin_filter(engine, environ, "entry point")


def plugin_filter(engine: SupportedEngine, environ: Mapping[str, str], check: str) -> Iterator[Finding]:
    """Whether the engine's own list of plug-ins, where one is set, has ours."""
    listed = environ.get(engine.filter_variable, "")
    if listed and "glassgate" not in {each.strip() for each in listed.split(",")}:
        yield fail(
            check, f"{engine.filter_variable}={listed} keeps {engine.title} from loading glassgate",
            f"add glassgate to {engine.filter_variable}, or unset it",
        )  # fmt: skip
    else:
        yield ok(check, f"{engine.title} finds the plug-in")


def _switch() -> Iterator[Finding]:
    if switched_on():
        yield ok("switch", "GLASSGATE is on")
    else:
        yield warn("switch", "GLASSGATE is not set: an engine started from here runs without", "set GLASSGATE=1")


def _settings() -> Iterator[Finding]:
    found = read_settings()
    given = read_given()
    path = config_file()
    names = ", ".join(sorted(given)) or "nothing"
    where = f", file {path}" if path is not None else ""
    yield ok("settings", f"{names} set{where}")
    if found.knobs.shared_kv_batching:
        yield warn("shared KV", "shared_kv_batching is on", SHARED_KV_CAUTION)
    check_environment()
    yield from endpoints(os.environ)


def endpoints(environ: Mapping[str, str], check: str = "OTLP") -> Iterator[Finding]:
    """Whether somebody listens where an environment sends its spans and metrics. Connects, and sends nothing."""
    asked = {environ[name].strip() for name in _ENDPOINTS if environ.get(name, "").strip()}
    for address in sorted(asked):
        parts = urlsplit(address if "//" in address else f"//{address}")
        try:
            port = parts.port or _PORTS.get(parts.scheme, 4317)
            socket.create_connection((parts.hostname or "", port), _CONNECT_SECONDS).close()
        except (OSError, ValueError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            yield fail(check, f"{address} does not answer: {why}", "start the receiver there, or correct the address")
        else:
            yield ok(check, f"{address} answers")


def _runs_folder() -> Iterator[Finding]:
    try:
        base = load_settings().runs or default_base()
    except GlassgateError as error:
        yield fail("runs folder", str(error), "correct it or unset it")
        return
    standing = next(each for each in (base, *base.parents) if each.exists())
    if not standing.is_dir() or not os.access(standing, os.W_OK | os.X_OK):
        yield fail(
            "runs folder", f"{standing} cannot be written", "mend its permissions, or name another in GLASSGATE_HOME"
        )
        return
    yield from disk_room(standing, f"runs go to {base}", "runs folder")


def disk_room(folder: Path, what: str, check: str = "disk") -> Iterator[Finding]:
    """Whether there is room for a journal and its database."""
    free = shutil.disk_usage(folder).free
    remedy = "free space, or name a folder on another disk in GLASSGATE_HOME"
    if free < _LITTLE_BYTES:
        yield fail(check, f"{what}; {size(free)} free", remedy)
    elif free < _ROOM_BYTES:
        yield warn(check, f"{what}; {size(free)} free, and a journal with its database takes up to 4 GiB", remedy)
    else:
        yield ok(check, f"{what}; {size(free)} free")
