"""An engine on a small pool with plain step times and a journal in memory."""

from controller.engines.replay.engine import ReplayEngine
from controller.engines.replay.workload import Workload, WorkloadRequest
from controller.knobs import Knobs
from controller.recorder import Recorder
from controller.records import decode


class PlainTime:
    """1,000 ns for a prefill token, 100 ns for a decode step, 10 ns to move a token."""

    def prefill_ns(self, extend_tokens, cached_tokens, batch_size, attention_pairs):
        """By tokens computed alone."""
        del cached_tokens, batch_size, attention_pairs
        return 1_000 * extend_tokens

    def decode_span_ns(self, batch_size, context_tokens, steps):
        """By steps alone."""
        del batch_size, context_tokens
        return 100 * steps

    def decode_steps_within(self, batch_size, context_tokens, ns):
        """The inverse."""
        del batch_size, context_tokens
        return ns // 100

    def transfer_ns(self, tokens):
        """By tokens."""
        return 10 * tokens


class Shelf:
    """A journal in memory."""

    def __init__(self):
        self.frames = []

    def append(self, payload):
        """Keep one frame."""
        self.frames.append(payload)
        return len(self.frames)

    def records(self, kind=object):
        """All records of a kind, in order."""
        return [record for frame in self.frames for record in decode(frame) if isinstance(record, kind)]


def ask(number, prompt, output=1, at=0, blocks=(), **more):
    """One request of a workload."""
    return WorkloadRequest(f"q{number}", at, prompt, output, tuple(blocks), **more)


def engine(requests, *, block=4, **more):
    """An engine on a small pool, and its journal."""
    shelf = Shelf()
    workload = Workload(name="test", block_tokens=block, requests=iter(requests))
    arguments = {
        "knobs": Knobs(page_size=4, chunked_prefill_size=64),
        "step_time": PlainTime(),
        "recorder": Recorder(shelf),
        "device_tokens": 400,
        "host_tokens": 0,
        "salt": b"salt",
    } | more
    return ReplayEngine(workload, **arguments), shelf


def replay(requests, **more):
    """Replay requests to their end: engine, summary, journal."""
    made, shelf = engine(requests, **more)
    return made, made.run(), shelf


def is_empty(made):
    """Nothing is held: all of the pool is free or evictable, in every lane."""
    pool = made.loop.cache.pool
    return pool.free + pool.evictable == pool.pages and all(
        free + loose == pool.pages // pool.lanes
        for free, loose in zip(pool.lane_free, pool.lane_evictable, strict=True)
        if pool.lanes > 1
    )
