"""The launcher: another module in a room's place is named, with the remedy."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from estimator.launch import ROOMS, SHADOWED, find_shadow


def run_launcher(shadows: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The launcher as the installed script runs it, with a folder ahead of ours on the import path."""
    home = Path(__file__).resolve().parents[2]
    code = "import sys; from estimator.launch import main; sys.argv = ['glassgate', '--version']; sys.exit(main())"
    env = {**os.environ, "PYTHONPATH": f"{shadows}{os.pathsep}{home}"}
    return subprocess.run([sys.executable, "-c", code], env=env, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("room", ["controller", "store", "ui"])
@pytest.mark.parametrize("form", ["module", "package", "namespace"])
def test_a_shadowed_room_is_named_with_the_remedy(tmp_path: Path, room: str, form: str):
    """Another module called controller, store or ui gets one line that names it, its place and the remedy."""
    shadows, cwd = tmp_path / "shadows", tmp_path / "cwd"
    shadows.mkdir()
    cwd.mkdir()
    if form == "module":
        (shadows / f"{room}.py").write_text("raise SystemError('imported')")
    else:
        (shadows / room).mkdir()
        if form == "package":
            (shadows / room / "__init__.py").write_text("raise SystemError('imported')")
    done = run_launcher(shadows, cwd)
    if form == "namespace":  # a folder without __init__.py never wins over a real package
        assert done.returncode == 0
        return
    assert done.returncode == SHADOWED
    assert done.stdout == ""
    line = done.stderr
    assert line.count("\n") == 1
    assert repr(room) in line
    assert str(shadows) in line
    assert "PYTHONPATH" in line
    assert "virtual environment" in line


def test_nothing_is_shadowed_in_a_sound_installation():
    """In this installation every room is found where the launcher stands."""
    assert find_shadow() is None


def test_every_package_of_the_distribution_is_checked():
    """The launcher knows every top-level package that the distribution installs."""
    home = Path(__file__).resolve().parents[2]
    assert set(ROOMS) == {path.parent.name for path in home.glob("*/__init__.py")}
