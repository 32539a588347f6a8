"""EngineRecord: the record of one rank of an engine that serves, kept without ever failing it or holding it up."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import deque
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Self
from weakref import WeakSet

import msgspec

from controller.beginning import knobs_in_force, setting_words
from controller.digest import DigestRecorder
from controller.engines.plugin.broadcast import answer_forwarded, find_forwarded
from controller.engines.plugin.clerk import Clerk
from controller.engines.plugin.collector import collector_log, start_collector
from controller.engines.plugin.ending import close_at_exit
from controller.engines.plugin.requests import Requests, refusal, who_asked
from controller.engines.plugin.run_id import announce_run, shared_run_id
from controller.engines.plugin.status import PluginStatus
from controller.journal import JournalWriter
from controller.limits import effective, largest_prompt
from controller.recorder import Recorder
from controller.records import Arrival, RunEnd, RunStart
from controller.run_directory import DATABASE, RunDirectory, default_base, ranks_of, run_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from controller.decision import PassResult
    from controller.engines.plugin.broadcast import Forwarded
    from controller.engines.plugin.faults import Faults
    from controller.engines.plugin.identity import EngineIdentity
    from controller.engines.plugin.settings import PluginSettings
    from controller.knob_requests import KnobRequest
    from controller.knob_turning import Answer
    from controller.knobs import Knobs
    from controller.records import AnyRecord
    from controller.request import Capacity
    from estimator.batch import BatchEstimator

_RECORDING: Final = "recording"
_LOST: Final = "the record of this run goes on without what failed"


class EngineRecord:
    """What a plug-in writes to. Times are `now`: ns of the machine's monotonic clock.

    Nothing here raises, and where the run's folder cannot be made every method does nothing: the engine serves on, and
    `faults` says what is lost. One thread may call `passed`; any may call `note`, `arrived` and `close`. In a process
    forked from this one the record is closed, so that two never write one journal.
    """

    __slots__ = (
        "__weakref__", "_clerk", "_closed", "_lock", "_recorder", "_requests", "_setting", "_writer", "faults", "knobs",
        "leads", "passes", "run", "taken", "when_taken",
    )  # fmt: skip

    def __init__(self, faults: Faults, identity: EngineIdentity, knobs: Knobs) -> None:
        """A record that keeps nothing yet; use `begin`."""
        self.faults = faults
        self.leads = identity.leads
        self.knobs = knobs
        """Those in force; `turned` changes them."""
        self.passes = 0
        self.run: RunDirectory | None = None
        """The run's folder; None while nothing is kept."""
        self.taken: deque[KnobRequest] = deque()
        """Requests that wait for the next pass boundary, where knobs are turned in this process."""
        self.when_taken: Callable[[], None] | None = None
        """Called by another thread while requests wait, so that an engine without work can answer them."""
        self._setting = identity.setting
        self._lock = threading.Lock()
        self._recorder: Recorder | DigestRecorder | None = None
        self._writer: JournalWriter | None = None
        self._clerk: Clerk | None = None
        self._requests = 0
        self._closed = False

    @classmethod
    def begin(
        cls,
        identity: EngineIdentity,
        settings: PluginSettings,
        faults: Faults,
        *,
        run_id: str | None = None,
        estimator: BatchEstimator | None = None,
    ) -> Self:
        """Make the run's folder, write the start of the record, and start the collector beside the engine.

        `run_id` is by default the one announced to this process (`run_id.shared_run_id`).
        """
        record = cls(faults, identity, settings.knobs)
        try:
            record._open(identity, settings, run_id, estimator)
        except Exception as error:  # noqa: BLE001 - whatever it is, the engine serves on
            faults.add("beginning the record", error, "nothing of this run is recorded")
            record._forget()
        return record

    @property
    def now(self) -> int:
        """The time, ns of the run's clock."""
        return time.monotonic_ns()

    @property
    def revision(self) -> int:
        """The knob revision in force."""
        return self.knobs.revision

    def passed(
        self,
        capacity: Capacity,
        result: PassResult,
        *,
        start_ns: int,
        decide_ns: int,
        queue: int,
        queued_tokens: int,
    ) -> int:
        """Record a pass, in one append, before its batch is returned to the engine; its number, counted from 1.

        The first rank of a group records it whole, the others its digest. `queue` and `queued_tokens` are the waiting
        requests and their prompt tokens at the start.
        """
        self.passes = number = self.passes + 1
        recorder = self._recorder
        if recorder is None:
            return number
        try:
            with self._lock:
                recorder.passed(
                    capacity, result, start_ns=start_ns, decide_ns=decide_ns, queue=queue, queued_tokens=queued_tokens
                )
        except Exception as error:  # noqa: BLE001 - whatever it is, the engine serves on
            self.faults.add(_RECORDING, error, _LOST)
            with self.faults.contained(_RECORDING, _LOST), self._lock:
                recorder.mend()
        return number

    def note(self, record: AnyRecord, *, every_rank: bool = False) -> None:
        """Keep a record for the next append, which comes with the next pass or within half a second.

        What all ranks see alike is recorded by the first of the group; `every_rank` records what is this rank's own.
        """
        recorder = self._recorder
        if recorder is not None and (self.leads or every_rank):
            with self._lock:
                recorder.note(record)

    def arrived(
        self,
        number: int,
        name: str,
        prompt_tokens: int,
        output_tokens: int,
        *,
        at_ns: int | None = None,
        tokens: Sequence[int] | None = None,
        traceparent: str = "",
        ignore_eos: bool = False,
    ) -> None:
        """Record that a request joined the queue; `tokens` are hashed later, by another thread."""
        self._requests += 1
        if not self.leads:
            return
        at_ns = time.monotonic_ns() if at_ns is None else at_ns
        self.note(Arrival(number, name, at_ns, prompt_tokens, output_tokens, (), traceparent, ignore_eos=ignore_eos))
        clerk = self._clerk
        if tokens is not None and clerk is not None:
            clerk.hash_later(number, tokens)

    def knows(self, number: int, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Record what is known of a request once its output is; token ids are hashed later, by another thread."""
        clerk = self._clerk
        if self.leads and clerk is not None:
            clerk.hash_later(number, prompt, output)

    def turned(self, answer: Answer, *, number: int | None = None) -> None:
        """Record what became of a knob request, and put its knobs in force from here on if it was accepted.

        `number` is the one under which a request was broadcast: who asked is looked up by it.
        """
        at_ns = time.monotonic_ns()
        if answer.knobs is not None:
            self.knobs = answer.knobs
            if self._recorder is not None:
                self._recorder.revision = answer.knobs.revision
        if not self.leads:
            return
        with self.faults.contained("recording a knob change", _LOST):
            change = answer.record(at_ns)
            if number is not None and self.run is not None:
                asked = self._asked(self.run, number)
                if asked is not None:
                    change = msgspec.structs.replace(change, who=who_asked(asked.request), request=asked.name)
            self.note(change)
            if answer.knobs is not None:
                self.note(knobs_in_force(at_ns, answer.knobs, self._setting))

    def stand_aside(self, why: str) -> None:
        """Say that the engine's own classes decide from here on, and why; `glassgate doctor` shows it."""
        if self._clerk is not None:
            self._clerk.stand_aside(why)

    def close(self, reason: str = "finished") -> None:
        """End the record in good order; a second time does nothing. Called by itself when the process exits."""
        if self._closed or self._recorder is None:
            return
        self._closed = True
        recorder, self._recorder = self._recorder, None
        with self.faults.contained("ending the record", "the run will look as if its engine had died"):
            if self._clerk is not None:
                self._clerk.stop()
            with self._lock:
                recorder.end_repeats()
                recorder.note(RunEnd(time.monotonic_ns(), reason, recorder.passes, self._requests))
                recorder.flush()
                if self._writer is not None:
                    self._writer.close()
            if self.run is not None:
                self.run.end(reason)
        self.faults.write(at_once=True)

    def _open(
        self,
        identity: EngineIdentity,
        settings: PluginSettings,
        run_id: str | None,
        estimator: BatchEstimator | None,
    ) -> None:
        base = settings.runs or default_base()
        name = shared_run_id() if run_id is None else run_id
        if run_id is None and identity.collects and run_folder(base, name, identity.rank).exists():
            name = announce_run()  # a second engine of one process, or a variable left over
        limits = effective(settings.knobs, identity.setting)
        context = dict(identity.context)
        if settings.database is not None:
            context["database"] = str(settings.database.resolve())
        elif not identity.collects:
            context["database"] = str((run_folder(base, name, identity.first_rank_here) / DATABASE).resolve())
        self.run = run = RunDirectory.create(
            base, engine=identity.engine, version=identity.version, model=identity.model, rank=identity.rank,
            context=context, knobs=settings.knobs.as_dict(), run_id=name,
        )  # fmt: skip
        self.faults.keep_in(run.path)
        self._writer = writer = JournalWriter(run.journal, run_id=name, rank=identity.rank)
        recorder = Recorder(writer, estimator) if identity.leads else DigestRecorder(writer)
        recorder.revision = settings.knobs.revision
        at_ns = time.monotonic_ns()
        largest = identity.largest_prompt_tokens or largest_prompt(limits, identity.pool_tokens)
        recorder.note(_run_start(identity, name, at_ns, largest, estimator))
        if identity.leads:
            recorder.note(knobs_in_force(at_ns, settings.knobs, identity.setting))
        recorder.flush()
        self._recorder = recorder
        status = _status(identity)
        if identity.collects and settings.collector:
            with self.faults.contained("starting the collector", f"start one: glassgate collect {run.path}"):
                status.collector_pid = start_collector(run, settings, identity.engine_key)
                status.collector_log = str(collector_log(run.path))
        requests = Requests(run, identity.way, self.taken, self._refuse, self._tell_taken) if identity.leads else None
        self._clerk = Clerk(run.path, recorder, writer, self._lock, status, requests, self.faults)
        self._clerk.start()
        _open_records.add(self)
        close_at_exit(self.close)

    @staticmethod
    def _asked(run: RunDirectory, number: int) -> Forwarded | None:
        """What the collector left of a broadcast request, with this rank or with another group's leader."""
        found = answer_forwarded(run.requests, number)
        for other in ranks_of(run) if found is None else []:
            found = found or find_forwarded(other.requests, number)
        return found

    def _tell_taken(self) -> None:
        if self.when_taken is not None:
            self.when_taken()

    def _refuse(self, request: KnobRequest, why: str) -> None:
        self.note(refusal(request, why, self.revision).record(time.monotonic_ns()))

    def _forget(self) -> None:
        """Keep nothing; what was begun is let go of."""
        self._recorder = None
        if self._writer is not None:
            self._writer.close()
        if self.run is not None:
            self.run.release()
        self.run = self._writer = None

    def _let_go_in_child(self) -> None:
        self.faults.begin_in_child()
        self._recorder = None
        self._closed = True
        self._clerk = None
        self._lock = threading.Lock()


def _run_start(
    identity: EngineIdentity, name: str, at_ns: int, largest: int, estimator: BatchEstimator | None
) -> RunStart:
    words = setting_words(identity.setting) | {"ranks": identity.ranks}
    if estimator is not None:
        words["geometry"] = json.dumps(asdict(estimator.geometry))
    return RunStart(
        name, identity.engine, identity.version, identity.rank, identity.group, identity.model or "", at_ns,
        time.time_ns(), False, identity.pool_tokens, identity.host_tokens, identity.setting.slots, largest, words,
        identity.buffers,
    )  # fmt: skip


def _status(identity: EngineIdentity) -> PluginStatus:
    return PluginStatus(
        engine=identity.engine, engine_version=identity.version, glassgate_version=version("glassgate"),
        pid=os.getpid(), since_ns=time.time_ns(), rank=identity.rank, group=identity.group, ranks=identity.ranks,
        leads=identity.leads, replaced=identity.replaced, way=identity.way,
        python=sys.executable, cautions=identity.cautions,
    )  # fmt: skip


_open_records: Final[WeakSet[EngineRecord]] = WeakSet()


def _close_in_child() -> None:
    for record in list(_open_records):
        record._let_go_in_child()  # noqa: SLF001 - our own


os.register_at_fork(after_in_child=_close_in_child)
