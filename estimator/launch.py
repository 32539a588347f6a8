"""The `glassgate` command's first step: make sure the rooms that will be imported are ours.

Glassgate's import packages have short names. When another module called controller, store or ui stands earlier on
the import path, this says so in one line instead of failing somewhere inside.
"""

import importlib
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

ROOMS = ("controller", "estimator", "gpu_probe", "store", "ui")
SHADOWED = 8
"""Exit code when another module stands in a room's place."""
INTERRUPTED = 130
"""Exit code after Ctrl-C; a shell says the same of a process that SIGINT ended."""


def find_shadow(home: Path | None = None) -> tuple[str, str] | None:
    """(name, where it was found) of the first room that resolves to somebody else's module, else None.

    `home` is the folder that holds our rooms; by default the one this file was installed in.
    """
    ours = home or Path(__file__).resolve().parents[1]
    for name in ROOMS:
        spec = importlib.util.find_spec(name)
        where = "nowhere" if spec is None else spec.origin or ", ".join(spec.submodule_search_locations or ["?"])
        if where == "nowhere" or Path(where).resolve() != ours / name / "__init__.py":
            return name, where
    return None


def end_at_once(_number: int, _frame: FrameType | None) -> None:
    """What SIGINT does before a command's own work and after it: one line on stderr, and the process is over.

    Nothing is raised, since that would come out of whatever is being imported, made or closed just then.
    """
    with suppress(OSError):
        os.write(2, b"glassgate: interrupted\n")
    os._exit(INTERRUPTED)


@contextmanager
def raising_interrupts() -> Iterator[None]:
    """Within, SIGINT raises KeyboardInterrupt where it would else `end_at_once`, so that work in hand is closed."""
    if signal.getsignal(signal.SIGINT) is not end_at_once:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, end_at_once)


def main() -> int:
    """Run the command line, or say what stands in its way. Returns the exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a job in the background may ignore it
        signal.signal(signal.SIGINT, end_at_once)
    shadow = find_shadow()
    if shadow is not None:
        name, where = shadow
        sys.stderr.write(
            f"glassgate: another module named {name!r} is found before ours, at {where}. Take its folder out of "
            "PYTHONPATH, run from another folder, or install glassgate in a virtual environment of its own.\n"
        )
        return SHADOWED
    importlib.import_module("ui.cli").main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
