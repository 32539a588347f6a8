"""Recorded: what a database says of a run that is needed to replay it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.engines.replay import DEFAULT_NEW_TOKEN_RATIO
from controller.engines.replay.step_time import StepTimeModel
from controller.knobs import Knobs, stored_value
from controller.limits import Setting
from estimator.batch import BatchEstimator
from estimator.context import RunContext
from estimator.errors import GlassgateError, NotFoundError, RecordError
from estimator.geometry import Geometry
from store.database import reading
from store.runs import find_run, stored_runs

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from controller.engines.replay import Role, WritePolicy
    from store.runs import StoredRun

_RUN: Final = """SELECT engine, version, model, simulated, pool_tokens, host_tokens, slots, setting, context
FROM runs WHERE id = ?"""
_KNOBS: Final = "SELECT revision, at_ns, knob, set_to FROM knobs WHERE run = ? ORDER BY revision"
_FIRST: Final = "SELECT revision, min(number) FROM passes WHERE run = ? GROUP BY revision"
_PRUNED: Final = "SELECT max(last_ns) FROM pruned WHERE run = ?"
_SMOKE: Final = "SELECT min(CASE WHEN passed THEN peak_bytes END) FROM smoke WHERE run = ?"
_LOST: Final = "SELECT coalesce(sum(frames), 0) FROM losses WHERE run = ?"


class Revision(NamedTuple):
    """One revision of a run's knobs."""

    at_ns: int
    first_pass: int
    """The first pass decided under it; 0 where none was."""
    knobs: Knobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One rank of a run as its record describes it. Times are ns of the run's clock, sizes tokens unless said."""

    database: Path
    id: int
    """The number by which the database knows it."""
    name: str
    rank: int
    ranks: tuple[int, ...]
    """Those of the run that the database holds."""
    engine: str
    version: str
    model: str
    simulated: bool
    start_ns: int
    last_ns: int
    """The latest time any record carries."""
    wall_ns: int | None
    """Unix time of `start_ns`."""
    pool_tokens: int
    host_tokens: int
    setting: Setting
    words: dict[str, Any]
    """How the engine runs, as it was recorded; a replay says here how it serves."""
    context: str
    revisions: tuple[Revision, ...]
    pruned_ns: int | None
    """What began up to then was pruned; None where nothing was."""
    smoke_bytes: int | None
    """What the start-up allocation reached; None without one that passed."""
    lost_frames: int

    @property
    def role(self) -> Role:
        """Whether it decodes or hands over; an engine that does not say so does both."""
        return "prefill" if self.words.get("role") == "prefill" else "unified"

    @property
    def write_policy(self) -> WritePolicy:
        """When KV is copied to the host."""
        return "write_back" if self.words.get("write_policy") == "write_back" else "write_through"

    @property
    def new_token_ratio(self) -> float:
        """The part of its remaining output that a running request holds back; a replay's default where nothing says."""
        return float(self.words.get("new_token_ratio", DEFAULT_NEW_TOKEN_RATIO))

    @property
    def stretch_ns(self) -> int | None:
        """The bound on decode steps taken in one piece; None for none."""
        return self.words.get("stretch_ns")

    @property
    def step_time(self) -> StepTimeModel | None:
        """The step-time model of a replayed run; None for an engine, whose steps were measured."""
        text = self.words.get("step_time")
        return StepTimeModel(**json.loads(text)) if isinstance(text, str) else None

    def estimator(self, page_size: int | None = None) -> BatchEstimator | None:
        """The estimator of the recorded model in the recorded run; None where the record does not describe it.

        `page_size` is that of a replay with other pages, in tokens.
        """
        shape = self.words.get("geometry")
        if not isinstance(shape, str) or not self.context:
            return None
        geometry = Geometry(**json.loads(shape))
        run = json.loads(self.context)
        if page_size is not None:
            run["page_size"] = page_size
        return BatchEstimator(geometry, RunContext.from_run(run, geometry))


def read_recorded(database: Path, run: str | None = None, rank: int | None = None) -> Recorded:
    """A run as its record describes it: the one with that id or beginning of one, or the one begun last.

    Its lowest rank, unless one is named. Raises NotFoundError for an unknown run or rank, UsageError where a beginning
    fits several, RecordError for a database that is not ours or newer, or a run whose start is not in it.
    """
    with reading(database) as connection:
        found = find_run(connection, run)
        if rank is not None and rank != found.rank:
            found = _of_rank(connection, found, rank)
        try:
            return _read(connection, database, found)
        except (ValueError, TypeError) as error:
            raise RecordError(f"run {found.name}: how it ran cannot be read from the record: {error}") from None


def _of_rank(connection: sqlite3.Connection, run: StoredRun, rank: int) -> StoredRun:
    for each in stored_runs(connection):
        if (each.name, each.rank) == (run.name, rank):
            return each
    raise NotFoundError(
        f"run {run.name}: the database does not hold its rank {rank}; the lowest it holds is {run.rank}"
    )


def _read(connection: sqlite3.Connection, database: Path, found: StoredRun) -> Recorded:
    execute = connection.execute
    engine, version, model, simulated, pool, host, slots, setting, context = execute(_RUN, (found.id,)).fetchone()
    if engine is None or found.start_ns is None or pool is None:
        raise RecordError(
            f"run {found.name}: the record of its start is missing, so its KV pool is not known; nothing can be "
            "replayed from it"
        )
    words = json.loads(setting) if setting else {}
    pruned_ns = execute(_PRUNED, (found.id,)).fetchone()[0]
    revisions = _revisions(connection, found)
    if not revisions and pruned_ns is not None:
        raise NotFoundError(f"run {found.name} was pruned: nothing of it is left to replay")
    if not revisions:
        raise RecordError(f"run {found.name}: the record of its knobs is missing; nothing can be replayed from it")
    return Recorded(
        database=database,
        id=found.id,
        name=found.name,
        rank=found.rank,
        ranks=tuple([each.rank for each in stored_runs(connection) if each.name == found.name]),
        engine=engine,
        version=version or "",
        model=model or "",
        simulated=bool(simulated),
        start_ns=found.start_ns,
        last_ns=found.last_ns,
        wall_ns=found.wall_ns,
        pool_tokens=pool,
        host_tokens=host or 0,
        setting=Setting(**{name: words[name] for name in Setting.__slots__ if name in words} | {"slots": slots}),
        words=words,
        context=context or "",
        revisions=revisions,
        pruned_ns=pruned_ns,
        smoke_bytes=execute(_SMOKE, (found.id,)).fetchone()[0],
        lost_frames=execute(_LOST, (found.id,)).fetchone()[0],
    )


def _revisions(connection: sqlite3.Connection, found: StoredRun) -> tuple[Revision, ...]:
    """Every revision of the knobs, in order."""
    first = dict(connection.execute(_FIRST, (found.id,)).fetchall())
    values: dict[int, dict[str, Any]] = {}
    moments: dict[int, int] = {}
    for revision, at_ns, knob, set_to in connection.execute(_KNOBS, (found.id,)):
        values.setdefault(revision, {})[knob] = stored_value(knob, set_to)
        moments[revision] = at_ns
    try:
        return tuple(
            Revision(moments[number], first.get(number, 0), Knobs.parse(known))
            for number, known in sorted(values.items())
        )
    except GlassgateError as error:
        raise RecordError(
            f"run {found.name}: the record holds knobs that this Glassgate does not know: {error}"
        ) from None
