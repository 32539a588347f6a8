"""Why: the life of one request, read from the store by ranges of its indexes alone."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final, NamedTuple

from controller.vocabulary import Outcome
from estimator.errors import NotFoundError
from store.database import reading
from store.life import NOT_KNOWN, STILL_WAITING, Life, Refusal, Wait
from store.looks import LOOKS_SQL, Look, Revision, Stay, entry_of, parts_of, stays_of
from store.pruning import hash_of
from store.runs import StoredRun, find_run, stored_runs
from store.waits import PassedBy, Piece, pieces_of, summed

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

_CLOSE: Final = 5

PASSES_SQL: Final = """SELECT p.number, p.start_ns, p.closed_gate, p.closed_reason, t.last_pass, t.first_ns, t.last_ns
FROM passes p LEFT JOIN repeats t ON t.run = p.run AND t.first_pass = p.number
WHERE p.run = ? AND p.number BETWEEN ? AND ? ORDER BY p.number"""
EARLIER_SQL: Final = (
    "SELECT number FROM passes WHERE run = ? AND start_ns < ? ORDER BY start_ns DESC, number DESC LIMIT 1"
)
REQUEST_SQL: Final = """SELECT number, arrival_ns, prompt_tokens, output_tokens, first_token_ns, end_ns, ended, why,
    generated_tokens FROM requests WHERE run = ? AND number = ?"""
PLACES_SQL: Final = "SELECT run, max(number), count(*) FROM requests WHERE id = ? GROUP BY run"
PLACE_SQL: Final = "SELECT max(number), count(*) FROM requests WHERE id = ? AND run = ?"
GIVEN_BACK_SQL: Final = (
    "SELECT at_ns, kind, generated_tokens FROM retractions WHERE run = ? AND request = ? ORDER BY at_ns"
)
LATER_SQL: Final = "SELECT arrival_ns, admit_pass FROM requests WHERE run = ? AND number > ? ORDER BY number"
KNOBS_SQL: Final = (
    "SELECT effective, knob FROM knobs WHERE run = ? AND revision = ? AND knob IN ('page_size', 'chunked_prefill_size')"
)
PRUNED_REQUEST_SQL: Final = """SELECT r.name, x.first_pass, x.last_pass, x.at_unix_ns, x.why
FROM pruned_requests h CROSS JOIN pruned x ON x.id = h.pruned JOIN runs r ON r.id = x.run
WHERE h.id_hash = ? ORDER BY h.pruned DESC LIMIT 1"""
PRUNED_PASSES_SQL: Final = (
    "SELECT first_pass, last_pass, at_unix_ns, why FROM pruned WHERE run = ? AND last_ns >= ? ORDER BY id DESC LIMIT 1"
)
CLOSE_SQL: Final = "SELECT DISTINCT id FROM requests WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"


MISSING_SQL: Final = (
    "SELECT coalesce(sum(max(frames, bytes > 0)), 0) FROM losses WHERE run = ? AND reason NOT IN ('torn_end', 'bound')"
)


class _Request(NamedTuple):
    """A row of `requests`."""

    number: int
    arrival_ns: int | None
    prompt_tokens: int | None
    output_tokens: int | None
    first_token_ns: int | None
    end_ns: int | None
    ended: str | None
    why: str | None
    generated_tokens: int | None


def why(database: Path, request: str, run: str | None = None) -> Life:
    """The life of a request by its id, in the run named or else in the latest run that has it.

    Raises NotFoundError for one the database does not hold, saying that it was pruned or naming ids that come close;
    UsageError, RecordError and StorageError as opening does.
    """
    with reading(database) as connection:
        stored, (number, namesakes), others = _place(connection, request, run)
        return _Reader(connection, stored).life(request, number, others, namesakes - 1)


def life_of(connection: sqlite3.Connection, run: StoredRun, request: str) -> tuple[Life, tuple[tuple[Piece, ...], ...]]:
    """The life of a request on one rank of a run, and each of its waits as pieces in order of time.

    Raises NotFoundError where that rank has no request of this id.
    """
    number, count = connection.execute(PLACE_SQL, (request, run.id)).fetchone()
    if number is None:
        raise NotFoundError(f"run {run.name} has no request {request!r} on rank {run.rank}")
    reader = _Reader(connection, run)
    life = reader.life(request, number, (), count - 1)
    return life, tuple(reader.pieces)


_Place = tuple[StoredRun, tuple[int, int], tuple[str, ...]]


def _place(connection: sqlite3.Connection, request: str, run: str | None) -> _Place:
    """The run of a request, its number with how many there have its id, and the other runs that have one."""
    numbers = {found: (number, count) for found, number, count in connection.execute(PLACES_SQL, (request,))}
    having = [each for each in stored_runs(connection) if each.id in numbers]
    if run is not None:
        wanted = find_run(connection, run).name
        chosen = [each for each in having if each.name == wanted]
        if having and not chosen:
            names = ", ".join(dict.fromkeys(each.name for each in having))
            raise NotFoundError(f"run {wanted} has no request {request!r}; it is in {names}")
    else:
        chosen = having
    if not chosen:
        raise NotFoundError(_pruned(connection, request) or _nothing_like_it(connection, request))
    others = dict.fromkeys(each.name for each in having if each.name != chosen[0].name)
    return chosen[0], numbers[chosen[0].id], tuple(others)


def _pruned(connection: sqlite3.Connection, request: str) -> str | None:
    """What became of a request that was in the database once."""
    row = connection.execute(PRUNED_REQUEST_SQL, (hash_of(request),)).fetchone()
    if row is None:
        return None
    run, first, last, at_unix_ns, reason = row
    passes = f"with passes {first:,} to {last:,}" if last >= first else "with the rest of it"
    return f"request {request!r} of run {run} was pruned on {_date(at_unix_ns)}, {passes} ({reason}); nothing is kept"


def _date(unix_ns: int) -> str:
    moment = dt.datetime.fromtimestamp(unix_ns / 1e9, tz=dt.UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def _nothing_like_it(connection: sqlite3.Connection, request: str) -> str:
    for length in range(len(request), 0, -1):
        start = request[:length]
        close = [row[0] for row in connection.execute(CLOSE_SQL, (start, start + "\U0010ffff", _CLOSE))]
        if close:
            return f"no request {request!r} in the database; near it are {', '.join(close)}"
    some = [row[0] for row in connection.execute(CLOSE_SQL, ("", "\U0010ffff", _CLOSE))]
    return f"no request {request!r} in the database; " + (f"ids look like {', '.join(some)}" if some else "it has none")


class _Reader:
    """Reads one run on one rank."""

    def __init__(self, connection: sqlite3.Connection, run: StoredRun) -> None:
        self._connection = connection
        self._run = run
        self.pieces: list[tuple[Piece, ...]] = []
        """Each wait of the life that was read, in order of time."""
        self._record_end_ns = run.end_ns if run.end_ns is not None else run.last_ns
        self._missing = int(connection.execute(MISSING_SQL, (run.id,)).fetchone()[0])

    def life(self, name: str, number: int, others: tuple[str, ...], namesakes: int) -> Life:
        """Everything the record has of a request."""
        execute, run = self._connection.execute, self._run
        request = _Request(*execute(REQUEST_SQL, (run.id, number)).fetchone())
        looks = [Look(*row) for row in execute(LOOKS_SQL, (run.id, number))]
        given_back = execute(GIVEN_BACK_SQL, (run.id, number)).fetchall()
        stays = stays_of(request.arrival_ns, looks, [(at_ns, kind) for at_ns, kind, _ in given_back])
        revisions = {look.revision: self._revision(look.revision) for look in _one_a_revision(looks)}
        waits = tuple(self._wait(stay, request, revisions) for stay in stays)
        return Life(
            id=name,
            run=run.name,
            rank=run.rank,
            other_runs=others,
            number=number,
            run_start_ns=run.start_ns or 0,
            arrived_at=self._wall_time(request.arrival_ns),
            arrival_ns=request.arrival_ns,
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.output_tokens,
            waits=waits,
            entries=tuple(
                entry_of(stay, until_ns, revisions)
                for stay, wait, until_ns in zip(stays, waits, self._left_at(stays, request), strict=True)
                if wait.ended_by == "admit"
            ),
            retractions=tuple(given_back),
            looks=sum(wait.looks for wait in waits),
            overtaken=self._overtaken(request, stays[0], waits[0].end_ns) if stays else 0,
            refusal=self._refusal(looks),
            first_token_ns=request.first_token_ns,
            end_ns=request.end_ns,
            ended=request.ended,
            why=request.why,
            generated_tokens=request.generated_tokens,
            record_end_ns=self._record_end_ns,
            missing_frames=self._missing,
            namesakes=namesakes,
            pruned=self._pruned_passes(request),
        )

    def _wait(self, stay: Stay, request: _Request, revisions: dict[int, Revision]) -> Wait:
        last = stay.ended_by
        if last is not None:
            end_ns, ended_by = last.start_ns, "can_never" if last.outcome == Outcome.REFUSE else "admit"
        elif self._missing and request.ended != "can_never":
            # Its admission may be among what the record has lost: after its last sign nothing can be told.
            end_ns, ended_by = stay.looks[-1].start_ns if stay.looks else stay.start_ns, NOT_KNOWN
        elif request.end_ns is not None:
            end_ns, ended_by = request.end_ns, request.ended or "abort"
        else:
            end_ns, ended_by = self._record_end_ns, STILL_WAITING
        end_ns = max(end_ns, stay.start_ns)
        first_pass = self._pass_before(stay.start_ns)
        last_pass = last.number if last is not None else self._pass_before(end_ns + 1)
        verdicts = {
            look.number: (look.gate, look.reason)
            for look in stay.looks
            if look.outcome == Outcome.WAIT and look.gate is not None and look.reason is not None
        }
        pieces = pieces_of(stay.start_ns, end_ns, self._passes(first_pass, last_pass), verdicts)
        self.pieces.append(pieces)
        return Wait(
            start_ns=stay.start_ns,
            end_ns=end_ns,
            after=stay.after,
            ended_by=ended_by,
            parts=parts_of(summed(pieces), stay.looks, revisions),
            looks=sum(look.times for look in stay.looks),
        )

    def _pruned_passes(self, request: _Request) -> str | None:
        """The passes of its life that were pruned, when and why."""
        began_ns = request.arrival_ns if request.arrival_ns is not None else self._run.start_ns or 0
        row = self._connection.execute(PRUNED_PASSES_SQL, (self._run.id, began_ns)).fetchone()
        if row is None:
            return None
        first, last, at_unix_ns, reason = row
        return f"passes {first:,} to {last:,} were pruned on {_date(at_unix_ns)} ({reason})"

    def _left_at(self, stays: list[Stay], request: _Request) -> list[int]:
        """For each stay, when the request next waited again, left the engine, or was last known of."""
        end_ns = request.end_ns if request.end_ns is not None else self._record_end_ns
        return [*(stay.start_ns for stay in stays[1:]), end_ns] if stays else []

    def _pass_before(self, moment_ns: int) -> int:
        row = self._connection.execute(EARLIER_SQL, (self._run.id, moment_ns)).fetchone()
        return int(row[0]) if row else 0

    def _passes(self, first: int, last: int) -> list[PassedBy]:
        return [
            PassedBy(number, start_ns, None if gate is None else (gate, reason), last_pass or number, first_ns, last_ns)
            for number, start_ns, gate, reason, last_pass, first_ns, last_ns in self._connection.execute(
                PASSES_SQL, (self._run.id, first, last)
            )
        ]

    def _overtaken(self, request: _Request, stay: Stay, end_ns: int) -> int:
        """Requests that arrived in the first wait and were admitted in an earlier pass, or while this one waits on."""
        if request.arrival_ns is None:
            return 0
        admitted = stay.ended_by
        before = admitted.number if admitted is not None else self._pass_before(end_ns + 1) + 1
        overtaken = 0
        for arrival_ns, admit_pass in self._connection.execute(LATER_SQL, (self._run.id, request.number)):
            if arrival_ns is not None and arrival_ns > end_ns:
                break
            if arrival_ns is not None and admit_pass is not None:
                overtaken += arrival_ns > request.arrival_ns and admit_pass < before
        return overtaken

    def _refusal(self, looks: list[Look]) -> Refusal | None:
        refused = next((look for look in looks if look.outcome == Outcome.REFUSE), None)
        if refused is None:
            return None
        return Refusal(
            number=refused.number,
            observed=refused.observed or 0,
            limit=refused.limit or 0,
            short_by=refused.short_by or 0,
            prompt_tokens=refused.prompt,
            output_tokens=refused.output,
            largest_prompt_tokens=self._run.largest_prompt_tokens,
        )

    def _revision(self, revision: int) -> Revision:
        found = {knob: value for value, knob in self._connection.execute(KNOBS_SQL, (self._run.id, revision))}
        return Revision(
            found.get("page_size"),
            found["chunked_prefill_size"] is not None if "chunked_prefill_size" in found else None,
        )

    def _wall_time(self, at_ns: int | None) -> str | None:
        return None if at_ns is None else self._run.utc(at_ns)


def _one_a_revision(looks: list[Look]) -> list[Look]:
    return list({look.revision: look for look in looks}.values())
