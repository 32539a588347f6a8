"""What schema version 3 adds: who asked for a knob change and by which request, ranks compared by digest, indexes."""

from typing import Final

from store.views import with_iso

STATEMENTS: Final = (
    "ALTER TABLE knob_changes ADD COLUMN request TEXT NOT NULL DEFAULT ''",
    # What the record can be replayed from, content aside: which earlier request a prompt agrees with, and how far.
    "ALTER TABLE requests ADD COLUMN like_request INTEGER",
    "ALTER TABLE requests ADD COLUMN shared_tokens INTEGER",
    "ALTER TABLE requests ADD COLUMN known_tokens INTEGER",
    "ALTER TABLE requests ADD COLUMN ignore_eos INTEGER",
)

TABLES: Final = (
    # What one rank decided in one pass, until it is compared. A pass that repeated a refusal has no row.
    """CREATE TABLE digests (
    run INTEGER NOT NULL REFERENCES runs (id), pass INTEGER NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (run, pass)
) WITHOUT ROWID, STRICT""",
    # The last pass a rank is known to have made, and the last compared with the first rank's.
    """CREATE TABLE rank_marks (
    run INTEGER PRIMARY KEY REFERENCES runs (id), seen INTEGER NOT NULL, compared INTEGER NOT NULL
) STRICT""",
    # A digest is null where that rank's pass repeated a refusal.
    """CREATE TABLE rank_differences (
    run INTEGER NOT NULL REFERENCES runs (id), other INTEGER NOT NULL REFERENCES runs (id), pass INTEGER NOT NULL,
    digest TEXT, other_digest TEXT,
    PRIMARY KEY (run, other, pass)
) WITHOUT ROWID, STRICT""",
)

INDEXES: Final = (
    # screen: who gave their KV back last, in its waiting room and its log
    "CREATE INDEX retractions_at ON retractions (run, at_ns)",
    # screen: the requests that were aborted last, in its log
    "CREATE INDEX requests_aborted ON requests (run, end_ns) WHERE ended = 'abort'",
    # screen: the alarms that stand, however many came after them
    "CREATE INDEX alarms_open ON alarms (run, number) WHERE closed_ns IS NULL",
)

_VIEWS: Final = {
    "v_knob_changes": """SELECT c.run, r.name AS run_name, iso(c.at_ns) AS at, c.at_ns, c.who, c.revision, c.knob,
    c.old, c.new, c.accepted, c.why, c.request
FROM knob_changes c JOIN runs r ON r.id = c.run""",
}

VIEWS: Final = {name: with_iso(sql) for name, sql in _VIEWS.items()}
"""Views of version 2 that show more."""
