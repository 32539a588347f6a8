"""An OTLP endpoint that refuses, hangs or answers garbage, by turns, while an engine lives."""

import contextlib
import json
import socket
import threading
import time
from contextlib import ExitStack
from random import Random
from typing import Self

from tests.faults import plan
from tests.faults.accounting import balance, read_journal, read_store
from tests.faults.processes import Engine, until
from tests.store.receivers import Receiver, free_port

MOODS = ("refuses", "hangs", "answers garbage", "answers HTTP garbage", "answers 500", "redirects")


class Rude:
    """A socket that accepts whoever comes, and then says nothing, or what it should not."""

    def __init__(self, port: int, mood: str, draw: Random) -> None:
        self._mood = mood
        self._noise = draw.randbytes(4096)
        self._socket = socket.create_server(("127.0.0.1", port), reuse_port=False)
        self._held: list[socket.socket] = []
        self.accepted = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.accepted += 1
            self._held.append(connection)
            if self._mood != "hangs":
                with contextlib.suppress(OSError):
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        if self._mood == "answers garbage":
            connection.sendall(self._noise)
        else:
            connection.settimeout(1)
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(65_536)
            head, body = request.split(b"\r\n\r\n", 1)
            size = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            while len(body) < size:
                body += connection.recv(65_536)
            status = {"answers HTTP garbage": "503 " + "x" * 3000, "answers 500": "500 Oops", "redirects": "302 There"}
            words = (
                f"HTTP/1.1 {status[self._mood]}\r\nContent-Length: {len(self._noise)}\r\nLocation: /elsewhere\r\n\r\n"
            )
            connection.sendall(words.encode() + self._noise)
        connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()
        for each in self._held:
            each.close()


def test_an_endpoint_that_is_not_well(place):
    """SQLite is never held up, and once the endpoint is well every span has come, under one id each."""
    draw = plan.draw("endpoint")
    tally = plan.Tally(
        10, "the OTLP endpoint refuses, hangs, answers garbage", "an endpoint in one bad mood after another, well in "
        "between, beside a live engine; also a 503 of noise, a 500 and a redirect", unit="moods",
    )  # fmt: skip
    port = free_port()
    endpoint = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{port}/v1/traces",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
    }
    receivers: list[Receiver] = []
    with ExitStack() as held:
        engine = held.enter_context(Engine(place, pause_ms=200, segment_bytes=1 << 18))
        database = engine.run.path / "glassgate.db"
        collector = held.enter_context(place.start("collect", str(engine.run.path), **endpoint))
        turns = plan.rounds(0.05)
        for mood in [*MOODS, *(draw.choice(MOODS) for _ in range(turns))] if plan.LONG else MOODS[:3]:
            with contextlib.nullcontext() if mood == "refuses" else Rude(port, mood, draw) as rude:
                if rude is not None:
                    until(lambda: rude.accepted, "a try")
                engine.goes_on(100)
                until(lambda: engine.ahead_of(database) < 100, "SQLite")
                assert collector.poll() is None
            tally.times += 1
            if draw.random() < 0.5:
                with Receiver(port=port) as receiver:
                    until(lambda: receiver.spans, "spans")
                receivers.append(receiver)
        began = time.monotonic()
        collector.terminate()
        collector.ended()
        took = time.monotonic() - began
        engine.end()
        with Receiver(port=port) as receiver:
            place.catch_up(engine.run.path, "--shutdown-seconds", "100", **endpoint)
        spans = [each for one in (*receivers, receiver) for each in ids_of(one)]
        journal, store = read_journal(engine.run.journal), read_store(database, "run")
    tally.decisions = balance(journal, store).decisions
    told = place.say("query", "SELECT trace_id, span_id FROM decision_spans", "--limit", "1000000", "--json")
    wanted = {(row["trace_id"], row["span_id"]) for row in json.loads(told.stdout)}
    assert set(spans) == wanted
    tally.count("spans of decisions", len(wanted))
    tally.count("of them sent once more under the same id", len(spans) - len(wanted))
    tally.remark = f"SIGTERM with the endpoint away: 5 s to deliver, the process gone after {took:.1f} s"
    tally.note()


def ids_of(receiver: Receiver) -> list[tuple[str, str]]:
    """The ids of the spans of decisions that came."""
    return [(span.trace_id.hex(), span.span_id.hex()) for span in receiver.named("prefill.decision")]
