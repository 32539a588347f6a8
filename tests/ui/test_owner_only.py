"""Whatever the umask, what Glassgate writes is its owner's alone; and nobody else is served unless told so."""

import gzip
import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from estimator.errors import UsageError
from store.metric_export import prometheus_address
from store.scrape import LOCAL, parse_address
from tests.waiting import wait_until
from ui.app.web import Address, parse_web_address
from ui.commands.ui import WEB_DEFAULT

Command = tuple[str, ...]
STRANGER = 54_321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


def open_to_others(*folders: Path) -> list[str]:
    """Everything under some folders that a group or all may read, write or enter."""
    found = [path for folder in folders for path in folder.rglob("*") if not path.is_symlink()]
    assert found
    return [f"{stat.S_IMODE(path.stat().st_mode):04o} {path}" for path in found if path.stat().st_mode & 0o077]


def test_a_run_and_all_that_is_made_of_it_are_their_owners(
    command: Command, environment: dict[str, str], tmp_path: Path
):
    """Folder, journal, database with its log, locks, requests, settings saved, tables, traces, pictures, studies."""
    folder = tmp_path / "made"
    folder.mkdir(mode=0o700)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*command, *words], env=environment, cwd=folder, umask=0, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (words, done.stderr)
        return done

    home, config = Path(environment["GLASSGATE_HOME"]), Path(environment["XDG_CONFIG_HOME"])
    with subprocess.Popen(
        [*command, "replay", "--pace", "1", "--sessions", "400"],
        env=environment, cwd=folder, umask=0, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as live:  # fmt: skip
        wait_until(lambda: list(home.glob("runs/*/glassgate.db")), seconds=120)
        run("knobs", "set", "max_requests=3", "--save", "--wait", "120")
        run("query", "stops")
        assert {path.name for path in home.glob("runs/*/*")} >= {"glassgate.db-wal", "engine.lock", "knob-requests"}
        assert open_to_others(home, config) == []
        live.kill()
    run("replay", "--sessions", "20")
    run("query", "knobs")
    run("db", "export", "--into", "tables")
    run("trace", "export", "-o", "trace.jsonl.gz")
    run("ui", "--screenshot", "screen.svg")
    run("tune", "--points", "2", "--jobs", "1", "--min-fidelity", "0", "-o", "tuned.toml")
    assert gzip.decompress((folder / "trace.jsonl.gz").read_bytes())
    assert {path.name for path in folder.iterdir()} >= {"tables", "trace.jsonl.gz", "screen.svg"}
    assert open_to_others(home, config, folder) == []


@needs_root
def test_another_users_run_can_be_asked_and_stays_as_it_is(glassgate, environment: dict[str, str], tmp_path: Path):
    """A run that belongs to somebody else names a database; nothing is written there, nor beside the run."""
    assert glassgate("replay", "--sessions", "20", "--json").returncode == 0
    (run,) = (Path(environment["GLASSGATE_HOME"]) / "runs").iterdir()
    target = tmp_path / "planted.db"
    said = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**said, "context": {"database": str(target)}}))
    (run / "glassgate.db").unlink()
    for path in (run, *run.rglob("*")):
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)
    before = sorted(str(path) for path in run.rglob("*"))
    done = glassgate("query", "stops", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
    assert f"belongs to user {STRANGER}" in done.stderr
    assert sorted(str(path) for path in run.rglob("*")) == before
    assert not target.exists()
    refused = glassgate("collect", str(run), "--once")
    assert refused.returncode == 6, refused.stderr
    assert not target.exists()


@needs_root
def test_a_database_that_is_another_users_link_is_not_written(glassgate, environment: dict[str, str], tmp_path: Path):
    """A link in the place of a run's database does not make us write what it leads to."""
    assert glassgate("replay", "--sessions", "20", "--json").returncode == 0
    (run,) = (Path(environment["GLASSGATE_HOME"]) / "runs").iterdir()
    (run / "glassgate.db").unlink()
    target = tmp_path / "planted"
    (run / "glassgate.db").symlink_to(target)
    os.chown(run / "glassgate.db", STRANGER, STRANGER, follow_symlinks=False)
    done = glassgate("query", "stops", "--json")
    assert done.returncode == 0, done.stderr
    assert f"link of user {STRANGER}" in done.stderr
    assert not target.exists()


def test_nobody_else_is_served_unless_an_address_says_so():
    """The screen in a browser and the metrics listen on this machine alone by default."""
    assert parse_web_address(WEB_DEFAULT).loopback
    assert parse_web_address("8000").loopback
    assert not parse_web_address("0.0.0.0:8000").loopback
    assert not Address("example.org", 80).loopback
    assert parse_address("9464")[0] == parse_address(":9464")[0] == LOCAL == "127.0.0.1"
    assert prometheus_address({})[0] == "127.0.0.1"


@pytest.mark.parametrize("port", ["9" * 5_000, "65536", "-1", "٣²", ""], ids=range(5))
def test_a_port_that_is_none_is_told(port: str):
    """A number too long to read is an error like any other."""
    with pytest.raises(UsageError):
        parse_address(f"host:{port}")
    if port:
        with pytest.raises(UsageError):
            prometheus_address({"OTEL_EXPORTER_PROMETHEUS_PORT": port})
