"""PluginSettings: what an operator set for a plug-in, on top of the engine's own flags of the same meaning."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from controller.knobs import SPEC_BY_NAME, Knobs
from controller.settings import SETTING_SPECS, SWITCH, Given, as_path, read_given
from estimator.errors import InputError, KnobError, shown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_ON: Final = frozenset({"1", "true", "on", "yes"})
_OFF: Final = frozenset({"", "0", "false", "off", "no"})


def switched_on(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether GLASSGATE asks for the plug-in. Raises InputError when it is neither on nor off."""
    text = environ.get(SWITCH, "").strip().lower()
    if text in _OFF:
        return False
    if text in _ON:
        return True
    raise InputError(f"{SWITCH} is {text!r}; it is 1 (on) or 0 (off)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """The settings of one engine process. `sources` says, by name, where a value was set."""

    knobs: Knobs = field(default_factory=Knobs)
    home: Path | None = None
    collector: bool = True
    database: Path | None = None
    prometheus: str | None = None
    smoke: str = "warn"
    """`off`, `warn` or `require`."""
    can_never: bool = False
    park: bool = True
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> Path | None:
        """The folder that keeps the runs, or None for the default one."""
        return None if self.home is None else self.home / "runs"


def read_settings(
    aliases: Mapping[str, tuple[Any, str]] | None = None,
    fixed: Mapping[str, str] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> PluginSettings:
    """The settings in force in an engine.

    `aliases` are the engine's own flags of a knob's meaning: by knob name, the value and the flag as it is written on
    the command line. Environment and file win over them. `fixed` names the knobs that this engine takes from its flags
    alone, and why; setting one to another value is an error. Raises InputError or KnobError, naming where a bad value
    was set.
    """
    flags = {name: Given(*each) for name, each in (aliases or {}).items()}
    given = read_given(environ)
    for name, why in (fixed or {}).items():
        _refuse_other(name, given.get(name), flags.get(name), why)
    values = {**flags, **given}
    knobs = Knobs()
    asked: dict[str, Any] = {}
    for name in SPEC_BY_NAME:
        if name in values:
            # One by one first, so that the error names the place; together they are checked against each other.
            asked[name] = _knob(name, values[name])
    try:
        knobs = Knobs.parse(asked)
    except KnobError as error:
        where = ", ".join(dict.fromkeys(values[name].source for name in asked))
        raise KnobError(f"{error} (set by {where})") from None
    others: dict[str, Any] = {
        spec.name: _setting(spec.kind, spec.name, given[spec.name]) for spec in SETTING_SPECS if spec.name in given
    }
    return PluginSettings(knobs=knobs, sources={name: each.source for name, each in values.items()}, **others)


def check_settings(environ: Mapping[str, str] = os.environ) -> None:
    """Read every setting by itself, so that what is wrong is told before an engine loads its weights.

    Raises InputError or KnobError.
    """
    given = read_given(environ)
    for name, each in given.items():
        if name in SPEC_BY_NAME:
            _knob(name, each)
    for spec in SETTING_SPECS:
        if spec.name in given:
            _setting(spec.kind, spec.name, given[spec.name])


def _refuse_other(name: str, given: Given | None, flag: Given | None, why: str) -> None:
    if given is None or flag is None:
        return
    if _knob(name, given) != _knob(name, flag):
        raise KnobError(
            f"{name} is {shown(given.value)} in {given.source}, and the engine runs with {shown(flag.value)}: {why}; "
            f"unset it, or start the engine with {flag.source} {given.value}"
        )


def _knob(name: str, given: Given) -> Any:
    try:
        # By itself a page may be larger than the default chunk.
        alone = Knobs(chunked_prefill_size=None)
        return getattr(Knobs.parse({name: given.value}, alone), name)
    except KnobError as error:
        raise KnobError(f"{given.source}: {error}") from None


def _setting(kind: str, name: str, given: Given) -> Any:
    """The value of a setting that is no knob."""
    value, source = given
    text = str(value).strip()
    if kind == "switch":
        if value is True or text.lower() in _ON:
            return True
        if value is False or (text and text.lower() in _OFF):
            return False
        raise InputError(f"{source}: {name} is {shown(value)}; it is on or off")
    if kind == "path":
        return as_path(text, f"{source}: {name}")
    if kind == "address":
        return text
    words = kind.split("|")
    word = "off" if value is False else text.lower()
    if word not in words:
        raise InputError(f"{source}: {name} is {shown(value)}; it is {', '.join(words[:-1])} or {words[-1]}")
    return word
