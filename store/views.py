"""The views, as schema version 1 has them: the tables with names for words and ISO times for nanoseconds."""

import re
from typing import Final

_ISO: Final = r"strftime('%Y-%m-%dT%H:%M:%fZ', (r.wall_ns - r.start_ns + \1) / 1e9, 'unixepoch')"

_VIEWS: Final = {
    "v_runs": """SELECT r.*, iso(r.start_ns) AS started, iso(r.end_ns) AS ended FROM runs r""",
    "v_requests": """SELECT q.run, r.name AS run_name, q.number, q.id, iso(q.arrival_ns) AS arrived,
    q.arrival_ns, q.prompt_tokens, q.output_tokens, q.first_pass, q.first_look_ns, q.admit_pass, q.admit_ns, q.wait_ns,
    q.device_hit_tokens, q.host_loaded_tokens, q.device_hit_tokens + q.host_loaded_tokens AS cached_tokens,
    q.first_token_ns, q.first_token_ns - q.arrival_ns AS ttft_ns, q.end_ns, q.ended, q.why, q.generated_tokens,
    q.retractions, q.traceparent
FROM requests q JOIN runs r ON r.id = q.run""",
    "v_passes": """SELECT p.run, r.name AS run_name, p.number, iso(p.start_ns) AS at, p.start_ns,
    p.decide_ns, p.revision, p.queue, p.queued_tokens, p.not_reached, p.members, p.cut, p.extend_tokens,
    p.device_hit_tokens + p.host_loaded_tokens AS cached_tokens, p.device_hit_tokens, p.host_loaded_tokens,
    g.gate AS closed_gate, e.reason AS closed_reason, p.peak_bytes, p.parts,
    p.free_tokens, p.evictable_tokens, p.reserved_tokens, p.running, p.quota_after, p.room_after, p.lanes,
    coalesce(t.count, 0) AS repeats, t.last_pass, t.last_ns
FROM passes p JOIN runs r ON r.id = p.run
LEFT JOIN gates g ON g.id = p.closed_gate LEFT JOIN reasons e ON e.id = p.closed_reason
LEFT JOIN repeats t ON t.run = p.run AND t.first_pass = p.number""",
    "v_decisions": """SELECT d.run, r.name AS run_name, d.pass, d.position,
    iso(p.start_ns) AS at, p.start_ns, d.request, q.id AS request_id, o.outcome,
    g.gate, e.reason, d.observed, d.limit_value, d.short_by,
    CASE e.reason WHEN 'lane' THEN 'pages' ELSE g.unit END AS unit,
    d.prompt_tokens, d.done_tokens, d.device_hit_tokens, d.extend_tokens, d.output_tokens,
    h.host_hit, h.status AS host_status, d.resident_tokens, d.matched_tokens, d.asked_tokens,
    CASE h.host_hit WHEN 'loaded' THEN d.asked_tokens ELSE 0 END AS host_loaded_tokens, d.evicted_tokens,
    d.checks, d.checks_before_load_failure
FROM decisions d JOIN runs r ON r.id = d.run JOIN passes p ON p.run = d.run AND p.number = d.pass
JOIN requests q ON q.run = d.run AND q.number = d.request
JOIN outcomes o ON o.id = d.outcome JOIN host_hits h ON h.id = d.host_hit
LEFT JOIN gates g ON g.id = d.gate LEFT JOIN reasons e ON e.id = d.reason""",
    "v_repeats": """SELECT t.run, r.name AS run_name, t.first_pass, t.last_pass, t.count, t.request,
    q.id AS request_id, iso(t.first_ns) AS first_at, iso(t.last_ns) AS last_at, t.first_ns, t.last_ns,
    g.gate, e.reason, t.observed_first, t.observed_last, t.observed_least, t.observed_greatest,
    t.limit_first, t.limit_last, t.limit_least, t.limit_greatest, t.queue, t.not_reached, t.revision, t.ended
FROM repeats t JOIN runs r ON r.id = t.run JOIN requests q ON q.run = t.run AND q.number = t.request
JOIN gates g ON g.id = t.gate JOIN reasons e ON e.id = t.reason""",
    # The members of each pass's batch, the continuing chunk first.
    "members": """SELECT d.run, d.pass, d.position, d.request, q.id AS request_id, o.outcome, d.extend_tokens,
    d.device_hit_tokens, CASE d.host_hit WHEN 1 THEN d.asked_tokens ELSE 0 END AS host_loaded_tokens, d.done_tokens,
    d.prompt_tokens
FROM decisions d JOIN requests q ON q.run = d.run AND q.number = d.request JOIN outcomes o ON o.id = d.outcome
WHERE d.outcome IN (0, 1)""",
    # One row for each gate of each decision.
    "checks": """SELECT d.run, d.pass, d.position, d.request, g.id AS gate_number, g.gate, v.verdict,
    json_extract(d.checks, '$[' || (3 * g.id + 1) || ']') AS observed,
    CASE WHEN v.verdict IN ('off', 'not_evaluated') THEN NULL
         ELSE json_extract(d.checks, '$[' || (3 * g.id + 2) || ']') END AS limit_value
FROM decisions d CROSS JOIN gates g JOIN verdicts v ON v.id = json_extract(d.checks, '$[' || (3 * g.id) || ']')""",
}


def with_iso(sql: str) -> str:
    """A view's SQL with `iso(x)` written out as the UTC time of x nanoseconds of the clock of run r."""
    return re.sub(r"iso\(([a-z_.]+)\)", _ISO, sql)


VIEWS: Final = {name: with_iso(sql) for name, sql in _VIEWS.items()}
