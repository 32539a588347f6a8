"""What schema version 4 changes: the index of skipped host hits holds every cause, those of engines too."""

from typing import Final

DROPPED: Final = ("decisions_skip",)
"""An index of version 1 that ended at the causes of a replay."""

INDEXES: Final = (
    # host-hit-skips
    "CREATE INDEX decisions_skip ON decisions (run, host_hit, outcome, matched_tokens) WHERE matched_tokens > 0",
)
