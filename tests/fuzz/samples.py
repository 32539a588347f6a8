"""The room that targets work in: a finished run of the embedded engine, collected, and a trace exported from it."""

import os
from pathlib import Path

from target import Room

from controller.run_directory import RunDirectory
from store.collect import collect_run
from ui.whatif.recorded import read_recorded
from ui.whatif.span import read_span
from ui.whatif.steps import steps_of
from ui.whatif.trace import trace_lines

SESSIONS = 6


def make_room(folder: Path) -> Room:
    """A room in a folder. GLASSGATE_HOME names it from then on."""
    from ui.cli import cli  # noqa: PLC0415 - a command brings all of the program

    os.environ["GLASSGATE_HOME"] = home = str(folder / "home")
    cli.main(["replay", "--sessions", str(SESSIONS), "--json"], standalone_mode=False)
    run = next(path for path in (Path(home) / "runs").iterdir() if path.is_dir())
    database = folder / "sample.db"
    collect_run(RunDirectory(run), database)
    recorded = read_recorded(database, None)
    steps = steps_of(recorded, None)
    with (folder / "exported.jsonl").open("wb") as file:
        file.writelines(
            trace_lines(recorded, read_span(recorded), steps.model, ids=True, new_token_ratio=steps.new_token_ratio)
        )
    return Room(folder, run, database)
