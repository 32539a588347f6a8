"""Asking a live run for a knob change, and reading its answer from the journal.

The answer is read where the engine writes it, so that it comes without a collector too.
"""

from __future__ import annotations

import getpass
import os
import platform
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from controller.journal import DATA, Cursor, JournalReader
from controller.journal.segments import list_segments
from controller.knob_requests import plain
from controller.knob_turning import LONGEST_NAME, asked_change
from controller.records import KnobChange, KnobsInForce, decode
from controller.run_directory import LIVE, ListedRun, RunDirectory, default_base, list_runs
from estimator.errors import NoAnswerError, NotFoundError, RecordError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from controller.records import AnyRecord

WAIT_SECONDS: Final = 5.0
"""How long an answer is waited for unless told otherwise."""
_GRACE_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.02
_SHOWN: Final = 6


class Turned(NamedTuple):
    """The answer to a request: the change as it is recorded, and the knobs then in force where it was accepted."""

    change: KnobChange
    in_force: KnobsInForce | None
    before: KnobsInForce | None = None
    """The knobs in force before, where somebody else's change came into force after the request was made."""


def ask_for_change(
    run: RunDirectory, changes: Mapping[str, Any], who: str, *, expect_revision: int | None = None
) -> str:
    """Leave a request for new knob values in a live run; its name, by which the answer is known in the record.

    Values are as people write them ("4GiB", "off", -1). With `expect_revision` it is refused unless that revision is in
    force. Raises KnobError for a change that cannot be, NotFoundError where the run is not live, StorageError where
    nothing can be left in it.
    """
    content = asked_change(changes, who, expect_revision=expect_revision)
    _check_live(run)
    return run.leave_request(content)


def default_who() -> str:
    """Who asks, unless told otherwise: this user on this machine."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        user = f"user {os.getuid()}"
    return plain(f"{user}@{platform.node() or 'localhost'}")[:LONGEST_NAME]


class AnswerReader:
    """Reads the answers of one run that are recorded after this moment. Make it before leaving the request."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._place = _end_of(run.journal)
        self._reader: JournalReader | None = None
        self._change: dict[str, KnobChange] = {}
        self._in_force: dict[int, KnobsInForce] = {}

    def find(self, request: str) -> Turned | None:
        """The answer to a request, None while there is none. Raises RecordError where the journal cannot be read."""
        for record in self._read():
            if isinstance(record, KnobChange):
                self._change[record.request] = record
            elif isinstance(record, KnobsInForce):
                self._in_force[record.revision] = record
        change = self._change.get(request)
        if change is None or (change.accepted and change.revision not in self._in_force):
            return None
        if not change.accepted:
            return Turned(change, None, self._in_force.get(change.revision))
        return Turned(change, self._in_force[change.revision], self._in_force.get(change.revision - 1))

    def wait(
        self,
        request: str,
        seconds: float = WAIT_SECONDS,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Turned:
        """The answer to a request, waited for.

        Raises NoAnswerError when none came in time: a request nobody took is withdrawn then, so that it cannot change
        anything later. Raises NotFoundError when the run ended before it answered.
        """
        name, deadline = self._run.path.name, clock() + seconds
        withdrawn = False
        while True:
            over = self._run.state not in LIVE  # looked at first: what an engine wrote before its end is found below
            if (found := self.find(request)) is not None:
                return found
            if over:
                self._run.withdraw_request(request)
                raise NotFoundError(f"run {name} ended before it answered; nothing was changed")
            if clock() >= deadline:
                if withdrawn:
                    raise NoAnswerError(
                        f"run {name} took the request and has not answered; glassgate knobs get {name} shows what is "
                        "in force"
                    )
                if self._run.withdraw_request(request):
                    raise NoAnswerError(
                        f"run {name} did not take the request within {seconds:g} s, so it was withdrawn and nothing "
                        "was changed; see glassgate runs whether anything serves it, or allow more with --wait"
                    )
                withdrawn = True
                deadline = clock() + _GRACE_SECONDS
            sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """Close the journal."""
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    def _read(self) -> Iterator[AnyRecord]:
        if self._reader is None:
            if not list_segments(self._run.journal):
                return
            self._reader = JournalReader(self._run.journal, start=self._place)
        for frame in self._reader:
            if frame.kind != DATA:
                continue
            try:
                yield from decode(frame.payload)
            except msgspec.DecodeError:  # damage costs its own frame
                continue


def turn(
    run: RunDirectory,
    changes: Mapping[str, Any],
    who: str,
    *,
    seconds: float = WAIT_SECONDS,
    expect_revision: int | None = None,
) -> Turned:
    """Ask a live run for a knob change and wait for its answer. Raises as `ask_for_change` and `AnswerReader.wait` do.

    A refusal is an answer: `change.accepted` is False then, and `change.why` says why.
    """
    reader = AnswerReader(run)
    try:
        return reader.wait(ask_for_change(run, changes, who, expect_revision=expect_revision), seconds)
    finally:
        reader.close()


def find_live_run(name: str | None, base: Path | None) -> RunDirectory:
    """The live run of that name, or the only one there is.

    Raises NotFoundError where there is none or it is not live, UsageError where several live and none is named: a knob
    is never turned in a run picked by chance.
    """
    if name is not None:
        run = RunDirectory.find(name, base)
        _check_live(run)
        return run
    live = [each for each in _runs(base) if each.state in LIVE]
    if not live:
        raise NotFoundError(
            f"no run under {base or default_base()} is live; begin one, for instance with glassgate replay --pace 1"
        )
    if len(live) > 1:
        names = ", ".join(each.run.path.name for each in live[:_SHOWN])
        raise UsageError(f"{len(live)} runs are live ({names}); name the one to change")
    return live[0].run


def find_run(name: str | None, base: Path | None) -> RunDirectory:
    """The run of that name; else the live run begun last, or the run begun last. Raises NotFoundError without one."""
    if name is not None:
        return RunDirectory.find(name, base)
    runs = _runs(base)
    found = next((each for each in runs if each.state in LIVE), runs[0] if runs else None)
    if found is None:
        raise NotFoundError(f"no run is recorded under {base or default_base()} yet; record one with glassgate replay")
    return found.run


def _runs(base: Path | None) -> list[ListedRun]:
    """The runs that can be read, the latest begun first; of the ranks of one run the lowest."""
    listed = list_runs(base) if base is None or base.exists() else []
    lowest: dict[str, ListedRun] = {}
    for each in listed:
        if each.info is not None:
            known = lowest.get(each.info.run_id)
            if known is None or known.info is None or each.info.rank < known.info.rank:
                lowest[each.info.run_id] = each
    return list(lowest.values())


def _check_live(run: RunDirectory) -> None:
    state = run.state
    if state not in LIVE:
        what = "has ended" if state == "ended" else "has lost its engine"
        raise NotFoundError(f"run {run.path.name} {what}; only a live run's knobs can be turned (glassgate runs)")


def _end_of(journal: Path) -> Cursor | None:
    """The place behind all that a journal holds; None while it has no segment."""
    while segments := list_segments(journal):
        last = segments[-1]
        try:
            return Cursor(last.number, last.path.stat().st_size, -1)
        except FileNotFoundError:  # gone since it was listed, which only happens when there is a later one
            continue
        except OSError as error:
            raise RecordError(f"journal segment {last.path} cannot be read: {error.strerror}") from None
    return None
