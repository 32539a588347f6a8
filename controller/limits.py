"""What is in force: every knob's effective value in a given engine, and what made it so.

This is the one place where an effective value is computed; the deciding loop, `decide`, the summary and the
screen all read it from here.
"""

from dataclasses import dataclass
from typing import Final

from controller.knobs import KNOB_SPECS, Knobs
from controller.vocabulary import Reason
from estimator.errors import KnobError

MOST_LANES: Final = 4096

AS_SET: Final = "as set"
CLAMPED: Final = "clamped"
RAISED: Final = "raised"
DERIVED: Final = "derived"
OFF: Final = "off"
DEAD: Final = "dead"
NOT_BINDING: Final = "not binding"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How the engine runs, which no knob changes."""

    context_parallel: bool = False
    """Prefill is context-parallel with KV shared across the ranks."""
    data_parallel: int = 1
    """Ranks the engine's chunk size is divided by (SGLang with data-parallel attention)."""
    lanes: int = 1
    """Owner lanes; each request reserves one page in every lane."""
    slots: int = 2048
    """Request slots in all."""
    has_model: bool = True
    """A model's geometry is known, so that buffers can be estimated."""

    def __post_init__(self) -> None:
        """Refuse counts below one."""
        if self.lanes > MOST_LANES:
            raise KnobError(f"{self.lanes} context-parallel ranks; at most {MOST_LANES} share KV")
        if min(self.data_parallel, self.lanes, self.slots) < 1:
            raise KnobError(
                f"data_parallel {self.data_parallel}, lanes {self.lanes} and slots {self.slots} are whole numbers >= 1"
            )


@dataclass(frozen=True, slots=True)
class Limits:
    """The effective limits of one knob revision in one setting. Tokens unless said; None is no limit."""

    shared_path: bool
    """Context-parallel prefill with shared_kv_batching on."""
    single_request: bool
    """Context-parallel prefill with shared_kv_batching off: one request a batch."""
    enforce: bool
    page: int
    overhead: int
    """Charged once a request for page rounding: one page in every lane."""
    max_requests: int | None
    max_extend: int | None
    extend_reason: Reason
    """What a refusal at `extend_tokens` names: the user's limit or the chunk budget."""
    max_cached: int | None
    max_buffer: int | None
    """Bytes."""
    input_budget: int
    chunk_budget: int | None
    load_back_threshold: int


@dataclass(frozen=True, slots=True)
class EffectiveKnob:
    """One knob as it was set, as it is in force, and why the two differ or why it does nothing."""

    name: str
    unit: str
    set_to: int | bool | None
    effective: int | bool | None
    state: str
    """`as set`, `clamped`, `raised`, `derived`, `off`, `dead` or `not binding`."""
    why: str = ""


def effective(knobs: Knobs, setting: Setting) -> Limits:
    """The limits in force. Raises KnobError when the chunk a rank gets holds no page."""
    shared = setting.context_parallel and knobs.shared_kv_batching
    chunk = _chunk_budget(knobs, setting)
    extend, reason = knobs.max_extend_tokens, Reason.LIMIT
    if shared and chunk is not None and (extend is None or extend > chunk):
        extend, reason = chunk, Reason.CHUNK_BUDGET
    input_budget = knobs.max_prefill_tokens
    # In shadow mode the user's extend limit does nothing, so it does not raise this budget either.
    raised_to = extend if knobs.enforce else chunk
    if shared and raised_to is not None:
        input_budget = max(input_budget, raised_to)
    return Limits(
        shared_path=shared,
        single_request=setting.context_parallel and not knobs.shared_kv_batching,
        enforce=knobs.enforce,
        page=knobs.page_size,
        overhead=knobs.page_size * setting.lanes,
        max_requests=knobs.max_requests,
        max_extend=extend,
        extend_reason=reason,
        max_cached=knobs.max_cached_tokens,
        max_buffer=knobs.max_buffer_bytes if setting.has_model else None,
        input_budget=input_budget,
        chunk_budget=chunk,
        load_back_threshold=max(1, knobs.load_back_threshold),
    )


def _chunk_budget(knobs: Knobs, setting: Setting) -> int | None:
    """Tokens one pass computes on one rank, in whole pages."""
    if knobs.chunked_prefill_size is None:
        return None
    share = knobs.chunked_prefill_size // setting.data_parallel // knobs.page_size * knobs.page_size
    if share == 0:
        raise KnobError(
            f"chunked_prefill_size {knobs.chunked_prefill_size} divided by data_parallel {setting.data_parallel} is "
            f"less than one page of {knobs.page_size} tokens; raise it to at least "
            f"{setting.data_parallel * knobs.page_size}, or unset it (-1)"
        )
    return share


def explain(knobs: Knobs, setting: Setting) -> tuple[EffectiveKnob, ...]:
    """Every knob with its effective value and, where the two differ or it cannot bind, the reason."""
    limits = effective(knobs, setting)
    found = {
        "shared_kv_batching": _shared_kv_batching(knobs, setting),
        "max_requests": _max_requests(knobs, limits, setting),
        "max_extend_tokens": _max_extend(knobs, limits),
        "max_cached_tokens": _limit(knobs.max_cached_tokens, limits.single_request),
        "max_buffer_bytes": _max_buffer(knobs, limits, setting),
        "buffer_safety_percent": _safety(knobs, setting),
        "chunked_prefill_size": _chunk(knobs, limits, setting),
        "max_prefill_tokens": _max_prefill(knobs, limits),
        "load_back_threshold": _threshold(knobs),
        "enforce": (knobs.enforce, AS_SET, "" if knobs.enforce else "shadow mode: soft gates record and do nothing"),
    }
    return tuple(
        EffectiveKnob(
            spec.name,
            spec.unit,
            getattr(knobs, spec.name),
            *found.get(spec.name, (getattr(knobs, spec.name), AS_SET, "")),
        )
        for spec in KNOB_SPECS
    )


_Found = tuple[int | bool | None, str, str]


def _limit(value: int | None, single_request: bool) -> _Found:
    if value is None:
        return None, OFF, ""
    if single_request:
        return value, DEAD, "shared_kv_batching is off, so a batch holds one request and no soft limit keeps that out"
    return value, AS_SET, ""


def _shared_kv_batching(knobs: Knobs, setting: Setting) -> _Found:
    if knobs.shared_kv_batching and not setting.context_parallel:
        return False, DEAD, "prefill is not context-parallel; ordinary prefill batches as the engine has it"
    return knobs.shared_kv_batching, AS_SET, ""


def _max_requests(knobs: Knobs, limits: Limits, setting: Setting) -> _Found:
    value = knobs.max_requests
    if value is not None and value >= setting.slots and not limits.single_request:
        return value, NOT_BINDING, f"the engine has {setting.slots} request slots"
    return _limit(value, limits.single_request)


def _max_extend(knobs: Knobs, limits: Limits) -> _Found:
    value, chunk = knobs.max_extend_tokens, limits.chunk_budget
    if limits.single_request:
        return _limit(value, single_request=True)
    if limits.shared_path and limits.extend_reason is Reason.CHUNK_BUDGET:
        if value is None:
            return chunk, DERIVED, "the chunk budget: the shared path admits whole requests up to it"
        return chunk, CLAMPED, f"a pass computes at most the chunk budget of {chunk}"
    if value is not None and chunk is not None and value >= chunk:
        return value, NOT_BINDING, f"the chunk budget of {chunk} is spent first"
    return _limit(value, single_request=False)


def _max_buffer(knobs: Knobs, limits: Limits, setting: Setting) -> _Found:
    if knobs.max_buffer_bytes is not None and not setting.has_model:
        return None, DEAD, "no model is named, so buffers cannot be estimated"
    return _limit(knobs.max_buffer_bytes, limits.single_request)


def _safety(knobs: Knobs, setting: Setting) -> _Found:
    if knobs.buffer_safety_percent is None:
        return None, OFF, "the run's own factor, 100 percent unless it says otherwise"
    if knobs.max_buffer_bytes is None or not setting.has_model:
        return knobs.buffer_safety_percent, NOT_BINDING, "no max_buffer_bytes is in force; the estimates shown carry it"
    return knobs.buffer_safety_percent, AS_SET, ""


def _chunk(knobs: Knobs, limits: Limits, setting: Setting) -> _Found:
    value, budget = knobs.chunked_prefill_size, limits.chunk_budget
    if value is None:
        return None, OFF, "a prompt is computed whole"
    if budget != value:
        if setting.data_parallel > 1:
            return budget, CLAMPED, f"{value} divided by {setting.data_parallel} data-parallel ranks, in whole pages"
        return budget, CLAMPED, f"whole pages of {limits.page}"
    return value, AS_SET, ""


def _max_prefill(knobs: Knobs, limits: Limits) -> _Found:
    value, chunk = knobs.max_prefill_tokens, limits.chunk_budget
    if limits.single_request:
        return value, DEAD, "a batch holds one request, and the first one passes"
    if chunk is not None and limits.input_budget > chunk:  # at equality the input budget closes the pass
        return limits.input_budget, NOT_BINDING, f"the chunk budget of {chunk} is spent first"
    if limits.input_budget != value:
        return limits.input_budget, RAISED, "to the effective extend limit of the shared path"
    return value, AS_SET, ""


def _threshold(knobs: Knobs) -> _Found:
    value = knobs.load_back_threshold
    if value <= knobs.page_size and knobs.page_size > 1:
        return value, NOT_BINDING, f"host hits come in pages of {knobs.page_size}"
    return value, AS_SET, ""


def never_from(pool_tokens: int, page: int, lanes: int = 0) -> int:
    """The sum of prompt, clipped output and overhead, in tokens, that an empty pool no longer takes.

    With owner lanes each one must have its share of the request's pages and one page to spare.
    """
    if not lanes:
        return pool_tokens
    return max(0, min(pool_tokens, (pool_tokens // page // lanes - 1) * lanes * page + 1))


def largest_prompt(limits: Limits, pool_tokens: int, output_tokens: int = 1, lanes: int | None = None) -> int:
    """Tokens of the longest prompt the empty pool can serve when it generates `output_tokens`.

    One less than what `kv_capacity` would refuse as `can_never`; 0 when nothing fits. `lanes` are the owner lanes, 0
    for a pool without; left out, they are what the overhead was worked out for.
    """
    if lanes is None:
        counted = limits.overhead // limits.page
        lanes = counted if counted > 1 else 0
    return max(0, never_from(pool_tokens, limits.page, lanes) - limits.overhead - output_tokens - 1)
