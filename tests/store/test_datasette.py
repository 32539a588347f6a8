"""Datasette, really started on a recorded database, has our descriptions and answers our queries."""

import html
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from store.datasette import FILE, metadata, page
from store.descriptions import COLUMNS, EXCEPT, TABLES
from store.named import NAMED
from store.queries import run_query

yaml = pytest.importorskip("yaml", reason="comes with Datasette")
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "datasette"


def test_the_metadata_is_what_the_code_says():
    """The file in docs is the one the code would write, and reads as the same metadata."""
    text = FILE.read_text(encoding="utf-8")
    assert text == page(), "run `python -m store.datasette`"
    assert yaml.safe_load(text) == metadata()


def test_everything_is_described():
    """Every table, view and column has a description, and no description is of something that is not there."""
    tables = metadata()["databases"]["glassgate"]["tables"]
    described = {name: each["columns"] for name, each in tables.items() if "columns" in each}
    assert set(described) == set(TABLES)
    assert all(text for columns in described.values() for text in columns.values())
    used = {column for columns in described.values() for column in columns}
    assert set(COLUMNS) - used == set()
    assert all(column in described[table] for table, column in EXCEPT)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, world):
    """A recorded database under the name the metadata is for."""
    engine = world(max_requests=2)
    for number in range(12):
        engine.arrive(f"r{number}", number, 1000)
        if number % 3 == 2:
            engine.step(number + 0.5, free=900 if number == 8 else 100_000)
    engine.end(50)
    return engine.into(tmp_path_factory.mktemp("datasette") / "glassgate.db")


def get(port, path):
    """What a server on this machine answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, text[-500:]
        return text
    finally:
        connection.close()


@pytest.fixture(scope="module")
def address(recorded):
    """Datasette on a free port of this machine; ended by its own process id."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "datasette", str(recorded), "--host", "127.0.0.1", "--port", str(port),
        "--metadata", str(FILE), "--plugins-dir", str(FOLDER / "plugins"), "--setting", "sql_time_limit_ms", "20000",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=FOLDER.parents[1]) as process:
        deadline = time.monotonic() + 30
        while True:
            try:
                get(port, "/-/versions.json")
                break
            except ConnectionError:
                if process.poll() is not None or time.monotonic() > deadline:
                    process.kill()
                    pytest.fail(f"Datasette did not start: {process.stderr.read().decode()[-500:]}")
                time.sleep(0.1)
        yield port
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)


def fetch(address, path):
    """What Datasette answers as JSON."""
    return json.loads(get(address, path))


@pytest.mark.parametrize("name", NAMED)
def test_a_canned_query_answers_as_ours_does(address, recorded, name):
    """Every named query, fetched over HTTP with nothing filled in, gives the rows that `glassgate query` gives."""
    rows = fetch(address, f"/glassgate/{name}.json?_shape=arrays&run=&limit=")["rows"]
    assert [tuple(row) for row in rows] == run_query(recorded, name).rows


def test_a_canned_query_takes_a_run_and_a_limit(address):
    """What is filled into the form is heeded."""
    assert len(fetch(address, "/glassgate/batches.json?_shape=array&run=1&limit=2")) == 2
    assert fetch(address, "/glassgate/batches.json?_shape=array&run=77") == []


def test_tables_are_described_where_people_look(address):
    """A table's page shows its description and those of its columns, and a foreign key leads to its word."""
    shown = html.unescape(get(address, "/glassgate/decisions"))
    assert TABLES["decisions"] in shown
    assert COLUMNS["short_by"] in shown
    assert "/glassgate/gates/3" in shown
    rows = fetch(address, "/glassgate/v_decisions.json?_shape=array&_facet=gate&gate=request_count")
    assert {row["gate"] for row in rows} == {"request_count"}
