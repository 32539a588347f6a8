"""The tables and their indexes, as schema version 1 has them.

Times are integer nanoseconds of the run's clock; `runs.wall_ns` is the Unix time of `runs.start_ns`. What a word of
`controller.vocabulary` stands for is kept as its integer, with a small table that names it; the views in
`store.views` show the names.
A table of rows that belong to a run is clustered by its key, so that a run, a pass or a request is one range.
"""

from typing import Final

TABLES: Final = (
    """CREATE TABLE gates (
    id INTEGER PRIMARY KEY, gate TEXT NOT NULL UNIQUE, unit TEXT NOT NULL, soft INTEGER NOT NULL
) STRICT""",
    "CREATE TABLE reasons (id INTEGER PRIMARY KEY, reason TEXT NOT NULL UNIQUE) STRICT",
    "CREATE TABLE outcomes (id INTEGER PRIMARY KEY, outcome TEXT NOT NULL UNIQUE) STRICT",
    "CREATE TABLE verdicts (id INTEGER PRIMARY KEY, verdict TEXT NOT NULL UNIQUE) STRICT",
    "CREATE TABLE host_hits (id INTEGER PRIMARY KEY, host_hit TEXT NOT NULL UNIQUE, status TEXT NOT NULL) STRICT",
    # One row for each rank of a run. A run of which only later records are left has a name and a rank alone.
    """CREATE TABLE runs (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, rank INTEGER NOT NULL,
    engine TEXT, version TEXT, model TEXT, rank_group TEXT, simulated INTEGER, start_ns INTEGER, wall_ns INTEGER,
    pool_tokens INTEGER, host_tokens INTEGER, slots INTEGER, largest_prompt_tokens INTEGER,
    setting TEXT, context TEXT,
    end_ns INTEGER, end_reason TEXT, passes INTEGER, requests INTEGER,
    last_ns INTEGER NOT NULL DEFAULT 0,
    UNIQUE (name, rank)
) STRICT""",
    """CREATE TABLE knobs (
    run INTEGER NOT NULL REFERENCES runs (id), revision INTEGER NOT NULL, knob TEXT NOT NULL,
    at_ns INTEGER NOT NULL, unit TEXT NOT NULL, set_to INTEGER, effective INTEGER,
    state TEXT NOT NULL, why TEXT NOT NULL,
    PRIMARY KEY (run, revision, knob)
) WITHOUT ROWID, STRICT""",
    """CREATE TABLE knob_changes (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs (id), at_ns INTEGER NOT NULL, who TEXT NOT NULL,
    revision INTEGER NOT NULL, knob TEXT, old INTEGER, new INTEGER, accepted INTEGER NOT NULL, why TEXT NOT NULL
) STRICT""",
    """CREATE TABLE requests (
    run INTEGER NOT NULL REFERENCES runs (id), number INTEGER NOT NULL,
    id TEXT, arrival_ns INTEGER, prompt_tokens INTEGER, output_tokens INTEGER,
    first_pass INTEGER, first_look_ns INTEGER,
    admit_pass INTEGER, admit_ns INTEGER, device_hit_tokens INTEGER, host_loaded_tokens INTEGER,
    first_token_ns INTEGER, end_ns INTEGER, ended TEXT, why TEXT, generated_tokens INTEGER,
    retractions INTEGER NOT NULL DEFAULT 0, traceparent TEXT,
    wait_ns INTEGER GENERATED ALWAYS AS (coalesce(admit_ns, end_ns) - arrival_ns) VIRTUAL,
    PRIMARY KEY (run, number)
) WITHOUT ROWID, STRICT""",
    """CREATE TABLE passes (
    run INTEGER NOT NULL REFERENCES runs (id), number INTEGER NOT NULL,
    start_ns INTEGER NOT NULL, decide_ns INTEGER NOT NULL, revision INTEGER NOT NULL,
    queue INTEGER NOT NULL, queued_tokens INTEGER NOT NULL, not_reached INTEGER NOT NULL,
    members INTEGER NOT NULL, cut INTEGER NOT NULL,
    extend_tokens INTEGER NOT NULL, device_hit_tokens INTEGER NOT NULL, host_loaded_tokens INTEGER NOT NULL,
    closed_gate INTEGER REFERENCES gates (id), closed_reason INTEGER REFERENCES reasons (id),
    peak_bytes INTEGER, parts TEXT,
    free_tokens INTEGER NOT NULL, evictable_tokens INTEGER NOT NULL, reserved_tokens INTEGER NOT NULL,
    running INTEGER NOT NULL, quota_after INTEGER NOT NULL, room_after INTEGER NOT NULL, lanes TEXT,
    PRIMARY KEY (run, number)
) WITHOUT ROWID, STRICT""",
    # checks holds (verdict, observed, limit) of each gate in order; the view `checks` names them.
    """CREATE TABLE decisions (
    run INTEGER NOT NULL, pass INTEGER NOT NULL, position INTEGER NOT NULL, request INTEGER NOT NULL,
    outcome INTEGER NOT NULL REFERENCES outcomes (id),
    gate INTEGER REFERENCES gates (id), reason INTEGER REFERENCES reasons (id),
    observed INTEGER, limit_value INTEGER, short_by INTEGER,
    prompt_tokens INTEGER NOT NULL, done_tokens INTEGER NOT NULL, device_hit_tokens INTEGER NOT NULL,
    extend_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
    host_hit INTEGER NOT NULL REFERENCES host_hits (id), resident_tokens INTEGER NOT NULL,
    matched_tokens INTEGER NOT NULL, asked_tokens INTEGER NOT NULL, evicted_tokens INTEGER NOT NULL,
    checks TEXT NOT NULL, checks_before_load_failure TEXT,
    PRIMARY KEY (run, pass, position),
    FOREIGN KEY (run, pass) REFERENCES passes (run, number),
    FOREIGN KEY (run, request) REFERENCES requests (run, number)
) WITHOUT ROWID, STRICT""",
    # A refusal that went on, cumulative since first_pass, which is written whole in `passes`.
    """CREATE TABLE repeats (
    run INTEGER NOT NULL REFERENCES runs (id), first_pass INTEGER NOT NULL, last_pass INTEGER NOT NULL,
    count INTEGER NOT NULL, first_ns INTEGER NOT NULL, last_ns INTEGER NOT NULL, request INTEGER NOT NULL,
    gate INTEGER NOT NULL REFERENCES gates (id), reason INTEGER NOT NULL REFERENCES reasons (id),
    observed_first INTEGER NOT NULL, observed_last INTEGER NOT NULL,
    observed_least INTEGER NOT NULL, observed_greatest INTEGER NOT NULL,
    limit_first INTEGER NOT NULL, limit_last INTEGER NOT NULL,
    limit_least INTEGER NOT NULL, limit_greatest INTEGER NOT NULL,
    queue INTEGER NOT NULL, not_reached INTEGER NOT NULL, revision INTEGER NOT NULL, ended INTEGER NOT NULL,
    PRIMARY KEY (run, first_pass),
    FOREIGN KEY (run, request) REFERENCES requests (run, number)
) WITHOUT ROWID, STRICT""",
    # pass is 0 for a stretch of decode steps.
    """CREATE TABLE steps (
    run INTEGER NOT NULL REFERENCES runs (id), pass INTEGER NOT NULL, start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL, first_tokens INTEGER NOT NULL,
    PRIMARY KEY (run, pass, start_ns)
) WITHOUT ROWID, STRICT""",
    # kind is `retract` or `preempt`; by_request is the request of higher priority.
    """CREATE TABLE retractions (
    run INTEGER NOT NULL, request INTEGER NOT NULL, at_ns INTEGER NOT NULL, kind TEXT NOT NULL,
    generated_tokens INTEGER, freed_tokens INTEGER, by_request INTEGER,
    PRIMARY KEY (run, request, at_ns, kind),
    FOREIGN KEY (run, request) REFERENCES requests (run, number)
) WITHOUT ROWID, STRICT""",
    """CREATE TABLE loads (
    run INTEGER NOT NULL, request INTEGER NOT NULL, at_ns INTEGER NOT NULL, tokens INTEGER NOT NULL,
    PRIMARY KEY (run, request, at_ns),
    FOREIGN KEY (run, request) REFERENCES requests (run, number)
) WITHOUT ROWID, STRICT""",
    """CREATE TABLE smoke (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs (id), at_ns INTEGER NOT NULL, device TEXT NOT NULL,
    asked_bytes INTEGER NOT NULL, reserved_bytes INTEGER NOT NULL, peak_bytes INTEGER NOT NULL,
    free_before_bytes INTEGER NOT NULL, passed INTEGER NOT NULL, why TEXT NOT NULL
) STRICT""",
    # What this store does not hold, and why. segment and byte_offset say where in the journal that was noticed.
    """CREATE TABLE losses (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs (id), reason TEXT NOT NULL,
    frames INTEGER NOT NULL, bytes INTEGER NOT NULL, first_ns INTEGER, last_ns INTEGER,
    segment INTEGER NOT NULL, byte_offset INTEGER NOT NULL, detail TEXT NOT NULL
) STRICT""",
    # How far the journal has been taken in. It moves in the transaction that writes the rows.
    """CREATE TABLE cursors (
    run INTEGER PRIMARY KEY REFERENCES runs (id), segment INTEGER NOT NULL, byte_offset INTEGER NOT NULL,
    seq INTEGER NOT NULL
) STRICT""",
)

INDEXES: Final = (
    # why: a request by its id, or by the beginning of one
    "CREATE INDEX requests_id ON requests (id)",
    # why: the pass that began at or before a moment; slowest-waits: the passes of a wait
    "CREATE INDEX passes_start ON passes (run, start_ns)",
    # stops
    "CREATE INDEX passes_closed ON passes (run, closed_gate, closed_reason)",
    # estimate-vs-smoke
    "CREATE INDEX passes_peak ON passes (run, peak_bytes) WHERE members > 0",
    # why: every look at one request
    "CREATE INDEX decisions_request ON decisions (run, request)",
    # host-hit-skips
    "CREATE INDEX decisions_skip ON decisions (run, host_hit, outcome, matched_tokens) WHERE host_hit BETWEEN 2 AND 7",
    # can-never
    "CREATE INDEX decisions_refused ON decisions (run) WHERE outcome = 4",
)
