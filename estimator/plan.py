"""The timeline of one run compiled to straight-line integer code, so that a batch's peak costs a few microseconds.

Every buffer is a sum of coefficient x symbol, so a phase is one too. For a given run most symbols drop out, and so do
phases that another phase always exceeds; what is left is written out as a small Python function. `sizes.py` says the
same for a whole batch in plain code, and a test holds the two together.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from estimator.buffers import BUFFERS, PARTS
from estimator.context import RunContext
from estimator.geometry import Geometry
from estimator.scores import COLUMN_ALIGN, SCORE_BYTES, UNCUT_ELEMENTS
from estimator.sizes import ONE_SHOT_IMPLS, RAGGED_IMPLS, Sizes
from estimator.timeline import PHASES, live_buffers

# What a batch is summed up as (B requests, T extend, P prefix, M longest context, L loaded tokens of k requests,
# pages), then the rows of one rank. `Ps` are the single prefixes, kept only where a chunked prefix needs them.
SUMS = "B, T, P, M, L, k, blk, G, Ps"
RANK = "Tl, Tp, longest, Bs, Ss, Ms, split"

# Symbols that are at least 1 in every batch: a phase ahead by one of these is ahead for certain.
_NEVER_ZERO = frozenset({"one", "B", "T", "Tp", "Tm", "S", "BM"})

Coefficients = dict[str, int]
PeakFunction = Callable[..., tuple[int, int]]
SizesFunction = Callable[..., Sizes]
PartsFunction = Callable[..., tuple[int, ...]]


def phase_coefficients(geometry: Geometry, context: RunContext, *, several: bool) -> dict[str, Coefficients]:
    """Return each phase's bytes as symbol -> coefficient."""
    terms = {name: buffer.terms(geometry, context) for name, buffer in BUFFERS.items()}
    phases: dict[str, Coefficients] = {}
    for phase, names in live_buffers(geometry, context, several=several).items():
        total: Coefficients = {}
        for name in names:
            for symbol, coefficient in terms[name].items():
                total[symbol] = total.get(symbol, 0) + coefficient
        phases[phase] = total
    return phases


def part_coefficients(
    geometry: Geometry, context: RunContext, *, several: bool
) -> dict[str, tuple[tuple[int, int, int], ...]]:
    """Return each phase's bytes as (index in PARTS, index of the symbol, coefficient)."""
    live = live_buffers(geometry, context, several=several)
    return {
        phase: tuple(
            (PARTS.index(BUFFERS[name].part), Sizes._fields.index(symbol), coefficient)
            for name in names
            for symbol, coefficient in BUFFERS[name].terms(geometry, context).items()
        )
        for phase, names in live.items()
    }


def compile_peak(geometry: Geometry, context: RunContext, *, several: bool) -> PeakFunction:
    """Write and compile `peak(sums, rank rows) -> (bytes with the safety factor, index in PHASES)`."""
    phases = _undominated(phase_coefficients(geometry, context, several=several))
    shared = _shared(phases)
    needed = {symbol for coefficients in phases.values() for symbol in coefficients}
    lines = _symbol_lines(geometry, context, needed)
    for position, (phase, coefficients) in enumerate(phases.items()):
        rest = {symbol: value - shared.get(symbol, 0) for symbol, value in coefficients.items()}
        expression = _sum(rest)
        if position == 0:
            lines += [f"best = {expression}", f"phase = {PHASES.index(phase)}"]
        else:
            lines += [f"at = {expression}", "if at > best:", "    best = at", f"    phase = {PHASES.index(phase)}"]
    factor = context.safety_factor
    lines.append(f"best += {_sum(shared)}")
    if factor != 1:
        lines.append(f"best = -(-best * {factor.numerator} // {factor.denominator})")
    lines.append("return best, phase")
    return _define("peak", context, lines)


def compile_parts(geometry: Geometry, context: RunContext, phase: str, *, several: bool) -> PartsFunction:
    """Write and compile `parts(sums, rank rows) -> bytes by group` of one phase, in the order of `PARTS`."""
    groups: list[Coefficients] = [{} for _ in PARTS]
    for part, symbol, coefficient in part_coefficients(geometry, context, several=several)[phase]:
        name = Sizes._fields[symbol]
        groups[part][name] = groups[part].get(name, 0) + coefficient
    lines = _symbol_lines(geometry, context, {symbol for group in groups for symbol in group})
    lines.append(f"return {', '.join(map(_sum, groups))},")
    return _define("parts", context, lines)


def compile_sizes(geometry: Geometry, context: RunContext) -> SizesFunction:
    """Write and compile `sizes(sums, rank rows) -> Sizes`, the value of every symbol; for use off the hot path."""
    lines = _symbol_lines(geometry, context, set(Sizes._fields))
    lines.append(f"return Sizes({', '.join(Sizes._fields)})")
    return _define("sizes", context, lines)


def _define(name: str, context: RunContext, lines: list[str]) -> Callable[..., Any]:
    parameters = SUMS if context.cp == 1 else f"{SUMS}, {RANK}"
    source = "\n    ".join([f"def {name}({parameters}):", *lines])
    namespace: dict[str, Any] = {"Sizes": Sizes}
    exec(source, namespace)  # noqa: S102 - made of our own tables and integers only, as dataclasses makes __init__
    defined: Callable[..., Any] = namespace[name]
    return defined


def _sum(coefficients: Mapping[str, int]) -> str:
    terms = [
        str(value) if symbol == "one" else symbol if value == 1 else f"{value} * {symbol}"
        for symbol, value in coefficients.items()
        if value
    ]
    return " + ".join(terms) or "0"


def _shared(phases: Mapping[str, Coefficients]) -> Coefficients:
    rows = list(phases.values())
    return {symbol: min(row.get(symbol, 0) for row in rows) for symbol in rows[0]}


def _undominated(phases: dict[str, Coefficients]) -> dict[str, Coefficients]:
    """Drop a phase that another one always exceeds, or always equals and comes before."""
    order = list(phases)

    def exceeds(other: str, phase: str) -> bool:
        mine, theirs = phases[phase], phases[other]
        if any(value > theirs.get(symbol, 0) for symbol, value in mine.items()):
            return False
        ahead = any(theirs.get(symbol, 0) > mine.get(symbol, 0) for symbol in _NEVER_ZERO)
        return ahead or order.index(other) < order.index(phase)

    kept: dict[str, Coefficients] = {}
    for phase in order:
        if not any(exceeds(other, phase) for other in order if other != phase):
            kept[phase] = phases[phase]
    return kept


def _symbol_lines(geometry: Geometry, context: RunContext, needed: set[str]) -> list[str]:
    """Return the statements that give every needed symbol its value, in an order that works."""
    blocks = _symbol_blocks(geometry, context)
    wanted = set(needed)
    chosen: list[str] = []
    for names, source in reversed(blocks):
        if wanted & set(names):
            wanted |= set(re.findall(r"[A-Za-z_]+", source))
            chosen.insert(0, source)
    return [line for source in chosen for line in source.splitlines()]


def _symbol_blocks(g: Geometry, c: RunContext) -> list[tuple[tuple[str, ...], str]]:
    """Return (symbols given, statements) pairs; a later one may use an earlier one's symbols."""
    alone = c.cp == 1
    can_be_dense = g.is_sparse and alone and c.sm_major in {9, 10}
    ragged = g.is_sparse and c.kv_dtype == "fp8" and c.prefill_impl in RAGGED_IMPLS
    blocks: list[tuple[tuple[str, ...], str]] = []
    if alone:
        blocks.append((("Tl", "Tp", "Ms", "Bs", "split"), "Tl = Tp = T\nMs = M\nBs = B"))
        blocks.append((("Ss",), "Ss = T + P"))
    least = max(c.mlp.tokens, c.mlp.dp_tokens)
    rows = "T" if c.mlp.full_rows else "Tp"
    blocks += [
        (("one",), "one = 1"),
        (("S",), "S = T + P"),
        (("Tm",), f"Tm = {rows} if {rows} > {least} else {least}" if least else f"Tm = {rows}"),
        (("Ssel",), "Ssel = Ss"),
        (("BM",), "BM = B * M"),
        (("BMsel",), "BMsel = Bs * Ms"),
        (("BPsel",), f"BPsel = Bs * -(-Ms // {c.page_size})"),
        (("Tcp",), "Tcp = 0" if alone else "Tcp = T if split else 0"),
        (("Tlmax",), "Tlmax = 0" if alone else "Tlmax = longest if split else 0"),
        (("own",), f"own = -(-T // {c.shard_size})"),
        (("Lb",), "Lb = L * (24 if k > 1 else 16)"),
        (("R",), f"R = T if T < {c.logprob_rows} else {c.logprob_rows}"),
        (
            ("c",),
            "c = R" if c.logprob_chunk is None else f"c = R if R < {c.logprob_chunk} else {c.logprob_chunk}",
        ),
    ]
    dense = f"M <= {c.dense_context} and T + P <= {c.dense_capacity}" if can_be_dense else "False"
    blocks.append((("dense",), f"dense = {dense}"))
    if g.is_sparse:
        blocks += _sparse_blocks(g, c, ragged=ragged)
    else:
        zero = (
            "flat",
            "Ri",
            "Rk",
            "Ki",
            "score",
            "score_next",
            "chunk",
            "chunk_prev",
            "chunk_next",
            "chunk_table",
            "chunk_scores",
        )
        blocks += [((symbol,), f"{symbol} = 0") for symbol in zero]
        blocks.append(_plain_mla_block(c) if g.is_mla else (_PATHS, f"{' = '.join(_PATHS)} = 0"))
    absorbed = "Ta" if g.is_mla else "False"
    blocks += [
        (("Sd",), f"Sd = Ss if P and {absorbed} else 0"),
        (("Tc",), f"Tc = T if not P and {absorbed} else 0"),
        (("Kq",), f"Kq = Ss + {g.index_topk} if {absorbed} else 0"),
    ]
    return blocks


_PATHS = ("Ta", "Td", "n", "nk", "Te", "To", "ids")


def _sparse_blocks(g: Geometry, c: RunContext, *, ragged: bool) -> list[tuple[tuple[str, ...], str]]:
    scored = "scored = True" if c.cp > 1 else f"scored = not dense and M > {g.index_topk}"
    align, budget = 128 // g.index_heads, c.mqa_budget.bytes
    width = COLUMN_ALIGN * SCORE_BYTES * align
    stride = f"(Ss + {2 * COLUMN_ALIGN - 1}) // {COLUMN_ALIGN} * {width}"
    flat = "P" if ragged else "P and dense" if c.kv_dtype == "fp8" else "False"
    return [
        (("flat",), f"flat = Ss if {flat} else 0"),
        (("scored",), scored),
        (("Ri",), "Ri = Tp if scored else 0"),
        (("Ki",), "Ki = Ss if scored else 0"),
        (("Rk",), "Rk = 0 if dense else Tp"),
        (("Ta",), "Ta = 0 if dense else Tp"),
        (("Td",), "Td = T if dense else 0"),
        (("n", "nk"), "n = nk = T + P if dense else 0"),
        (("ids",), "ids = T + P if dense and P else 0"),
        (("Te",), "Te = 0"),
        (("To",), "To = 0"),
        (
            ("score", "score_next", "chunk", "chunk_next", "cut"),
            f"""score = score_next = chunk = chunk_next = cut = 0
if scored:
    elements = Tl * Ss
    if elements:
        if elements < {UNCUT_ELEMENTS} or {SCORE_BYTES} * elements <= {budget}:
            chunk = Tl
            score = -(-Tl // {align}) * ({stride})
        else:
            chunk = {budget} // ({SCORE_BYTES} * Ss) or 1
            if chunk > Tl:
                chunk = Tl
            cut = chunk < Tl
            stride = {stride}
            score = -(-chunk // {align}) * stride
            rest = Tl - chunk
            chunk_next = chunk if chunk < rest else rest
            score_next = -(-chunk_next // {align}) * stride""",
        ),
        (("chunk_prev",), "chunk_prev = chunk if cut else 0"),
        (("chunk_table",), "chunk_table = 0" if ragged else "chunk_table = chunk * Ms if cut else 0"),
        (("chunk_scores",), "chunk_scores = chunk * Ss"),
    ]


def _plain_mla_block(c: RunContext) -> tuple[tuple[str, ...], str]:
    absorbed = "False" if c.cp == 1 else "split"
    start = f"Ta = Td = n = nk = Te = To = ids = 0\nif {absorbed}:\n    Ta = Tp"
    if c.prefill_impl == "triton":
        return _PATHS, f"{start}\nelif P:\n    Ta = Tp\nelse:\n    Td = n = nk = T"
    if c.prefill_impl != "trtllm_mla":
        start += f"\nelif 0 < P < {c.chunked_prefix_threshold}:\n    Ta = Tp"
    if c.prefill_impl in ONE_SHOT_IMPLS:
        start += f"\nelif T + P <= {c.dense_capacity}:\n    Td = T\n    n = nk = T + P\n    ids = n if P else 0"
    return (
        _PATHS,
        f"""{start}
elif not P:
    Td = Te = T
else:
    Te = To = T
    ids = P
    piece = {c.dense_capacity} // B or 1
    n = 0
    for prefix in Ps:
        n += prefix if prefix < piece else piece""",
    )
