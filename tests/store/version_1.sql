BEGIN TRANSACTION;
CREATE TABLE "_sqlite_migrations" (
   "id" INTEGER PRIMARY KEY,
   "migration_set" TEXT,
   "name" TEXT,
   "applied_at" TEXT
);
INSERT INTO "_sqlite_migrations" VALUES(1,'glassgate','0001_first','2026-11-29 23:33:22.426414+00:00');
CREATE TABLE cursors (
    run INTEGER PRIMARY KEY REFERENCES runs (id), segment INTEGER NOT NULL, byte_offset INTEGER NOT NULL,
    seq INTEGER NOT NULL
) STRICT;
INSERT INTO "cursors" VALUES(1,1,1523,6);
CREATE TABLE decisions (
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
) WITHOUT ROWID, STRICT;
INSERT INTO "decisions" VALUES(1,1,0,0,1,8,7,5056,2048,3008,5000,0,0,2048,16,8,0,0,0,0,'[3,1,0,0,1,2048,3,1,0,0,5080,1000000,3,2048,0,3,0,0,3,0,0,0,0,16384,0,5056,2048]',NULL);
INSERT INTO "decisions" VALUES(1,2,0,0,2,3,3,64,40,24,5000,2048,0,0,16,8,0,0,0,0,'[5,0,0,5,0,0,5,0,0,1,64,40,5,0,0,5,0,0,5,0,0,5,0,0,5,0,0]',NULL);
INSERT INTO "decisions" VALUES(1,7,0,0,1,8,7,3008,2048,960,5000,2048,0,2048,16,8,0,0,0,0,'[5,0,0,5,0,0,5,0,0,0,2048,100000,3,2048,0,5,0,0,3,0,0,0,0,16384,0,3008,2048]',NULL);
INSERT INTO "decisions" VALUES(1,8,0,0,0,NULL,NULL,NULL,NULL,NULL,5000,4096,0,904,16,8,0,0,0,0,'[5,0,0,5,0,0,5,0,0,0,960,100000,3,960,0,5,0,0,3,0,0,0,0,16384,0,960,2048]',NULL);
INSERT INTO "decisions" VALUES(1,8,1,1,0,NULL,NULL,NULL,NULL,NULL,500,0,0,244,16,1,256,256,256,0,'[3,2,0,0,2,2048,3,2,0,0,580,98960,3,1216,0,3,256,0,3,0,0,0,960,16384,0,1216,2048]',NULL);
INSERT INTO "decisions" VALUES(1,9,0,2,3,3,3,90,20,71,10,0,0,10,16,8,0,0,0,0,'[3,1,0,0,1,2048,3,1,0,1,90,20,5,0,0,5,0,0,5,0,0,5,0,0,5,0,0]',NULL);
CREATE TABLE gates (
    id INTEGER PRIMARY KEY, gate TEXT NOT NULL UNIQUE, unit TEXT NOT NULL, soft INTEGER NOT NULL
) STRICT;
INSERT INTO "gates" VALUES(0,'batch_mode','requests',0);
INSERT INTO "gates" VALUES(1,'request_slots','slots',0);
INSERT INTO "gates" VALUES(2,'request_count','requests',1);
INSERT INTO "gates" VALUES(3,'kv_capacity','tokens',0);
INSERT INTO "gates" VALUES(4,'extend_tokens','tokens',1);
INSERT INTO "gates" VALUES(5,'cached_tokens','tokens',1);
INSERT INTO "gates" VALUES(6,'buffer_bytes','bytes',1);
INSERT INTO "gates" VALUES(7,'input_tokens','tokens',0);
INSERT INTO "gates" VALUES(8,'chunk_tokens','tokens',0);
CREATE TABLE host_hits (id INTEGER PRIMARY KEY, host_hit TEXT NOT NULL UNIQUE, status TEXT NOT NULL) STRICT;
INSERT INTO "host_hits" VALUES(0,'planned','planned');
INSERT INTO "host_hits" VALUES(1,'loaded','loaded');
INSERT INTO "host_hits" VALUES(2,'below_threshold','skipped');
INSERT INTO "host_hits" VALUES(3,'quota','skipped');
INSERT INTO "host_hits" VALUES(4,'owner_lane','skipped');
INSERT INTO "host_hits" VALUES(5,'allocator','skipped');
INSERT INTO "host_hits" VALUES(6,'in_flight','skipped');
INSERT INTO "host_hits" VALUES(7,'disabled','skipped');
INSERT INTO "host_hits" VALUES(8,'none_resident','skipped');
CREATE TABLE knob_changes (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs (id), at_ns INTEGER NOT NULL, who TEXT NOT NULL,
    revision INTEGER NOT NULL, knob TEXT, old INTEGER, new INTEGER, accepted INTEGER NOT NULL, why TEXT NOT NULL
) STRICT;
CREATE TABLE knobs (
    run INTEGER NOT NULL REFERENCES runs (id), revision INTEGER NOT NULL, knob TEXT NOT NULL,
    at_ns INTEGER NOT NULL, unit TEXT NOT NULL, set_to INTEGER, effective INTEGER,
    state TEXT NOT NULL, why TEXT NOT NULL,
    PRIMARY KEY (run, revision, knob)
) WITHOUT ROWID, STRICT;
INSERT INTO "knobs" VALUES(1,0,'buffer_safety_percent',0,'percent',NULL,NULL,'off','the run''s own factor, 100 percent unless it says otherwise');
INSERT INTO "knobs" VALUES(1,0,'chunked_prefill_size',0,'tokens',2048,2048,'as set','');
INSERT INTO "knobs" VALUES(1,0,'enforce',0,'on/off',1,1,'as set','');
INSERT INTO "knobs" VALUES(1,0,'load_back_threshold',0,'tokens',10,10,'not binding','host hits come in pages of 64');
INSERT INTO "knobs" VALUES(1,0,'max_buffer_bytes',0,'bytes',NULL,NULL,'off','');
INSERT INTO "knobs" VALUES(1,0,'max_cached_tokens',0,'tokens',NULL,NULL,'off','');
INSERT INTO "knobs" VALUES(1,0,'max_extend_tokens',0,'tokens',NULL,NULL,'off','');
INSERT INTO "knobs" VALUES(1,0,'max_prefill_tokens',0,'tokens',16384,16384,'not binding','the chunk budget of 2048 is spent first');
INSERT INTO "knobs" VALUES(1,0,'max_requests',0,'requests',NULL,NULL,'off','');
INSERT INTO "knobs" VALUES(1,0,'page_size',0,'tokens',64,64,'as set','');
INSERT INTO "knobs" VALUES(1,0,'shared_kv_batching',0,'on/off',0,0,'as set','');
CREATE TABLE loads (
    run INTEGER NOT NULL, request INTEGER NOT NULL, at_ns INTEGER NOT NULL, tokens INTEGER NOT NULL,
    PRIMARY KEY (run, request, at_ns),
    FOREIGN KEY (run, request) REFERENCES requests (run, number)
) WITHOUT ROWID, STRICT;
CREATE TABLE losses (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs (id), reason TEXT NOT NULL,
    frames INTEGER NOT NULL, bytes INTEGER NOT NULL, first_ns INTEGER, last_ns INTEGER,
    segment INTEGER NOT NULL, byte_offset INTEGER NOT NULL, detail TEXT NOT NULL
) STRICT;
CREATE TABLE outcomes (id INTEGER PRIMARY KEY, outcome TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO "outcomes" VALUES(0,'admit');
INSERT INTO "outcomes" VALUES(1,'admit_chunk');
INSERT INTO "outcomes" VALUES(2,'park');
INSERT INTO "outcomes" VALUES(3,'wait');
INSERT INTO "outcomes" VALUES(4,'refuse');
CREATE TABLE passes (
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
) WITHOUT ROWID, STRICT;
INSERT INTO "passes" VALUES(1,1,2000000,1000,0,2,5500,1,1,1,2048,0,0,8,7,NULL,NULL,1000000,0,0,0,997888,997888,NULL);
INSERT INTO "passes" VALUES(1,2,10000000,1000,0,1,500,1,0,0,0,0,0,3,3,NULL,NULL,40,0,0,0,40,40,NULL);
INSERT INTO "passes" VALUES(1,7,70000000,1000,0,1,500,1,1,1,2048,0,0,8,7,NULL,NULL,100000,0,0,0,97888,97888,NULL);
INSERT INTO "passes" VALUES(1,8,80000000,1000,0,1,500,0,2,0,1148,0,256,NULL,NULL,NULL,NULL,100000,0,0,0,98400,98368,NULL);
INSERT INTO "passes" VALUES(1,9,102000000,1000,0,1,10,0,0,0,0,0,0,3,3,NULL,NULL,20,0,0,0,20,20,NULL);
CREATE TABLE reasons (id INTEGER PRIMARY KEY, reason TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO "reasons" VALUES(0,'single_request');
INSERT INTO "reasons" VALUES(1,'slots');
INSERT INTO "reasons" VALUES(2,'limit');
INSERT INTO "reasons" VALUES(3,'pool');
INSERT INTO "reasons" VALUES(4,'lane');
INSERT INTO "reasons" VALUES(5,'can_never');
INSERT INTO "reasons" VALUES(6,'chunk_budget');
INSERT INTO "reasons" VALUES(7,'budget');
INSERT INTO "reasons" VALUES(8,'second_chunk');
CREATE TABLE repeats (
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
) WITHOUT ROWID, STRICT;
INSERT INTO "repeats" VALUES(1,2,6,4,20000000,50000000,0,3,3,64,64,64,64,40,40,40,40,1,1,0,1);
CREATE TABLE requests (
    run INTEGER NOT NULL REFERENCES runs (id), number INTEGER NOT NULL,
    id TEXT, arrival_ns INTEGER, prompt_tokens INTEGER, output_tokens INTEGER,
    first_pass INTEGER, first_look_ns INTEGER,
    admit_pass INTEGER, admit_ns INTEGER, device_hit_tokens INTEGER, host_loaded_tokens INTEGER,
    first_token_ns INTEGER, end_ns INTEGER, ended TEXT, why TEXT, generated_tokens INTEGER,
    retractions INTEGER NOT NULL DEFAULT 0, traceparent TEXT,
    wait_ns INTEGER GENERATED ALWAYS AS (coalesce(admit_ns, end_ns) - arrival_ns) VIRTUAL,
    PRIMARY KEY (run, number)
) WITHOUT ROWID, STRICT;
INSERT INTO "requests" VALUES(1,0,'a',0,5000,16,1,2000000,1,2000000,0,0,90000000,100000000,'finish',NULL,16,0,NULL);
INSERT INTO "requests" VALUES(1,1,'b',1000000,500,16,8,80000000,8,80000000,0,256,NULL,NULL,NULL,NULL,NULL,0,NULL);
INSERT INTO "requests" VALUES(1,2,'c',101000000,10,16,9,102000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL);
CREATE TABLE retractions (
    run INTEGER NOT NULL, request INTEGER NOT NULL, at_ns INTEGER NOT NULL, kind TEXT NOT NULL,
    generated_tokens INTEGER, freed_tokens INTEGER, by_request INTEGER,
    PRIMARY KEY (run, request, at_ns, kind),
    FOREIGN KEY (run, request) REFERENCES requests (run, number)
) WITHOUT ROWID, STRICT;
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, rank INTEGER NOT NULL,
    engine TEXT, version TEXT, model TEXT, rank_group TEXT, simulated INTEGER, start_ns INTEGER, wall_ns INTEGER,
    pool_tokens INTEGER, host_tokens INTEGER, slots INTEGER, largest_prompt_tokens INTEGER,
    setting TEXT, context TEXT,
    end_ns INTEGER, end_reason TEXT, passes INTEGER, requests INTEGER,
    last_ns INTEGER NOT NULL DEFAULT 0,
    UNIQUE (name, rank)
) STRICT;
INSERT INTO "runs" VALUES(1,'run-1',0,'test','1','','',0,0,1700000000000000000,1000000,0,2048,999934,'{"lanes":1}','',110000000,'finished',9,3,110000000);
CREATE TABLE smoke (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs (id), at_ns INTEGER NOT NULL, device TEXT NOT NULL,
    asked_bytes INTEGER NOT NULL, reserved_bytes INTEGER NOT NULL, peak_bytes INTEGER NOT NULL,
    free_before_bytes INTEGER NOT NULL, passed INTEGER NOT NULL, why TEXT NOT NULL
) STRICT;
CREATE TABLE steps (
    run INTEGER NOT NULL REFERENCES runs (id), pass INTEGER NOT NULL, start_ns INTEGER NOT NULL,
    end_ns INTEGER NOT NULL, first_tokens INTEGER NOT NULL,
    PRIMARY KEY (run, pass, start_ns)
) WITHOUT ROWID, STRICT;
INSERT INTO "steps" VALUES(1,8,89000000,90000000,1);
CREATE TABLE verdicts (id INTEGER PRIMARY KEY, verdict TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO "verdicts" VALUES(0,'pass');
INSERT INTO "verdicts" VALUES(1,'refuse');
INSERT INTO "verdicts" VALUES(2,'exempt');
INSERT INTO "verdicts" VALUES(3,'off');
INSERT INTO "verdicts" VALUES(4,'would_refuse');
INSERT INTO "verdicts" VALUES(5,'not_evaluated');
CREATE UNIQUE INDEX "idx__sqlite_migrations_migration_set_name"
    ON "_sqlite_migrations" ("migration_set", "name");
CREATE INDEX requests_id ON requests (id);
CREATE INDEX passes_start ON passes (run, start_ns);
CREATE INDEX passes_closed ON passes (run, closed_gate, closed_reason);
CREATE INDEX passes_peak ON passes (run, peak_bytes) WHERE members > 0;
CREATE INDEX decisions_request ON decisions (run, request);
CREATE INDEX decisions_skip ON decisions (run, host_hit, outcome, matched_tokens) WHERE host_hit BETWEEN 2 AND 7;
CREATE INDEX decisions_refused ON decisions (run) WHERE outcome = 4;
CREATE VIEW "v_runs" AS SELECT r.*, strftime('%Y-%m-%dT%H:%M:%fZ', (r.wall_ns - r.start_ns + r.start_ns) / 1e9, 'unixepoch') AS started, strftime('%Y-%m-%dT%H:%M:%fZ', (r.wall_ns - r.start_ns + r.end_ns) / 1e9, 'unixepoch') AS ended FROM runs r;
CREATE VIEW "v_requests" AS SELECT q.run, r.name AS run_name, q.number, q.id, strftime('%Y-%m-%dT%H:%M:%fZ', (r.wall_ns - r.start_ns + q.arrival_ns) / 1e9, 'unixepoch') AS arrived,
    q.arrival_ns, q.prompt_tokens, q.output_tokens, q.first_pass, q.first_look_ns, q.admit_pass, q.admit_ns, q.wait_ns,
    q.device_hit_tokens, q.host_loaded_tokens, q.device_hit_tokens + q.host_loaded_tokens AS cached_tokens,
    q.first_token_ns, q.first_token_ns - q.arrival_ns AS ttft_ns, q.end_ns, q.ended, q.why, q.generated_tokens,
    q.retractions, q.traceparent
FROM requests q JOIN runs r ON r.id = q.run;
CREATE VIEW "v_passes" AS SELECT p.run, r.name AS run_name, p.number, strftime('%Y-%m-%dT%H:%M:%fZ', (r.wall_ns - r.start_ns + p.start_ns) / 1e9, 'unixepoch') AS at, p.start_ns,
    p.decide_ns, p.revision, p.queue, p.queued_tokens, p.not_reached, p.members, p.cut, p.extend_tokens,
    p.device_hit_tokens + p.host_loaded_tokens AS cached_tokens, p.device_hit_tokens, p.host_loaded_tokens,
    g.gate AS closed_gate, e.reason AS closed_reason, p.peak_bytes, p.parts,
    p.free_tokens, p.evictable_tokens, p.reserved_tokens, p.running, p.quota_after, p.room_after, p.lanes,
    coalesce(t.count, 0) AS repeats, t.last_pass, t.last_ns
FROM passes p JOIN runs r ON r.id = p.run
LEFT JOIN gates g ON g.id = p.closed_gate LEFT JOIN reasons e ON e.id = p.closed_reason
LEFT JOIN repeats t ON t.run = p.run AND t.first_pass = p.number;
CREATE VIEW "v_decisions" AS SELECT d.run, r.name AS run_name, d.pass, d.position,
    strftime('%Y-%m-%dT%H:%M:%fZ', (r.wall_ns - r.start_ns + p.start_ns) / 1e9, 'unixepoch') AS at, p.start_ns, d.request, q.id AS request_id, o.outcome,
    g.gate, e.reason, d.observed, d.limit_value, d.short_by,
    CASE e.reason WHEN 'lane' THEN 'pages' ELSE g.unit END AS unit,
    d.prompt_tokens, d.done_tokens, d.device_hit_tokens, d.extend_tokens, d.output_tokens,
    h.host_hit, h.status AS host_status, d.resident_tokens, d.matched_tokens, d.asked_tokens,
    CASE h.host_hit WHEN 'loaded' THEN d.asked_tokens ELSE 0 END AS host_loaded_tokens, d.evicted_tokens,
    d.checks, d.checks_before_load_failure
FROM decisions d JOIN runs r ON r.id = d.run JOIN passes p ON p.run = d.run AND p.number = d.pass
JOIN requests q ON q.run = d.run AND q.number = d.request
JOIN outcomes o ON o.id = d.outcome JOIN host_hits h ON h.id = d.host_hit
LEFT JOIN gates g ON g.id = d.gate LEFT JOIN reasons e ON e.id = d.reason;
CREATE VIEW "v_repeats" AS SELECT t.run, r.name AS run_name, t.first_pass, t.last_pass, t.count, t.request,
    q.id AS request_id, strftime('%Y-%m-%dT%H:%M:%fZ', (r.wall_ns - r.start_ns + t.first_ns) / 1e9, 'unixepoch') AS first_at, strftime('%Y-%m-%dT%H:%M:%fZ', (r.wall_ns - r.start_ns + t.last_ns) / 1e9, 'unixepoch') AS last_at, t.first_ns, t.last_ns,
    g.gate, e.reason, t.observed_first, t.observed_last, t.observed_least, t.observed_greatest,
    t.limit_first, t.limit_last, t.limit_least, t.limit_greatest, t.queue, t.not_reached, t.revision, t.ended
FROM repeats t JOIN runs r ON r.id = t.run JOIN requests q ON q.run = t.run AND q.number = t.request
JOIN gates g ON g.id = t.gate JOIN reasons e ON e.id = t.reason;
CREATE VIEW "members" AS SELECT d.run, d.pass, d.position, d.request, q.id AS request_id, o.outcome, d.extend_tokens,
    d.device_hit_tokens, CASE d.host_hit WHEN 1 THEN d.asked_tokens ELSE 0 END AS host_loaded_tokens, d.done_tokens,
    d.prompt_tokens
FROM decisions d JOIN requests q ON q.run = d.run AND q.number = d.request JOIN outcomes o ON o.id = d.outcome
WHERE d.outcome IN (0, 1);
CREATE VIEW "checks" AS SELECT d.run, d.pass, d.position, d.request, g.id AS gate_number, g.gate, v.verdict,
    json_extract(d.checks, '$[' || (3 * g.id + 1) || ']') AS observed,
    CASE WHEN v.verdict IN ('off', 'not_evaluated') THEN NULL
         ELSE json_extract(d.checks, '$[' || (3 * g.id + 2) || ']') END AS limit_value
FROM decisions d CROSS JOIN gates g JOIN verdicts v ON v.id = json_extract(d.checks, '$[' || (3 * g.id) || ']');
COMMIT;
PRAGMA application_id = 1196181331;
PRAGMA user_version = 1;
