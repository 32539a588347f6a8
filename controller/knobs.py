"""Knobs: every limit an operator may set, validated.

What is in force in a given engine, and why, is worked out in `controller.limits`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, Final

from estimator.errors import KnobError, shown

_BYTE_UNITS: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_WORDS: Final = {
    "true": True,
    "on": True,
    "yes": True,
    "1": True,
    "false": False,
    "off": False,
    "no": False,
    "0": False,
}
_UNLIMITED: Final = frozenset({"", "none", "null", "unlimited", "off", "-1"})
_LARGEST: Final = 1 << 50


@dataclass(frozen=True, slots=True)
class KnobSpec:
    """What one knob is: its unit, its kind, the least value it takes, and what it bounds."""

    name: str
    unit: str
    kind: str
    """`int`, `limit` (an int, or None for unlimited), `bytes` (a limit in bytes) or `switch`."""
    bounds: str
    gate: str = ""
    minimum: int = 1


KNOB_SPECS: Final[tuple[KnobSpec, ...]] = (
    KnobSpec(
        "shared_kv_batching",
        "on/off",
        "switch",
        "lets context-parallel prefill with shared KV hold more than one request in a batch",
        "batch_mode",
    ),
    KnobSpec("max_requests", "requests", "limit", "members of one prefill batch", "request_count"),
    KnobSpec("max_extend_tokens", "tokens", "limit", "page-aligned tokens one batch computes", "extend_tokens"),
    KnobSpec("max_cached_tokens", "tokens", "limit", "prefix tokens one batch reuses, loads included", "cached_tokens"),
    KnobSpec("max_buffer_bytes", "bytes", "bytes", "estimated peak of a batch's temporary buffers", "buffer_bytes"),
    KnobSpec(
        "buffer_safety_percent",
        "percent",
        "limit",
        "what the estimate is multiplied by for what it does not cover; off takes the run's own factor",
        minimum=100,
    ),
    KnobSpec(
        "chunked_prefill_size", "tokens", "limit", "tokens one pass computes; a longer prompt is cut", "chunk_tokens"
    ),
    KnobSpec(
        "max_prefill_tokens", "tokens", "int", "tokens after which a batch takes no further member", "input_tokens"
    ),
    KnobSpec("page_size", "tokens", "int", "tokens of one KV page; extend tokens are charged in whole pages"),
    KnobSpec("load_back_threshold", "tokens", "int", "the shortest host hit worth loading", minimum=0),
    KnobSpec("enforce", "on/off", "switch", "off is shadow mode: soft gates record what they would do and do nothing"),
)
SPEC_BY_NAME: Final = {spec.name: spec for spec in KNOB_SPECS}

SHARED_KV_CAUTION: Final = (
    "shared_kv_batching stays off until accept length of speculative decoding, output length, and host-cache load and "
    "backup have been validated under real traffic"
)
"""What an operator should know before that knob is turned on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """Every limit an operator may set. None means unlimited. The defaults are SGLang 0.5.23's.

    Raises KnobError, naming the knob, its value, the bound and the remedy, for a value out of range.
    """

    shared_kv_batching: bool = False
    max_requests: int | None = None
    max_extend_tokens: int | None = None
    max_cached_tokens: int | None = None
    max_buffer_bytes: int | None = None
    buffer_safety_percent: int | None = None
    chunked_prefill_size: int | None = 8192
    max_prefill_tokens: int = 16384
    page_size: int = 1
    load_back_threshold: int = 10
    enforce: bool = True
    revision: int = 0
    """Counts the changes of a run; 0 is what it started with."""

    def __post_init__(self) -> None:
        """Refuse any value outside its range, and a chunk smaller than a page."""
        for spec in KNOB_SPECS:
            _check(spec, getattr(self, spec.name))
        if not _is_whole(self.revision) or self.revision < 0:
            raise KnobError(f"revision is {self.revision!r}; it is a whole number >= 0")
        if self.chunked_prefill_size is not None and self.chunked_prefill_size < self.page_size:
            raise KnobError(
                f"chunked_prefill_size {self.chunked_prefill_size} is smaller than page_size {self.page_size}; "
                "a chunk holds at least one page: raise it, or unset it (-1) to turn chunking off"
            )

    @classmethod
    def parse(cls, values: Mapping[str, Any], base: "Knobs | None" = None) -> "Knobs":
        """Knobs from names and values as people write them ("4GiB", "off", -1), on top of `base`.

        Raises KnobError for an unknown name or a bad value.
        """
        known = {}
        for name, value in values.items():
            spec = SPEC_BY_NAME.get(name)
            if spec is None:
                raise KnobError(f"{name!r} is no knob; the knobs are {', '.join(SPEC_BY_NAME)}")
            known[name] = parse_knob(spec, value)
        return replace(base or cls(), **known)

    def changed(self, values: Mapping[str, Any]) -> "Knobs":
        """These knobs with some set anew, under the next revision. Raises KnobError as `parse` does."""
        return replace(Knobs.parse(values, self), revision=self.revision + 1)

    def as_dict(self) -> dict[str, Any]:
        """Name and value of every knob, without the revision."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "revision"}


def stored_value(name: str | None, value: int | None) -> int | bool | None:
    """A knob's value from the whole number that a record keeps of it, in which a switch is 0 or 1."""
    spec = SPEC_BY_NAME.get(name or "")
    return bool(value) if spec is not None and spec.kind == "switch" and value is not None else value


def parse_knob(spec: KnobSpec, value: Any) -> Any:
    """One knob's value from a number or a text. Raises KnobError when it is neither."""
    text = value.strip().lower() if isinstance(value, str) else None
    if spec.kind == "switch":
        return value if text is None else _WORDS.get(text, value)
    if spec.kind in ("limit", "bytes") and (value is None or (_is_whole(value) and value == -1) or text in _UNLIMITED):
        return None
    if spec.kind == "bytes":
        return parse_bytes(value, spec.name)
    if text is not None and re.fullmatch(r"[0-9][0-9_,]{0,30}", text):
        return int(text.replace("_", "").replace(",", ""))
    return int(value) if isinstance(value, float) and value.is_integer() else value


def parse_bytes(value: Any, name: str = "size") -> int:
    """Bytes from a whole number or a text such as "4GiB", "1.5 GB" or "800000000". Raises KnobError otherwise.

    Every size that a command or a file takes is read here: KiB to TiB count by 1,024, kB to TB by 1,000.
    """
    if _is_whole(value):
        return int(value)
    text = value.strip().lower() if isinstance(value, str) else shown(value)
    found = re.fullmatch(r"([0-9][0-9_,]{0,30}(?:\.[0-9]{1,30})?)\s*([a-z]*)", text)
    if found and found[2] in _BYTE_UNITS:
        size = Fraction(found[1].replace("_", "").replace(",", "")) * _BYTE_UNITS[found[2]]
        if size.denominator == 1:
            return size.numerator
    raise KnobError(f'{name} is {shown(value)}; write whole bytes or a size such as "4GiB", "512MiB" or "1.5GB"')


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check(spec: KnobSpec, value: Any) -> None:
    if spec.kind == "switch":
        if not isinstance(value, bool):
            raise KnobError(f"{spec.name} is {shown(value)}; it is on or off (true or false)")
        return
    if value is None and spec.kind in ("limit", "bytes"):
        return
    remedy = ", or -1 for unlimited" if spec.kind in ("limit", "bytes") else ""
    if not _is_whole(value) or not spec.minimum <= value <= _LARGEST:
        raise KnobError(
            f"{spec.name} is {shown(value)}; it is a whole number of {spec.unit} from {spec.minimum} to {_LARGEST}"
            f"{remedy}"
        )
