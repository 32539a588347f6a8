"""Fidelity: how well a replay under the recorded knobs reproduces what really happened."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from estimator.errors import FidelityError

if TYPE_CHECKING:
    from ui.whatif.played import Life, Played

FLOOR: Final = 0.7
"""Below this fidelity no conclusion is drawn."""
_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """How a replay under the recorded knobs compares with the record. Times in seconds, shares from 0 to 1."""

    passes: int
    """Recorded passes that admitted somebody."""
    same_passes: int
    """Of them, those whose members are the members of a replayed pass too."""
    overlap: float
    """How much of their members recorded passes share with the replayed pass that is most like each: members of both
    over members of either, on average over the passes."""
    exact: bool
    """Every pass has the same members, tokens and time."""
    ttft_error: float | None
    """How far the times to first token are off as a whole: the mean difference of the sorted times. None where no
    request has both."""
    queue_error: float | None
    """The same of the times from arrival to first admission."""
    ttft_each: float | None
    """How far they are off request by request: the mean difference, whatever its sign."""
    queue_each: float | None
    """The same of the times from arrival to first admission."""
    ttft_mean: float | None
    """Recorded."""
    compared: int
    """Requests that have a first token in both."""

    @property
    def same_share(self) -> float:
        """Share of recorded passes with the same members."""
        return self.same_passes / self.passes if self.passes else 0.0

    @property
    def score(self) -> float:
        """From 0 to 1, the least of three.

        They are the overlap of passes, and what is left of 1 when the errors of time to first token and of queue time
        as a whole, each as a share of the recorded mean time to first token, are taken off.
        """
        worst = self.overlap
        for error in (self.ttft_error, self.queue_error):
            if error is None or not self.ttft_mean:
                continue
            worst = min(worst, 1 - error / self.ttft_mean)
        return max(0.0, worst)

    def check(self, floor: float = FLOOR) -> None:
        """Raise FidelityError where the fidelity is below `floor`."""
        if self.score < floor:
            raise FidelityError(
                f"fidelity {self.score:.2f} is below {floor:.2f}: {self.words()}; no conclusion can be drawn, choose "
                "another span or model, or lower --min-fidelity"
            )

    def words(self) -> str:
        """In words, for people."""
        if self.exact:
            return f"all {self.passes:,} passes reproduced exactly"
        told = f"{self.same_passes:,} of {self.passes:,} passes have the same members ({100 * self.same_share:.1f} %)"
        if self.same_passes < self.passes:
            told += f", all together share {100 * self.overlap:.1f} % of theirs"
        if self.ttft_error is not None:
            told += f", time to first token off by {_seconds(self.ttft_error)} of {_seconds(self.ttft_mean or 0)}"
        if self.queue_error is not None:
            told += f", queue time by {_seconds(self.queue_error)}"
        if self.ttft_each is not None:
            told += f" (request by request {_seconds(self.ttft_each)} and {_seconds(self.queue_each or 0)})"
        return told

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {**asdict(self), "same_share": self.same_share, "score": self.score}


def fidelity_of(happened: Played, replayed: Played) -> Fidelity:
    """Compare what happened with a replay of it."""
    then, now = (Counter(frozenset(each.members) for each in played.passes) for played in (happened, replayed))
    ttft = _pairs(happened, replayed, "first_token_ns")
    queue = _pairs(happened, replayed, "admit_ns")
    recorded = [
        each.first_token_ns - each.arrival_ns for each in happened.lives.values() if each.first_token_ns is not None
    ]
    return Fidelity(
        passes=len(happened.passes),
        same_passes=sum((then & now).values()),
        overlap=_overlap(happened, replayed),
        exact=happened.passes == replayed.passes and all(one == other for one, other in [*ttft, *queue]),
        ttft_error=_as_a_whole(ttft),
        queue_error=_as_a_whole(queue),
        ttft_each=_mean([abs(one - other) for one, other in ttft]),
        queue_each=_mean([abs(one - other) for one, other in queue]),
        ttft_mean=_mean(recorded),
        compared=len(ttft),
    )


def _overlap(happened: Played, replayed: Played) -> float:
    """The mean of what recorded passes have in common with the replayed pass that is most like each."""
    with_member: dict[int, list[frozenset[int]]] = {}
    for each in replayed.passes:
        members = frozenset(each.members)
        for number in members:
            with_member.setdefault(number, []).append(members)
    shares = []
    for each in happened.passes:
        members = frozenset(each.members)
        like = {other for number in members for other in with_member.get(number, ())}
        shares.append(max((len(members & other) / len(members | other) for other in like), default=0.0))
    return sum(shares) / len(shares) if shares else 0.0


def _pairs(one: Played, other: Played, moment: str) -> list[tuple[int, int]]:
    """Times from arrival to a moment, in one and in the other, of the requests that have both."""
    found = []
    for number, life in one.lives.items():
        twin: Life | None = other.lives.get(number)
        then, now = getattr(life, moment), getattr(twin, moment, None)
        if then is not None and now is not None:
            found.append((then - life.arrival_ns, now - life.arrival_ns))
    return found


def _as_a_whole(pairs: list[tuple[int, int]]) -> float | None:
    """The mean difference of sorted times, in seconds (the Wasserstein distance of their distributions)."""
    then, now = (sorted(each) for each in zip(*pairs, strict=True)) if pairs else ([], [])
    return _mean([abs(one - other) for one, other in zip(then, now, strict=True)])


def _mean(values: list[int]) -> float | None:
    return sum(values) / len(values) / _S if values else None


def _seconds(value: float) -> str:
    return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"
