"""`glassgate knobs`: the knobs of a run, and turning them while it is live."""

import datetime as dt
from typing import Any

import click

from controller.knobs import SPEC_BY_NAME, Knobs
from controller.records import KnobChange, KnobsInForce
from controller.run_directory import RunDirectory
from estimator.errors import GlassgateError, KnobError, RecordError, StorageError, UsageError
from store.knob_state import KnobsOfRun, KnobState, knobs_of
from ui.options import Finite, json_option
from ui.output import cell, knob_value, narrate, print_json, print_table
from ui.record import find_record
from ui.saving import overruled, save_knobs
from ui.settings import load_settings
from ui.turning import WAIT_SECONDS, Turned, default_who, find_live_run, find_run, turn


@click.group()
def knobs() -> None:
    """Look at the knobs of a run, and turn them while it is live.

    RUN is an id, the beginning of one, or a run's folder.
    """


@knobs.command()
@click.argument("run", required=False)
@json_option
def get(*, run: str | None, as_json: bool) -> None:
    """Every knob of a run: as it is set, what is in force and why, what it bounds, when and by whom it was changed.

    RUN is by default the live run begun last, or the run begun last where none is live.
    """
    found = find_run(run, load_settings().runs)
    state = found.state
    if run is None:
        narrate(f"run {found.path.name}, {state}")
    held = _held(found)
    if as_json:
        print_json(
            {
                "run": found.path.name,
                "state": state,
                "revision": held.revision,
                "knobs": [_as_dict(each) for each in held.knobs],
            }
        )
        return
    rows = [
        (
            each.name, knob_value(each.set_to), knob_value(each.effective), each.unit, each.state, each.why,
            _time(each.changed_wall_ns), each.changed_by, SPEC_BY_NAME[each.name].bounds,
        )
        for each in held.knobs
    ]  # fmt: skip
    columns = ("knob", "set", "in force", "unit", "state", "why", "changed", "by", "bounds")
    print_table(columns, rows, title=f"Knobs of run {found.path.name}, revision {cell(held.revision)}")


@knobs.command(name="set")
@click.argument("words", nargs=-1, required=True, metavar="[RUN] NAME=VALUE...")
@click.option("--save", is_flag=True, help="Once accepted, also write the values to the configuration file in force.")
@click.option(
    "--wait",
    type=Finite(min=0, max=3600),
    default=WAIT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long an answer is waited for; a request nobody took by then is withdrawn.",
)
@click.option(
    "--expect-revision", type=click.IntRange(min=0), metavar="N", help="Refuse unless this revision is in force."
)
@click.option("--who", metavar="NAME", help="Who asks, for the record [default: user@machine].")
@json_option
def set_knobs(
    *, words: tuple[str, ...], save: bool, wait: float, expect_revision: int | None, who: str | None, as_json: bool
) -> None:
    """Change knobs of a live run: all changes of one command come into force together, at a pass boundary.

    Values are written as everywhere: 65536, 65_536, 4GiB, on, off (unlimited for a limit). RUN may be left out while
    one run alone is live. A change lasts as long as the run unless --save is given. Ends with exit code 3 when the run
    refuses, 7 when there is no such live run, 10 when no answer comes in time.
    """
    name, changes = _read(words)
    Knobs.parse(changes)  # a value no knob can have is told before a run is looked for
    run = find_live_run(name, load_settings().runs)
    if name is None:
        narrate(f"run {run.path.name}")
    before = _before(run)
    turned = turn(run, changes, who or default_who(), seconds=wait, expect_revision=expect_revision)
    saved, problem = None, None
    if save and turned.change.accepted:
        try:
            saved = save_knobs(changes)
        except GlassgateError as error:
            problem = error
    told = told_changes(turned, before)
    if as_json:
        print_json(
            {
                "run": run.path.name,
                "request": turned.change.request,
                "who": turned.change.who,
                "accepted": turned.change.accepted,
                "revision": turned.change.revision,
                "why": turned.change.why,
                "changes": told,
                "saved": None if saved is None else str(saved),
            }
        )
    elif turned.change.accepted:
        _print_change(run, turned.change, told)
    if not turned.change.accepted:
        raise KnobError(f"run {run.path.name} refused: {turned.change.why}")
    if problem is not None:
        raise type(problem)(f"the change is in force in run {run.path.name}, but was not saved: {problem}")
    if saved is not None:
        narrate(f"saved in {saved}")
        for variable in overruled(changes):
            narrate(f"warning: {variable} is set and goes before the file")


def _read(words: tuple[str, ...]) -> tuple[str | None, dict[str, str]]:
    """The run, if one is named, and the changes. Raises UsageError for words that are neither."""
    named = [] if "=" in words[0] else [words[0]]
    changes: dict[str, str] = {}
    for word in words[len(named) :]:
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"{word!r} is no change; write NAME=VALUE, for instance max_requests=8")
        key = name.strip().replace("-", "_")
        if key in changes:
            raise UsageError(f"{key} is given twice; give it once")
        changes[key] = value
    if not changes:
        raise UsageError(f"no change is given for run {named[0]!r}; write NAME=VALUE, for instance max_requests=8")
    return (named[0] if named else None), changes


def _held(run: RunDirectory) -> KnobsOfRun:
    """The knobs of a run from its record. Raises as `find_record` does."""
    with find_record(None, str(run.path)) as record:
        return knobs_of(record.database, record.run, run.journal)


def _before(run: RunDirectory) -> dict[str, KnobState]:
    """The knobs before a change; empty where the record cannot be read, which is no reason not to change them."""
    try:
        return {each.name: each for each in _held(run).knobs}
    except (RecordError, StorageError) as error:
        narrate(f"what was in force before is not shown: {error}")
        return {}


def told_changes(turned: Turned, before: dict[str, KnobState]) -> list[dict[str, Any]]:
    """Each change with what was in force after it, and before it where that is known."""
    after, since = _rows(turned.in_force), _rows(turned.before)
    told = []
    for name, old, new in turned.change.changes:
        was = before.get(name)
        first: dict[str, Any] = {"set_to": old}
        if name in since:
            first["effective"] = since[name][3]
        elif was is not None and was.set_to == old:
            first["effective"] = was.effective
        _, unit, _, effective, state, why = after.get(name, (name, SPEC_BY_NAME[name].unit, None, None, "", ""))
        told.append(
            {
                "knob": name,
                "unit": unit,
                "before": first,
                "after": {"set_to": new, "effective": effective, "state": state, "why": why},
            }
        )
    return told


def _rows(in_force: KnobsInForce | None) -> dict[str, tuple[str, str, Any, Any, str, str]]:
    return {} if in_force is None else {row[0]: row for row in in_force.knobs}


def _print_change(run: RunDirectory, change: KnobChange, told: list[dict[str, Any]]) -> None:
    rows = [
        (
            each["knob"], knob_value(each["before"]["set_to"]), knob_value(each["after"]["set_to"]),
            knob_value(each["before"]["effective"]) if "effective" in each["before"] else "-",
            knob_value(each["after"]["effective"]), each["unit"],
            each["after"]["state"], each["after"]["why"],
        )
        for each in told
    ]  # fmt: skip
    columns = ("knob", "set before", "set", "in force before", "in force", "unit", "state", "why")
    print_table(columns, rows, title=f"Run {run.path.name}, revision {change.revision}, by {change.who}")


def _as_dict(state: KnobState) -> dict[str, Any]:
    spec = SPEC_BY_NAME[state.name]
    return {
        "name": state.name,
        "unit": state.unit,
        "set_to": state.set_to,
        "effective": state.effective,
        "state": state.state,
        "why": state.why,
        "gate": spec.gate or None,
        "bounds": spec.bounds,
        "changed": _time(state.changed_wall_ns),
        "changed_by": state.changed_by,
    }


def _time(wall_ns: int | None) -> str | None:
    if wall_ns is None:
        return None
    return dt.datetime.fromtimestamp(wall_ns / 1e9, tz=dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
