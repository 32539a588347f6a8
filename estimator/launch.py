"""The `glassgate` command's first step: make sure the rooms that will be imported are ours.

Glassgate's import packages have short names. When another module called controller, store or ui stands earlier on
the import path, this says so in one line instead of failing somewhere inside.
"""

import importlib
import importlib.util
import sys
from pathlib import Path

ROOMS = ("controller", "estimator", "gpu_probe", "store", "ui")
SHADOWED = 8
"""Exit code when another module stands in a room's place."""


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


def main() -> int:
    """Run the command line, or say what stands in its way. Returns the exit code."""
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
