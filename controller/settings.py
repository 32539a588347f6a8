"""What an operator may set for a process: the names, where they are looked for, and which source wins.

First wins: an environment variable `GLASSGATE_<NAME>`; the TOML file named by `GLASSGATE_CONFIG`, else
`./glassgate.toml`, else `glassgate/glassgate.toml` in the XDG configuration folder; the engine's own flag; the default.
"""

import contextlib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from controller.knobs import KNOB_SPECS
from controller.whole_file import read_small
from estimator.errors import InputError, shown

PREFIX: Final = "GLASSGATE_"
SWITCH: Final = "GLASSGATE"
"""The variable that switches the plug-ins on."""
CONFIG: Final = "GLASSGATE_CONFIG"
RUN: Final = "GLASSGATE_RUN"
"""The id of the run that the processes of one engine share; the plug-in sets it for those that it starts."""
ENGINE_KEY: Final = "GLASSGATE_ENGINE_KEY"
"""The engine's admin key, for the collector that forwards knob changes; the plug-in sets it for the one it starts."""


class SettingSpec(NamedTuple):
    """One setting that is no knob: its name, its kind, its default in words, and what it does."""

    name: str
    kind: str
    """`path`, `switch`, `address` or the words it may be, separated by `|`."""
    default: str
    does: str


SETTING_SPECS: Final = (
    SettingSpec("home", "path", "the XDG state folder", "folder that keeps the runs"),
    SettingSpec("collector", "switch", "on", "start a collector beside the engine"),
    SettingSpec("database", "path", "glassgate.db in the run's folder", "the database that collector writes"),
    SettingSpec("prometheus", "address", "off", "[HOST:]PORT at which that collector serves metrics"),
    SettingSpec(
        "smoke",
        "off|warn|require",
        "warn",
        "the start-up allocation: not made, told when it does not fit, or a start is refused when it does not fit",
    ),
    SettingSpec("can_never", "switch", "off", "abort a request that can never fit, instead of letting it wait"),
    SettingSpec("park", "switch", "on", "a continuing chunk waits while there is no room for a page of it (SGLang)"),
)
SETTING_NAMES: Final = (*(spec.name for spec in SETTING_SPECS), *(spec.name for spec in KNOB_SPECS))
"""Every name that may stand in the file, and with GLASSGATE_ before it in the environment."""
VARIABLES: Final = frozenset({SWITCH, CONFIG, RUN, ENGINE_KEY, *(PREFIX + name.upper() for name in SETTING_NAMES)})
"""Every environment variable that Glassgate reads, but for those of OpenTelemetry."""


class Given(NamedTuple):
    """A value that somebody set, and where."""

    value: Any
    source: str


def config_file(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The TOML file in force, or None. Raises InputError when GLASSGATE_CONFIG names a file that is not there."""
    named = environ.get(CONFIG)
    if named:
        path = as_path(named, CONFIG)
        if not path.is_file():
            raise InputError(f"{CONFIG} is {shown(named)}, which is not a file; correct it or unset it")
        return path
    places = [Path("glassgate.toml")]
    folder = environ.get("XDG_CONFIG_HOME")
    with contextlib.suppress(RuntimeError):  # a user without a home folder
        base = Path(folder) if folder else Path.home() / ".config"
        places.append(base / "glassgate" / "glassgate.toml")
    return next((path for path in places if path.is_file()), None)


def check_names(environ: Mapping[str, str] = os.environ) -> None:
    """Raise InputError for a variable that begins with GLASSGATE_ and is no setting."""
    for name in environ:
        if name.upper().startswith(PREFIX) and name.upper() not in VARIABLES:
            raise InputError(f"{name} is set but is no setting; the variables are {', '.join(sorted(VARIABLES))}")


def read_given(environ: Mapping[str, str] = os.environ) -> dict[str, Given]:
    """What environment and file set, by name, as it was written. An empty variable is one that is not set.

    Raises InputError, naming the variable or the file and key, for what is no setting or cannot be read.
    """
    check_names(environ)
    found = _read_file(config_file(environ))
    for variable, text in environ.items():
        name = variable.upper().removeprefix(PREFIX).lower()
        if text and variable.upper().startswith(PREFIX) and name in SETTING_NAMES:
            found[name] = Given(text, variable)
    return found


def _read_file(path: Path | None) -> dict[str, Given]:
    if path is None:
        return {}
    try:
        content = read_toml(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; mend its permissions") from None
    for name, value in content.items():
        if name not in SETTING_NAMES:
            raise InputError(f"{path}: {name!r} is no setting; the settings are {', '.join(SETTING_NAMES)}")
        if not isinstance(value, str | int | float):
            raise InputError(f"{path}: {name} is {shown(value)}; it is one value, not a table or a list")
    return {name: Given(value, str(path)) for name, value in content.items()}


def read_toml(path: Path) -> dict[str, Any]:
    """What a small TOML file holds. Raises OSError, and InputError where it is none."""
    try:
        return tomllib.loads(read_small(path).decode())
    except RecursionError:
        raise InputError(f"{path}: not TOML: it is nested too deep") from None
    except ValueError as error:  # also of a number with more digits than can be read
        raise InputError(f"{path}: not TOML: {error}") from None


def as_path(text: str, name: str) -> Path:
    """A path as somebody set it under a name, `~` resolved. Raises InputError for what can be none here."""
    with contextlib.suppress(RuntimeError):  # `~` of a user who is not known
        if "\0" not in text:
            return Path(text).expanduser()
    raise InputError(f"{name} is {shown(text)}, which is no path on this machine; correct it or unset it")
