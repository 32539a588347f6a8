"""A request's life in plain words with numbers, one fact a line."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from controller.vocabulary import GATE_REASONS
from store.waits import BEHIND, BETWEEN, HELD
from store.words import amount, count, counted, duration, times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.life import Entry, Life, Part, Wait

_CHUNKS_NAMED: Final = 4
_RUNS_NAMED: Final = 5

# What the gates say of a request; {needs} and {left} are its own, {seen} and {limit} what was compared; {requests} is a
# limit with its noun.
_SAID: Final = {
    "batch_mode": "one request a batch while shared_kv_batching is off",
    "request_slots": "all {limit} request slots are taken",
    "request_count": "the batch has its {requests}",
    "kv_capacity": "needs {needs}; {left} left",
    "kv_capacity/lane": "needs {needs} pages of one lane; {left} left",
    "buffer_bytes": "the batch would peak at {seen}; the limit is {limit}",
    "kv_capacity/window": "needs {seen} tokens of the attention window's pool; it has {limit}",
    "kv_capacity/current": "the pool's room for this step is spent",
    "chunk_tokens/second_chunk": "the batch has a cut prompt already; {left} of {limit} left",
    "chunk_tokens/floor": "what is left of the chunk, once aligned, holds nothing",
    "batch_full": "the engine takes nobody until one of {seen} running requests leaves",
    "batch_full/slots": "no request slot was left, and the engine looks again when a request leaves",
    "batch_full/pool": "needed {seen} tokens; {limit} were left, and the engine looks again when a request leaves",
    "prefill_delay": "the engine holds prefill back until all its ranks have some",
    "prefill_delay/free_slots": "the engine waits for more free slots: {seen} of {limit}",
    "prefill_delay/interval": "the engine runs decode steps between prefills",
    "shard_scratch": "the batch would take {seen} tokens of scratch; there are {limit}",
    "tile_budget": "the batch would take more attention tiles than allowed",
    "state_slots": "needs {seen} state slots; {limit} left",
    "lora": "its adapter cannot join those loaded",
    "pooling_mode": "it pools other tokens than the batch's first member",
    "storage": "its prefix is on the way from storage",
    "storage/staging": "its prefix is not staged yet",
    "load_back": "its host hit could not be settled in this pass",
    "kv_capacity/preemption": "a running request had to give {seen} tokens back in that step",
    "kv_capacity/watermark": "needs {seen} with what is kept free for those that run; {limit} free",
    "kv_capacity/reserved": "needs {seen} with what others are promised; {limit} free",
    "chunk_tokens/alignment": "what is left of the step holds no chunk that ends where state is cached",
    "prefill_delay/cadence": "prompts wait until all data-parallel ranks run them together",
    "load_back/loading": "its host hit of {seen} tokens is on its way",
    "load_back/lookup": "the connector cannot say yet what it holds of the prompt",
    "request_state": "its grammar is being compiled",
    "request_state/more_input": "its session waits for its client",
    "request_state/stale_output": "output from before it gave its KV back is still to be delivered",
    "encoder": "the encoder has no room for its input",
    "encoder/transfer": "its encoder input is on its way",
    "paused": "the engine was told to take nothing in",
    "unattributed": "the engine did not say why",
}
_NEEDS: Final = "needs {needs}; {left} of {limit} left"
_SPENT: Final = "{seen} of {limit} spent"
_USUAL: Final = {gate.word: reasons[0].word for gate, reasons in GATE_REASONS.items()}


def tell(life: Life) -> list[str]:
    """The life as lines; what belongs to the line above is indented by two spaces."""
    return [*_opening(life), *_stays(life), *_ending(life)]


def named(gate: str | None, reason: str | None) -> str:
    """A gate by its name, with its reason where it is not the gate's usual one."""
    return f"{gate}" if gate is None or _USUAL.get(gate) == reason else f"{gate}/{reason}"


def shortfall(part: Part) -> str:
    """What a gate saw of the request when it last looked."""
    if part.observed is None or part.limit is None or part.unit is None:
        return "the record has no numbers"
    stop = named(part.gate, part.reason)
    form = _SAID.get(stop) or _SAID.get(part.gate or "") or (_NEEDS if part.needs is not None else _SPENT)
    return form.format(
        needs=count(part.needs or 0),
        left=count(max(0, part.left or 0)),
        seen=amount(part.observed, part.unit),
        limit=amount(part.limit, part.unit),
        requests=counted(part.limit, "request"),
    )


def part_line(part: Part) -> str:
    """One part of a wait."""
    spent, stop = duration(part.ns), named(part.gate, part.reason)
    if part.kind == HELD:
        return f"{spent} behind {stop} ({shortfall(part)}), told so {times(part.looks)}"
    if part.kind == BEHIND:
        return f"{spent} behind {stop}, not looked at: it closed the passes before this request's turn"
    if part.kind == BETWEEN:
        return f"{spent} until the next pass began"
    return f"{spent} unattributed: the record does not hold what happened"


def _opening(life: Life) -> Iterator[str]:
    yield f"request {life.id} of run {life.run}" + (f", rank {life.rank}" if life.rank else "")
    if life.other_runs:
        others, shown = len(life.other_runs), ", ".join(life.other_runs[:_RUNS_NAMED])
        yield f"the same id is in {counted(others, 'other run')} ({shown}); name one with --run"
    if life.namesakes:
        yield f"{counted(life.namesakes, 'earlier request')} of this run had the same id; this is the last one"
    if life.arrival_ns is None:
        yield "its arrival is not in the record"
    else:
        at = f" ({life.arrived_at})" if life.arrived_at else ""
        into = life.arrival_ns - life.run_start_ns
        yield (f"arrived {duration(into)} into the run" if into else "arrived as the run began") + at
    if life.prompt_tokens is not None and life.output_tokens is not None:
        yield f"prompt of {counted(life.prompt_tokens, 'token')}, at most {count(life.output_tokens)} to generate"
    if life.pruned:
        yield f"{life.pruned}, so what they said of it is not told"


def _stays(life: Life) -> Iterator[str]:
    """Each wait, and the admission that ended it."""
    entries = iter(life.entries)
    ends = [*(wait.start_ns for wait in life.waits[1:]), None]
    for place, (wait, until_ns) in enumerate(zip(life.waits, ends, strict=True)):
        yield from _wait(life, wait, first=place == 0)
        if place == 0 and wait.ended_by != "not_known":
            yield _attention(life, wait)
        if wait.ended_by == "admit":
            entry = next(entries)
            yield from _entry(entry)
            yield from _first_token(life, entry, until_ns)


def _wait(life: Life, wait: Wait, *, first: bool) -> Iterator[str]:
    if not first:
        generated = next((tokens for at_ns, _, tokens in life.retractions if at_ns == wait.start_ns), None)
        after = f" after {counted(generated, 'token')}" if generated is not None else ""
        why = "for a request of higher priority" if wait.after == "preempt" else "because the pool ran out"
        yield f"gave its KV back{after}, {why}"
    again = "" if first else " again"
    if wait.ended_by == "not_known":
        seen = f"was still waiting{again} after {duration(wait.ns)}" if wait.ns else f"waited{again}"
        lost = counted(life.missing_frames, "frame")
        yield f"{seen}; when that ended is not known, for this run's record has lost {lost}" + _of_which(wait)
    elif wait.ended_by == "still_waiting":
        yield f"has waited{again} for {duration(wait.ns)} by the end of the record, and still waits" + _of_which(wait)
    elif wait.ns == 0:
        yield f"did not wait{again}: a pass took it up at once"
    else:
        yield f"waited{again} {duration(wait.ns)}" + _of_which(wait)
    for part in wait.parts:
        yield f"  {part_line(part)}"


def _of_which(wait: Wait) -> str:
    return ", of which" if wait.parts else ""


def _attention(life: Life, wait: Wait) -> str:
    looked = f"looked at {times(wait.looks)}" if wait.looks else "never looked at"
    overtaken = f"overtaken by {count(life.overtaken)}" if life.overtaken else "overtaken by nobody"
    return f"{looked}; {overtaken}"


def _entry(entry: Entry) -> Iterator[str]:
    loaded = entry.host_loaded_tokens
    host = f" ({count(loaded)} of them loaded from the host)" if loaded else ""
    yield (
        f"entered pass {count(entry.number)} with {count(entry.cached_tokens)} tokens cached{host} "
        f"and {count(entry.computed_tokens)} computed"
    )
    if len(entry.chunks) > 1:
        yield _chunks(entry)
    if entry.failed_load_tokens:
        evicted = f"; {counted(entry.evicted_tokens, 'token')} had been evicted for it" if entry.evicted_tokens else ""
        yield f"a load of {count(entry.failed_load_tokens)} tokens from the host failed ({entry.host_hit}){evicted}"
    if entry.recomputed_tokens:
        again = "1 token was" if entry.recomputed_tokens == 1 else f"{count(entry.recomputed_tokens)} tokens were"
        yield (
            f"a host hit of {counted(entry.matched_tokens, 'token')} was not loaded ({entry.host_hit}), "
            f"so {again} computed again"
        )
    if entry.exempt:
        yield f"above the limit of {', '.join(entry.exempt)}, and let in as the first of its batch"
    if entry.would_refuse:
        yield f"{', '.join(entry.would_refuse)} would have told it to wait, but only watched (enforce is off)"
    if entry.parked_by is not None:
        part = entry.parked_by
        yield (
            f"parked {duration(part.ns)} between chunks by {named(part.gate, part.reason)} ({shortfall(part)}), "
            f"told so {times(part.looks)}"
        )


def _chunks(entry: Entry) -> str:
    if len(entry.chunks) > _CHUNKS_NAMED:
        first, last = entry.chunks[0][0], entry.chunks[-1][0]
        return f"computed in {len(entry.chunks)} chunks, from pass {count(first)} to pass {count(last)}"
    each = ", ".join(f"{count(tokens)} in pass {count(number)}" for number, tokens in entry.chunks)
    return f"computed in {len(entry.chunks)} chunks: {each}"


def _ending(life: Life) -> Iterator[str]:
    since = life.arrival_ns if life.arrival_ns is not None else life.run_start_ns
    start = "it arrived" if life.arrival_ns is not None else "the run began"
    return chain(_refusal(life), _end(life, since, start))


def _refusal(life: Life) -> Iterator[str]:
    refusal = life.refusal
    if refusal is None:
        return
    yield (
        f"refused in pass {count(refusal.number)}: it can never fit (needs {count(refusal.observed)} of a pool of "
        f"{count(refusal.limit)}; {count(refusal.short_by)} too many)"
    )
    if refusal.largest_prompt_tokens is not None:
        yield f"the largest prompt this engine can serve is {counted(refusal.largest_prompt_tokens, 'token')}"


def _first_token(life: Life, entry: Entry, until_ns: int | None) -> Iterator[str]:
    """The first token, if it came of this admission."""
    at_ns = life.first_token_ns
    if at_ns is None or at_ns < entry.at_ns or (until_ns is not None and at_ns > until_ns):
        return
    arrived = f", {duration(at_ns - life.arrival_ns)} after it arrived" if life.arrival_ns is not None else ""
    yield f"first token {duration(at_ns - entry.at_ns)} after it entered{arrived}"


def _end(life: Life, since: int, start: str) -> Iterator[str]:
    if life.end_ns is None:
        if life.waits and life.waits[-1].ended_by == "admit":
            yield f"still running at the end of the record, {duration(life.record_end_ns - since)} after {start}"
    elif life.ended == "finish":
        tokens = f", with {counted(life.generated_tokens, 'token')}" if life.generated_tokens is not None else ""
        yield f"finished {duration(life.end_ns - since)} after {start}{tokens}"
    elif life.ended == "abort":
        yield f"aborted {duration(life.end_ns - since)} after {start}" + (f": {life.why}" if life.why else "")
