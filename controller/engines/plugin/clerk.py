"""Clerk: the one thread of a plug-in, which does whatever must not be done in a scheduling pass."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from controller.engines.plugin.status import write_status
from controller.prefixes import TokenPrefixes
from controller.records import PrefixHashes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from controller.digest import DigestRecorder
    from controller.engines.plugin.faults import Faults
    from controller.engines.plugin.requests import Requests
    from controller.engines.plugin.status import PluginStatus
    from controller.journal import JournalWriter
    from controller.recorder import Recorder

POLL_SECONDS: Final = 0.25
_STATUS_NS: Final = 1_000_000_000
_HASHES_AT_ONCE: Final = 64
_STOP_SECONDS: Final = 2.0
_LOST: Final = "the record of this run goes on without what failed"


class Clerk:
    """Appends what waits for no pass, hashes prefixes, looks for knob requests, and keeps the status file.

    It wakes four times a second. The journal is written under `lock`, which the scheduler's thread takes too.
    """

    def __init__(
        self,
        folder: Path,
        recorder: Recorder | DigestRecorder,
        writer: JournalWriter,
        lock: threading.Lock,
        status: PluginStatus,
        requests: Requests | None,
        faults: Faults,
    ) -> None:
        self._folder = folder
        self._recorder, self._writer, self._lock = recorder, writer, lock
        self.status = status
        self._requests, self._faults = requests, faults
        self._hashes: deque[tuple[int, Sequence[int], Sequence[int]]] = deque()
        self._prefixes = TokenPrefixes(secrets.token_bytes(16))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="glassgate-clerk", daemon=True)
        self._told_ns = 0

    def start(self) -> None:
        """Write the status file, so that whoever looks finds it, and begin."""
        self._tell(at_once=True)
        self._thread.start()

    def stop(self) -> None:
        """Do what is left to do, and end."""
        self._over.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_STOP_SECONDS)
        self._turn()
        self._tell(at_once=True)

    def hash_later(self, number: int, prompt: Sequence[int], output: Sequence[int] = ()) -> None:
        """Record the hashes of a request's prefix soon, and whom it shares it with.

        The token ids must not change meanwhile. With its output behind its prompt, more is known of a request.
        """
        self._hashes.append((number, prompt, output))

    def stand_aside(self, why: str) -> None:
        """Say in the status file that the plug-in is not in force any more."""
        self.status.in_force = False
        self.status.why_not = why

    def _run(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            self._turn()
            self._tell()

    def _turn(self) -> None:
        with self._faults.contained("hashing prefixes", "requests are recorded without the hashes of their prefixes"):
            self._hash()
        if self._requests is not None:
            with self._faults.contained("looking for knob requests", "knobs of this run cannot be changed"):
                self._requests.look()
        try:
            with self._lock:
                self._recorder.settle(time.monotonic_ns())
        except Exception as error:  # noqa: BLE001 - whatever it is, the engine serves on
            self._faults.add("recording", error, _LOST)
            with self._faults.contained("recording", _LOST), self._lock:
                self._recorder.mend()

    def _hash(self) -> None:
        for _ in range(_HASHES_AT_ONCE):
            if not self._hashes:
                return
            number, prompt, output = self._hashes.popleft()
            tokens = [*prompt, *output] if output else prompt
            prefix = self._prefixes.look(number, tokens)
            with self._lock:
                self._recorder.note(PrefixHashes(number, prefix.hashes, prefix.like, prefix.shared_tokens, len(tokens)))

    def _tell(self, *, at_once: bool = False) -> None:
        now = time.monotonic_ns()
        if not at_once and now - self._told_ns < _STATUS_NS:
            return
        self._told_ns = now
        status, passes = self.status, self._recorder.passes
        wall_ns = time.time_ns()
        if passes != status.passes:
            status.last_pass_ns = wall_ns
        status.passes, status.at_ns = passes, wall_ns
        status.losses = dict(self._writer.losses.by_reason)
        with self._faults.contained("writing the plug-in's status", "glassgate doctor cannot see how it fares"):
            write_status(self._folder, status)
        self._faults.write()
