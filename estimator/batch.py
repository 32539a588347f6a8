"""The admission controller's seam: a batch that grows one candidate at a time, its peak ready after each."""

from dataclasses import replace
from fractions import Fraction
from operator import add as plus
from typing import Any, NamedTuple, Self

from estimator.buffers import PARTS
from estimator.context import RunContext
from estimator.estimate import Estimate, explain_measured
from estimator.geometry import Geometry
from estimator.plan import PartsFunction, compile_parts, compile_peak, compile_sizes, part_coefficients
from estimator.presets import model
from estimator.rounding import ceil_div
from estimator.scores import score_shape
from estimator.sizes import Measured, Sizes
from estimator.split import RankRows
from estimator.timeline import PHASES


class BatchState(NamedTuple):
    """A batch as the estimator sees it; a value that is never changed.

    `peak_bytes` is the estimated peak with the safety factor applied, `phase` the index in `PHASES` at which it stands.
    `sums` belongs to the estimator: adding looks at these sums, never at the requests behind them.
    """

    sums: tuple[Any, ...]
    peak_bytes: int
    phase: int


# Rows of one rank as compiled code takes them: logical, physical, longest of any rank, requests, contexts, longest
# context on this rank, and whether the batch is split at all.
_RankArguments = tuple[int, int, int, int, int, int, bool]


class BatchEstimator:
    """Estimates the peak of temporary device buffers for batches of one model in one run.

    Every rank of a tensor- or context-parallel group computes the same figure: that of the fullest rank. Integers
    only, no clock, no device. Raises InputError where the run cannot serve the model.
    """

    PHASES = PHASES
    PARTS = PARTS

    def __init__(self, geometry: Geometry, context: RunContext) -> None:
        context.check_against(geometry)
        self.geometry = geometry
        self.context = context
        self._first_peak = compile_peak(geometry, context, several=False)
        self._peak = compile_peak(geometry, context, several=True)
        self._sizes = compile_sizes(geometry, context)
        self._parts_at: dict[tuple[bool, int], PartsFunction] = {}
        self._parts = tuple(part_coefficients(geometry, context, several=several) for several in (False, True))
        self._counts_pages = context.sharded or context.pd_transfer
        self._keeps_prefixes = geometry.is_mla and not geometry.is_sparse
        self._split = context.cp_strategy
        blocks = 2 * context.cp
        # For zigzag: which ranks own one of the first `rest` blocks, the ones that are a token longer.
        self._longer = tuple(
            tuple(int(rank < rest) + int(blocks - 1 - rank < rest) for rank in range(context.cp))
            for rest in range(blocks)
        )
        layout: Any = None
        if self._split == "zigzag":
            layout = (True, 0, (0,) * context.cp)
        self.empty = BatchState((0, 0, 0, 0, 0, 0, 0, 0, (), layout), 0, 0)

    @classmethod
    def for_model(cls, name: str, context: RunContext | None = None) -> Self:
        """Return an estimator for a preset's name or a config.json's path, by default in the engine's default run."""
        geometry = model(name)
        return cls(geometry, context if context is not None else RunContext.default_for(geometry))

    def with_safety(self, percent: int | None) -> "BatchEstimator":
        """Return this estimator with its peaks multiplied by `percent`/100, or as it stands for None."""
        if percent is None:
            return self
        return BatchEstimator(self.geometry, replace(self.context, safety_factor=Fraction(percent, 100)))

    def add(self, state: BatchState, prefix_tokens: int, extend_tokens: int, loaded_tokens: int = 0) -> BatchState:
        """Return the batch with one more member. Constant time; the given state is left as it is.

        `prefix_tokens` are all tokens whose KV is reused, `loaded_tokens` those of them that a load-back brings.
        Lengths are taken as they are: at least 0, `extend_tokens` at least 1.
        """
        requests, extend, prefix, longest, loaded, loads, send_pages, pages, prefixes, layout = state.sums
        requests += 1
        extend += extend_tokens
        prefix += prefix_tokens
        context = prefix_tokens + extend_tokens
        if context > longest:  # noqa: PLR1730 - max() costs a call on the hot path
            longest = context
        if loaded_tokens:
            loaded += loaded_tokens
            loads += 1
        if self._counts_pages:
            page = self.context.page_size
            send_pages += ceil_div(ceil_div(prefix_tokens, page), self.context.shard_size)
            pages += ceil_div(extend_tokens, page)
        if self._keeps_prefixes:
            prefixes = (*prefixes, prefix_tokens)
        peak = self._peak if requests > 1 else self._first_peak
        if self._split == "none":
            peak_bytes, phase = peak(requests, extend, prefix, longest, loaded, loads, send_pages, pages, prefixes)
            sums = (requests, extend, prefix, longest, loaded, loads, send_pages, pages, prefixes, None)
            return BatchState(sums, peak_bytes, phase)
        if self._split == "zigzag":
            layout = self._add_zigzag(layout, extend_tokens)
        else:
            layout = self._add_interleaved(state.sums, context, extend_tokens)
        sums = (requests, extend, prefix, longest, loaded, loads, send_pages, pages, prefixes, layout)
        peak_bytes, phase, most = -1, 0, 0
        for rows in self._fullest(sums):
            at, where = peak(*sums[:-1], *rows)
            if at > peak_bytes or (at == peak_bytes and rows[0] > most):
                peak_bytes, phase, most = at, where, rows[0]
        return BatchState(sums, peak_bytes, phase)

    def explain(self, state: BatchState) -> Estimate:
        """Return the estimate of a batch part by part. Off the hot path: a fraction of a millisecond."""
        return explain_measured(self.geometry, self.context, self._measured(state))

    def parts(self, state: BatchState) -> tuple[int, ...]:
        """Return the bytes at the peak by group, in the order of `PARTS`; they add up to `state.peak_bytes`."""
        if not state.sums[0]:
            return (0,) * len(PARTS)
        if self.context.cp == 1:
            key = (state.sums[0] > 1, state.phase)
            at = self._parts_at.get(key)
            if at is None:
                at = compile_parts(self.geometry, self.context, PHASES[state.phase], several=key[0])
                self._parts_at[key] = at
            groups_at = at(*state.sums[:-1])
            return (*groups_at[:-1], state.peak_bytes - sum(groups_at))
        table = self._parts[state.sums[0] > 1][PHASES[state.phase]]
        best: list[int] = []
        fullest = (-1, 0)
        for rows in self._fullest(state.sums):
            sizes = self._sizes(*state.sums[:-1], *rows)
            groups = [0] * len(PARTS)
            for part, symbol, coefficient in table:
                groups[part] += coefficient * sizes[symbol]
            if (sum(groups), sizes.Tl) > fullest:
                best, fullest = groups, (sum(groups), sizes.Tl)
        best[-1] = state.peak_bytes - fullest[0]
        return tuple(best)

    def _add_zigzag(self, layout: Any, extend_tokens: int) -> Any:
        whole, twice, longer = layout
        blocks = 2 * self.context.cp
        each, rest = divmod(extend_tokens, blocks)
        return whole and extend_tokens >= blocks, twice + 2 * each, tuple(map(plus, longer, self._longer[rest]))

    def _add_interleaved(self, sums: tuple[Any, ...], context: int, extend_tokens: int) -> Any:
        """Keep count by rank from the first request on that is too short to have a row on every rank."""
        cp = self.context.cp
        layout = sums[-1]
        if layout is None:
            if extend_tokens >= cp:
                return None
            layout = (sums[0], sums[1] + sums[2], sums[3], ((0, 0, 0),) * cp)
        requests, contexts, longest, short = layout
        if extend_tokens >= cp:
            return requests + 1, contexts + context, max(longest, context), short
        here = {(sums[1] + index) % cp for index in range(extend_tokens)}
        short = tuple(
            (held[0] + 1, held[1] + context, max(held[2], context)) if rank in here else held
            for rank, held in enumerate(short)
        )
        return requests, contexts, longest, short

    def _ranks(self, sums: tuple[Any, ...]) -> list[_RankArguments]:
        """Return the rows of every rank that can differ, rank 0 first."""
        cp = self.context.cp
        requests, extend, prefix, longest_context = sums[:4]
        layout = sums[-1]
        if self._split == "zigzag":
            whole, twice, longer = layout
            if not whole or not requests:
                return [(extend, extend, extend, requests, extend + prefix, longest_context, False)]
            longest = twice + max(longer)
            physical = -(-longest // (2 * cp)) * 2 * cp
            return [
                (twice + extra, physical, longest, requests, extend + prefix, longest_context, True) for extra in longer
            ]
        base, over = divmod(extend, cp)
        longest = base + 1 if over else base
        physical = -(-longest // cp) * cp
        if layout is None:
            return [
                (base + (rank < over), physical, longest, requests, extend + prefix, longest_context, True)
                for rank in range(cp)
            ]
        members, contexts, most, short = layout
        return [
            (base + (rank < over), physical, longest, members + count, contexts + total, max(most, each), True)
            for rank, (count, total, each) in enumerate(short)
        ]

    def _fullest(self, sums: tuple[Any, ...]) -> list[_RankArguments]:
        """Return the ranks among which the fullest is: one, unless a short request stands on some ranks only."""
        if self._split == "zigzag":
            whole, twice, longer = sums[-1]
            if whole:
                cp = self.context.cp
                longest = twice + max(longer)
                physical = -(-longest // (2 * cp)) * 2 * cp
                return [(longest, physical, longest, sums[0], sums[1] + sums[2], sums[3], True)]
            return self._ranks(sums)
        if sums[-1] is None:
            cp = self.context.cp
            longest = -(-sums[1] // cp)
            return [(longest, -(-longest // cp) * cp, longest, sums[0], sums[1] + sums[2], sums[3], True)]
        # Ranks that hold the same need one look; a dict keeps them in rank order.
        return list(dict.fromkeys(self._ranks(sums)))

    def _measured(self, state: BatchState) -> list[Measured]:
        sums = state.sums
        if self.context.cp == 1:
            rank_arguments: list[Any] = [()]
        else:
            rank_arguments = list(self._ranks(sums))
        measured: list[Measured] = []
        for rank, rows in enumerate(rank_arguments):
            sizes: Sizes = self._sizes(*sums[:-1], *rows)
            scored = sizes.Ri > 0
            measured.append(
                Measured(
                    rank,
                    sizes,
                    RankRows(sizes.Tl, sizes.Tp, sizes.Tlmax or sizes.Tl, (), split=bool(rows and rows[-1])),
                    score_shape(
                        sizes.Tl if scored else 0,
                        sizes.Ki,
                        row_align=max(1, 128 // self.geometry.index_heads) if self.geometry.is_sparse else 1,
                        budget=self.context.mqa_budget.bytes,
                    ),
                )
            )
        return measured
