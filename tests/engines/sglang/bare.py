"""One pass of Glassgate's adder without a server: the real classes, and the record that comes of the pass."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sglang.srt.mem_cache.allocator.page_interleave import PageInterleavePoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.page_interleave import PageShardSpec
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang_pass import NoRoomError, World, prefix_ids, run_pass

from controller.admission import AdmissionPass
from controller.case import CaseEngine, decision_dict, read_case
from controller.decision import Decision, PassResult
from controller.engines.sglang.adder import GatedAdder
from controller.engines.sglang.desk import Desk
from controller.engines.sglang.hits import LoadWatch
from controller.engines.sglang.sheet import Sheet, Standing
from controller.engines.sglang.terms import Terms
from controller.knobs import Knobs
from controller.limits import Setting, effective
from controller.request import ActiveChunk, Capacity, Lane, running_reserve
from controller.vocabulary import HostHit, Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sglang_pass import Outcome as Ran
    from sglang_pass import Spec

    from estimator.batch import BatchEstimator

LANES = 4


class Shelf:
    """Stands where a record stands, and keeps what it is told."""

    def __init__(self) -> None:
        self.noted: list[Any] = []
        self.asides: list[str] = []
        self.errors: list[BaseException] = []
        self.faults = self
        self.now = 0
        self.leads = True

    def note(self, record: Any) -> None:
        """Keep a record."""
        self.noted.append(record)

    def add(self, what: str, error: BaseException, lost: str) -> None:
        """Keep a fault."""
        del what, lost
        self.errors.append(error)

    def stand_aside(self, why: str) -> None:
        """Keep why."""
        self.asides.append(why)


class Interleaved(World):
    """A world whose pool deals its pages to four owner lanes, as a sharded prefill node does; it never decodes."""

    def __init__(self, spec: Spec, server_args: Any) -> None:
        # A chain's pages begin in a lane of its own, so that no lane is ahead of the others by accident alone.
        self._bases = 0
        super().__init__(replace(spec, running=(), ratio=1.0), server_args)

    def _build(self, spec: Spec) -> None:
        page = spec.page
        self.shard = PageShardSpec(
            shard_rank=0, shard_size=LANES, page_size=page, max_prefix_tokens=1 << 30, chunk_tokens=1 << 30
        )
        self.allocator = PageInterleavePoolAllocator(
            -(-spec.pool // (LANES * page)) * page, page, LANES, None, "cpu", None, False, shard_spec=self.shard
        )
        self.rows = ReqToTokenPool(size=spec.slots, max_context_len=8, device="cpu", enable_memory_saver=False)
        params = CacheInitParams(
            disable=False, req_to_token_pool=self.rows, token_to_kv_pool_allocator=self.allocator, page_size=page,
            tree_components=(ComponentType.FULL,),
        )  # fmt: skip
        self.tree = UnifiedRadixCache(params)

    def _free(self) -> int:
        return self.allocator.aggregate_free_size()

    def _take(self, tokens: int, base: int | None = None) -> Any:
        page = self.spec.page
        taken = (
            self.allocator.alloc_cyclic(
                self.allocator.least_full_class() if base is None else base, -(-tokens // page) * page
            )
            if tokens
            else []
        )
        if taken is None:
            raise NoRoomError
        return taken

    def _insert(self, ids: Any) -> Any:
        base = self.allocator.least_full_class()
        key = RadixKey(ids)
        known = self.tree.match_prefix(MatchPrefixParams(key=key))
        held = self.tree.rotation_base_of(known.last_device_node)
        base = base if held is None else held
        self.tree.insert(InsertParams(key=key, value=self._take(len(ids), base), rotation_base=base))
        return self.tree.match_prefix(MatchPrefixParams(key=key)).last_device_node


class Passed:
    """A pass: what the engine did, and what Glassgate wrote down of it."""

    def __init__(self, world: World, outcome: Ran, result: PassResult, desk: Desk) -> None:
        self.world = world
        self.outcome = outcome
        self.result = result
        self.desk = desk


def knobs_of(spec: Spec, **asked: Any) -> Knobs:
    """The engine's own limits as knobs, and what is asked for beside them."""
    chunk = spec.chunk and spec.chunk // spec.data_parallel // spec.page * spec.page
    return Knobs(chunked_prefill_size=chunk or None, max_prefill_tokens=spec.max_prefill, page_size=spec.page, **asked)


def setting_of(spec: Spec, *, lanes: int = 1, model: bool = False, context_parallel: bool = False) -> Setting:
    """The engine's setting."""
    return Setting(lanes=lanes, slots=max(1, spec.slots), has_model=model, context_parallel=context_parallel)


def terms_of(
    spec: Spec, *, lanes: int = 1, park: bool = False, estimator: BatchEstimator | None = None,
    context_parallel: bool = False, **asked: Any,
) -> Terms:  # fmt: skip
    """What is in force in a pass over a spec."""
    setting = setting_of(spec, lanes=lanes, model=estimator is not None, context_parallel=context_parallel)
    return Terms(effective(knobs_of(spec, **asked), setting), estimator, park=park)


def gated_pass(
    spec: Spec,
    server_args: Any,
    terms: Terms,
    *,
    kind: type[World] = World,
    aborts_never: bool = False,
    faulty: bool = False,
) -> Passed:
    """One pass of Glassgate's adder over a spec; of a faulty one nothing is written down.

    Raises NoRoomError where the spec does not fit its own pool, and whatever failed of ours unless that is expected.
    """
    world = kind(spec, server_args)
    desk = Desk(Shelf(), terms, aborts_never=aborts_never)  # type: ignore[arg-type]
    if spec.tree == "host":
        desk.loads = LoadWatch(world.tree, lambda *_: None, desk.fail)
    adder_class = type("BareAdder", (GatedAdder,), {"desk": desk})
    outcome = run_pass(world, adder_class)
    if faulty:
        return Passed(world, outcome, PassResult((), (), None, 0, None, 0, 0), desk)
    if desk.record.errors:  # type: ignore[attr-defined]
        raise desk.record.errors[0]  # type: ignore[attr-defined]
    out_of_slots = outcome.expected["stop"] == "slots"
    standing = Standing(
        terms, desk.ledger.number, len(world.running), world.spec.slots - len(world.running), {}, out_of_slots,
        HostHit.NONE_RESIDENT, estimates=terms.estimator is not None,
    )  # fmt: skip
    return Passed(world, outcome, Sheet(outcome.adder, standing).write(world.queue), desk)


def replayed(case: dict[str, Any], *, lanes: int = 1) -> PassResult:
    """The replay's own rules on a case; with `lanes` the pool is one, and a request's overhead a page in each lane."""
    read = read_case(case)
    knobs = Knobs.parse(read.knobs)
    given = read.capacity
    reserve = [(each.remaining_output_tokens, each.ignore_eos) for each in read.running]
    capacity = Capacity(
        pool_tokens=given.pool_tokens or 1,
        free_tokens=given.free_tokens or 0,
        evictable_tokens=given.evictable_tokens,
        reserved_tokens=running_reserve(reserve, read.new_token_ratio),
        running=len(read.running),
        slots=given.running_slots,
        lanes=tuple(Lane(each.free_pages, each.evictable_pages) for each in given.lanes),
    )
    setting = Setting(data_parallel=read.data_parallel, lanes=lanes, slots=capacity.slots, has_model=False)
    engine = CaseEngine(read, given.evictable_tokens)
    chunk = read.active_chunk
    active = None
    if chunk is not None:
        active = ActiveChunk(
            len(read.queue), chunk.prompt_tokens, chunk.done_tokens, chunk.output_tokens, chunk.first_lane
        )
    return AdmissionPass(effective(knobs, setting), capacity).run(engine.candidates(), engine, active)


def told(result: PassResult, names: Sequence[str] | Mapping[int, str]) -> list[dict[str, Any]]:
    """What a pass said of each request it looked at, by the request's name: decision, ladder, host hit."""
    return [decision_dict(Decision.read(flat), names[flat[0]]) for flat in result.decisions]


def members(result: PassResult, names: Sequence[str] | Mapping[int, str]) -> list[dict[str, Any]]:
    """The batch as the golden cases have it."""
    return [
        {
            "id": names[number],
            "outcome": Outcome(outcome).word,
            "extend_tokens": extend,
            "cached_tokens": hit + loaded,
            "host_loaded_tokens": loaded,
        }
        for number, outcome, extend, hit, loaded, _ in result.batch
    ]


def lanes_of(world: Interleaved) -> list[dict[str, int]]:
    """Each owner lane's free and evictable pages, counted from the pool's lists and the tree's nodes."""
    page, spec = world.spec.page, world.spec
    locked: set[int] = set()
    for number, prefix in enumerate(spec.prefixes):
        if prefix.device and prefix.locked:
            locked |= _pages(world, prefix_ids(number, prefix.device))
    if spec.active:
        locked |= _pages(world, prefix_ids(50, spec.active[1]))
    held = {int(each) // page for each in world.tree.all_values_flatten()}
    evictable = [0] * LANES
    for each in held - locked:
        evictable[each % LANES] += 1
    free = world.allocator.class_free_page_counts()
    return [{"free_pages": free[lane], "evictable_pages": evictable[lane]} for lane in range(LANES)]


def _pages(world: Interleaved, ids: Any) -> set[int]:
    node = world.tree.match_prefix(MatchPrefixParams(key=RadixKey(ids))).last_device_node
    return {int(each) // world.spec.page for each in world.tree.path_device_indices(node)}
