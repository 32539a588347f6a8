"""Requests: what becomes of the knob requests left beside a run, by the way that its engine has for them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from controller.engines.plugin.broadcast import answer_forwarded, clear_answered, list_forwarded, number_of
from controller.engines.plugin.status import Http, InProcess, NoWay, read_status
from controller.knob_turning import LONGEST_NAME, Answer
from controller.run_directory import LIVE, ranks_of
from estimator.errors import GlassgateError

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from controller.engines.plugin.status import Way
    from controller.knob_requests import KnobRequest
    from controller.run_directory import RunDirectory

PATIENCE_NS: Final = 60_000_000_000
"""A request that was passed on to the engine and that no rank has answered for so long counts as refused."""


class Requests:
    """The knob requests of one run on one leading rank.

    In process they are put into `taken`, from which the scheduler takes them at a pass boundary; `tell` is called while
    some are there, for a scheduler that has nothing to do. The first rank also hands them to the other groups' leaders.
    Without a way each is refused. What a collector has passed on is watched: it is refused when it got no further than
    the collector, or when nobody answers.
    """

    def __init__(
        self,
        run: RunDirectory,
        way: Way,
        taken: deque[KnobRequest],
        refuse: Callable[[KnobRequest, str], None],
        tell: Callable[[], None],
    ) -> None:
        self._run, self._way = run, way
        self._taken, self._refuse, self._tell = taken, refuse, tell
        self._first = run.info.rank == 0

    def look(self) -> None:
        """Take what was left since the last time."""
        if isinstance(self._way, Http):
            self._watch_forwarded()
            return
        for request in self._run.take_requests():
            if isinstance(self._way, NoWay):
                self._refuse(request, self._way.why)
                continue
            self._taken.append(request)
            if self._first and request.content is not None:
                self._hand_on(request)
        if self._taken:
            self._tell()

    def _hand_on(self, request: KnobRequest) -> None:
        """Leave a copy with each other group that turns its own knobs."""
        for other in ranks_of(self._run):
            if other.path == self._run.path:
                continue
            status = read_status(other.path)
            if status is None or not status.leads or not isinstance(status.way, InProcess):
                continue
            try:
                if other.state in LIVE:
                    other.leave_request(request.content or {})
            except GlassgateError as error:
                self._refuse(request, f"rank {status.rank} cannot be told: {error}")

    def _watch_forwarded(self) -> None:
        folder = self._run.requests
        for each in list_forwarded(folder):
            why = each.why
            if not why and time.time_ns() - each.at_unix_ns > PATIENCE_NS:
                why = f"the engine was told, and no rank answered within {PATIENCE_NS // 10**9} s"
            if why:
                answer_forwarded(folder, number_of(each.name))
                self._refuse(each.request, why)
        clear_answered(folder, time.time_ns() - PATIENCE_NS)


def refusal(request: KnobRequest, why: str, revision: int) -> Answer:
    """The answer to a request that nobody could judge."""
    return Answer(request.name, who_asked(request), (), revision, None, None, why)


def who_asked(request: KnobRequest) -> str:
    """The name a request gives, else its user's number."""
    who = (request.content or {}).get("who")
    if isinstance(who, str) and who.isprintable() and who:
        return who[:LONGEST_NAME]
    return "unknown" if request.uid is None else f"user {request.uid}"
