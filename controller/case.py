"""A case written by hand: one pass on it, and the answer in plain data. `glassgate decide` is this with a file."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from controller.admission import AdmissionPass, LoadAnswer
from controller.decision import Check, Decision
from controller.gates import STRICT_GATES
from controller.knobs import Knobs
from controller.limits import Setting, effective, explain, largest_prompt
from controller.request import ActiveChunk, Candidate, Capacity, Lane, PrefixMatch, running_reserve
from controller.vocabulary import HostHit, Outcome, Reason, Verdict, unit_of
from estimator.batch import BatchEstimator, BatchState
from estimator.context import RunContext
from estimator.errors import InputError, shown
from estimator.presets import model as geometry_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from controller.decision import PassResult
    from controller.plan import Plan

POOL_TOKENS: Final = 1_000_000
"""The pool of a case that names none."""

Tokens = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 50)]


class CaseLane(msgspec.Struct, forbid_unknown_fields=True):
    """Pages of one owner lane."""

    free_pages: Tokens = 0
    evictable_pages: Tokens = 0


class CaseCapacity(msgspec.Struct, forbid_unknown_fields=True):
    """The pool. Without `free_tokens` everything that is not evictable is free."""

    pool_tokens: Count | None = None
    free_tokens: Tokens | None = None
    evictable_tokens: Tokens = 0
    running_slots: Count = 2048
    lanes: list[CaseLane] = []


class CaseRunning(msgspec.Struct, forbid_unknown_fields=True):
    """A request that decodes."""

    id: str = ""
    remaining_output_tokens: Tokens = 0
    ignore_eos: bool = False


class CaseChunk(msgspec.Struct, forbid_unknown_fields=True):
    """The request whose prompt goes on in this pass."""

    id: str
    prompt_tokens: Count
    done_tokens: Tokens
    output_tokens: Tokens = 128
    ignore_eos: bool = False
    first_lane: Tokens | None = None


class CaseRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A waiting request. `host_load` is what the cache answers when it is asked to load the host hit."""

    id: str
    prompt_tokens: Count
    device_hit_tokens: Tokens = 0
    device_hit_locked: bool = False
    host_hit_tokens: Tokens = 0
    output_tokens: Tokens = 128
    generated_tokens: Tokens = 0
    ignore_eos: bool = False
    first_lane: Tokens | None = None
    host_load: Literal["loaded", "owner_lane", "allocator", "in_flight", "disabled"] = "loaded"


class Case(msgspec.Struct, forbid_unknown_fields=True):
    """One pass's inputs. Any key may be left out; the defaults are SGLang 0.5.23's."""

    context_parallel: bool = False
    data_parallel: Count = 1
    knobs: dict[str, Any] = {}
    model: str | None = None
    run: dict[str, Any] | None = None
    capacity: CaseCapacity = msgspec.field(default_factory=CaseCapacity)
    running: list[CaseRunning] = []
    new_token_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.7
    active_chunk: CaseChunk | None = None
    queue: list[CaseRequest] = []


class CaseEngine:
    """An engine made of the case alone: loads succeed unless the case says otherwise, nothing is kept."""

    def __init__(self, case: Case, evictable_tokens: int) -> None:
        self._case = case
        self._evictable = evictable_tokens

    def candidates(self) -> Iterator[Candidate]:
        """The queue, each candidate as it stands when the pass comes to it."""
        for number, request in enumerate(self._case.queue):
            # What is neither free nor evictable is locked by somebody, whatever the case says.
            unlocked = 0 if request.device_hit_locked else min(request.device_hit_tokens, self._evictable)
            answer = HostHit[request.host_load.upper()]
            match = PrefixMatch(
                device_tokens=request.device_hit_tokens,
                unlocked_tokens=unlocked,
                host_tokens=request.host_hit_tokens,
                resident_tokens=request.host_hit_tokens,
                host_answer=answer if answer in (HostHit.IN_FLIGHT, HostHit.DISABLED) else HostHit.PLANNED,
                first_lane=request.first_lane,
            )
            output = max(0, request.output_tokens - request.generated_tokens)
            made = min(request.generated_tokens, request.output_tokens)
            yield Candidate(number, request.prompt_tokens, output, match, answer, made)

    def load_back(self, candidate: Candidate, tokens: int) -> LoadAnswer:
        """Everything, or what the case says."""
        if candidate.handle is HostHit.LOADED:
            return LoadAnswer(tokens)
        return LoadAnswer(0, candidate.handle)

    def commit(self, candidate: Candidate, plan: Plan) -> None:
        """The candidate's device hit is locked from here on."""
        del candidate
        self._evictable -= plan.unlocked


def read_case(data: Any) -> Case:
    """A case from parsed JSON. Raises InputError that names the key, its value and what it may be."""
    try:
        case = msgspec.convert(data, Case)
    except msgspec.ValidationError as error:
        raise InputError(_explain(str(error), data)) from None
    except UnicodeEncodeError:
        raise InputError("the case holds half a surrogate pair, which is no text; write it as UTF-8") from None
    RunContext.check_keys(case.run or {})  # also where no model is named, and so nothing is estimated
    ids = [request.id for request in case.queue]
    ids += [case.active_chunk.id] if case.active_chunk is not None else []
    if len(set(ids)) < len(ids):
        twice = min(name for name, times in Counter(ids).items() if times > 1)
        raise InputError(f"the id {twice!r} stands twice; every request needs its own")
    for request in case.queue:
        if request.device_hit_tokens + request.host_hit_tokens >= request.prompt_tokens:
            raise InputError(
                f"{request.id!r} has a prompt of {request.prompt_tokens} tokens, {request.device_hit_tokens} of them a "
                f"device hit and {request.host_hit_tokens} a host hit; at least one token must be left to compute"
            )
    chunk = case.active_chunk
    if chunk is not None and chunk.done_tokens >= chunk.prompt_tokens:
        raise InputError(
            f"active_chunk {chunk.id!r} has done {chunk.done_tokens} of {chunk.prompt_tokens} prompt tokens; at least "
            "one must be left"
        )
    lanes = len(case.capacity.lanes) or 1
    starts = [(request.id, request.first_lane) for request in case.queue]
    starts += [(chunk.id, chunk.first_lane)] if chunk is not None else []
    for name, lane in starts:
        if lane is not None and lane >= lanes:
            raise InputError(f"first_lane of {name!r} is {lane}; the capacity has lanes 0 to {lanes - 1}")
    return case


def decide(data: Mapping[str, Any]) -> dict[str, Any]:
    """One pass on a case given as parsed JSON; the answer as plain data, see docs/decide.md.

    Raises InputError for a case that cannot be read and KnobError for a knob that cannot be.
    """
    case = read_case(data)
    knobs = Knobs.parse(case.knobs)
    capacity = _capacity(case)
    estimator = None if case.model is None else _estimator(case, case.model, knobs, len(capacity.lanes) or 1)
    setting = Setting(
        context_parallel=case.context_parallel,
        data_parallel=case.data_parallel,
        lanes=len(capacity.lanes) or 1,
        slots=capacity.slots,
        has_model=estimator is not None,
    )
    limits = effective(knobs, setting)
    engine = CaseEngine(case, capacity.evictable_tokens)
    chunk = case.active_chunk
    active = None
    if chunk is not None:
        active = ActiveChunk(
            len(case.queue), chunk.prompt_tokens, chunk.done_tokens, chunk.output_tokens, chunk.first_lane
        )
    result = AdmissionPass(limits, capacity, estimator).run(engine.candidates(), engine, active)
    return {
        **_answer(case, result),
        "estimate": None if estimator is None else _estimate(estimator, result.estimate),
        "effective": [msgspec.to_builtins(knob) for knob in explain(knobs, setting)],
        "largest_prompt_tokens": largest_prompt(limits, capacity.pool_tokens, lanes=len(capacity.lanes)),
    }


def _estimator(case: Case, model: str, knobs: Knobs, lanes: int) -> BatchEstimator:
    geometry = geometry_of(model)
    known = {"page_size": knobs.page_size, **({"cp": lanes, "shard_size": lanes} if lanes > 1 else {})}
    context = RunContext.from_run({**known, **(case.run or {})}, geometry)
    return BatchEstimator(geometry, context).with_safety(knobs.buffer_safety_percent)


def _estimate(estimator: BatchEstimator, state: BatchState) -> dict[str, Any]:
    explained = estimator.explain(state)
    return {
        "model": estimator.geometry.name,
        "peak_bytes": explained.peak_bytes,
        "requested_bytes": explained.requested,
        "phase": explained.peak_phase,
        "parts": dict(zip(estimator.PARTS, explained.parts, strict=True)),
        "buffers": explained.at_phase(explained.peak_phase),
    }


def _capacity(case: Case) -> Capacity:
    given = case.capacity
    pool = given.pool_tokens
    if pool is None:
        pool = max(POOL_TOKENS, (given.free_tokens or 0) + given.evictable_tokens)
    free = given.free_tokens if given.free_tokens is not None else max(0, pool - given.evictable_tokens)
    return Capacity(
        pool_tokens=pool,
        free_tokens=free,
        evictable_tokens=given.evictable_tokens,
        reserved_tokens=running_reserve(
            [(request.remaining_output_tokens, request.ignore_eos) for request in case.running], case.new_token_ratio
        ),
        running=len(case.running),
        slots=given.running_slots,
        lanes=tuple(Lane(lane.free_pages, lane.evictable_pages) for lane in given.lanes),
    )


def _answer(case: Case, result: PassResult) -> dict[str, Any]:
    names = [request.id for request in case.queue]
    if case.active_chunk is not None:
        names.append(case.active_chunk.id)
    return {
        "batch": [
            {
                "id": names[number],
                "outcome": Outcome(outcome).word,
                "extend_tokens": extend,
                "cached_tokens": device_hit + loaded,
                "host_loaded_tokens": loaded,
            }
            for number, outcome, extend, device_hit, loaded, _done in result.batch
        ],
        "decisions": [decision_dict(Decision.read(flat), names[flat[0]]) for flat in result.decisions],
        "closed_by": None
        if result.closed_by is None
        else {"gate": result.closed_by[0].word, "reason": result.closed_by[1].word},
        "not_reached": [request.id for request in case.queue[result.looked_at :]],
    }


def decision_dict(decision: Decision, name: str) -> dict[str, Any]:
    """One decision as plain data; numbers that were not tested are null."""
    stopped = decision.gate is not None
    return {
        "id": name,
        "outcome": decision.outcome.word,
        "gate": decision.gate.word if decision.gate is not None else None,
        "reason": decision.reason.word if decision.reason is not None else None,
        "observed": decision.observed if stopped else None,
        "limit": decision.limit if stopped else None,
        "short_by": decision.short_by if stopped else None,
        "unit": decision.unit,
        "prompt_tokens": decision.prompt_tokens,
        "checks": [_check_dict(check, decision) for check in decision.ladder()],
        "host_hit": {
            "status": decision.host.status,
            "reason": decision.host.word if decision.host.status == "skipped" else None,
            "resident_tokens": decision.resident_tokens,
            "matched_tokens": decision.matched_tokens,
            "asked_tokens": decision.asked_tokens,
            "loaded_tokens": decision.loaded_tokens,
            "evicted_tokens": decision.evicted_tokens,
        },
        "after_load_failure": bool(decision.checks_before_load_failure),
        "checks_before_load_failure": [
            _check_dict(check, None) for check in decision.ladder(decision.checks_before_load_failure)
        ],
    }


def _check_dict(check: Check, decision: Decision | None) -> dict[str, Any]:
    named = decision is not None and decision.gate is check.gate
    short = None
    if check.limit is not None:
        strict = check.gate in STRICT_GATES and check.verdict is Verdict.REFUSE
        short = max(0, check.observed - check.limit + strict)
        if named and decision is not None:
            short = decision.short_by
    return {
        "gate": check.gate.word,
        "verdict": check.verdict.word,
        "observed": check.observed if check.evaluated else None,
        "limit": check.limit,
        "short_by": short,
        "unit": unit_of(check.gate, decision.reason if named and decision is not None else Reason.LIMIT),
    }


def _explain(message: str, data: Any) -> str:
    """Msgspec says what was expected and where; this adds the value that stood there."""
    what, _, where = message.partition(" - at `$")
    path = where.rstrip("`")
    value: Any = data
    for key in path.replace("[", ".").replace("]", "").split("."):
        if key == "...":
            return f"{path or 'the case'}: {what}"
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit():
            value = value[int(key)]
    place = path.lstrip(".") or "the case"
    if "unknown field" in what or "missing required" in what:
        return f"{place}: {what}; see docs/decide.md for the keys of a case"
    return f"{place} is {shown(value)}: {what}"
