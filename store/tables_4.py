"""What schema version 4 changes: every cause of a skipped host hit is indexed, decisions have their gate's unit."""

from typing import Final

from store import views

DROPPED: Final = ("decisions_skip",)
"""An index of version 1 that ended at the causes of a replay."""

INDEXES: Final = (
    # host-hit-skips
    "CREATE INDEX decisions_skip ON decisions (run, host_hit, outcome, matched_tokens) WHERE matched_tokens > 0",
)

_ONCE: Final = "CASE e.reason WHEN 'lane' THEN 'pages' ELSE g.unit END"
_UNIT: Final = """CASE WHEN e.reason = 'lane' THEN 'pages' WHEN g.gate <> 'batch_full' THEN g.unit
         WHEN e.reason = 'slots' THEN 'slots' WHEN e.reason = 'pool' THEN 'tokens' ELSE g.unit END"""

VIEWS: Final = {"v_decisions": views.VIEWS["v_decisions"].replace(_ONCE, _UNIT)}
"""A view of version 1 whose units were not those of `controller.vocabulary.unit_of` for an engine's own gates."""
