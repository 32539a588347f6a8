"""Where one run keeps its things: run.json, its journal, its liveness locks, its knob requests."""

import contextlib
import datetime as dt
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import msgspec

from controller.knob_requests import KnobRequest, leave_request, take_requests, withdraw_request
from controller.liveness import HeldError, LivenessLock, holder_of, is_held
from controller.whole_file import FOLDER_MODE, decode_json, is_strangers, make_folders, read_small, write_whole
from estimator.errors import NotFoundError, RecordError, StorageError, UsageError

RUN_FORMAT = 1
HOME_VARIABLE = "GLASSGATE_HOME"
DATABASE = "glassgate.db"
"""The database of a run, in the run's folder unless another was named when it began."""

RunState = Literal["live", "ended", "engine_gone", "collector_gone"]
LIVE: frozenset[RunState] = frozenset({"live", "collector_gone"})
"""The states of a run whose engine lives."""
_REQUESTS = "knob-requests"


@dataclass(frozen=True, slots=True)
class _Format:
    """The one field of run.json that every version has."""

    format: int


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What run.json says of a run. Times are UTC in ISO 8601; `ended` is None until the run ended in good order.

    `version` is the engine's, `context` what else is known of its surroundings, `knobs` those it began with.
    """

    run_id: str
    engine: str
    version: str
    model: str | None
    rank: int
    started: str
    pid: int
    context: dict[str, Any] = field(default_factory=dict)
    knobs: dict[str, Any] = field(default_factory=dict)
    ended: str | None = None
    end_reason: str | None = None
    format: int = RUN_FORMAT


class ListedRun(NamedTuple):
    """One line of a list of runs: `info` and `state`, or the error that keeps them from being read."""

    run: "RunDirectory"
    info: RunInfo | None
    state: RunState | None
    error: str | None


class RunDirectory:
    """The folder of one run. Open an existing one by its path; raise RecordError if it is none."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._engine_lock: LivenessLock | None = None
        if not (self.path / "run.json").is_file():
            why = "it holds no run.json" if self.path.exists() else "there is nothing there"
            raise RecordError(f"{self.path} is no run: {why}; name a run's folder or its id")

    @classmethod
    def create(
        cls,
        base: Path | None = None,
        *,
        engine: str,
        version: str,
        model: str | None = None,
        rank: int = 0,
        context: Mapping[str, Any] | None = None,
        knobs: Mapping[str, Any] | None = None,
        run_id: str | None = None,
    ) -> Self:
        """Make the folder of a run that begins now, under base, and hold its engine lock for this process.

        `run_id` (by default 8 random hex digits) names the folder; ranks above 0 add theirs, so that the ranks of one
        run can share its id. Raises StorageError if the folder cannot be made or is there already.
        """
        base = default_base() if base is None else base
        run_id = uuid.uuid4().hex[:8] if run_id is None else run_id
        path = run_folder(base, run_id, rank)
        info = RunInfo(
            run_id, engine, version, model, rank, _utc_time(), os.getpid(), dict(context or {}), dict(knobs or {})
        )
        # Made under another name and renamed, so that nobody sees a run without its run.json or its lock.
        begun = base / f".{path.name}.{os.getpid()}.new"
        lock: LivenessLock | None = None
        try:
            make_folders(base)
            begun.mkdir(mode=FOLDER_MODE)
            for name in ("journal", _REQUESTS):
                (begun / name).mkdir(mode=FOLDER_MODE)
            _write_info(begun, info)
            lock = LivenessLock(begun / "engine.lock")
            begun.rename(path)
        except (OSError, StorageError) as error:
            if lock is not None:
                lock.release()
            shutil.rmtree(begun, ignore_errors=True)
            why = error.strerror if isinstance(error, OSError) else error
            raise StorageError(
                f"run {run_id} cannot be kept at {path}: {why}; free space or name a writable folder in {HOME_VARIABLE}"
            ) from None
        run = cls(path)
        run._engine_lock = lock
        return run

    @classmethod
    def find(cls, name: str, base: Path | None = None) -> Self:
        """Open the run with that id, unique beginning of an id, or path; of several ranks the first.

        Raises NotFoundError if there is none, UsageError if a beginning fits several, RecordError for a path that is
        no run.
        """
        if os.sep in name or (Path(name) / "run.json").is_file():
            return cls(name)
        base = default_base() if base is None else base
        try:
            names = _run_names(base) if name else []
        except StorageError:
            names = []
        fitting = [name] if name in names else [each for each in names if each.startswith(name)]
        if not fitting:
            raise NotFoundError(f"no run {name!r} under {base}; name an id, the beginning of one, or a run's path")
        if all(re.fullmatch(rf"{re.escape(fitting[0])}-\d+", each) for each in fitting[1:]):
            del fitting[1:]  # they are ranks of one run, whose first is meant
        if len(fitting) > 1:
            raise UsageError(f"run {name!r} fits {len(fitting)} runs ({', '.join(fitting[:4])}); give more digits")
        return cls(base / fitting[0])

    @property
    def journal(self) -> Path:
        """The folder of the run's journal."""
        return self.path / "journal"

    @property
    def requests(self) -> Path:
        """The folder of the requests for knob changes that were left beside the run."""
        return self.path / _REQUESTS

    @property
    def info(self) -> RunInfo:
        """What run.json says at this moment; raises RecordError if it cannot be read as that."""
        path = self.path / "run.json"
        try:
            content = read_small(path)
            version = decode_json(content, _Format).format
            if version <= RUN_FORMAT:
                return decode_json(content, RunInfo)
        except FileNotFoundError:
            raise RecordError(f"{path} has gone: somebody removed or moved the run's folder; put it back") from None
        except OSError as error:
            raise RecordError(f"{path} cannot be read: {error.strerror}; mend its permissions") from None
        except msgspec.DecodeError as error:
            raise RecordError(f"{path} is not a run's: {error}; restore it or remove the folder") from None
        raise RecordError(
            f"{path} has format version {version}, this Glassgate reads up to {RUN_FORMAT}; use the one that wrote it"
        )

    @property
    def stranger(self) -> int | None:
        """The user, neither root nor us, to whom the folder or its run.json belongs; None where it is nobody."""
        with contextlib.suppress(OSError):
            for path in (self.path, self.path / "run.json"):
                status = path.stat()
                if is_strangers(status):
                    return status.st_uid
        return None

    @property
    def state(self) -> RunState:
        """Whether the run ended in good order, lives, or lost its engine or the collector it once had."""
        # The lock is looked at first: an engine that ends in good order writes its end mark before it lets go.
        engine_lives = is_held(self.path / "engine.lock")
        if self.info.ended is not None:
            return "ended"
        if not engine_lives:
            return "engine_gone"
        collector_lock = self.path / "collector.lock"
        return "collector_gone" if collector_lock.exists() and not is_held(collector_lock) else "live"

    def end(self, reason: str = "finished") -> None:
        """Mark the run as ended in good order and let go of its engine lock. Raises StorageError if it cannot be."""
        try:
            _write_info(self.path, replace(self.info, ended=_utc_time(), end_reason=reason))
        except OSError as error:
            raise StorageError(f"the end of run {self.path} cannot be marked: {error.strerror}; free space") from None
        finally:
            self.release()

    def discard(self) -> None:
        """Remove a run that never began: its folder with everything in it."""
        self.release()
        shutil.rmtree(self.path, ignore_errors=True)

    def release(self) -> None:
        """Let go of the engine lock without an end mark, as when the engine dies."""
        if self._engine_lock is not None:
            self._engine_lock.release()
        self._engine_lock = None

    def hold_engine_lock(self) -> LivenessLock:
        """Say that this process is the run's engine; raises StorageError if another one is."""
        return LivenessLock(self.path / "engine.lock")

    def hold_collector_lock(self) -> LivenessLock:
        """Say that this process collects the run's journal; raises StorageError if another one does.

        Whoever collects writes where the run's folder says, so one of another user's is not collected.
        """
        stranger = self.stranger
        if stranger is not None:
            raise StorageError(
                f"run {self.path} belongs to user {stranger}, and nothing is written where another user's run says; "
                "collect it as that user"
            )
        lock = self.path / "collector.lock"
        try:
            return LivenessLock(lock)
        except HeldError as error:
            remedy = "; one collector is enough: query its database, or end that process to collect here"
            if self._is_engine(error.holder):
                remedy = ", which serves the run and keeps its database too: query that, there is nothing to collect"
            raise HeldError(f"lock {lock} is held by process {error.holder}{remedy}", error.holder) from None

    def _is_engine(self, process: str) -> bool:
        """Whether a process, as a lock's file names it, is the run's engine."""
        try:
            return process != "unknown" and process == holder_of(self.path / "engine.lock")
        except StorageError:
            return False

    def leave_request(self, content: Mapping[str, Any]) -> str:
        """Leave a request for a knob change and return its name; raises StorageError if it cannot be written."""
        return leave_request(self.requests, content)

    def take_requests(self) -> list[KnobRequest]:
        """Take the requests left since the last time, oldest first, a bounded number at a time."""
        return take_requests(self.requests)

    def withdraw_request(self, name: str) -> bool:
        """Take back a request; False if it was taken already. Raises StorageError if the folder cannot be written."""
        return withdraw_request(self.requests, name)


def default_base() -> Path:
    """Return the folder that holds runs: $GLASSGATE_HOME/runs, or glassgate/runs in the XDG state folder."""
    home = os.environ.get(HOME_VARIABLE)
    if home:
        return Path(home) / "runs"
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    with contextlib.suppress(RuntimeError):
        return (state if state.is_absolute() else Path.home() / ".local" / "state") / "glassgate" / "runs"
    raise StorageError(f"there is no home folder to keep runs in; name a folder in {HOME_VARIABLE}")


def run_folder(base: Path, run_id: str, rank: int) -> Path:
    """Return the folder of one rank of a run under base: the run's id, with the rank behind it above rank 0."""
    return base / (f"{run_id}-{rank}" if rank else run_id)


def list_runs(base: Path | None = None) -> list[ListedRun]:
    """Return the runs under base, the latest begun first; those whose run.json cannot be read come last.

    A default folder that is not there yet holds no runs; raises StorageError if a named one cannot be listed.
    """
    if base is None:
        base = default_base()
        if not base.exists():
            return []
    listed = []
    for name in _run_names(base):
        run = RunDirectory(base / name)
        try:
            listed.append(ListedRun(run, run.info, run.state, None))
        except (RecordError, StorageError) as error:
            listed.append(ListedRun(run, None, None, str(error)))
    return sorted(listed, key=lambda each: (each.info.started if each.info else "", each.run.path.name), reverse=True)


def ranks_of(run: RunDirectory) -> list[RunDirectory]:
    """Return the folders of all ranks of a run on this machine, the lowest rank first; at least the one given.

    They stand beside each other and share the run's id. Raises RecordError if the one given cannot be read.
    """
    info, base = run.info, run.path.parent
    found = {info.rank: run}
    with contextlib.suppress(OSError):
        for path in base.glob(f"{info.run_id}*"):
            with contextlib.suppress(RecordError):
                other = RunDirectory(path)
                theirs = other.info
                if theirs.run_id == info.run_id and path != run.path:
                    found.setdefault(theirs.rank, other)
    return [found[rank] for rank in sorted(found)]


def _run_names(base: Path) -> list[str]:
    """Return the names of the folders under base that hold a run.json, sorted."""
    try:
        return sorted(each.name for each in base.iterdir() if each.name[0] != "." and (each / "run.json").is_file())
    except OSError as error:
        raise StorageError(
            f"the runs in {base} cannot be listed: {error.strerror}; name a readable folder in {HOME_VARIABLE}"
        ) from None


def _write_info(folder: Path, info: RunInfo) -> None:
    write_whole(folder / "run.json", msgspec.json.format(msgspec.json.encode(info), indent=2) + b"\n")


def _utc_time() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
