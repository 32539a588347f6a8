"""The named queries: the questions people ask after the fact, each with its SQL and the unit of every column.

`:run` is the number of the run asked about, `:limit` the most rows wanted.
"""

from typing import Final

from store.named_alarms import ALARMS, IDLE_REFUSALS, PRUNED
from store.named_changes import KNOB_EFFECTS, OVERTAKES, RANK_DIFFERENCES, STOPS_OVER_TIME, switched
from store.question import Column, NamedQuery, columns_of

__all__ = ["NAMED", "Column", "NamedQuery"]

_STOPS: Final = NamedQuery(
    "stops",
    "Why batches stopped growing: passes by the gate and reason that closed them, repeats counted. "
    "No gate: the whole queue was looked at and nothing closed the pass.",
    columns_of("gate reason passes:passes repeats:passes share:percent"),
    """WITH stopped AS (
    SELECT closed_gate AS gate, closed_reason AS reason, count(*) AS passes, 0 AS repeats
    FROM passes WHERE run = :run GROUP BY 1, 2
    UNION ALL
    SELECT gate, reason, sum(count), sum(count) FROM repeats WHERE run = :run GROUP BY 1, 2
)
SELECT g.gate, e.reason, sum(s.passes) AS passes, sum(s.repeats) AS repeats,
    round(100.0 * sum(s.passes) / (SELECT sum(passes) FROM stopped), 1) AS share
FROM stopped s LEFT JOIN gates g ON g.id = s.gate LEFT JOIN reasons e ON e.id = s.reason
GROUP BY s.gate, s.reason ORDER BY 3 DESC, s.gate, s.reason LIMIT :limit""",
)

_HOST_HIT_SKIPS: Final = NamedQuery(
    "host-hit-skips",
    "Host-cache hits that were found and not loaded, by reason: at how many looks (without repeats), with "
    "how many tokens, and how many of those tokens were computed again because the request entered without them.",
    columns_of("reason looks:looks matched_tokens:tokens admitted:requests recomputed_tokens:tokens"),
    """SELECT h.host_hit AS reason, count(*) AS looks, sum(d.matched_tokens) AS matched_tokens,
    sum(d.outcome IN (0, 1)) AS admitted,
    sum(CASE WHEN d.outcome IN (0, 1) THEN d.matched_tokens ELSE 0 END) AS recomputed_tokens
FROM decisions d INDEXED BY decisions_skip JOIN host_hits h ON h.id = d.host_hit
WHERE d.run = :run AND d.host_hit > 1 AND d.matched_tokens > 0
GROUP BY d.host_hit ORDER BY 5 DESC, 3 DESC LIMIT :limit""",
)

# The time of the passes is summed once, by blocks of a thousandth of it all; of a wait only the passes in its first and
# last block are read, so that one as long as the run costs no more than a short one.
_SLOWEST_WAITS: Final = NamedQuery(
    "slowest-waits",
    "The requests that waited longest for their first admission, or still wait, and the gate most of it was spent "
    "behind.",
    columns_of("request state wait_ns:ns gate reason gate_ns:ns share:percent prompt_tokens:tokens pass"),
    """WITH waits AS (
    SELECT q.number, q.id, q.arrival_ns, q.prompt_tokens, q.admit_pass, q.ended,
        coalesce(q.admit_ns, q.end_ns, r.last_ns) AS until_ns,
        coalesce(q.wait_ns, r.last_ns - q.arrival_ns) AS wait_ns
    FROM requests q JOIN runs r ON r.id = q.run
    WHERE q.run = :run AND q.arrival_ns IS NOT NULL
    ORDER BY 8 DESC, q.number LIMIT :limit
), begun AS (
    SELECT w.*, coalesce((
        SELECT t.first_pass FROM repeats t WHERE t.run = :run AND t.last_ns >= w.arrival_ns AND t.first_pass = (
            SELECT p.number FROM passes p WHERE p.run = :run AND p.start_ns < w.arrival_ns
            ORDER BY p.start_ns DESC LIMIT 1)
    ), 0) AS repeating FROM waits w
), span AS (
    SELECT min(arrival_ns) AS from_ns, max(until_ns) AS until_ns, (max(until_ns) - min(arrival_ns)) / 1000 + 1 AS width
    FROM begun
), stretches AS (
    SELECT (p.start_ns - s.from_ns) / s.width AS block, p.closed_gate, p.closed_reason,
        lead(p.start_ns, 1, s.until_ns) OVER (ORDER BY p.start_ns, p.number) - p.start_ns AS ns
    FROM span s CROSS JOIN passes p ON p.run = :run AND p.start_ns >= s.from_ns AND p.start_ns < s.until_ns
), blocks AS MATERIALIZED (
    SELECT block, closed_gate, closed_reason, sum(ns) AS ns FROM stretches GROUP BY 1, 2, 3
), cut AS (
    SELECT b.*, (b.arrival_ns - s.from_ns) / s.width AS first_block,
        (b.until_ns - 1 - s.from_ns) / s.width AS last_block,
        s.from_ns + ((b.arrival_ns - s.from_ns) / s.width + 1) * s.width AS first_end_ns,
        s.from_ns + (b.until_ns - 1 - s.from_ns) / s.width * s.width AS last_begin_ns
    FROM begun b CROSS JOIN span s
), edges AS (
    SELECT number, 0 AS edge, arrival_ns AS from_ns, min(until_ns, first_end_ns) AS end_ns, until_ns FROM cut
    UNION ALL
    SELECT number, 1, last_begin_ns, until_ns, until_ns FROM cut WHERE last_block > first_block
), edge_passes AS (
    SELECT e.number, e.until_ns, p.start_ns, p.closed_gate, p.closed_reason,
        lead(p.start_ns) OVER (PARTITION BY e.number, e.edge ORDER BY p.start_ns, p.number) AS next_ns
    FROM edges e CROSS JOIN passes p ON p.run = :run AND p.start_ns >= e.from_ns AND p.start_ns < e.end_ns
), spans AS (
    SELECT c.number, k.closed_gate, k.closed_reason, k.ns
    FROM cut c CROSS JOIN blocks k ON k.block > c.first_block AND k.block < c.last_block
    UNION ALL
    SELECT number, closed_gate, closed_reason, min(until_ns, coalesce(next_ns, (
            SELECT n.start_ns FROM passes n WHERE n.run = :run AND n.start_ns > e.start_ns ORDER BY n.start_ns LIMIT 1
        ), until_ns)) - start_ns FROM edge_passes e
    UNION ALL
    SELECT c.number, p.closed_gate, p.closed_reason, c.until_ns - min((SELECT until_ns FROM span), coalesce((
            SELECT n.start_ns FROM passes n WHERE n.run = :run AND n.start_ns >= c.until_ns ORDER BY n.start_ns LIMIT 1
        ), (SELECT until_ns FROM span)))
    FROM cut c CROSS JOIN passes p ON p.run = :run AND p.start_ns < c.last_begin_ns AND p.start_ns >= c.first_end_ns
        AND p.number = (SELECT l.number FROM passes l WHERE l.run = :run AND l.start_ns < c.until_ns
            ORDER BY l.start_ns DESC, l.number DESC LIMIT 1)
    UNION ALL
    SELECT b.number, p.closed_gate, p.closed_reason, min(b.until_ns, coalesce((
            SELECT n.start_ns FROM passes n WHERE n.run = :run AND n.number > p.number ORDER BY n.number LIMIT 1
        ), b.until_ns)) - max(b.arrival_ns, (
            SELECT t.first_ns FROM repeats t WHERE t.run = :run AND t.first_pass = p.number)) AS ns
    FROM begun b JOIN passes p ON p.run = :run AND p.number = b.repeating
), held AS (
    SELECT number, closed_gate, closed_reason, sum(ns) AS ns,
        row_number() OVER (PARTITION BY number ORDER BY sum(ns) DESC) AS place
    FROM spans WHERE closed_gate IS NOT NULL GROUP BY 1, 2, 3 HAVING sum(ns) > 0
)
SELECT w.id AS request, coalesce(CASE WHEN w.admit_pass IS NULL THEN w.ended ELSE 'admitted' END, 'waiting') AS state,
    w.wait_ns, g.gate, e.reason, h.ns AS gate_ns, round(100.0 * h.ns / w.wait_ns, 1) AS share, w.prompt_tokens,
    w.admit_pass AS pass
FROM waits w LEFT JOIN held h ON h.number = w.number AND h.place = 1
LEFT JOIN gates g ON g.id = h.closed_gate LEFT JOIN reasons e ON e.id = h.closed_reason
ORDER BY w.wait_ns DESC, w.number""",
)

_BATCHES: Final = NamedQuery(
    "batches",
    "What each batch was made of, the latest first: members, tokens computed and reused, and what closed it.",
    columns_of(
        "pass start_ns:at queue:requests members:requests cut:requests extend_tokens:tokens device_hit_tokens:tokens "
        "host_loaded_tokens:tokens gate reason not_reached:requests peak_bytes:bytes requests"
    ),
    """SELECT p.number AS pass, p.start_ns, p.queue, p.members, p.cut, p.extend_tokens, p.device_hit_tokens,
    p.host_loaded_tokens, g.gate, e.reason, p.not_reached, p.peak_bytes,
    (SELECT group_concat(coalesce(m.request_id, '#' || m.request), ' ') FROM members m
     WHERE m.run = p.run AND m.pass = p.number) AS requests
FROM passes p LEFT JOIN gates g ON g.id = p.closed_gate LEFT JOIN reasons e ON e.id = p.closed_reason
WHERE p.run = :run AND p.members > 0 ORDER BY p.number DESC LIMIT :limit""",
)

_ESTIMATE_VS_SMOKE: Final = NamedQuery(
    "estimate-vs-smoke",
    "The batches with the highest estimated buffers, beside the limit in force and what the start-up smoke allocation "
    "reserved on its tightest device.",
    columns_of(
        "pass members:requests extend_tokens:tokens peak_bytes:bytes limit_bytes:bytes smoke_bytes:bytes "
        "share_of_smoke:percent"
    ),
    """SELECT p.number AS pass, p.members, p.extend_tokens, p.peak_bytes, k.effective AS limit_bytes,
    s.reserved AS smoke_bytes, round(100.0 * p.peak_bytes / s.reserved, 1) AS share_of_smoke
FROM passes p
LEFT JOIN knobs k ON k.run = p.run AND k.revision = p.revision AND k.knob = 'max_buffer_bytes'
LEFT JOIN (SELECT min(reserved_bytes) AS reserved FROM smoke WHERE run = :run) s
WHERE p.run = :run AND p.members > 0 AND p.peak_bytes IS NOT NULL
ORDER BY p.peak_bytes DESC LIMIT :limit""",
)

_CAN_NEVER: Final = NamedQuery(
    "can-never",
    "Requests refused at once because they could not fit the empty pool, with what each would have needed.",
    columns_of("request pass prompt_tokens:tokens output_tokens:tokens observed limit short_by unit"),
    """SELECT coalesce(q.id, '#' || d.request) AS request, d.pass, d.prompt_tokens, d.output_tokens, d.observed,
    d.limit_value AS "limit", d.short_by, g.unit
FROM decisions d INDEXED BY decisions_refused
JOIN requests q ON q.run = d.run AND q.number = d.request LEFT JOIN gates g ON g.id = d.gate
WHERE d.run = :run AND d.outcome = 4 ORDER BY d.pass, d.position LIMIT :limit""",
)

_RUNS: Final = NamedQuery(
    "runs",
    "The runs in the database, the latest begun first.",
    columns_of("run rank engine model started duration_ns:ns passes:passes requests:requests ended"),
    """SELECT r.name AS run, r.rank, r.engine, r.model, v.started,
    coalesce(r.end_ns, r.last_ns) - r.start_ns AS duration_ns,
    coalesce(r.passes, (SELECT max(max(p.number), coalesce((SELECT max(t.last_pass) FROM repeats t
        WHERE t.run = r.id), 0)) FROM passes p WHERE p.run = r.id)) AS passes,
    coalesce(r.requests, (SELECT count(*) FROM requests q WHERE q.run = r.id)) AS requests,
    r.end_reason AS ended
FROM runs r JOIN v_runs v ON v.id = r.id ORDER BY coalesce(r.wall_ns, 0) DESC, r.id DESC LIMIT :limit""",
)

_KNOBS: Final = NamedQuery(
    "knobs",
    "The knobs in force last: the value set, the value in effect, and why the two differ or it does nothing.",
    columns_of("knob set_to effective unit state why revision"),
    f"""SELECT knob, {switched("set_to")} AS set_to, {switched("effective")} AS effective, unit, state, why, revision
FROM knobs WHERE run = :run AND revision = (SELECT max(revision) FROM knobs WHERE run = :run)
ORDER BY knob LIMIT :limit""",  # noqa: S608 - our own constants
)

_KNOB_CHANGES: Final = NamedQuery(
    "knob-changes",
    "Knob changes asked for while the run went on: who, in which request, from what, to what, if not accepted why not.",
    columns_of("at_ns:at who request knob old new accepted why revision"),
    f"""SELECT at_ns, who, request, knob, {switched("old")} AS old, {switched("new")} AS new, accepted, why, revision
FROM knob_changes WHERE run = :run ORDER BY id LIMIT :limit""",  # noqa: S608 - our own constants
)

_LOSSES: Final = NamedQuery(
    "losses",
    "What the record does not hold, and why: frames the journal's writer gave up, frames missing or damaged.",
    columns_of("reason times frames:frames bytes:bytes detail"),
    """SELECT reason, count(*) AS times, sum(frames) AS frames, sum(bytes) AS bytes, max(detail) AS detail
FROM losses WHERE run = :run GROUP BY reason ORDER BY 3 DESC LIMIT :limit""",
)

_SPANS: Final = NamedQuery(
    "spans",
    "The trace and span ids under which passes and their decisions are at an OpenTelemetry backend, the latest first.",
    columns_of("pass position request trace_id span_id"),
    """WITH latest AS (SELECT number FROM passes WHERE run = :run ORDER BY number DESC LIMIT :limit)
SELECT s.pass, NULL AS position, NULL AS request, s.trace_id, s.span_id
FROM latest l CROSS JOIN pass_spans s ON s.run = :run AND s.pass = l.number
UNION ALL
SELECT s.pass, s.position, coalesce(q.id, '#' || s.request), s.trace_id, s.span_id
FROM latest l CROSS JOIN decision_spans s ON s.run = :run AND s.pass = l.number
JOIN requests q ON q.run = s.run AND q.number = s.request
ORDER BY 1 DESC, 2 LIMIT :limit""",
)

NAMED: Final = {
    query.name: query
    for query in (
        _STOPS, STOPS_OVER_TIME, _HOST_HIT_SKIPS, _SLOWEST_WAITS, OVERTAKES, _BATCHES, _ESTIMATE_VS_SMOKE, _CAN_NEVER,
        KNOB_EFFECTS, IDLE_REFUSALS, ALARMS, RANK_DIFFERENCES, _SPANS, _RUNS, _KNOBS, _KNOB_CHANGES, _LOSSES, PRUNED,
    )
}  # fmt: skip
