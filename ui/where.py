"""Where a run's database is."""

from pathlib import Path

from controller.run_directory import DATABASE, RunDirectory


def database_of(run: RunDirectory) -> Path:
    """The database a run is collected into. Raises RecordError for a run whose run.json cannot be read."""
    named = run.info.context.get("database")
    return Path(named) if isinstance(named, str) else run.path / DATABASE
