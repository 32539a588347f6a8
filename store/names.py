"""The names of telemetry: spans, their events and attributes, and metrics, each with type, unit and meaning.

Every name that leaves Glassgate for a telemetry backend stands here and nowhere else; docs/reference/telemetry.md is
generated from it. Units are UCUM, as OpenTelemetry writes them. No key is both a leaf and a prefix of another.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["string", "int", "double", "bool", "string[]", "int[]"]
Instrument = Literal["counter", "histogram", "gauge"]

SCOPE: Final = "glassgate"
"""The instrumentation scope of every span and metric, and the default `service.name`."""


class Attribute(NamedTuple):
    """One attribute key."""

    key: str
    kind: Kind
    unit: str
    """Empty for words and plain numbers."""
    meaning: str


class Name(NamedTuple):
    """The name of a span or of a span event."""

    name: str
    meaning: str
    attributes: tuple[Attribute, ...]


class Metric(NamedTuple):
    """One metric of the OpenTelemetry SDK."""

    name: str
    instrument: Instrument
    unit: str
    meaning: str
    attributes: tuple[Attribute, ...] = ()
    boundaries: tuple[float, ...] = ()
    """Bucket boundaries of a histogram, in its unit."""


# Resource
SERVICE_NAME: Final = Attribute(
    "service.name", "string", "", "OTEL_SERVICE_NAME, or OTEL_RESOURCE_ATTRIBUTES, or `glassgate`"
)
SERVICE_VERSION: Final = Attribute("service.version", "string", "", "version of the Glassgate that sent it")
SERVICE_INSTANCE: Final = Attribute("service.instance.id", "string", "", "run and rank, as `RUN/RANK`")
RUN_ID: Final = Attribute("glassgate.run.id", "string", "", "the run")
RUN_RANK: Final = Attribute("glassgate.run.rank", "int", "", "the rank within it")
RUN_ENGINE: Final = Attribute("glassgate.run.engine", "string", "", "the engine that ran: `replay`, `sglang`, `vllm`")
RESOURCE: Final = (SERVICE_NAME, SERVICE_VERSION, SERVICE_INSTANCE, RUN_ID, RUN_RANK, RUN_ENGINE)

# What the GenAI convention defines
MODEL: Final = Attribute("gen_ai.request.model", "string", "", "the model, where the run names one")
MAX_TOKENS: Final = Attribute("gen_ai.request.max_tokens", "int", "{token}", "what the request may generate")
INPUT_TOKENS: Final = Attribute("gen_ai.usage.input_tokens", "int", "{token}", "prompt of the request")

# What stopped somebody, on spans and metrics alike
OUTCOME: Final = Attribute("glassgate.outcome", "string", "", "`admit`, `admit_chunk`, `park`, `wait` or `refuse`")
GATE: Final = Attribute("glassgate.gate", "string", "", "the gate that said so; absent if none did")
REASON: Final = Attribute("glassgate.reason", "string", "", "why, from the gate's closed list; absent if there is none")
OBSERVED: Final = Attribute("glassgate.observed", "int", "`glassgate.unit`", "what the gate saw")
LIMIT: Final = Attribute("glassgate.limit", "int", "`glassgate.unit`", "what it allows")
SHORT_BY: Final = Attribute("glassgate.short_by", "int", "`glassgate.unit`", "how much too much it was")
UNIT: Final = Attribute("glassgate.unit", "string", "", "`tokens`, `requests`, `slots`, `pages` or `bytes`")

# Request
REQUEST_ID: Final = Attribute("glassgate.request.id", "string", "", "the request's id; absent if its arrival is lost")
REQUEST_NUMBER: Final = Attribute("glassgate.request.number", "int", "", "its number within the run")
PROMPT: Final = Attribute("glassgate.request.prompt_tokens", "int", "{token}", "its prompt")
DONE: Final = Attribute("glassgate.request.done_tokens", "int", "{token}", "computed in earlier passes")
OUTPUT: Final = Attribute("glassgate.request.output_tokens", "int", "{token}", "output it is charged for, clipped")
EXTEND: Final = Attribute(
    "glassgate.request.extend_tokens", "int", "{token}", "what this pass computes of it, or would"
)
DEVICE_HIT: Final = Attribute("glassgate.request.device_hit_tokens", "int", "{token}", "prefix found on the device")

# Pass
PASS_NUMBER: Final = Attribute("glassgate.pass.number", "int", "", "the pass within the run")
PASS_POSITION: Final = Attribute("glassgate.pass.position", "int", "", "place of the decision within its pass, from 0")
REVISION: Final = Attribute("glassgate.knob.revision", "int", "", "knob revision in force")
WAITING: Final = Attribute("glassgate.waiting.requests", "int", "{request}", "waiting requests at the start")
WAITING_TOKENS: Final = Attribute("glassgate.waiting.prompt_tokens", "int", "{token}", "their prompts")
NOT_REACHED: Final = Attribute("glassgate.waiting.not_reached", "int", "{request}", "those the pass never looked at")
BATCH_REQUESTS: Final = Attribute("glassgate.batch.requests", "int", "{request}", "members of the batch")
BATCH_EXTEND: Final = Attribute("glassgate.batch.extend_tokens", "int", "{token}", "prompt tokens it computes")
BATCH_CACHED: Final = Attribute(
    "glassgate.batch.cached_tokens", "int", "{token}", "prefix tokens it reuses: device hits and what was loaded"
)
BATCH_LOADED: Final = Attribute("glassgate.batch.loaded_tokens", "int", "{token}", "of these, loaded from the host")
FREE: Final = Attribute("glassgate.capacity.free_tokens", "int", "{token}", "free in the pool at the start")
EVICTABLE: Final = Attribute("glassgate.capacity.evictable_tokens", "int", "{token}", "evictable at the start")
RESERVED: Final = Attribute("glassgate.capacity.reserved_tokens", "int", "{token}", "reserved for output at the start")
RUNNING: Final = Attribute("glassgate.capacity.running_requests", "int", "{request}", "running requests at the start")
QUOTA_AFTER: Final = Attribute(
    "glassgate.capacity.quota_after_tokens", "int", "{token}", "free + evictable - promised at the end"
)
ROOM_AFTER: Final = Attribute("glassgate.capacity.room_after_tokens", "int", "{token}", "the same less reserved")
LANE_FREE: Final = Attribute("glassgate.lane.free_pages", "int[]", "{page}", "free pages of each owner lane")
LANE_EVICTABLE: Final = Attribute("glassgate.lane.evictable_pages", "int[]", "{page}", "evictable pages of each")

# Buffers
ESTIMATED: Final = Attribute(
    "glassgate.buffer.estimated_bytes",
    "int",
    "By",
    "estimated peak of the temporary buffers: of the batch, or of batch and candidate; absent without a model",
)
SMOKE_RESERVED: Final = Attribute(
    "glassgate.buffer.smoke_allocated_bytes", "int", "By", "what the start-up smoke allocation reserved; absent if none"
)
PART_NAMES: Final = Attribute("glassgate.buffer.parts", "string[]", "", "the parts of the estimated peak")
PART_BYTES: Final = Attribute("glassgate.buffer.part_bytes", "int[]", "By", "what each has at that peak")

# Decision
HELD_NS: Final = Attribute(
    "glassgate.verdict.held_ns",
    "int",
    "ns",
    "how long the verdict had held: since the first of an unbroken row of looks that named this gate and reason",
)
CHECK_GATES: Final = Attribute("glassgate.check.gates", "string[]", "", "the gates of the ladder that were evaluated")
CHECK_VERDICTS: Final = Attribute(
    "glassgate.check.verdicts", "string[]", "", "what each said: `pass`, `refuse`, `exempt`, `off`, `would_refuse`"
)
CHECK_OBSERVED: Final = Attribute("glassgate.check.observed", "int[]", "the gate's", "what each saw")
CHECK_LIMITS: Final = Attribute(
    "glassgate.check.limits", "int[]", "the gate's", "what each allows; 0 where it is `off`"
)
BEFORE_GATES: Final = Attribute(
    "glassgate.check_before_load_failure.gates", "string[]", "", "the ladder as it was before a load-back failed"
)
BEFORE_VERDICTS: Final = Attribute("glassgate.check_before_load_failure.verdicts", "string[]", "", "what each said")
BEFORE_OBSERVED: Final = Attribute(
    "glassgate.check_before_load_failure.observed", "int[]", "the gate's", "what each saw"
)
BEFORE_LIMITS: Final = Attribute(
    "glassgate.check_before_load_failure.limits", "int[]", "the gate's", "what each allows"
)
HIT_STATUS: Final = Attribute("glassgate.host_hit.status", "string", "", "`planned`, `loaded` or `skipped`")
HIT_REASON: Final = Attribute("glassgate.host_hit.reason", "string", "", "why it was skipped; absent if it was not")
HIT_RESIDENT: Final = Attribute("glassgate.host_hit.resident_tokens", "int", "{token}", "on the host behind the prefix")
HIT_MATCHED: Final = Attribute("glassgate.host_hit.matched_tokens", "int", "{token}", "of these, worth a load")
HIT_ASKED: Final = Attribute("glassgate.host_hit.asked_tokens", "int", "{token}", "asked of the load-back")
HIT_LOADED: Final = Attribute("glassgate.host_hit.loaded_tokens", "int", "{token}", "loaded to the device")
HIT_EVICTED: Final = Attribute("glassgate.host_hit.evicted_tokens", "int", "{token}", "evicted for a load that failed")

# Repeats
REPEAT_COUNT: Final = Attribute("glassgate.repeat.count", "int", "{pass}", "passes that repeated the refusal")
REPEAT_LAST_PASS: Final = Attribute("glassgate.repeat.last_pass", "int", "", "number of the last of them")
REPEAT_OBSERVED: Final = Attribute(
    "glassgate.repeat.observed", "int[]", "`glassgate.unit`", "first, last, least and greatest the gate saw"
)
REPEAT_LIMIT: Final = Attribute(
    "glassgate.repeat.limit", "int[]", "`glassgate.unit`", "first, last, least and greatest it allowed"
)

# Queue
QUEUE_AFTER: Final = Attribute("glassgate.queue.after", "string", "", "why it waits: `arrival`, `retract`, `preempt`")
QUEUE_ENDED: Final = Attribute(
    "glassgate.queue.ended", "string", "", "what ended the wait: `admit`, `can_never`, `abort`, `finish` or `run_end`"
)
QUEUE_LOOKS: Final = Attribute(
    "glassgate.queue.looks", "int", "{pass}", "passes that looked at it, with the repeats recorded before it left"
)
BEFORE_LOOK_NS: Final = Attribute(
    "glassgate.queue.before_first_look_ns", "int", "ns", "wait before a pass looked at it"
)
AFTER_LOOK_NS: Final = Attribute("glassgate.queue.after_first_look_ns", "int", "ns", "wait from then on")
WAIT_KIND: Final = Attribute(
    "glassgate.wait.kind",
    "string",
    "",
    "`held`: told to wait; `behind`: not looked at, the gate closed those passes; `between_passes`: before the first "
    "pass; `unattributed`: the record does not hold what happened",
)
WAIT_NS: Final = Attribute("glassgate.wait.duration_ns", "int", "ns", "time spent so; the events add up to the wait")

# Smoke allocation and knobs
DEVICE: Final = Attribute("glassgate.smoke.device", "string", "", "the device")
SMOKE_ASKED: Final = Attribute("glassgate.smoke.asked_bytes", "int", "By", "asked for")
SMOKE_PEAK: Final = Attribute("glassgate.smoke.peak_bytes", "int", "By", "the device's peak while it was held")
SMOKE_FREE: Final = Attribute("glassgate.smoke.free_before_bytes", "int", "By", "free before")
SMOKE_PASSED: Final = Attribute("glassgate.smoke.passed", "bool", "", "whether it fitted")
KNOB_NAMES: Final = Attribute("glassgate.knob.names", "string[]", "", "the knobs somebody asked to change")
KNOB_OLD: Final = Attribute("glassgate.knob.old", "string[]", "", "their values before, as JSON")
KNOB_NEW: Final = Attribute("glassgate.knob.new", "string[]", "", "the values asked for, as JSON")
KNOB_WHO: Final = Attribute("glassgate.knob.who", "string", "", "who asked")
KNOB_ACCEPTED: Final = Attribute("glassgate.knob.accepted", "bool", "", "whether it was accepted")
WHY: Final = Attribute("glassgate.why", "string", "", "why not, in words; absent if there is nothing to say")

_STOP: Final = (GATE, REASON)
_NUMBERS: Final = (OBSERVED, LIMIT, SHORT_BY, UNIT)
_REQUEST: Final = (REQUEST_ID, REQUEST_NUMBER)

PASS: Final = Name(
    "prefill.pass",
    "One pass; its time is the deciding time. `glassgate.gate` and `.reason` name what closed it.",
    (
        PASS_NUMBER, REVISION, WAITING, WAITING_TOKENS, NOT_REACHED, BATCH_REQUESTS, BATCH_EXTEND, BATCH_CACHED,
        BATCH_LOADED, *_STOP, FREE, EVICTABLE, RESERVED, RUNNING, QUOTA_AFTER, ROOM_AFTER, LANE_FREE, LANE_EVICTABLE,
        ESTIMATED, SMOKE_RESERVED, PART_NAMES, PART_BYTES, MODEL,
    ),
)  # fmt: skip
DECISION: Final = Name(
    "prefill.decision",
    "What a pass decided about one request; child of `prefill.pass`. The record has one time for a pass, so its "
    "decisions share it out evenly, in order.",
    (
        PASS_NUMBER, PASS_POSITION, *_REQUEST, OUTCOME, *_STOP, *_NUMBERS, HELD_NS, PROMPT, DONE, OUTPUT, EXTEND,
        DEVICE_HIT, ESTIMATED, SMOKE_RESERVED, HIT_STATUS, HIT_REASON, HIT_RESIDENT, HIT_MATCHED, HIT_ASKED, HIT_LOADED,
        HIT_EVICTED, CHECK_GATES, CHECK_VERDICTS, CHECK_OBSERVED, CHECK_LIMITS, BEFORE_GATES, BEFORE_VERDICTS,
        BEFORE_OBSERVED, BEFORE_LIMITS, MODEL,
    ),
)  # fmt: skip
REPEAT: Final = Name(
    "prefill.repeat",
    "The passes that repeated a refusal, in one span from the first to the last of them, made when the refusal is "
    "over; child of the `prefill.decision` they repeat.",
    (
        PASS_NUMBER, *_REQUEST, *_STOP, UNIT, REPEAT_COUNT, REPEAT_LAST_PASS, REPEAT_OBSERVED, REPEAT_LIMIT,
        WAITING, NOT_REACHED, REVISION,
    ),
)  # fmt: skip
QUEUE: Final = Name(
    "prefill.queue",
    "A request's wait, from its arrival (or from giving its KV back) to its admission; in the request's own trace, or "
    "in one derived from run and request id.",
    (
        *_REQUEST, QUEUE_AFTER, QUEUE_ENDED, QUEUE_LOOKS, BEFORE_LOOK_NS, AFTER_LOOK_NS, WHY, INPUT_TOKENS, MAX_TOKENS,
        MODEL,
    ),
)  # fmt: skip
SMOKE: Final = Name(
    "glassgate.smoke_allocation",
    "The start-up allocation on one device; its status is an error if it did not fit.",
    (DEVICE, SMOKE_ASKED, SMOKE_RESERVED, SMOKE_PEAK, SMOKE_FREE, SMOKE_PASSED, WHY),
)
KNOB_CHANGE: Final = Name(
    "glassgate.knob_change",
    "Somebody asked for a knob change.",
    (KNOB_NAMES, KNOB_OLD, KNOB_NEW, KNOB_WHO, KNOB_ACCEPTED, REVISION, WHY),
)
SPANS: Final = (PASS, DECISION, REPEAT, QUEUE, SMOKE, KNOB_CHANGE)

WAITED: Final = Name(
    "glassgate.waited",
    "On `prefill.queue`: one for each thing the wait was spent on, at the moment it last was over.",
    (WAIT_KIND, *_STOP, WAIT_NS),
)
FIRST_LOOK: Final = Name(
    "glassgate.first_look", "On `prefill.queue`: a pass looked at the request first.", (PASS_NUMBER,)
)
ALARM: Final = Attribute("glassgate.alarm.name", "string", "", "the standing alarm")
ALARM_MEASURED: Final = Attribute("glassgate.alarm.measured", "int", "`glassgate.alarm.unit`", "what was measured")
ALARM_THRESHOLD: Final = Attribute(
    "glassgate.alarm.threshold", "int", "`glassgate.alarm.unit`", "what raises the alarm"
)
ALARM_UNIT: Final = Attribute("glassgate.alarm.unit", "string", "", "unit of both")
ALARM_RAISED: Final = Name(
    "glassgate.alarm_raised",
    "On `prefill.pass`, or on `prefill.repeat` where repeats raised it: a standing alarm was raised. Ranks that differ "
    "are known to the store alone.",
    (ALARM, ALARM_MEASURED, ALARM_THRESHOLD, ALARM_UNIT, *_REQUEST, *_STOP, OBSERVED, LIMIT, WHY),
)
EVENTS: Final = (FIRST_LOOK, WAITED, ALARM_RAISED)

# Metrics
HIT_STATUS_OR_REASON: Final = (HIT_STATUS, HIT_REASON)
SINK: Final = Attribute("glassgate.sink.name", "string", "", "`sqlite`, `otlp` or `metrics`")
LOSS_REASON: Final = Attribute("glassgate.loss.reason", "string", "", "why, from the sink's or the journal's list")
STEP_KIND: Final = Attribute("glassgate.step.kind", "string", "", "`prefill` or `decode`")

_TOKENS: Final = (0.0, 64.0, 256.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131072.0, 262144.0)
_REQUESTS: Final = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
_BYTES: Final = tuple(float(1 << power) for power in range(20, 38, 2))
_WAITS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_STEPS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_DECIDING: Final = (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 5e-2)

M_PASSES: Final = Metric(
    "glassgate.passes", "counter", "{pass}", "Passes, by what closed them, repeats counted.", _STOP
)
M_DECISIONS: Final = Metric(
    "glassgate.decisions", "counter", "{decision}", "Decisions, repeats counted.", (OUTCOME, *_STOP)
)
M_DECIDING: Final = Metric(
    "glassgate.deciding.duration", "histogram", "s", "Real time a pass took to decide.", (), _DECIDING
)
M_BATCH_REQUESTS: Final = Metric(
    "glassgate.batch.requests", "histogram", "{request}", "Members of a batch.", (), _REQUESTS
)
M_BATCH_EXTEND: Final = Metric(
    "glassgate.batch.extend_tokens", "histogram", "{token}", "Prompt tokens a batch computes.", (), _TOKENS
)
M_BATCH_CACHED: Final = Metric(
    "glassgate.batch.cached_tokens", "histogram", "{token}", "Prefix tokens a batch reuses, loaded ones among them.",
    (), _TOKENS,
)  # fmt: skip
M_BATCH_LOADED: Final = Metric(
    "glassgate.batch.loaded_tokens", "histogram", "{token}", "Prefix tokens a batch loads from the host.", (), _TOKENS
)
M_RESIDENT: Final = Metric(
    "glassgate.host_hit.resident_tokens", "counter", "{token}", "Funnel 1: on the host behind an admitted prefix."
)
M_MATCHED: Final = Metric(
    "glassgate.host_hit.matched_tokens", "counter", "{token}", "Funnel 2: of these, worth a load."
)
M_ASKED: Final = Metric("glassgate.host_hit.asked_tokens", "counter", "{token}", "Funnel 3: asked of the load-back.")
M_LOADED: Final = Metric("glassgate.host_hit.loaded_tokens", "counter", "{token}", "Funnel 4: loaded to the device.")
M_USED: Final = Metric(
    "glassgate.host_hit.used_tokens", "counter", "{token}", "Funnel 5: loaded, and in a batch whose step ended."
)
M_HITS: Final = Metric(
    "glassgate.host_hits", "counter", "{request}", "Admitted requests by what became of their host hit.",
    HIT_STATUS_OR_REASON,
)  # fmt: skip
M_RECOMPUTED: Final = Metric(
    "glassgate.host_hit.recomputed_tokens", "counter", "{token}", "Matched, not loaded, and so computed again.",
    (HIT_REASON,),
)  # fmt: skip
M_HEADROOM_TOKENS: Final = Metric(
    "glassgate.headroom.tokens", "gauge", "{token}", "Limit less observed at the last check of a gate.", (GATE,)
)
M_HEADROOM_REQUESTS: Final = Metric(
    "glassgate.headroom.requests", "gauge", "{request}", "Limit less observed at the last check of a gate.", (GATE,)
)
M_HEADROOM_SLOTS: Final = Metric(
    "glassgate.headroom.slots", "gauge", "{slot}", "Limit less observed at the last check of a gate.", (GATE,)
)
M_HEADROOM_PAGES: Final = Metric(
    "glassgate.headroom.pages", "gauge", "{page}", "Limit less observed at the last check of an owner lane.", (GATE,)
)
M_HEADROOM_BYTES: Final = Metric(
    "glassgate.headroom.bytes", "gauge", "By", "Limit less observed at the last check of a gate.", (GATE,)
)
M_ESTIMATED: Final = Metric(
    "glassgate.buffer.estimated_bytes", "histogram", "By", "Estimated peak of a batch's temporary buffers.", (), _BYTES
)
M_SMOKE: Final = Metric(
    "glassgate.buffer.smoke_allocated_bytes", "gauge", "By", "What the start-up smoke allocation reserved."
)
M_WAITED: Final = Metric(
    "glassgate.wait.duration", "counter", "s",
    "Time requests waited, by what it was spent on; a wait counts when it ends.",
    (WAIT_KIND, *_STOP),
)  # fmt: skip
M_QUEUE_TIME: Final = Metric(
    "glassgate.queue.duration", "histogram", "s", "Time from arrival, or from giving KV back, to the end of the wait.",
    (QUEUE_ENDED,), _WAITS,
)  # fmt: skip
M_WAITING: Final = Metric("glassgate.waiting.requests", "gauge", "{request}", "Waiting requests at the last pass.")
M_WAITING_TOKENS: Final = Metric("glassgate.waiting.prompt_tokens", "gauge", "{token}", "Their prompts.")
M_NOT_REACHED: Final = Metric(
    "glassgate.waiting.not_reached", "gauge", "{request}", "Those the last pass never looked at."
)
M_RUNNING: Final = Metric(
    "glassgate.capacity.running_requests", "gauge", "{request}", "Running requests at the last pass."
)
M_FREE: Final = Metric("glassgate.capacity.free_tokens", "gauge", "{token}", "Free in the pool at the last pass.")
M_EVICTABLE: Final = Metric("glassgate.capacity.evictable_tokens", "gauge", "{token}", "Evictable at the last pass.")
M_STEP: Final = Metric("glassgate.step.duration", "histogram", "s", "Forward steps.", (STEP_KIND,), _STEPS)
M_GAVE_BACK: Final = Metric(
    "glassgate.gave_back", "counter", "{request}", "Times a running request gave its KV back.", (QUEUE_AFTER,)
)
M_KNOB_CHANGES: Final = Metric(
    "glassgate.knob.changes", "counter", "{change}", "Knob changes asked for.", (KNOB_ACCEPTED,)
)
M_REVISION: Final = Metric("glassgate.knob.revision", "gauge", "1", "Knob revision in force.")
M_ALARMS: Final = Metric("glassgate.alarm.raised", "counter", "{alarm}", "Standing alarms raised.", (ALARM,))
M_ALARMS_OPEN: Final = Metric("glassgate.alarm.open", "gauge", "{alarm}", "Standing alarms not over yet.", (ALARM,))
M_LAG: Final = Metric(
    "glassgate.journal.lag",
    "gauge",
    "s",
    "How long ago the oldest frame a sink has not delivered was first seen.",
    (SINK,),
)
M_BEHIND: Final = Metric("glassgate.journal.behind", "gauge", "By", "Journal a sink has not delivered yet.", (SINK,))
M_FRAMES: Final = Metric(
    "glassgate.journal.frames_behind", "gauge", "{frame}", "Frames a sink has not delivered yet.", (SINK,)
)
M_ENGINE: Final = Metric(
    "glassgate.run.engine_live", "gauge", "1", "1 while the run's engine lives, else 0: it ended or is gone."
)
M_JOURNAL_LOST: Final = Metric(
    "glassgate.journal.lost", "counter", "{frame}", "Frames the journal does not hold.", (LOSS_REASON,)
)
M_DELIVERED: Final = Metric(
    "glassgate.sink.delivered", "counter", "{item}", "Records or spans a sink delivered.", (SINK,)
)
M_LEFT_OUT: Final = Metric(
    "glassgate.sink.left_out", "counter", "{item}", "Left out on purpose: `sampled` or `repeated`.", (SINK, LOSS_REASON)
)
M_LOST: Final = Metric("glassgate.sink.lost", "counter", "{item}", "Given up for good.", (SINK, LOSS_REASON))
M_FAILURES: Final = Metric(
    "glassgate.sink.failures", "counter", "{attempt}", "Attempts that failed and were, or will be, tried again.",
    (SINK, LOSS_REASON),
)  # fmt: skip

METRICS: Final = (
    M_PASSES, M_DECISIONS, M_DECIDING, M_BATCH_REQUESTS, M_BATCH_EXTEND, M_BATCH_CACHED, M_BATCH_LOADED, M_RESIDENT,
    M_MATCHED, M_ASKED, M_LOADED, M_USED, M_HITS, M_RECOMPUTED, M_HEADROOM_TOKENS, M_HEADROOM_REQUESTS,
    M_HEADROOM_SLOTS, M_HEADROOM_PAGES, M_HEADROOM_BYTES, M_ESTIMATED, M_SMOKE, M_WAITED, M_QUEUE_TIME, M_WAITING,
    M_WAITING_TOKENS, M_NOT_REACHED, M_RUNNING, M_FREE, M_EVICTABLE, M_STEP, M_GAVE_BACK, M_KNOB_CHANGES, M_REVISION,
    M_ALARMS, M_ALARMS_OPEN, M_LAG, M_BEHIND, M_FRAMES, M_ENGINE, M_JOURNAL_LOST, M_DELIVERED, M_LEFT_OUT, M_LOST,
    M_FAILURES,
)  # fmt: skip


def attributes() -> tuple[Attribute, ...]:
    """Every attribute, each once, in the order of first use."""
    used = (RESOURCE, *(each.attributes for each in (*SPANS, *EVENTS, *METRICS)))
    return tuple(dict.fromkeys(attribute for group in used for attribute in group))
