"""Rows: the records of some frames as rows for the store's tables. It is the flat path: tuples in lists, no objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from controller import records
from controller.digest import digest_of_record
from controller.vocabulary import LADDER_GATES, Gate, HostHit, Outcome

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from store.alarms import AlarmWatch

_FIELDS: Final = 17
_CHECKS_END: Final = _FIELDS + 3 * len(LADDER_GATES)
_GATES: Final = len(Gate)
_HOST_HITS: Final = len(HostHit)
_CUT: Final = int(Outcome.ADMIT_CHUNK)
_REFUSE: Final = int(Outcome.REFUSE)
_NO_GATE: Final = (None,) * 5
"""Gate, reason, observed, limit and short by of one that entered uncut."""
_json: Final = msgspec.json.Encoder().encode

# What is known of a request, in the order of the statement below.
_ID, _ARRIVAL, _PROMPT, _OUTPUT, _FIRST_PASS, _FIRST_LOOK, _ADMIT_PASS, _ADMIT, _HIT, _LOADED = range(10)
_FIRST_TOKEN, _END, _ENDED, _WHY, _GENERATED, _RETRACTIONS, _TRACEPARENT = range(10, 17)
_LIKE, _SHARED, _KNOWN, _IGNORE_EOS = range(17, 21)
_NOTHING: Final = (None,) * _RETRACTIONS + (0,) + (None,) * 5
_REQUEST_COLUMNS: Final = (
    "id", "arrival_ns", "prompt_tokens", "output_tokens", "first_pass", "first_look_ns", "admit_pass", "admit_ns",
    "device_hit_tokens", "host_loaded_tokens", "first_token_ns", "end_ns", "ended", "why", "generated_tokens",
    "retractions", "traceparent", "like_request", "shared_tokens", "known_tokens", "ignore_eos",
)  # fmt: skip


def _upsert_request() -> str:
    """The first word on each column stands, save that retractions add up and that more may be known later."""
    columns = ", ".join(_REQUEST_COLUMNS)
    apart = {"retractions": "retractions + excluded.retractions",
             "known_tokens": "coalesce(excluded.known_tokens, known_tokens)"}  # fmt: skip
    keep = ", ".join(f"{name} = {apart.get(name, f'coalesce({name}, excluded.{name})')}" for name in _REQUEST_COLUMNS)
    return _insert("requests", 2 + len(_REQUEST_COLUMNS), f" (run, number, {columns})") + (
        f" ON CONFLICT (run, number) DO UPDATE SET {keep}"
    )


def _insert(table: str, columns: int, names: str = "", verb: str = "INSERT") -> str:
    return f"{verb} INTO {table}{names} VALUES ({', '.join('?' * columns)})"


_REPEAT_KEEPS: Final = (
    "last_pass", "count", "last_ns", "observed_last", "observed_least", "observed_greatest",
    "limit_last", "limit_least", "limit_greatest", "queue", "not_reached", "ended",
)  # fmt: skip

# In the order in which foreign keys want them.
_STATEMENTS: Final = {
    "requests": _upsert_request(),
    "knobs": _insert("knobs", 9, verb="INSERT OR REPLACE"),
    "knob_changes": _insert("knob_changes", 10, " (run, at_ns, who, revision, knob, old, new, accepted, why, request)"),
    "passes": _insert("passes", 24),
    "decisions": _insert("decisions", 22),
    "repeats": _insert("repeats", 21)
    + " ON CONFLICT (run, first_pass) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _REPEAT_KEEPS)
    + " WHERE excluded.count >= count",
    "steps": _insert("steps", 5, verb="INSERT OR REPLACE"),
    "digests": _insert("digests", 3, verb="INSERT OR REPLACE"),
    "retractions": _insert("retractions", 7, verb="INSERT OR REPLACE"),
    "loads": _insert("loads", 4, verb="INSERT OR REPLACE"),
    "smoke": _insert(
        "smoke", 9, " (run, at_ns, device, asked_bytes, reserved_bytes, peak_bytes, free_before_bytes, passed, why)"
    ),
}

_START_RUN: Final = """UPDATE runs SET engine = ?, version = ?, model = ?, rank_group = ?, simulated = ?, start_ns = ?,
wall_ns = ?, pool_tokens = ?, host_tokens = ?, slots = ?, largest_prompt_tokens = ?, setting = ?, context = ?
WHERE id = ?"""
_END_RUN: Final = "UPDATE runs SET end_ns = ?, end_reason = ?, passes = ?, requests = ? WHERE id = ?"
_ALARM: Final = """INSERT OR REPLACE INTO alarms (run, number, alarm, opened_ns, last_ns, closed_ns, count, measured,
threshold, unit, request, gate, reason, first_pass, last_pass, observed, limit_value, detail)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_LAST: Final = "UPDATE runs SET last_ns = max(last_ns, ?) WHERE id = ?"


class Rows:
    """Rows of one run, gathered by `add` and written by `write`."""

    __slots__ = (
        "_decided",
        "_passes",
        "_requests",
        "_run",
        "_steps",
        "_takers",
        "last_ns",
        "ranks",
        "runs",
        "seen",
        "tables",
    )

    def __init__(self, run: int, ranks: int = 1) -> None:
        self._run = run
        self.tables: dict[str, list[tuple[object, ...]]] = {name: [] for name in _STATEMENTS}
        self._passes, self._decided, self._steps = (
            self.tables[name].append for name in ("passes", "decisions", "steps")
        )
        self.runs: list[tuple[str, tuple[object, ...]]] = []
        self.last_ns = 0
        self.ranks = ranks
        """Ranks of the run's group; with more than one, what this one decided is summed up for the comparison."""
        self.seen = 0
        """The last pass it is known to have made, where ranks are compared."""
        self._requests: dict[int, list[object]] = {}
        self._takers: dict[type, Callable[..., None]] = {
            records.RunStart: self._run_start, records.KnobsInForce: self._knobs, records.Arrival: self._arrival,
            records.Pass: self._pass, records.Repeat: self._repeat, records.StepEnd: self._step,
            records.Finish: self._finish, records.Abort: self._abort, records.Retract: self._retract,
            records.Preempt: self._preempt, records.LoadDone: self._load, records.KnobChange: self._knob_change,
            records.Smoke: self._smoke, records.RunEnd: self._run_end, records.Digest: self._digest,
            records.PrefixHashes: self._prefix_hashes,
        }  # fmt: skip

    @property
    def passes(self) -> tuple[int, int] | None:
        """Number of the first and of the last pass gathered, None without any."""
        gathered = self.tables["passes"]
        return (int(str(gathered[0][1])), int(str(gathered[-1][1]))) if gathered else None

    def add(self, gathered: list[records.AnyRecord]) -> None:
        """Take the records of one frame. Raises ValueError or TypeError for one whose arrays are not as they should."""
        takers = self._takers
        for record in gathered:
            takers[type(record)](record)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write every row; the caller's transaction holds them together. Raises sqlite3.Error, OverflowError."""
        run = self._run
        for sql, values in self.runs:
            connection.execute(sql, values)
        self.tables["requests"] = [(run, number, *known) for number, known in self._requests.items()]
        for name, rows in self.tables.items():
            if rows:
                connection.executemany(_STATEMENTS[name], rows)
        connection.execute(_LAST, (self.last_ns, run))

    def _at(self, at_ns: int) -> None:
        if at_ns > self.last_ns:  # noqa: PLR1730 - on the flat path max() costs three times this
            self.last_ns = at_ns

    def _request(self, number: int) -> list[object]:
        known = self._requests[number] = list(_NOTHING)
        return known

    def _known(self, number: int) -> list[object]:
        return self._requests.get(number) or self._request(number)

    def _run_start(self, r: records.RunStart) -> None:
        self._at(r.at_ns)
        values = (
            r.engine, r.version, r.model, r.group, r.simulated, r.at_ns, r.wall_ns, r.pool_tokens, r.host_tokens,
            r.slots, r.largest_prompt_tokens, _json(r.setting).decode(), r.context, self._run,
        )  # fmt: skip
        self.runs.append((_START_RUN, values))
        self.ranks = int(r.setting.get("ranks", 1))

    def _run_end(self, r: records.RunEnd) -> None:
        self._at(r.at_ns)
        self.runs.append((_END_RUN, (r.at_ns, r.reason, r.passes, r.requests, self._run)))

    def _knobs(self, r: records.KnobsInForce) -> None:
        for name, unit, set_to, effective, state, why in r.knobs:
            self.tables["knobs"].append((self._run, r.revision, name, r.at_ns, unit, set_to, effective, state, why))

    def _knob_change(self, r: records.KnobChange) -> None:
        for name, old, new in r.changes or ((None, None, None),):
            row = (self._run, r.at_ns, r.who, r.revision, name, old, new, r.accepted, r.why, r.request)
            self.tables["knob_changes"].append(row)

    def _arrival(self, r: records.Arrival) -> None:
        self._at(r.at_ns)
        known = self._known(r.number)
        known[:4] = r.id, r.at_ns, r.prompt_tokens, r.output_tokens
        known[_TRACEPARENT] = r.traceparent or None
        if r.ignore_eos:
            known[_IGNORE_EOS] = 1
        if r.known_tokens:
            self._prefix(known, r.like, r.shared_tokens, r.known_tokens)

    def _pass(self, r: records.Pass) -> None:
        self._at(r.start_ns)
        extend = hits = loads = cut = 0
        batch = r.batch
        for _, outcome, extend_tokens, hit, load, _ in batch:
            extend += extend_tokens
            hits += hit
            loads += load
            if outcome == _CUT:
                cut += 1
        gate: int | None = r.closed_gate
        reason: int | None = r.closed_reason
        if r.closed_gate < 0:
            gate = reason = None
        free, evictable, reserved, running = r.before
        self._passes((
            self._run, r.number, r.start_ns, r.decide_ns, r.revision, r.queue, r.queued_tokens, r.not_reached,
            len(batch), cut, extend, hits, loads, gate, reason, r.peak_bytes if r.peak_bytes >= 0 else None,
            _json(r.parts).decode() if r.parts else None, free, evictable, reserved, running, *r.after,
            _json(r.lanes).decode() if r.lanes else None,
        ))  # fmt: skip
        self._decisions(r)
        if self.ranks > 1:
            self.tables["digests"].append((self._run, r.number, digest_of_record(r).hex()))
            self.seen = r.number

    def _decisions(self, r: records.Pass) -> None:
        run, number, start_ns = self._run, r.number, r.start_ns
        requests, append = self._requests, self._decided
        position = 0
        for d in r.decisions:
            request, outcome, gate, done, host = d[0], d[1], d[2], d[8], d[12]
            if gate >= _GATES or outcome > _REFUSE or host >= _HOST_HITS:
                raise ValueError(f"decision {position} of pass {number} has a gate, outcome or host hit of no name")
            before = d[_CHECKS_END:]
            append((
                run, number, position, request, outcome, *(d[2:7] if gate >= 0 else _NO_GATE), *d[7:_FIELDS],
                _json(d[_FIELDS:_CHECKS_END]).decode(), _json(before).decode() if before else None,
            ))  # fmt: skip
            position += 1
            known = requests.get(request) or self._request(request)
            if done:
                continue
            if known[_FIRST_PASS] is None:
                known[_FIRST_PASS], known[_FIRST_LOOK] = number, start_ns
            if outcome <= _CUT:
                if known[_ADMIT_PASS] is None:
                    known[_ADMIT_PASS : _LOADED + 1] = number, start_ns, d[9], d[15] if host == 1 else 0
            elif outcome == _REFUSE and known[_END] is None:
                known[_END], known[_ENDED] = start_ns, "can_never"

    def _repeat(self, r: records.Repeat) -> None:
        self._at(r.last_ns)
        self._known(r.number)
        observed, limit = r.observed, r.limit
        self.tables["repeats"].append((
            self._run, r.first_pass, r.last_pass, r.count, r.first_ns, r.last_ns, r.number, r.gate, r.reason,
            *observed, *limit, r.queue, r.not_reached, r.revision, r.ended,
        ))  # fmt: skip
        if self.ranks > 1:
            self.seen = max(self.seen, r.last_pass)

    def _step(self, r: records.StepEnd) -> None:
        end_ns, first = r.end_ns, r.first_tokens
        self._at(end_ns)
        self._steps((self._run, max(0, r.passed), r.start_ns, end_ns, len(first)))
        for number in first:
            known = self._known(number)
            if known[_FIRST_TOKEN] is None:
                known[_FIRST_TOKEN] = end_ns

    def _digest(self, r: records.Digest) -> None:
        if self.ranks < 2:  # there is nobody to be compared with
            return
        self.seen = r.passed
        if r.digest:
            self.tables["digests"].append((self._run, r.passed, r.digest.hex()))

    def _prefix_hashes(self, r: records.PrefixHashes) -> None:
        self._prefix(self._known(r.number), r.like, r.shared_tokens, r.known_tokens)

    def _prefix(self, known: list[object], like: int, shared_tokens: int, known_tokens: int) -> None:
        """What a request shares and how much of it is known; the hashes themselves stand in the journal alone."""
        if like >= 0 and known[_LIKE] is None:
            known[_LIKE], known[_SHARED] = like, shared_tokens
        known[_KNOWN] = known_tokens

    def _end(self, number: int, at_ns: int, ended: str, why: str | None, generated: int | None) -> None:
        self._at(at_ns)
        known = self._known(number)
        if known[_END] is None:
            known[_END : _GENERATED + 1] = at_ns, ended, why, generated

    def _finish(self, r: records.Finish) -> None:
        self._end(r.number, r.at_ns, "finish", None, r.generated_tokens)

    def _abort(self, r: records.Abort) -> None:
        self._end(r.number, r.at_ns, "abort", r.why, None)

    def _retract(self, r: records.Retract) -> None:
        self._gave_back(r.number, r.at_ns, "retract", r.generated_tokens, r.freed_tokens, None)

    def _preempt(self, r: records.Preempt) -> None:
        self._gave_back(r.number, r.at_ns, "preempt", None, None, r.by)

    def _gave_back(self, number: int, at_ns: int, kind: str, *rest: int | None) -> None:
        self._at(at_ns)
        known = self._known(number)
        known[_RETRACTIONS] = int(str(known[_RETRACTIONS])) + 1
        self.tables["retractions"].append((self._run, number, at_ns, kind, *rest))

    def _load(self, r: records.LoadDone) -> None:
        self._at(r.at_ns)
        self._known(r.number)
        self.tables["loads"].append((self._run, r.number, r.at_ns, r.tokens))

    def _smoke(self, r: records.Smoke) -> None:
        self.tables["smoke"].append((
            self._run, r.at_ns, r.device, r.asked, r.reserved, r.peak, r.free_before, r.passed, r.why,
        ))  # fmt: skip


def write_alarms(connection: sqlite3.Connection, run: int, watch: AlarmWatch) -> str:
    """Write a run's alarms that changed and what the watch needs to go on, and return that. Raises sqlite3.Error."""
    connection.executemany(_ALARM, [
        (
            run, a.number, a.name, a.opened_ns, a.last_ns, a.closed_ns, a.count, a.measured, a.threshold, a.unit,
            a.request, a.gate, a.reason, a.first_pass, a.last_pass, a.observed, a.limit, a.detail,
        )
        for a in watch.changed.values()
    ])  # fmt: skip
    saved = watch.saved()
    connection.execute("INSERT OR REPLACE INTO alarm_watch VALUES (?, ?)", (run, saved))
    return saved
