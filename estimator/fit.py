"""The largest batch and the largest prompt whose temporary buffers fit a number of bytes."""

from typing import NamedTuple

from estimator.batch import BatchEstimator, BatchState
from estimator.errors import InputError

MOST_REQUESTS = 4096


class Fit(NamedTuple):
    """The most that fits, in requests or tokens, and its peak in bytes with the safety factor applied.

    `bounded` says that the search stopped at its own end (most requests, the model's context), not at the limit.
    """

    largest: int
    peak_bytes: int
    bounded: bool


def largest_batch(estimator: BatchEstimator, limit: int, *, prefix: int, extend: int, most: int = MOST_REQUESTS) -> Fit:
    """Return how many requests of one shape fit `limit` bytes, every smaller batch fitting too. 0: not even one.

    Members are added one by one, since an engine's path, and with it the peak, may change as a batch grows. Raises
    InputError for a limit below 1 or a shape with nothing to compute.
    """
    _check(limit, prefix, extend)
    state, count = estimator.empty, 0
    while count < most:
        grown = estimator.add(state, prefix, extend)
        if grown.peak_bytes > limit:
            return Fit(count, state.peak_bytes, bounded=False)
        state, count = grown, count + 1
    return Fit(count, state.peak_bytes, bounded=True)


def largest_prompt(estimator: BatchEstimator, limit: int, *, chunk: int | None = None) -> Fit:
    """Return the longest prompt in tokens that fits `limit` bytes alone, chunk after chunk, up to the model's context.

    `chunk` is the tokens computed at once, by default the run's chunked_prefill_size; 0 computes the prompt whole.
    Every chunk of the prompt fits, not only the last. Raises InputError for a limit below 1 or a negative chunk.
    """
    step = estimator.context.chunked_prefill_size if chunk is None else chunk
    _check(limit, 0, 1)
    if step < 0:
        raise InputError(f"chunk: {step} is negative; give the tokens computed at once, or 0 for the whole prompt")
    context = estimator.context.context_len or estimator.geometry.context_len
    if not step:
        return _largest_whole(estimator, limit, context)
    done = 0
    while done < context:
        extend = min(step, context - done)
        if _alone(estimator, done, extend).peak_bytes > limit:
            last = _bisect(estimator, limit, done, extend)
            return Fit(done + last, _peak_of(estimator, done + last, step), bounded=False)
        done += extend
    return Fit(context, _peak_of(estimator, context, step), bounded=True)


def _largest_whole(estimator: BatchEstimator, limit: int, context: int) -> Fit:
    """Look at 256 lengths in turn, then between the last that fits and the first that does not."""
    stride = -(-context // 256)
    done = 0
    while done < context:
        reach = min(stride, context - done)
        if _alone(estimator, 0, done + reach).peak_bytes > limit:
            low, high = done, done + reach
            while high - low > 1:
                middle = (low + high) // 2
                if _alone(estimator, 0, middle).peak_bytes <= limit:
                    low = middle
                else:
                    high = middle
            return Fit(low, _alone(estimator, 0, low).peak_bytes if low else 0, bounded=False)
        done += reach
    return Fit(context, _alone(estimator, 0, context).peak_bytes, bounded=True)


def _bisect(estimator: BatchEstimator, limit: int, done: int, extend: int) -> int:
    """Return the most tokens of a chunk behind `done` tokens that fit, given that `extend` do not."""
    low, high = 0, extend
    while high - low > 1:
        middle = (low + high) // 2
        if _alone(estimator, done, middle).peak_bytes <= limit:
            low = middle
        else:
            high = middle
    return low


def _peak_of(estimator: BatchEstimator, prompt: int, step: int) -> int:
    """Return the largest peak of any chunk of a prompt."""
    return max(
        (_alone(estimator, done, min(step, prompt - done)).peak_bytes for done in range(0, prompt, step)), default=0
    )


def _alone(estimator: BatchEstimator, prefix: int, extend: int) -> BatchState:
    return estimator.add(estimator.empty, prefix, extend)


def _check(limit: int, prefix: int, extend: int) -> None:
    if limit < 1:
        raise InputError(f"limit: {limit} bytes, but must be at least 1")
    if prefix < 0 or extend < 1:
        raise InputError(f"shape: prefix {prefix}, extend {extend}; prefix must be at least 0 and extend at least 1")
