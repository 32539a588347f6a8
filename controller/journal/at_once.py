"""write_at_once: a write during which no other thread of the process runs.

`os.write` gives the interpreter's lock away. A busy thread of the engine that takes it keeps it for 5 ms or more
(`sys.getswitchinterval`), which holds the scheduler up, and cannot be told from a slow disk.
"""

from __future__ import annotations

import ctypes
import os

# A PyDLL keeps the lock while a function of it runs.
_write = ctypes.PyDLL(None, use_errno=True).write
_write.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
_write.restype = ctypes.c_ssize_t


def write_at_once(descriptor: int, data: bytes) -> int:
    """Write to a descriptor as `os.write` does, and return how many bytes it took. Raises OSError."""
    written: int = _write(descriptor, data, len(data))
    if written < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return written
