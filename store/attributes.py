"""Attributes: what a record says, as the attributes of a span. Absent means that the record does not hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from controller.vocabulary import LADDER_GATES, Gate, HostHit, Outcome, Reason, Verdict, unit_of
from estimator.buffers import PARTS
from store import names

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

    from controller.records import KnobChange, Pass, Repeat, Smoke
    from store.alarms import Alarm
    from store.waiting import Spent, Waited

    Attributes = dict[str, AttributeValue]

_FIELDS: Final = 17
_CHECKS_END: Final = _FIELDS + 3 * len(LADDER_GATES)
_GATES: Final = tuple(gate.word for gate in Gate)
_REASONS: Final = tuple(reason.word for reason in Reason)
_OUTCOMES: Final = tuple(outcome.word for outcome in Outcome)
_VERDICTS: Final = tuple(verdict.word for verdict in Verdict)
_HITS: Final = tuple((hit.status, hit.word if hit.status == "skipped" else None) for hit in HostHit)
_UNITS: Final = {(gate, reason): unit_of(gate, reason) for gate in Gate for reason in Reason}
_LOADED: Final = int(HostHit.LOADED)
_NOT_EVALUATED: Final = int(Verdict.NOT_EVALUATED)
_BUFFER_CHECK: Final = _FIELDS + 3 * Gate.BUFFER_BYTES
_CHECK_KEYS: Final = tuple(
    each.key for each in (names.CHECK_GATES, names.CHECK_VERDICTS, names.CHECK_OBSERVED, names.CHECK_LIMITS)
)
_BEFORE_KEYS: Final = tuple(
    each.key for each in (names.BEFORE_GATES, names.BEFORE_VERDICTS, names.BEFORE_OBSERVED, names.BEFORE_LIMITS)
)

# Keys as plain texts: a decision has thirty of them.
_PASS_NUMBER, _POSITION, _OUTCOME = names.PASS_NUMBER.key, names.PASS_POSITION.key, names.OUTCOME.key
_ID, _NUMBER, _GATE, _REASON = names.REQUEST_ID.key, names.REQUEST_NUMBER.key, names.GATE.key, names.REASON.key
_OBSERVED, _LIMIT, _SHORT, _UNIT = names.OBSERVED.key, names.LIMIT.key, names.SHORT_BY.key, names.UNIT.key
_HELD, _PROMPT, _DONE, _OUTPUT = names.HELD_NS.key, names.PROMPT.key, names.DONE.key, names.OUTPUT.key
_EXTEND, _HIT, _ESTIMATED, _SMOKE = (
    names.EXTEND.key, names.DEVICE_HIT.key, names.ESTIMATED.key, names.SMOKE_RESERVED.key,
)  # fmt: skip
_STATUS, _WHY_NOT, _RESIDENT, _MATCHED = (
    names.HIT_STATUS.key, names.HIT_REASON.key, names.HIT_RESIDENT.key, names.HIT_MATCHED.key,
)  # fmt: skip
_ASKED, _LOADED_TOKENS, _EVICTED = names.HIT_ASKED.key, names.HIT_LOADED.key, names.HIT_EVICTED.key

_json: Final = msgspec.json.Encoder().encode


def of_decision(
    number: int, position: int, flat: tuple[int, ...], request: str, held_ns: int, smoke_bytes: int | None
) -> Attributes:
    """A decision of pass `number`; see `controller.decision.Decision`.

    Raises IndexError, KeyError or ValueError for one too short or with a word that has no name.
    """
    (
        who, outcome, gate, reason, observed, limit, short, prompt, done, hit, extend, output, host, resident, matched,
        asked, evicted,
    ) = flat[:_FIELDS]  # fmt: skip
    said: Attributes = {_PASS_NUMBER: number, _POSITION: position, _NUMBER: who, _OUTCOME: _OUTCOMES[outcome]}
    if request:
        said[_ID] = request
    if gate >= 0:
        said[_GATE], said[_REASON] = _GATES[gate], _REASONS[reason]
        said[_OBSERVED], said[_LIMIT], said[_SHORT] = observed, limit, short
        said[_UNIT] = _UNITS[gate, reason]  # type: ignore[index]
    said[_HELD] = held_ns
    said[_PROMPT], said[_DONE], said[_OUTPUT], said[_EXTEND], said[_HIT] = prompt, done, output, extend, hit
    if flat[_BUFFER_CHECK] != _NOT_EVALUATED and flat[_BUFFER_CHECK + 1]:
        said[_ESTIMATED] = flat[_BUFFER_CHECK + 1]
    if smoke_bytes is not None:
        said[_SMOKE] = smoke_bytes
    status, why_not = _HITS[host]
    said[_STATUS] = status
    if why_not is not None:
        said[_WHY_NOT] = why_not
    said[_RESIDENT], said[_MATCHED], said[_ASKED] = resident, matched, asked
    said[_LOADED_TOKENS], said[_EVICTED] = asked if host == _LOADED else 0, evicted
    _ladder(said, _CHECK_KEYS, flat[_FIELDS:_CHECKS_END])
    if len(flat) > _CHECKS_END:
        _ladder(said, _BEFORE_KEYS, flat[_CHECKS_END:])
    return said


def _ladder(said: Attributes, keys: tuple[str, ...], checks: tuple[int, ...]) -> None:
    """A ladder as arrays of one length: gates, verdicts, observed, limits, as far as it was climbed."""
    verdicts = checks[::3]
    places = [place for place, verdict in enumerate(verdicts) if verdict != _NOT_EVALUATED]
    said[keys[0]] = [_GATES[place] for place in places]
    said[keys[1]] = [_VERDICTS[verdicts[place]] for place in places]
    said[keys[2]] = [checks[3 * place + 1] for place in places]
    said[keys[3]] = [checks[3 * place + 2] for place in places]


def of_pass(record: Pass, smoke_bytes: int | None) -> Attributes:
    """A pass."""
    extend = hits = loads = 0
    for _, _, extend_tokens, hit, load, _ in record.batch:
        extend += extend_tokens
        hits += hit
        loads += load
    free, evictable, reserved, running = record.before
    quota, room = record.after
    said: Attributes = {
        names.PASS_NUMBER.key: record.number,
        names.REVISION.key: record.revision,
        names.WAITING.key: record.queue,
        names.WAITING_TOKENS.key: record.queued_tokens,
        names.NOT_REACHED.key: record.not_reached,
        names.BATCH_REQUESTS.key: len(record.batch),
        names.BATCH_EXTEND.key: extend,
        names.BATCH_CACHED.key: hits + loads,
        names.BATCH_LOADED.key: loads,
        names.FREE.key: free,
        names.EVICTABLE.key: evictable,
        names.RESERVED.key: reserved,
        names.RUNNING.key: running,
        names.QUOTA_AFTER.key: quota,
        names.ROOM_AFTER.key: room,
    }
    if record.closed_gate >= 0:
        said |= of_stop((record.closed_gate, record.closed_reason))
    if record.lanes:
        said[names.LANE_FREE.key] = [lane[0] for lane in record.lanes]
        said[names.LANE_EVICTABLE.key] = [lane[1] for lane in record.lanes]
    if record.peak_bytes >= 0:
        said[names.ESTIMATED.key] = record.peak_bytes
    if smoke_bytes is not None:
        said[names.SMOKE_RESERVED.key] = smoke_bytes
    if record.parts:
        said[names.PART_NAMES.key] = PARTS[: len(record.parts)]
        said[names.PART_BYTES.key] = record.parts
    return said


def of_repeat(record: Repeat, request: str) -> Attributes:
    """The repeats of a refusal."""
    said: Attributes = {
        names.PASS_NUMBER.key: record.first_pass,
        names.REQUEST_NUMBER.key: record.number,
        **of_stop((record.gate, record.reason)),
        names.UNIT.key: unit_of(Gate(record.gate), Reason(record.reason)),
        names.REPEAT_COUNT.key: record.count,
        names.REPEAT_LAST_PASS.key: record.last_pass,
        names.REPEAT_OBSERVED.key: record.observed,
        names.REPEAT_LIMIT.key: record.limit,
        names.WAITING.key: record.queue,
        names.NOT_REACHED.key: record.not_reached,
        names.REVISION.key: record.revision,
    }
    if request:
        said[names.REQUEST_ID.key] = request
    return said


def of_wait(wait: Waited, request: str, prompt: int, output: int, why: str) -> Attributes:
    """A wait that is over."""
    length = wait.end_ns - wait.start_ns
    before = length if wait.first_look_ns is None else wait.first_look_ns - wait.start_ns
    said: Attributes = {
        names.REQUEST_ID.key: request,
        names.REQUEST_NUMBER.key: wait.number,
        names.QUEUE_AFTER.key: wait.after,
        names.QUEUE_ENDED.key: wait.ended,
        names.QUEUE_LOOKS.key: wait.looks,
        names.BEFORE_LOOK_NS.key: before,
        names.AFTER_LOOK_NS.key: length - before,
        names.INPUT_TOKENS.key: prompt,
        names.MAX_TOKENS.key: output,
    }
    if why:
        said[names.WHY.key] = why
    return said


def of_spent(part: Spent) -> Attributes:
    """One part of a wait."""
    said: Attributes = {names.WAIT_KIND.key: part.kind, names.WAIT_NS.key: part.ns}
    return said if part.stop is None else said | of_stop(part.stop)


def of_alarm(alarm: Alarm, request: str) -> Attributes:
    """An alarm that was raised."""
    said: Attributes = {
        names.ALARM.key: alarm.name,
        names.ALARM_MEASURED.key: alarm.measured,
        names.ALARM_THRESHOLD.key: alarm.threshold,
        names.ALARM_UNIT.key: alarm.unit,
    }
    if alarm.request is not None:
        said[_NUMBER] = alarm.request
    if request:
        said[_ID] = request
    if alarm.gate is not None and alarm.reason is not None and alarm.gate >= 0:
        said |= of_stop((alarm.gate, alarm.reason))
    if alarm.observed is not None and alarm.limit is not None:
        said[_OBSERVED], said[_LIMIT] = alarm.observed, alarm.limit
    if alarm.detail:
        said[names.WHY.key] = alarm.detail
    return said


def of_stop(stop: tuple[int, int]) -> Attributes:
    """A gate and its reason."""
    return {_GATE: _GATES[stop[0]], _REASON: _REASONS[stop[1]]}


def of_smoke(record: Smoke) -> Attributes:
    """A start-up allocation."""
    said: Attributes = {
        names.DEVICE.key: record.device,
        names.SMOKE_ASKED.key: record.asked,
        names.SMOKE_RESERVED.key: record.reserved,
        names.SMOKE_PEAK.key: record.peak,
        names.SMOKE_FREE.key: record.free_before,
        names.SMOKE_PASSED.key: record.passed,
    }
    return said | {names.WHY.key: record.why} if record.why else said


def of_knob_change(record: KnobChange) -> Attributes:
    """A knob change somebody asked for."""
    said: Attributes = {
        names.KNOB_NAMES.key: [name for name, _, _ in record.changes],
        names.KNOB_OLD.key: [_json(old).decode() for _, old, _ in record.changes],
        names.KNOB_NEW.key: [_json(new).decode() for _, _, new in record.changes],
        names.KNOB_WHO.key: record.who,
        names.KNOB_ACCEPTED.key: record.accepted,
        names.REVISION.key: record.revision,
    }
    return said | {names.WHY.key: record.why} if record.why else said
