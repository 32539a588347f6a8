"""The OTLP sink and its endpoint: nothing is lost uncounted whatever it answers, and nobody waits for it."""

import time

import pytest

from store import otlp
from tests.store.receivers import Deaf, Receiver, frames_from, free_port
from tests.waiting import wait_until


def test_an_endpoint_that_is_down_at_first_gets_everything(recorded, endpoint, sinks):
    """While nobody listens nothing is lost and the sink wants no more than it can hold; then all of it arrives."""
    frames = frames_from(recorded)
    port = free_port()
    endpoint(port, TIMEOUT="1")
    sink = sinks(recorded)
    begin = time.monotonic()
    sink.take(frames[: len(frames) // 2])
    assert time.monotonic() - begin < 0.5
    wait_until(lambda: sink.status().failures > 0, 20)
    assert sink.cursor is None
    assert not sink.settle(0.05)
    assert sink.wants == otlp.QUEUE_FRAMES - len(frames) // 2
    assert sink.failures_by_reason.keys() == {"unreachable"}
    assert f"http://127.0.0.1:{port}/v1/traces: Connection refused" in sink.status().last_error
    with Receiver(port=port) as receiver:
        sink.take(frames[len(frames) // 2 :])
        assert sink.settle(20)
        assert len(receiver.spans) == len(set(receiver.ids())) == 180
    assert sink.status().lost == 0


@pytest.mark.parametrize("status", [503, 500, 429, 401, 404, 302])
def test_an_endpoint_that_is_ill_loses_nothing(recorded, endpoint, sinks, status):
    """5xx, too many, no permission, a wrong path or a redirect: it is tried again until the endpoint is well."""
    with Receiver(status) as receiver:
        endpoint(receiver.port, TIMEOUT="0.3")
        sink = sinks(recorded)
        sink.take(frames_from(recorded))
        wait_until(lambda: sink.status().failures >= 2, 20)
        assert (sink.status().lost, sink.cursor) == (0, None)
        receiver.status = 200
        assert sink.settle(20)
        assert len(set(receiver.ids())) == 180


def test_what_is_refused_for_good_is_given_up_and_counted(recorded, endpoint, sinks):
    """After some attempts a batch answered with 400 is lost, counted by reason, and what follows is delivered."""
    frames = frames_from(recorded)
    with Receiver(400) as receiver:
        endpoint(receiver.port)
        sink = sinks(recorded, first_wait_s=0.01)
        sink.take(frames[:30])
        assert sink.settle(20)
        lost = sink.status().lost
        assert lost > 0
        assert sink.lost_by_reason == {"refused": lost}
        assert sink.status().failures == receiver.requests == otlp.ATTEMPTS
        assert sink.cursor == frames[29].cursor
        receiver.status = 200
        sink.take(frames[30:])
        assert sink.settle(20)
        assert sink.status().delivered == len(receiver.spans) == 180 - lost


def test_a_batch_that_is_too_large_is_cut(recorded, endpoint, sinks):
    """Answered with 413, batches are halved until they are taken, and nothing is lost."""
    with Receiver(most_bytes=20_000) as receiver:
        endpoint(receiver.port)
        sink = sinks(recorded)
        sink.take(frames_from(recorded))
        assert sink.settle(20)
        assert (len(receiver.ids()), len(set(receiver.ids())), sink.status().lost) == (180, 180, 0)
        assert sink.failures_by_reason["too_large"] > 0


def test_a_span_that_is_too_large_alone_is_given_up(recorded, endpoint, sinks):
    """What no batch is small enough for is lost, counted by reason, and the cursor goes on."""
    frames = frames_from(recorded)[:3]
    with Receiver(most_bytes=10) as receiver:
        endpoint(receiver.port)
        sink = sinks(recorded, first_wait_s=0.001)
        sink.take(frames)
        assert sink.settle(20)
        assert (receiver.spans, sink.cursor) == ([], frames[-1].cursor)
        assert sink.lost_by_reason.keys() == {"too_large"}


def test_what_an_endpoint_throws_away_is_counted(recorded, endpoint, sinks):
    """A partial success counts as lost what it rejected, with the endpoint's words."""
    with Receiver(rejects=3) as receiver:
        endpoint(receiver.port)
        sink = sinks(recorded)
        sink.take(frames_from(recorded)[:10])
        assert sink.settle(20)
        assert sink.lost_by_reason == {"rejected": 3 * receiver.requests}
        assert "not these" in sink.status().last_error


@pytest.mark.parametrize("says", [b"", b"\x00\xff garbage \r\n\r\n"])
def test_a_deaf_or_babbling_endpoint_holds_nobody(recorded, endpoint, sinks, says):
    """`take` returns at once, `close` within its bound, and nothing undelivered is passed over."""
    with Deaf(says) as deaf:
        endpoint(deaf.port, TIMEOUT="30")
        sink = sinks(recorded)
        begin = time.monotonic()
        sink.take(frames_from(recorded))
        assert time.monotonic() - begin < 0.5
        wait_until(lambda: deaf.accepted, 20)
        begin = time.monotonic()
        assert not sink.settle(0.2)
        sink.close(0.5)
        assert time.monotonic() - begin < 2
        assert sink.cursor is None
    with Receiver() as receiver:
        endpoint(receiver.port)
        second = sinks(recorded)
        assert second.cursor is None
        second.take(frames_from(recorded))
        assert second.settle(10)
        assert len(receiver.spans) == 180


def test_an_attempt_that_goes_on_is_told_already(recorded, endpoint, sinks, caplog):
    """While the exporter tries again within its own timeout, status says why; closing then logs nothing."""
    endpoint(free_port(), TIMEOUT="30")
    sink = sinks(recorded)
    sink.take(frames_from(recorded)[:3])
    wait_until(lambda: "refused" in sink.status().last_error, 20)
    assert sink.status().failures == 0
    sink.close(0.5)
    wait_until(lambda: not sink._worker.is_alive(), 20)
    assert not caplog.records
