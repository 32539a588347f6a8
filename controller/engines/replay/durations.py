"""StepTime: what the serving loop asks about time."""

from typing import Protocol


class StepTime(Protocol):
    """How long steps take, in simulated ns; `step_time.StepTimeModel` is one."""

    def prefill_ns(self, extend_tokens: int, cached_tokens: int, batch_size: int, attention_pairs: int) -> int:
        """A prefill step."""

    def decode_span_ns(self, batch_size: int, context_tokens: int, steps: int) -> int:
        """So many decode steps in a row."""

    def decode_steps_within(self, batch_size: int, context_tokens: int, ns: int) -> int:
        """The most decode steps that take no longer than `ns`."""

    def transfer_ns(self, tokens: int) -> int:
        """Moving the KV of `tokens` tokens."""
