"""Knob requests passed on to an engine's endpoint: what is posted, what comes back, and what is left when it fails."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from controller.engines.plugin.broadcast import answer_forwarded, list_forwarded, number_of
from controller.engines.plugin.status import Http, InProcess, PluginStatus, write_status
from controller.knob_turning import asked_change
from controller.run_directory import RunDirectory
from store import forward as forwarding
from store.follow import Follower, Plan
from store.forward import forward


class Endpoint:
    """An engine's endpoint on this machine, which answers as a test wants and keeps what it was told."""

    def __init__(self):
        self.status, self.answer, self.told, self.meanwhile = 200, [{"updated": True}], [], lambda: None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.told.append((self.path, self.headers.get("Authorization"), json.loads(body)))
                outer.meanwhile()
                content = outer.answer if isinstance(outer.answer, bytes) else json.dumps(outer.answer).encode()
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/set_internal_state"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def endpoint():
    """An endpoint, ended with the test."""
    made = Endpoint()
    yield made
    made.server.shutdown()
    made.server.server_close()


def run_with(tmp_path, way, name="fwd00001"):
    """A live run whose plug-in has a way for knob requests."""
    run = RunDirectory.create(tmp_path / "runs", engine="sglang", version="1", run_id=name)
    status = PluginStatus("sglang", "1", "1", 1, 1, 0, "", 1, True, (), way)
    write_status(run.path, status)
    return run


@pytest.fixture
def run(tmp_path, endpoint):
    """A live run whose engine has the endpoint."""
    return run_with(tmp_path, Http(endpoint.url, "server_args"))


def ask(run, **changes):
    """Leave a request; its name."""
    return run.leave_request(asked_change(changes or {"max_requests": 3}, "ada"))


def left(run):
    """(name, why) of what waits for the engine's answer."""
    return [(each.name, each.why) for each in list_forwarded(run.path / "knob-requests")]


def test_numbers_are_posted_and_who_asked_stays_beside_the_run(run, endpoint, monkeypatch):
    """The engine gets numbers alone, under the key that the collector was given; the file has the request as it was."""
    monkeypatch.setenv("GLASSGATE_ENGINE_KEY", "secret")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9/")
    name = ask(run, max_requests=3, enforce="off")
    said = []
    assert forward(run, said.append) == 1
    assert endpoint.told == [
        (
            "/set_internal_state",
            "Bearer secret",
            {
                "server_args": {
                    "glassgate_max_requests": 3, "glassgate_enforce": 0, "glassgate_request": number_of(name),
                    "glassgate_expect_revision": -1,
                }
            },
        )
    ]  # fmt: skip
    assert left(run) == [(name, "")]
    assert list_forwarded(run.path / "knob-requests")[0].request.content["who"] == "ada"
    assert said == []
    assert forward(run, said.append) == 0


@pytest.mark.parametrize(
    ("status", "answer", "words"),
    [
        (401, b"no", ["wants its admin key", "GLASSGATE_ENGINE_KEY"]),
        (500, b"broken\nserver", ["HTTP 500", "broken server"]),
        (200, [{"updated": True}, {"updated": False}], ["did not take it"]),
    ],
)
def test_what_the_engine_does_not_take_is_left_with_the_reason(run, endpoint, status, answer, words):
    """An endpoint that refuses, or a rank that changes nothing, leaves the reason for the engine to record."""
    endpoint.status, endpoint.answer = status, answer
    name = ask(run)
    said = []
    forward(run, said.append)
    ((found, why),) = left(run)
    assert found == name
    assert all(word in why for word in words)
    assert name in said[0]


def test_a_refusal_that_the_engine_recorded_itself_is_not_told_twice(run, endpoint):
    """Where the engine has taken the file with its own answer, nothing more is left for it."""
    endpoint.answer = [{"updated": False}]
    name = ask(run)
    endpoint.meanwhile = lambda: answer_forwarded(run.path / "knob-requests", number_of(name))
    said = []
    forward(run, said.append)
    assert (left(run), said) == ([], [])


def test_an_engine_that_does_not_answer_holds_nobody_up_for_ever(run, endpoint, monkeypatch):
    """After a bound the request is left with word that it may still take effect."""
    monkeypatch.setattr(forwarding, "ANSWER_SECONDS", 0.2)
    gate = threading.Event()
    endpoint.meanwhile = lambda: gate.wait(10)
    ask(run)
    forward(run, lambda _: None)
    gate.set()
    assert "may still take effect" in left(run)[0][1]


def test_an_engine_that_cannot_be_reached_is_told(tmp_path):
    """A closed port is a reason like any other."""
    run = run_with(tmp_path, Http("http://127.0.0.1:9/x", "server_args"))
    ask(run)
    forward(run, lambda _: None)
    assert "cannot be reached" in left(run)[0][1]


def test_a_certificate_is_checked_unless_the_engine_is_on_this_machine():
    """An engine at a loopback address may show a certificate for the name that its users know; any other may not."""
    for host in ("127.0.0.1", "[::1]", "localhost"):
        assert forwarding._tls(f"https://{host}:1/x").verify_mode is ssl.CERT_NONE
    assert forwarding._tls("https://engine.example:1/x").verify_mode is ssl.CERT_REQUIRED
    assert forwarding._tls("https://engine.example:1/x").check_hostname


def test_what_is_no_request_is_never_posted(run, endpoint):
    """A file that is no request comes back with why, and the engine hears nothing."""
    (run.path / "knob-requests" / "00000000000000000001-1-x.json").write_text("[]")
    forward(run, lambda _: None)
    assert endpoint.told == []
    assert "not a JSON object" in left(run)[0][1]


def test_requests_of_other_engines_are_left_alone(tmp_path):
    """What an engine takes in its own process, or a run without a plug-in, is not the collector's to take."""
    in_process = run_with(tmp_path, InProcess(), "in000001")
    without = RunDirectory.create(tmp_path / "runs", engine="replay", version="1", run_id="re000001")
    for run in (in_process, without):
        name = ask(run)
        assert forward(run, lambda _: None) == 0
        assert (run.path / "knob-requests" / name).exists()


def test_a_collector_passes_on_what_is_left_while_it_follows(run, endpoint, tmp_path):
    """A request left beside a live run reaches the engine within a moment, from `glassgate collect`."""
    follower = Follower(Plan(runs=run, database=lambda each: each.path / "glassgate.db"), lambda _: None)
    endpoint.meanwhile = follower.stop
    name = ask(run)
    follower.follow()
    assert [body["server_args"]["glassgate_request"] for _, _, body in endpoint.told] == [number_of(name)]
    assert tmp_path.exists()
