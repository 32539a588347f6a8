"""An OTLP endpoint that refuses, hangs or answers garbage, by turns, while an engine lives."""

import time
from contextlib import AbstractContextManager, ExitStack, nullcontext

from tests.faults import plan
from tests.faults.accounting import balance, read_journal, read_store
from tests.faults.processes import Engine, until
from tests.store.receivers import Deaf, Receiver, Rude, free_port

STATUS = {"answers HTTP garbage": "503 " + "x" * 3000, "answers 500": "500 Oops", "redirects": "302 There"}
MOODS = ("refuses", "hangs", "answers garbage", *STATUS)


def endpoint_that(mood: str, port: int, noise: bytes) -> AbstractContextManager[Deaf | None]:
    """Whoever listens at a port in that mood; nobody where it refuses."""
    if mood == "refuses":
        return nullcontext()
    if mood in STATUS:
        return Rude(STATUS[mood], noise, port=port)
    return Deaf(b"" if mood == "hangs" else noise, port=port)


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
            with endpoint_that(mood, port, draw.randbytes(4096)) as rude:
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
        spans = [each for one in (*receivers, receiver) for each in one.ids("prefill.decision")]
        journal, store = read_journal(engine.run.journal), read_store(database, "run")
    tally.decisions = balance(journal, store).decisions
    wanted = place.decision_spans()
    assert set(spans) == wanted
    tally.count("spans of decisions", len(wanted))
    tally.count("of them sent once more under the same id", len(spans) - len(wanted))
    tally.remark = f"SIGTERM with the endpoint away: 5 s to deliver, the process gone after {took:.1f} s"
    tally.note()
