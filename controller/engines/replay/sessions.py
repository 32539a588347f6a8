"""The built-in workload: multi-turn agent sessions from a seed, open loop, the same on every machine."""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from random import Random
from typing import Final

from controller.engines.replay.workload import Workload, WorkloadRequest
from estimator.errors import UsageError

_NS_PER_S: Final = 1_000_000_000
_STREAM_SHIFT: Final = 20
_PREFIX_LANE, _GROUP_LANE, _SESSION_LANE = range(3)

Quantiles = tuple[tuple[float, int], ...]
"""A distribution of tokens as (share of draws, value) points, joined by straight lines."""

PREFIX_TOKENS: Final[Quantiles] = ((0.0, 2_000), (0.5, 5_000), (0.9, 9_000), (1.0, 12_000))
"""System prompt and tool descriptions, shared by all sessions of one agent."""
BRIEF_TOKENS: Final[Quantiles] = ((0.0, 2_000), (0.5, 8_000), (0.9, 16_000), (1.0, 24_000))
"""What a fan-out of sub-agents is told in common."""
TASK_TOKENS: Final[Quantiles] = ((0.0, 100), (0.5, 2_500), (0.8, 9_000), (0.95, 30_000), (1.0, 90_000))
"""A session's first message, documents and source files included."""
USER_TOKENS: Final[Quantiles] = ((0.0, 20), (0.5, 150), (0.9, 1_500), (0.99, 12_000), (1.0, 40_000))
"""A later message of the user."""
TOOL_TOKENS: Final[Quantiles] = ((0.0, 50), (0.5, 900), (0.9, 6_000), (0.99, 16_000), (1.0, 30_000))
"""What a tool returns."""
CALL_TOKENS: Final[Quantiles] = ((0.0, 20), (0.5, 120), (0.9, 500), (1.0, 2_000))
"""Output that ends in a tool call."""
ANSWER_TOKENS: Final[Quantiles] = ((0.0, 60), (0.5, 400), (0.9, 1_400), (1.0, 6_000))
"""Output that ends in an answer to the user."""

FAN_OUT_SHARE: Final = 0.06
"""The share of arrivals that are a fan-out of several sub-agents at once."""
FAN_OUT_SESSIONS: Final = (4, 16)
TOOL_SHARE: Final = 0.7
"""The share of turns answered by a tool rather than the user."""
TOOL_SECONDS: Final = (0.2, 2.0)
"""Least and mean further seconds until a tool has answered."""
ASSUMED_PREFILL_TOKENS_PER_S: Final = 20_000
ASSUMED_DECODE_TOKENS_PER_S: Final = 60


def agent_sessions(
    *,
    seed: int = 0,
    sessions: int = 300,
    sessions_per_second: float = 1.25,
    agents: int = 8,
    mean_turns: float = 12.0,
    think_seconds: float = 20.0,
    max_context_tokens: int = 120_000,
    block_tokens: int = 512,
    busy_seconds: float = 0.0,
    calm_seconds: float = 0.0,
) -> Workload:
    """Return a workload of `sessions` agent sessions; equal arguments give equal requests on every machine.

    Arrivals are a Poisson process of `sessions_per_second`, most of one session, some a fan-out of sub-agents sharing
    a brief. Each session belongs to one of `agents` agents, the first ones the most popular, and begins with that
    agent's prefix. A turn's prompt is the turn before, its output, and what a tool or the user said next. A session has
    `mean_turns` turns on average (geometric), fewer where prompt plus output would pass `max_context_tokens`. The user
    takes `think_seconds` on average, at least a tenth of it.

    The loop is open: a turn arrives when an unloaded server would have answered the one before, taken as
    `ASSUMED_PREFILL_TOKENS_PER_S` for the text not seen before and `ASSUMED_DECODE_TOKENS_PER_S` for its output, plus
    the wait for tool or user. A slower server so falls behind, and a turn may arrive before the last one is answered.
    With `busy_seconds` no session begins in the `calm_seconds` after each stretch of so many seconds, in which such a
    server makes up for it.

    Requests are called `s<session>.t<turn>`. Blocks cover prompt and output. Memory holds the sessions in progress
    only. Arguments out of range raise `UsageError`.
    """
    _check("sessions", sessions, 1, 10_000_000)
    _check("sessions per second", sessions_per_second, 1e-6, 1e6)
    _check("agents", agents, 1, 10_000)
    _check("mean turns", mean_turns, 1, 10_000)
    _check("think seconds", think_seconds, 0, 1e6)
    _check("max context tokens", max_context_tokens, 1_024, 1 << 24)
    _check("block tokens", block_tokens, 1, 1 << 16)
    _check("busy seconds", busy_seconds, 0, 1e6)
    _check("calm seconds", calm_seconds, 0, 1e6)
    _check("blocks of the longest context", -(-max_context_tokens // block_tokens), 1, (1 << _STREAM_SHIFT) - 1)
    generator = _Generator(
        seed=seed,
        sessions=sessions,
        arrivals_per_second=sessions_per_second / _mean_arrival_size(),
        agents=agents,
        go_on=1.0 - 1.0 / mean_turns,
        think_seconds=think_seconds,
        room=max_context_tokens,
        block_tokens=block_tokens,
        busy_ns=int(busy_seconds * _NS_PER_S),
        calm_ns=int(calm_seconds * _NS_PER_S),
    )
    return Workload(
        name=f"agent sessions, seed {seed}",
        block_tokens=block_tokens,
        requests=generator.requests(),
        position=generator.fraction_done,
    )


class _Generator:
    """Sessions in progress in a heap, the next arrival beside it."""

    def __init__(
        self,
        *,
        seed: int,
        sessions: int,
        arrivals_per_second: float,
        agents: int,
        go_on: float,
        think_seconds: float,
        room: int,
        block_tokens: int,
        busy_ns: int,
        calm_ns: int,
    ) -> None:
        self.seed = seed
        self.busy_ns = busy_ns
        self.calm_ns = calm_ns
        self.sessions = sessions
        self.arrivals_per_second = arrivals_per_second
        self.go_on = go_on
        self.think_seconds = think_seconds
        self.room = room
        self.block_tokens = block_tokens
        self.prefixes = [
            min(_draw(self.random(_PREFIX_LANE, agent).random, PREFIX_TOKENS), room // 4) for agent in range(agents)
        ]
        self._started = 0
        self._done = 0

    def random(self, lane: int, number: int) -> Random:
        """Return the generator of one stream: integer seeds and `Random.random` mean the same everywhere."""
        return Random(f"{self.seed}/{lane}/{number}")  # noqa: S311 - a reproducible workload, no secret

    def block_ids(self, lane: int, number: int, first: int, tokens: int) -> tuple[int, ...]:
        """Return the ids of a stream's blocks from position `first` on, up to `tokens` tokens."""
        base = (number * 3 + lane) << _STREAM_SHIFT
        return tuple(range(base + first, base - (-tokens // self.block_tokens)))

    def fraction_done(self) -> float:
        return self._done / self.sessions

    def requests(self) -> Iterator[WorkloadRequest]:
        waiting: list[tuple[int, int, _Session]] = []
        arrival = busy = 0
        group = 0
        while True:
            while self._started < self.sessions and (not waiting or arrival <= waiting[0][0]):
                draw = self.random(_GROUP_LANE, group).random
                for session in self._arrive(group, draw):
                    heappush(waiting, (arrival, session.number, session))
                busy += int(exponential(draw) / self.arrivals_per_second * _NS_PER_S)
                arrival = busy + (busy // self.busy_ns * self.calm_ns if self.busy_ns else 0)
                group += 1
            if not waiting:
                return
            at, number, session = heappop(waiting)
            request, following = session.turn(at)
            if following is None:
                self._done += 1
            else:
                heappush(waiting, (following, number, session))
            yield request

    def _arrive(self, group: int, draw: Callable[[], float]) -> Iterator["_Session"]:
        """Yield the sessions of one arrival: one, or a fan-out."""
        agent = _popular(draw, len(self.prefixes))
        tokens = self.prefixes[agent]
        blocks = self.block_ids(_PREFIX_LANE, agent, 0, tokens)[: tokens // self.block_tokens]
        count = 1
        if draw() < FAN_OUT_SHARE:
            least, most = FAN_OUT_SESSIONS
            count = least + int(draw() * (most - least + 1))
            tokens += min(_draw(draw, BRIEF_TOKENS), self.room // 4)
            blocks += self.block_ids(_GROUP_LANE, group, len(blocks), tokens)
            blocks = blocks[: tokens // self.block_tokens]
        for _ in range(min(count, self.sessions - self._started)):
            yield _Session(self, self._started, blocks, tokens)
            self._started += 1


class _Session:
    """One session: what it shares with others, how far it has come, and its own random stream."""

    __slots__ = ("_blocks", "_draw", "_generator", "_known", "_prompt", "_turn", "number")

    def __init__(self, generator: _Generator, number: int, shared: tuple[int, ...], tokens: int) -> None:
        self.number = number
        self._generator = generator
        self._draw = generator.random(_SESSION_LANE, number).random
        self._blocks = shared
        self._turn = 0
        self._known = tokens
        self._prompt = min(tokens + _draw(self._draw, TASK_TOKENS), generator.room - generator.room // 8)

    def turn(self, at: int) -> tuple[WorkloadRequest, int | None]:
        """Return the request of the turn that arrives at `at`, and when the next one does, or None after the last."""
        generator, draw = self._generator, self._draw
        by_tool = draw() < TOOL_SHARE
        prompt = self._prompt
        output = min(_draw(draw, CALL_TOKENS if by_tool else ANSWER_TOKENS), generator.room - prompt)
        context = prompt + output
        blocks = self._blocks
        blocks += generator.block_ids(_SESSION_LANE, self.number, len(blocks), context)
        request = WorkloadRequest(f"s{self.number}.t{self._turn}", at, prompt, output, blocks)
        service = (
            prompt - self._known
        ) * _NS_PER_S // ASSUMED_PREFILL_TOKENS_PER_S + output * _NS_PER_S // ASSUMED_DECODE_TOKENS_PER_S
        added = _draw(draw, TOOL_TOKENS if by_tool else USER_TOKENS)
        if draw() >= generator.go_on or context + added >= generator.room:
            return request, None
        if by_tool:
            wait = TOOL_SECONDS[0] + TOOL_SECONDS[1] * exponential(draw)
        else:
            wait = generator.think_seconds * (0.1 + 0.9 * exponential(draw))
        self._blocks = blocks
        self._turn += 1
        self._known = context
        self._prompt = context + added
        return request, at + service + int(wait * _NS_PER_S)


def exponential(draw: Callable[[], float]) -> float:
    """Return an exponential deviate of mean 1 by comparing uniform ones (von Neumann, 1951).

    It needs no logarithm, whose last bit differs between C libraries.
    """
    whole = 0
    while True:
        first = last = draw()
        run = 1
        while (following := draw()) < last:
            last = following
            run += 1
        if run % 2:
            return whole + first
        whole += 1


def _draw(draw: Callable[[], float], quantiles: Quantiles) -> int:
    share = draw()
    low_share, low = quantiles[0]
    for high_share, high in quantiles:
        if share < high_share:
            return low + int((high - low) * (share - low_share) / (high_share - low_share))
        low_share, low = high_share, high
    return low


def _popular(draw: Callable[[], float], count: int) -> int:
    """Return a number below `count`, number n with weight 1 / (n + 1)."""
    # Added in a loop: sum() rounds floats otherwise from Python 3.12 on.
    total = 0.0
    for number in range(count):
        total += 1.0 / (number + 1)
    mark = draw() * total
    for number in range(count):
        mark -= 1.0 / (number + 1)
        if mark < 0.0:
            return number
    return count - 1


def _mean_arrival_size() -> float:
    return 1.0 + FAN_OUT_SHARE * (sum(FAN_OUT_SESSIONS) / 2 - 1)


def _check(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise UsageError(f"{name}: {value} is not within {least} to {most}; give a value that is")
