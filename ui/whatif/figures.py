"""Figures: what a span adds up to, in the record or in a replay of it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ui.whatif.played import Life, Played
    from ui.whatif.span import Span

_S: Final = 1_000_000_000
_QUANTILES: Final = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Times in seconds, sizes in tokens unless said; None where there is nothing to count."""

    requests: int
    """That arrived in the span."""
    answered: int
    """Of them, those that got a first token."""
    finished: int
    refused: int
    """Could never fit."""
    retractions: int
    passes: int
    """That admitted somebody."""
    batch_size_mean: float | None
    batch_size_p50: int | None
    batch_size_p99: int | None
    batch_size_max: int | None
    stops: dict[str, int]
    """Passes closed by each gate."""
    queue_mean: float | None
    """From arrival to first admission."""
    queue_p50: float | None
    queue_p90: float | None
    queue_p95: float | None
    queue_p99: float | None
    queue_max: float | None
    ttft_mean: float | None
    """From arrival to first token."""
    ttft_p50: float | None
    ttft_p90: float | None
    ttft_p95: float | None
    ttft_p99: float | None
    ttft_max: float | None
    tokens_per_second: float | None
    """Prompt and output tokens of what was answered, over the time from the span's start to its last token."""
    requests_per_second: float | None
    """What was answered, over the same time."""
    prompt_tokens: int
    computed_tokens: int
    cached_tokens: int
    """Prefix tokens that batches reused, loads included."""
    host_hits: int
    """Batches that a load from the host went into."""
    host_tokens: int
    """Tokens loaded from the host."""
    peak_buffer: int | None
    """The largest estimated peak of a batch's temporary buffers, bytes."""
    buffer_mean: float | None
    """The mean of these peaks, bytes."""

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


def figures_of(played: Played, span: Span) -> Figures:
    """What a span adds up to."""
    passes, lives = played.passes, list(played.lives.values())
    sizes = sorted(len(each.members) for each in passes)
    peaks = [each.peak_bytes for each in passes if each.peak_bytes >= 0]
    queue = sorted(each.admit_ns - each.arrival_ns for each in lives if each.admit_ns is not None)
    ttft = sorted(each.first_token_ns - each.arrival_ns for each in lives if each.first_token_ns is not None)
    stops: dict[str, int] = {}
    for each in passes:
        if (word := each.closed_by) is not None:
            stops[word] = stops.get(word, 0) + 1
    seconds = _seconds(lives, span)
    answered = [each for each in lives if each.first_token_ns is not None]
    tokens = sum(each.prompt_tokens + each.generated_tokens for each in answered)
    return Figures(
        requests=len(lives),
        answered=len(answered),
        finished=sum(each.end_ns is not None for each in lives),
        refused=played.refused,
        retractions=played.retractions,
        passes=len(passes),
        batch_size_mean=sum(sizes) / len(sizes) if sizes else None,
        batch_size_p50=quantile(sizes, 0.5),
        batch_size_p99=quantile(sizes, 0.99),
        batch_size_max=sizes[-1] if sizes else None,
        stops=dict(sorted(stops.items(), key=lambda item: (-item[1], item[0]))),
        **_times("queue", queue),
        **_times("ttft", ttft),
        tokens_per_second=tokens / seconds if seconds else None,
        requests_per_second=len(answered) / seconds if seconds else None,
        prompt_tokens=sum(each.prompt_tokens for each in lives),
        computed_tokens=sum(each.extend_tokens for each in passes),
        cached_tokens=sum(each.cached_tokens for each in passes),
        host_hits=sum(each.loaded_tokens > 0 for each in passes),
        host_tokens=sum(each.loaded_tokens for each in passes),
        peak_buffer=max(peaks, default=None),
        buffer_mean=sum(peaks) / len(peaks) if peaks else None,
    )


def quantile(values: Sequence[int], share: float) -> int | None:
    """The value below which a share of sorted values lies, one of them; None of nothing."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else None


def _times(name: str, values: list[int]) -> dict[str, Any]:
    found: dict[str, Any] = {f"{name}_mean": sum(values) / len(values) / _S if values else None}
    for word, share in _QUANTILES:
        value = quantile(values, share)
        found[f"{name}_{word}"] = None if value is None else value / _S
    found[f"{name}_max"] = values[-1] / _S if values else None
    return found


def _seconds(lives: list[Life], span: Span) -> float:
    """From the span's start to the last token of its requests."""
    last = max((each.end_ns or each.first_token_ns or 0 for each in lives), default=0)
    return max(0, last - span.since_ns) / _S
