"""What schema version 3 adds: the name of the request that was left for a knob change."""

from typing import Final

from store.views import with_iso

STATEMENTS: Final = ("ALTER TABLE knob_changes ADD COLUMN request TEXT NOT NULL DEFAULT ''",)

INDEXES: Final[tuple[str, ...]] = ()

_VIEWS: Final = {
    "v_knob_changes": """SELECT c.run, r.name AS run_name, iso(c.at_ns) AS at, c.at_ns, c.who, c.revision, c.knob,
    c.old, c.new, c.accepted, c.why, c.request
FROM knob_changes c JOIN runs r ON r.id = c.run""",
}

VIEWS: Final = {name: with_iso(sql) for name, sql in _VIEWS.items()}
"""Views of version 2 that show more."""
