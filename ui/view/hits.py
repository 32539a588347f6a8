"""Host hits over the window: how far the tokens that the host held have come, and why some were computed again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from controller.vocabulary import HostHit
from ui.view.snapshot import Funnel, HostHits
from ui.view.words import named

if TYPE_CHECKING:
    from ui.view.moment import Moment
    from ui.view.window import WindowView

NAMES_SQL: Final = """SELECT q.number, q.id FROM json_each(?) j
CROSS JOIN requests q ON q.run = ? AND q.number = j.value"""
_RECENT: Final = 50


def read_hits(moment: Moment, window: WindowView) -> HostHits:
    """The host hits of the requests that entered in the window. Raises sqlite3.Error."""
    buckets = list(window.buckets)
    skipped: dict[int, tuple[int, int]] = {}
    for bucket in buckets:
        for host_hit, (tokens, decisions) in bucket.skipped.items():
            known = skipped.get(host_hit, (0, 0))
            skipped[host_hit] = known[0] + tokens, known[1] + decisions
    skips = sorted(skipped.items(), key=lambda each: (-each[1][0], each[0]))
    return HostHits(
        Funnel(
            sum(bucket.resident for bucket in buckets), sum(bucket.matched for bucket in buckets),
            sum(bucket.asked for bucket in buckets), sum(bucket.loaded for bucket in buckets),
            sum(bucket.used.sum_by(moment.at_ns) for bucket in buckets),
        ),
        tuple((HostHit(host_hit).word, tokens, decisions) for host_hit, (tokens, decisions) in skips),
        sum(tokens for tokens, _ in skipped.values()),
        tuple(
            (stretch.from_ns, stretch.bucket.loaded, sum(tokens for tokens, _ in stretch.bucket.skipped.values()))
            for stretch in window.stretches
        ),
        _recent(moment, window),
    )  # fmt: skip


def _recent(moment: Moment, window: WindowView) -> tuple[tuple[int, str, str, int], ...]:
    """The last skips, newest first."""
    recent = []
    for stretch in reversed(window.stretches):
        recent += sorted(stretch.bucket.skips, reverse=True)
        if len(recent) >= _RECENT:
            break
    recent = recent[:_RECENT]
    numbers = json.dumps([skip.request for skip in recent])
    names = dict(moment.connection.execute(NAMES_SQL, (numbers, moment.run.id))) if recent else {}
    return tuple(
        (skip.number, named(names.get(skip.request), skip.request), HostHit(skip.host_hit).word, skip.tokens)
        for skip in recent
    )
