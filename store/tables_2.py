"""What schema version 2 adds: alarms, what was pruned, words for buffer parts, and an index that serves more."""

from typing import Final

from store.views import with_iso

TABLES: Final = (
    "CREATE TABLE parts (id INTEGER PRIMARY KEY, part TEXT NOT NULL UNIQUE) STRICT",
    """CREATE TABLE alarm_kinds (
    alarm TEXT PRIMARY KEY, meaning TEXT NOT NULL, threshold INTEGER NOT NULL, unit TEXT NOT NULL
) WITHOUT ROWID, STRICT""",
    # One row for each stretch of time in which an alarm stood; closed_ns is null while it stands.
    """CREATE TABLE alarms (
    run INTEGER NOT NULL REFERENCES runs (id), number INTEGER NOT NULL,
    alarm TEXT NOT NULL REFERENCES alarm_kinds (alarm),
    opened_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL, closed_ns INTEGER, count INTEGER NOT NULL,
    measured INTEGER NOT NULL, threshold INTEGER NOT NULL, unit TEXT NOT NULL, request INTEGER,
    gate INTEGER REFERENCES gates (id), reason INTEGER REFERENCES reasons (id),
    first_pass INTEGER, last_pass INTEGER, observed INTEGER, limit_value INTEGER, detail TEXT NOT NULL,
    PRIMARY KEY (run, number),
    FOREIGN KEY (run, request) REFERENCES requests (run, number)
) WITHOUT ROWID, STRICT""",
    # What the alarms need to know of the records before. It moves in the transaction that writes the rows.
    "CREATE TABLE alarm_watch (run INTEGER PRIMARY KEY REFERENCES runs (id), state TEXT NOT NULL) STRICT",
    # What was dropped to keep the file small or young, and why. at_unix_ns is when; of the requests, `remembered` are
    # known to `why` still.
    """CREATE TABLE pruned (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs (id), whole INTEGER NOT NULL,
    first_pass INTEGER NOT NULL, last_pass INTEGER NOT NULL, first_ns INTEGER, last_ns INTEGER,
    passes INTEGER NOT NULL, decisions INTEGER NOT NULL, requests INTEGER NOT NULL, remembered INTEGER NOT NULL,
    at_unix_ns INTEGER NOT NULL, why TEXT NOT NULL
) STRICT""",
    # By it `why` knows a pruned request. id_hash is `store.pruning.hash_of` of the request's id.
    """CREATE TABLE pruned_requests (
    id_hash INTEGER NOT NULL, pruned INTEGER NOT NULL REFERENCES pruned (id), PRIMARY KEY (id_hash, pruned)
) WITHOUT ROWID, STRICT""",
)

DROPPED: Final = ("passes_start", "passes_closed", "passes_peak")
"""Indexes of version 1 whose work one of these does, or the primary key: a run's peaks are read in 0.1 s a million."""

INDEXES: Final = (
    # why: the pass that began at or before a moment; slowest-waits and knob-effects: the passes of a stretch of time;
    # stops and stops-over-time: what closed them, without reading the passes themselves
    "CREATE INDEX passes_start ON passes (run, start_ns, closed_gate, closed_reason)",
    # idle-refusals
    "CREATE INDEX passes_idle ON passes (run, number) WHERE members = 0 AND running = 0",
)

_VIEWS: Final = {
    "v_alarms": """SELECT a.run, r.name AS run_name, r.rank, a.number, a.alarm,
    CASE WHEN a.closed_ns IS NOT NULL THEN 'closed' WHEN r.end_ns IS NOT NULL THEN 'open at the end' ELSE 'open' END
        AS state,
    iso(a.opened_ns) AS opened_at, iso(a.last_ns) AS last_at, a.opened_ns, a.last_ns, a.closed_ns,
    coalesce(a.closed_ns, r.last_ns) - a.opened_ns AS age_ns, a.count, a.measured, a.threshold, a.unit,
    a.request, q.id AS request_id, g.gate, e.reason, a.first_pass, a.last_pass, a.observed, a.limit_value, a.detail
FROM alarms a JOIN runs r ON r.id = a.run LEFT JOIN requests q ON q.run = a.run AND q.number = a.request
LEFT JOIN gates g ON g.id = a.gate LEFT JOIN reasons e ON e.id = a.reason""",
    "v_knob_changes": """SELECT c.run, r.name AS run_name, iso(c.at_ns) AS at, c.at_ns, c.who, c.revision, c.knob,
    c.old, c.new, c.accepted, c.why
FROM knob_changes c JOIN runs r ON r.id = c.run""",
    "v_steps": """SELECT s.run, r.name AS run_name, s.pass, iso(s.start_ns) AS at, s.start_ns, s.end_ns,
    s.end_ns - s.start_ns AS duration_ns, s.first_tokens
FROM steps s JOIN runs r ON r.id = s.run""",
    "v_smoke": """SELECT s.run, r.name AS run_name, iso(s.at_ns) AS at, s.at_ns, s.device, s.asked_bytes,
    s.reserved_bytes, s.peak_bytes, s.free_before_bytes, s.passed, s.why
FROM smoke s JOIN runs r ON r.id = s.run""",
    "v_retractions": """SELECT t.run, r.name AS run_name, t.request, q.id AS request_id, iso(t.at_ns) AS at, t.at_ns,
    t.kind, t.generated_tokens, t.freed_tokens, t.by_request
FROM retractions t JOIN runs r ON r.id = t.run JOIN requests q ON q.run = t.run AND q.number = t.request""",
    "v_loads": """SELECT l.run, r.name AS run_name, l.request, q.id AS request_id, iso(l.at_ns) AS at, l.at_ns, l.tokens
FROM loads l JOIN runs r ON r.id = l.run JOIN requests q ON q.run = l.run AND q.number = l.request""",
    "v_losses": """SELECT x.run, r.name AS run_name, x.reason, x.frames, x.bytes, iso(x.first_ns) AS first_at,
    iso(x.last_ns) AS last_at, x.first_ns, x.last_ns, x.segment, x.byte_offset, x.detail
FROM losses x JOIN runs r ON r.id = x.run""",
    "v_pruned": """SELECT x.run, r.name AS run_name, r.rank, x.whole, x.first_pass, x.last_pass,
    iso(x.first_ns) AS first_at, iso(x.last_ns) AS last_at, x.first_ns, x.last_ns, x.passes, x.decisions,
    x.requests, x.remembered,
    strftime('%Y-%m-%dT%H:%M:%fZ', x.at_unix_ns / 1e9, 'unixepoch') AS pruned_at, x.at_unix_ns, x.why
FROM pruned x JOIN runs r ON r.id = x.run""",
    # What each part of the estimated buffers has at a batch's peak.
    "buffer_parts": """SELECT p.run, p.number AS pass, w.part, j.value AS bytes
FROM passes p CROSS JOIN json_each(p.parts) j JOIN parts w ON w.id = j.key""",
}

VIEWS: Final = {name: with_iso(sql) for name, sql in _VIEWS.items()}
