"""Saving knobs in the configuration file that is in force, with its comments and its order as they were."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from controller.knobs import KNOB_SPECS, SPEC_BY_NAME, Knobs, parse_knob
from controller.settings import config_file
from controller.whole_file import followed, make_folders, write_whole
from estimator.errors import InputError, KnobError, StorageError


def save_knobs(changes: Mapping[str, Any], file: Path | None = None) -> Path:
    """Write knob values into a TOML file, by default the one in force, whole or not at all, and return its path.

    Where there is none, `glassgate/glassgate.toml` in the user's configuration folder is begun. Values are kept as
    they were written ("4GiB"); unlimited is "off". Raises InputError for a file that is not TOML or whose knobs would
    not go together, KnobError for a value a knob cannot have, StorageError where it cannot be written.
    """
    path, document = read_saved(file)
    for name, value in changes.items():
        document[name] = _as_toml(name, value)
    _check(path, document.unwrap())
    try:
        make_folders(path.parent)
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
        write_whole(path, tomlkit.dumps(document).encode())
        if mode is not None:
            path.chmod(mode)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror}; nothing was saved, make it writable and set the knobs there"
        ) from None
    return path


def read_saved(file: Path | None = None) -> tuple[Path, tomlkit.TOMLDocument]:
    """The file that `save_knobs` would write, and what stands in it now, which may be nothing.

    Raises InputError for one that is not TOML, StorageError for one that cannot be read or is no file.
    """
    path = file or config_file() or _default_file()
    try:
        path = followed(path)  # a link goes on pointing to the file
        if not path.exists():
            return path, tomlkit.document()
        if not path.is_file():
            raise StorageError(f"{path} is no file; nothing was saved, name a file")
        return path, tomlkit.parse(path.read_text(encoding="utf-8"))
    except (TOMLKitError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not TOML: {error}; nothing was saved") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}; nothing was saved") from None


def overruled(names: Mapping[str, Any]) -> list[str]:
    """The environment variables that go before what was saved under these names."""
    variables = (f"GLASSGATE_{name.upper()}" for name in names)
    return [variable for variable in variables if os.environ.get(variable)]


def _default_file() -> Path:
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "glassgate" / "glassgate.toml"


def _as_toml(name: str, value: Any) -> str | int | bool:
    """A knob's value as the file has it. Raises KnobError for one it cannot have."""
    spec = SPEC_BY_NAME.get(name)
    parsed = getattr(Knobs.parse({name: value}), name)
    if parsed is None:
        return "off"
    if spec is not None and spec.kind == "bytes" and isinstance(value, str) and not value.strip().isdecimal():
        return value.strip()
    return bool(parsed) if isinstance(parsed, bool) else int(parsed)


def _check(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse a file whose knobs no run could begin with. Raises InputError."""
    try:
        given = {spec.name: content[spec.name] for spec in KNOB_SPECS if spec.name in content}
        Knobs.parse({name: parse_knob(SPEC_BY_NAME[name], value) for name, value in given.items()})
    except KnobError as error:
        raise InputError(f"{path} would hold knobs that do not go together: {error}; nothing was saved") from None
