"""A lock on a file that says its holder lives: the kernel lets go of it when the process ends, however it ends."""

import contextlib
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self
from weakref import WeakSet

from controller.whole_file import FILE_MODE
from estimator.errors import StorageError

# Someone who only looks whether a lock is held takes it for an instant, so taking it is tried for this long.
_TRIES = 20
_TRY_SECONDS = 0.01


class HeldError(StorageError):
    """Another process holds a lock; `holder` is its id as the lock's file has it."""

    def __init__(self, words: str, holder: str = "unknown") -> None:
        super().__init__(words)
        self.holder = holder


class LivenessLock:
    """Holds the lock at path (made if missing, owner-only) until released or until the process ends.

    A process forked from the holder does not hold it. Raises HeldError if another process holds it, StorageError if the
    file cannot be opened; one that is a link to another is not, since it would be written to.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, FILE_MODE)
        except OSError as error:
            raise StorageError(f"lock {path} cannot be opened: {error.strerror}; make its folder writable") from None
        for _ in range(_TRIES):
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(_TRY_SECONDS)
        else:
            holder = _named_in(self._descriptor)
            self.release()
            raise HeldError(f"lock {path} is held by process {holder}; end that process first", holder)
        with contextlib.suppress(OSError):  # the holder's name is a courtesy; a full disk must not refuse the lock
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)
        _held.add(self)

    def release(self) -> None:
        """Let go of the lock; a second time does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


_held: WeakSet[LivenessLock] = WeakSet()


def is_held(path: Path) -> bool:
    """Whether a living process holds the lock at path. Raises StorageError if the file is there but not readable."""
    return holder_of(path) is not None


def holder_of(path: Path) -> str | None:
    """The id of the living process that holds the lock at path, as its file has it; None if nobody does.

    Raises StorageError if the file is there but not readable.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"lock {path} cannot be read: {error.strerror}; mend its permissions") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _named_in(descriptor)
    finally:
        os.close(descriptor)
    return None


def _named_in(descriptor: int) -> str:
    """The process that a lock's file names."""
    with contextlib.suppress(OSError):  # a pipe in its place
        return os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
    return "unknown"


def _let_go_in_child() -> None:
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_let_go_in_child)
