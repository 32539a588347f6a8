"""Keeping a what-if: the span under other knobs as a run of its own, to be looked into like any other."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from controller.engines.replay import open_trace
from controller.run_directory import RunDirectory
from ui.as_exported import all_exported
from ui.replaying import replay
from ui.whatif.recorded import Recorded
from ui.whatif.span import Span
from ui.whatif.steps import Steps
from ui.whatif.trace import trace_lines


def keep(recorded: Recorded, span: Span, steps: Steps, changes: Mapping[str, Any], base: Path | None) -> RunDirectory:
    """Replay a span with knobs set anew, warm-up included, and keep its record under `base`; the new run's folder.

    Raises what a replay raises.
    """
    lines = trace_lines(
        recorded, span, steps.model, ids=True, new_token_ratio=steps.new_token_ratio, changes=changes
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="glassgate-") as folder:
        path = Path(folder) / f"what if {recorded.name}"
        with path.open("wb") as file:
            file.writelines(lines)
        workload = open_trace(path)
        exported = workload.exported
        assert exported is not None, "a trace of ours says how it is served"  # noqa: S101 - written just above
        return replay(workload, all_exported(exported, base=base)).run
