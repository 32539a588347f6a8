"""One pass of the real PrefillAdder of SGLang 0.5.23 over a state built from a spec, for make_sglang_golden.py.

Trees, allocators, request rows, requests and the adder are SGLang's; only the running batch is a plain holder. The loop
follows Scheduler._get_new_batch_prefill_raw with policy fcfs, no mixed chunk, no LoRA, no priorities.
"""

from array import array
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.managers.schedule_policy import AddReqResult, PrefillAdder
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.sampling.sampling_params import SamplingParams

CLIP = 4096  # SGLang's CLIP_MAX_NEW_TOKENS: what a long output is charged at most, in tokens
SPAN = 10_000_000  # token ids of two prefixes or prompts never meet
Json = dict[str, Any]


@dataclass(frozen=True)
class Running:
    """A request that decodes: tokens of KV it holds, tokens left to generate, tokens generated."""

    held: int
    remaining: int
    generated: int
    ignore_eos: bool


@dataclass(frozen=True)
class Prefix:
    """A cached prefix: whole-page tokens on the device, then tokens that only the host has."""

    device: int
    host: int
    locked: bool


@dataclass(frozen=True)
class Waiting:
    """Waiting request `q<number>`: its prompt begins with `shared` tokens of prefix `prefix` (-1 for none)."""

    prefix: int
    shared: int
    prompt: int
    output: int
    generated: int = 0
    ignore_eos: bool = False
    number: int = 0

    def demand(self) -> int:
        """Tokens that the empty pool must offer, without the page of overhead."""
        return self.prompt + min(max(self.output - self.generated, 0), CLIP)


@dataclass(frozen=True)
class Spec:
    """Everything a case is built from; a rank's chunk is `chunk` divided by `data_parallel`, as SGLang does at start.

    `eat` is KV held by neither the tree nor a request listed, in tokens.
    """

    tree: str
    page: int
    pool: int
    slots: int
    ratio: float
    chunk: int | None
    max_prefill: int
    eat: int = 0
    running: tuple[Running, ...] = ()
    prefixes: tuple[Prefix, ...] = ()
    fillers: tuple[int, ...] = ()
    active: tuple[int, int, int] | None = None
    queue: tuple[Waiting, ...] = ()
    data_parallel: int = 1


@dataclass
class Outcome:
    """A case as it was run, and what the checks compared on the way."""

    case: Json
    expected: Json
    partly_locked: bool
    chunk_room: float | None
    adder: Any = None
    kv_checks: dict[str, tuple[int, float]] = field(default_factory=dict)
    input_checks: list[tuple[int, int]] = field(default_factory=list)


class NoRoomError(Exception):
    """The state that a spec describes does not fit its own pool."""


class World:
    """A real tree, allocator and row pool in the state that a spec describes."""

    def __init__(self, spec: Spec, server_args: Any) -> None:
        self.spec = spec
        self.server_args = server_args
        self._build(spec)
        self._fill_tree()
        self.taken = 0  # tokens held outside the tree
        self.running = [self._run(i, r) for i, r in enumerate(spec.running)]
        self.active = self._activate() if spec.active else None
        self._hold(spec.eat)
        self.queue = [self._wait(w) for w in spec.queue]
        known = self._free() + self.tree.evictable_size() + self.tree.protected_size()
        if known + self.taken != self.allocator.size:
            raise AssertionError(
                f"{self.allocator.size} tokens of pool, but {known} + {self.taken} accounted for: {spec}"
            )

    def _free(self) -> int:
        return self.allocator.available_size()

    def _build(self, spec: Spec) -> None:
        """Make allocator, rows and tree, all empty."""
        page, dtype = spec.page, torch.float16
        kv = MHATokenToKVPool(spec.pool, page, dtype, 1, 8, 1, "cpu", False) if spec.tree == "host" else None
        shared = {"dtype": dtype, "device": "cpu", "kvcache": kv, "need_sort": False}
        self.allocator = (
            TokenToKVPoolAllocator(spec.pool, **shared)
            if page == 1
            else PagedTokenToKVPoolAllocator(spec.pool, page_size=page, **shared)
        )
        self.rows = ReqToTokenPool(size=spec.slots, max_context_len=8, device="cpu", enable_memory_saver=False)
        params = CacheInitParams(
            disable=False,
            req_to_token_pool=self.rows,
            token_to_kv_pool_allocator=self.allocator,
            page_size=page,
            tree_components=(ComponentType.FULL,),
        )
        self.tree = RadixCache(params) if spec.tree == "radix" else UnifiedRadixCache(params)
        if spec.tree == "host":
            self.tree.init_hicache(self.server_args, params)

    def _take(self, tokens: int) -> Any:
        page = self.spec.page
        taken = self.allocator.alloc(-(-tokens // page) * page)
        if taken is None:
            raise NoRoomError
        return taken

    def _hold(self, tokens: int) -> None:
        self.taken += len(self._take(tokens))

    def _insert(self, ids: array) -> Any:
        """Put whole pages of `ids` in the tree, wait for their copy on the host, return the deepest node."""
        key = RadixKey(ids)
        self.tree.insert(InsertParams(key=key, value=self._take(len(ids))))  # it frees what it has already
        if self.spec.tree == "host":
            self.tree.flush_pending_backups()
            while self.tree.ongoing_write_through:
                self.tree.check_hicache_events()
        return self.tree.match_prefix(MatchPrefixParams(key=key)).last_device_node

    def _fill_tree(self) -> None:
        """Insert each prefix; what is to be on the host alone is evicted while the rest is locked."""
        locks = []
        for number, prefix in enumerate(self.spec.prefixes):
            ids = prefix_ids(number, prefix.device + prefix.host)
            if prefix.device:
                locks.append((prefix.locked, self.tree.lock(self._insert(ids[: prefix.device]))))
            if prefix.host:
                self._insert(ids)
                self.tree.evict(EvictParams(num_tokens=prefix.host))
        for keep, lock in locks:
            if not keep:
                self.tree.unlock(lock)
        for number, length in enumerate(self.spec.fillers):
            self._insert(prefix_ids(100 + number, length))

    def _row(self, request: Req, tokens: int) -> None:
        request.kv.req_pool_idx = self.rows.alloc_rows(1)[0]
        request.kv.kv_allocated_len = tokens

    def _run(self, number: int, running: Running) -> Req:
        request = make_request(
            f"r{number}", array("q", [1]), running.remaining + running.generated, running.generated, running.ignore_eos
        )
        self._hold(running.held)
        self._row(request, running.held)
        return request

    def _activate(self) -> Req:
        prompt, done, output = self.spec.active
        request = make_request("L", prefix_ids(50, prompt), output)
        request.last_node = self._insert(prefix_ids(50, done))
        request.lock = self.tree.lock(request.last_node)
        request.prefix_len = request.kv.cache_protected_len = done
        self._row(request, done)
        return request

    def _wait(self, waiting: Waiting) -> Req:
        ids = prefix_ids(waiting.prefix, waiting.shared) if waiting.shared else array("q")
        own = waiting.prompt - waiting.generated - waiting.shared
        ids.extend(prefix_ids(1000 + waiting.number, own))
        return make_request(f"q{waiting.number}", ids, waiting.output, waiting.generated, waiting.ignore_eos)

    def locked(self, request: Req) -> tuple[int, int]:
        """Tokens of the request's device hit that somebody has locked, and tokens that nobody has."""
        before = self.tree.evictable_size()
        lock = self.tree.lock(request.last_node)
        loose = before - self.tree.evictable_size()
        self.tree.unlock(lock)
        return request.prefix_len - loose, loose


def prefix_ids(number: int, length: int) -> array:
    """Token ids that no other prefix or prompt has."""
    start = (number + 1) * SPAN
    return array("q", range(start, start + length))


def make_request(name: str, ids: array, output: int, generated: int = 0, ignore_eos: bool = False) -> Req:
    """A real request with `generated` output tokens already made."""
    sampling = SamplingParams(max_new_tokens=output, ignore_eos=ignore_eos)
    sampling.normalize(None)
    request = Req(rid=name, origin_input_text="", origin_input_ids=ids, sampling_params=sampling, vocab_size=1 << 40)
    request.output_ids = array("q", range(7, 7 + generated))
    return request


def run_pass(world: World, adder_class: type[PrefillAdder] = PrefillAdder) -> Outcome:
    """One pass as the scheduler makes it, with the state each candidate saw written down.

    `adder_class` is the stock class or one that stands in for it.
    """
    spec = world.spec
    batch = SimpleNamespace(reqs=world.running, batch_size=lambda: len(world.running))
    capacity = {
        "pool_tokens": world.allocator.size,
        "free_tokens": world.allocator.available_size(),
        "evictable_tokens": world.tree.evictable_size(),
        "running_slots": spec.slots,
    }
    chunk_size = spec.chunk and spec.chunk // spec.data_parallel
    adder = adder_class(
        spec.page, world.tree, world.allocator, batch, spec.ratio, spec.max_prefill, chunk_size,
        max_running_requests=spec.slots, waiting_queue_len=len(world.queue),
    )  # fmt: skip
    outcome = Outcome({}, {}, False, None)
    stop, verdicts, seen, chunk = None, {}, {}, None

    def allocatable() -> int:
        held = sum(r.kv.holds_kv for r in adder.can_run_list)
        return min(spec.slots - len(world.running), world.rows.available_size() + held)

    waiting = world.queue
    if allocatable() <= 0 and world.active is None:
        stop, waiting = "slots", []
    if world.active is not None:
        world.active.init_next_round_input()
        outcome.chunk_room = adder.rem_total_tokens
        chunk = adder.add_chunked_req(world.active)
        outcome.expected["after_chunk"] = PrefillAdder.budget_state(adder).name
    for request in waiting:
        if adder.budget_state() == AddReqResult.OTHER:
            stop = "OTHER"
            break
        if len(adder.can_run_list) >= allocatable():
            stop = "slots"
            break
        request.init_next_round_input(world.tree)
        seen[request.rid] = see(world, request)
        outcome.partly_locked |= all(world.locked(request))
        watch(adder, request, outcome)
        verdict = adder.add_one_req(request, has_chunked_req=chunk is not None, truncation_align_size=None)
        verdicts[request.rid] = verdict.name
        if verdict != AddReqResult.CONTINUE:
            stop = verdict.name
            break
    for request in world.queue:
        if request.rid not in seen:
            request.init_next_round_input(world.tree)
            seen[request.rid] = see(world, request)
    outcome.case = write_case(spec, capacity, seen)
    unfinished = {chunk, adder.new_chunked_req}
    members = [member(r, r in unfinished, r is world.active) for r in adder.can_run_list]
    outcome.expected |= {"batch": members, "verdicts": verdicts, "looked_at": len(verdicts), "stop": stop}
    outcome.adder = adder
    return outcome


def watch(adder: PrefillAdder, request: Req, outcome: Outcome) -> None:
    """Note what the adder compares for this candidate: KV demand with room, input with its budget. Changes nothing."""
    stock = type(adder)._check_prefill_budget

    def noted(req: Req, **kwargs: Any) -> tuple[bool, int | None]:
        outcome.kv_checks[request.rid] = (kwargs["total_tokens"], adder.rem_total_tokens)
        if adder.can_run_list:
            outcome.input_checks.append((adder.ceil_paged_tokens(kwargs["extend_input_len"]), adder.rem_input_tokens))
        return stock(adder, req, **kwargs)

    adder._check_prefill_budget = noted


def see(world: World, request: Req) -> Json:
    """The candidate's hits as the tree has just matched them."""
    hits = {
        "device_hit_tokens": request.prefix_len,
        "device_hit_locked": request.prefix_len > 0 and world.locked(request)[1] == 0,
        "host_hit_tokens": request.host_hit_length,
    }
    return {key: value for key, value in hits.items() if value}


def member(request: Req, cut: bool, continuing: bool) -> Json:
    """A batch member as the adder left it."""
    return {
        "id": request.rid,
        "outcome": "admit_chunk" if cut else "admit",
        "extend_tokens": request.extend_end - request.prefix_len,
        "cached_tokens": 0 if continuing else request.prefix_len,
        "host_loaded_tokens": request.host_loaded_length,
    }


def write_case(spec: Spec, capacity: Json, seen: dict[str, Json]) -> Json:
    """The case as `glassgate decide` reads it."""
    case: Json = {
        "context_parallel": False,
        "data_parallel": spec.data_parallel,
        "knobs": {
            "chunked_prefill_size": spec.chunk,
            "max_prefill_tokens": spec.max_prefill,
            "page_size": spec.page,
        },
        "capacity": capacity,
        "new_token_ratio": spec.ratio,
        "running": [
            {"id": f"r{i}", "remaining_output_tokens": r.remaining} | ({"ignore_eos": True} if r.ignore_eos else {})
            for i, r in enumerate(spec.running)
        ],
    }
    if spec.active:
        prompt, done, output = spec.active
        case["active_chunk"] = {"id": "L", "prompt_tokens": prompt, "done_tokens": done, "output_tokens": output}
    case["queue"] = []
    for w in spec.queue:
        name = f"q{w.number}"
        item: Json = {"id": name, "prompt_tokens": w.prompt, "output_tokens": w.output} | seen[name]
        if w.generated:
            item["generated_tokens"] = w.generated
        if w.ignore_eos:
            item["ignore_eos"] = True
        case["queue"].append(item)
    return case
