"""`glassgate db`: the database itself: is it sound, what is in it, what is too old, what others may read."""

from pathlib import Path

import click

from estimator.errors import RecordError
from store.check import check as check_database
from store.check import stats as stats_of
from store.database import open_for_writing, reading
from store.export import FORMATS
from store.export import export as export_tables
from store.pruning import Pruned
from store.pruning import prune as prune_database
from store.retention import DEFAULT_MAX_BYTES
from store.words import counted, size
from ui.options import Bytes, Finite, json_option, record_options
from ui.output import narrate, print_json, print_table
from ui.record import find_record


@click.group()
def db() -> None:
    """Look after a database: check it, see what is in it, prune it, export it.

    Each command is about the newest run's database unless --run or --database names another.
    """


@db.command()
@click.option("--carry-forward", is_flag=True, help="First bring a database of an older version to this one's schema.")
@record_options
@json_option
def check(*, carry_forward: bool, database: Path | None, run: str | None, as_json: bool) -> None:
    """Is the database sound? Integrity, foreign keys, schema version, size, length of its write-ahead log.

    Reads all of it. Ends with exit code 5 if anything is wrong.
    """
    if carry_forward and database is not None:
        if not database.is_file():
            raise RecordError(f"no database at {database}; name one that is there")
        open_for_writing(database).close()
    with find_record(database, run) as record:
        path = record.database
        found = check_database(path)
    if as_json:
        print_json([finding._asdict() for finding in found])
    else:
        print_table(("what", "", "found"), [(each.what, "ok" if each.sound else "wrong", each.found) for each in found])
    wrong = [each for each in found if not each.sound]
    if wrong:
        raise RecordError(
            f"database {path} is not sound: {', '.join(each.what for each in wrong)}; restore it, or collect its "
            "runs into another file"
        )


@db.command()
@record_options
@json_option
def stats(*, database: Path | None, run: str | None, as_json: bool) -> None:
    """What is in the database: rows and bytes by table, and what a decision takes on disk, everything included."""
    with find_record(database, run) as record:
        held = stats_of(record.database)
    if as_json:
        print_json({**held._asdict(), "tables": [each._asdict() for each in held.tables]})
        return
    print_table(
        ("table", "rows", "bytes", "bytes of indexes"),
        [(each.table, each.rows, _size(each.table_bytes), _size(each.index_bytes)) for each in held.tables],
    )
    a_decision = "" if held.bytes_a_decision is None else f", {held.bytes_a_decision:,.0f} bytes a decision"
    narrate(
        f"{size(held.file_bytes)}, of which {size(held.free_bytes)} free; write-ahead log {size(held.wal_bytes)}"
        + a_decision
    )


@db.command()
@click.option("--keep-days", type=Finite(min=0, max=36_500), metavar="N", help="Drop what is older than N days.")
@click.option(
    "--max-size", type=Bytes(), metavar="SIZE",
    help=f"Then drop the oldest until the database is smaller [recording keeps it below {size(DEFAULT_MAX_BYTES)}].",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would be dropped, and drop nothing.")
@record_options
@json_option
def prune(
    *,
    keep_days: float | None,
    max_size: int | None,
    dry_run: bool,
    database: Path | None,
    run: str | None,
    as_json: bool,
) -> None:
    """Drop old runs, and old passes of runs that go on, and give the room back.

    `glassgate query pruned` lists what went, when and why; `glassgate why` says so of a request that is gone.
    """
    with find_record(database, run) as record:
        with reading(record.database):
            pass  # a file that is not there, or not ours, is not made one
        done = prune_database(record.database, keep_days=keep_days, max_bytes=max_size, dry_run=dry_run)
    if as_json:
        print_json({**done._asdict(), "dry_run": dry_run, "dropped": [each._asdict() for each in done.dropped]})
    elif done.dropped:
        print_table(
            ("run", "rank", "dropped", "passes", "decisions", "requests", "why"),
            [
                (each.run, each.rank, _what(each), each.passes, each.decisions, each.requests, each.why)
                for each in done.dropped
            ],
        )
    would = "would go" if dry_run else "went"
    after = f"about {size(max(0, done.bytes_after))} would be left" if dry_run else f"{size(done.bytes_after)} are left"
    narrate(f"{counted(len(done.dropped), 'thing')} {would}; of {size(done.bytes_before)} in use {after}")
    if not dry_run and max_size is not None and done.bytes_after > max_size:
        narrate(
            f"that is above {size(max_size)}: what is newest in each run, and what tells of the pruned, always stays"
        )


@db.command()
@click.option("--format", "form", type=click.Choice(FORMATS), default="parquet", show_default=True, help="File format.")
@click.option(
    "--into", "folder", type=click.Path(path_type=Path), required=True, metavar="FOLDER", help="Where the files go."
)
@record_options
@json_option
def export(*, form: str, folder: Path, database: Path | None, run: str | None, as_json: bool) -> None:
    """Write every table as a file of its own, for a fleet's tools; with --run what belongs to that run alone.

    Parquet needs the extra `export`; CSV needs nothing.
    """
    with find_record(database, run) as record:
        files = export_tables(record.database, folder, form=form, run=None if run is None else record.run)
    if as_json:
        print_json([each._asdict() for each in files])
    else:
        print_table(("table", "rows", "file"), [(each.table, each.rows, str(each.file)) for each in files])


def _size(number: int | None) -> str | None:
    return None if number is None else size(number)


def _what(pruned: Pruned) -> str:
    return "the whole run" if pruned.whole else f"passes {pruned.first_pass:,} to {pruned.last_pass:,}"
