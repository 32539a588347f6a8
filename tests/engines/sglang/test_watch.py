"""What ends the engine's loop before a candidate is tried, or passes one over: its own loop, over a bare scheduler."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from bare import Shelf, terms_of
from sglang.srt.managers import schedule_batch
from sglang.srt.managers import scheduler as engine
from sglang.srt.managers.min_free_slots_delayer import MinFreeSlotsDelayer
from sglang.srt.managers.schedule_batch import FINISH_ABORT, FINISH_LENGTH
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang_pass import Prefix, Running, Spec, World, make_request, prefix_ids

from controller.decision import Decision
from controller.engines.sglang import ledger
from controller.engines.sglang.desk import Desk
from controller.engines.sglang.sheet import Sheet, Standing
from controller.engines.sglang.watch import SchedulerWatch
from controller.records import Abort, Finish, Retract, StepEnd
from controller.vocabulary import Gate, HostHit, Outcome, Reason

SPEC = Spec("radix", 16, 8192, 4, 1.0, 512, 2048, 0, (Running(64, 100, 4, ignore_eos=False),))


class Book(Shelf):
    """A record that keeps passes and arrivals too."""

    def __init__(self) -> None:
        super().__init__()
        self.passes: list[Any] = []
        self.arrivals: list[tuple[int, str]] = []

    def passed(self, capacity: Any, result: Any, **counts: Any) -> int:
        """Keep a pass; its number."""
        self.passes.append((capacity, result, counts))
        return len(self.passes)

    def arrived(self, number: int, name: str, *_: Any, **__: Any) -> None:
        """Keep an arrival."""
        self.arrivals.append((number, name))

    def knows(self, *_: Any) -> None:
        """Take what is known of a request once it is over."""


class Bare:
    """As much of a scheduler as its prefill loop needs while it admits nobody."""

    _get_new_batch_prefill_raw = Scheduler._get_new_batch_prefill_raw
    get_prefill_adder_class = Scheduler.get_prefill_adder_class
    _should_defer_prefill = Scheduler._should_defer_prefill

    def __init__(self, world: World, queue: int, **attributes: Any) -> None:
        self.world = world
        self.tree_cache, self.token_to_kv_pool_allocator = world.tree, world.allocator
        self.req_to_token_pool = world.rows
        self.waiting_queue = [make_request(f"q{n}", prefix_ids(600 + n, 5000), 4000) for n in range(queue)]
        self.running_batch = SimpleNamespace(
            reqs=world.running, batch_is_full=False, is_empty=lambda: not world.running,
            batch_size=lambda: len(world.running),
        )  # fmt: skip
        self.slots = 3
        self.chunked_req = self.dynamic_chunk_sizer = self.dllm_config = self.lora_drainer = None
        self.min_free_slots_delayer = self.truncation_align_size = None
        self.enable_priority_preemption = self.is_hybrid_swa = self.is_mixed_chunk = False
        self.enable_lora = self.enable_hicache_storage = self.enable_lmcache = False
        self.prefill_decode_interval = self._prefill_decode_interval_remaining = 0
        self.prefill_decode_interval_min_bs = 1
        self.processed_tokens_counter = self.priority_scheduling_preemption_threshold = self.max_prefill_bs = 0
        self.page_size, self.max_prefill_tokens, self.chunked_prefill_size = 16, 2048, 512
        self.max_running_requests = 4
        self.grammar_manager = SimpleNamespace(has_waiting_grammars=lambda: False)
        self.policy = SimpleNamespace(calc_priority=lambda *_, **__: None)
        self.tp_worker = SimpleNamespace(model_runner=SimpleNamespace(attn_backend=object()))
        self.new_token_ratio_tracker = SimpleNamespace(current=1.0)
        self.stepped: list[Any] = []
        self.aborts: list[Any] = []
        self.__dict__.update(attributes)

    def get_num_allocatable_reqs(self, *_: Any, **__: Any) -> int:
        """Slots that are left."""
        return self.slots

    def can_schedule_lora_req(self, *_: Any) -> bool:
        """No adapter fits."""
        return False

    def _prefetch_after_device_hit_loss(self, _: Any) -> bool:
        return False

    def _add_request_to_queue(self, request: Any, is_retracted: bool = False) -> None:
        del is_retracted
        self.waiting_queue.append(request)

    def process_batch_result(self, batch: Any, result: Any) -> None:
        """Note the step."""
        self.stepped.append((batch, result))

    def send_abort_output(self, abort: Any, request: Any) -> None:
        """Note the abort."""
        self.aborts.append((abort, request))

    def run(self) -> Any:
        """One pass, as the engine's loop makes it."""
        return self._get_new_batch_prefill_raw(prefill_delayer_single_pass=None, running_batch=self.running_batch)


def watch_of(server_args: Any, queue: int = 2, spec: Spec = SPEC, **attributes: Any) -> tuple[Bare, Book]:
    """A bare scheduler under watch, and what is recorded of it."""
    scheduler = Bare(World(spec, server_args), queue, **attributes)
    book = Book()
    desk = Desk(book, terms_of(spec))  # type: ignore[arg-type]
    scheduler.watch = SchedulerWatch(scheduler, desk)
    return scheduler, book


def told(book: Book) -> list[tuple[Any, ...]]:
    """(outcome, gate, reason, observed, limit) of each decision of the last pass."""
    assert book.errors == []
    found = [Decision.read(flat) for flat in book.passes[-1][1].decisions]
    return [(each.outcome, each.gate, each.reason, each.observed, each.limit) for each in found]


@pytest.fixture(autouse=True)
def restored() -> Any:
    """Leave the engine's module as it was."""
    release = schedule_batch.release_req
    yield
    schedule_batch.release_req = release


def test_with_nothing_to_do_nothing_is_recorded(server_args):
    """An empty queue is no pass."""
    scheduler, book = watch_of(server_args, queue=0)
    assert scheduler.run() == (None, scheduler.running_batch)
    assert book.passes == []


def test_no_slot_and_then_the_engines_own_mark(server_args):
    """The pass that finds no slot says so; those after it say that the engine looks at nobody, and why that began."""
    scheduler, book = watch_of(server_args, slots=0)
    scheduler.run()
    assert told(book) == [(Outcome.WAIT, Gate.REQUEST_SLOTS, Reason.SLOTS, 2, 1)]
    scheduler.run()
    assert told(book) == [(Outcome.WAIT, Gate.BATCH_FULL, Reason.SLOTS, 2, 1)]
    _, result, counts = book.passes[-1]
    assert (counts["queue"], result.looked_at) == (2, 1)


def test_a_pass_that_tries_nobody_has_what_the_running_requests_are_promised(server_args):
    """The pool of a pass that the engine closed at once is told with its reserve, as that of any other pass is."""
    scheduler, book = watch_of(server_args, slots=0)
    scheduler.new_token_ratio_tracker.current = 0.5
    scheduler.run()
    scheduler.run()
    free = scheduler.token_to_kv_pool_allocator.available_size()
    for found, result, _ in book.passes:
        assert (found.reserved_tokens, result.quota_tokens, result.room_tokens) == (50, free, free - 50)


def test_a_mark_of_unknown_origin_is_the_engines_flag(server_args):
    """Where the record does not hold what marked the batch full, it is the flag alone, with the running requests."""
    scheduler, book = watch_of(server_args)
    scheduler.running_batch.batch_is_full = True
    scheduler.run()
    assert told(book) == [(Outcome.WAIT, Gate.BATCH_FULL, Reason.FLAG, 1, 1)]


def test_a_parked_chunk_leaves_the_engines_loop_as_it_was(server_args):
    """The engine's own loop over a chunk without room: nobody is tried, no batch is made, and the chunk goes on later.

    The engine counts a chunk in flight for each batch; one that waits is in none, and has nothing to stash.
    """
    spec = Spec("radix", 64, 25_600, 16, 0.7, 2048, 16_384, 22_784, (Running(64, 5000, 10, ignore_eos=False),),
                active=(22_048, 2048, 128))  # fmt: skip
    scheduler, book = watch_of(server_args, spec=spec, chunked_prefill_size=2048, page_size=64)
    scheduler.watch.desk.terms = terms_of(spec, park=True)
    scheduler.new_token_ratio_tracker.current = 0.7
    scheduler.policy.shortest_prefill_chunk_limit = lambda *_: None
    scheduler.chunked_req = chunk = scheduler.world.active
    chunk.extend_end = chunk.prefix_len  # as the engine leaves it between two chunks
    for _ in range(3):
        assert scheduler.run() == (None, scheduler.running_batch)
        assert scheduler.chunked_req is chunk
        assert (chunk.inflight_middle_chunks, chunk.extend_end) == (0, chunk.prefix_len)
        ((outcome, gate, reason, observed, _),) = told(book)
        assert (outcome, gate, reason, observed) == (Outcome.PARK, Gate.KV_CAPACITY, Reason.POOL, 64)
    scheduler.running_batch.reqs.clear()  # nothing would make room now: the engine goes on with it
    adder = scheduler.get_prefill_adder_class()(
        64, scheduler.tree_cache, scheduler.token_to_kv_pool_allocator, scheduler.running_batch, 0.7, 16_384, 2048
    )
    assert adder.add_chunked_req(chunk) is chunk
    assert adder.can_run_list == [chunk]


def test_too_little_room_marks_the_batch_and_the_mark_says_so(server_args):
    """A request without room waits at kv_capacity, and while the engine's mark stands, at that with its numbers."""
    scheduler, book = watch_of(server_args)
    scheduler.run()
    ((_, gate, reason, observed, limit),) = told(book)
    assert (gate, reason) == (Gate.KV_CAPACITY, Reason.CAN_NEVER)
    scheduler.run()
    assert told(book) == [(Outcome.WAIT, Gate.BATCH_FULL, Reason.POOL, observed, limit)]


def test_too_few_free_slots_delay_prefill(server_args):
    """The engine's delayer of small prefills is named, with the slots that are free and those it wants."""
    scheduler, book = watch_of(server_args, min_free_slots_delayer=MinFreeSlotsDelayer(4))
    scheduler.run()
    assert told(book) == [(Outcome.WAIT, Gate.PREFILL_DELAY, Reason.FREE_SLOTS, 3, 4)]


def test_decode_steps_between_prefills_delay_it(server_args):
    """While the engine counts decode steps between prefills, the head of the queue waits for that."""
    scheduler, book = watch_of(server_args, prefill_decode_interval=4, _prefill_decode_interval_remaining=2)
    assert scheduler._should_defer_prefill(scheduler.running_batch)
    assert told(book) == [(Outcome.WAIT, Gate.PREFILL_DELAY, Reason.INTERVAL, 2, 0)]
    assert scheduler._should_defer_prefill(scheduler.running_batch)
    assert not scheduler._should_defer_prefill(scheduler.running_batch)
    assert len(book.passes) == 2


def test_an_end_of_the_loop_that_nothing_accounts_for_is_unattributed(server_args, monkeypatch):
    """The engine's own test switch ends its loop without a word; nothing is guessed."""
    monkeypatch.setattr(engine, "TEST_RETRACT", True)
    monkeypatch.setattr(engine, "TEST_RETRACT_NO_PREFILL_BS", 0)
    scheduler, book = watch_of(server_args)
    scheduler.run()
    assert told(book) == [(Outcome.WAIT, Gate.UNATTRIBUTED, Reason.NOT_TOLD, 0, 0)]


def test_adapters_that_do_not_fit_are_passed_over(server_args):
    """Each candidate whose adapter cannot join is told so, and the loop goes on behind it."""
    scheduler, book = watch_of(server_args, enable_lora=True)
    for request in (*scheduler.waiting_queue, *scheduler.running_batch.reqs):
        request.lora_id = request.rid
    scheduler.run()
    assert [row[:3] for row in told(book)] == [(Outcome.WAIT, Gate.LORA, Reason.ADAPTER)] * 2
    assert book.passes[-1][1].closed_by is None


@pytest.mark.parametrize("what", ["prefetch", "again", "staging"])
def test_a_prefix_that_is_not_there_yet_is_passed_over(server_args, monkeypatch, what):
    """A prefix on its way from storage, looked up again, or not staged yet: told apart, and the loop goes on."""
    world = World(SPEC, server_args)
    monkeypatch.setattr(world.tree, "check_prefetch_progress", lambda _: what != "prefetch", raising=False)
    monkeypatch.setattr(world.tree, "pop_prefetch_loaded_span", lambda _: (0, None), raising=False)
    monkeypatch.setattr(
        world.tree,
        "buffer_pipeline",
        SimpleNamespace(prepare_staged_prefetch=lambda _: what != "staging"),
        raising=False,
    )
    scheduler = Bare(world, 2, enable_hicache_storage=True)
    scheduler.__dict__["_prefetch_after_device_hit_loss"] = lambda _: what == "again"
    for request in scheduler.waiting_queue:
        request.time_stats = SimpleNamespace(
            observe_storage_prefetch_ready=lambda _: None, observe_storage_staging_ready=lambda _: None
        )
    book = Book()
    SchedulerWatch(scheduler, Desk(book, terms_of(SPEC)))  # type: ignore[arg-type]
    scheduler.run()
    reason = Reason.STAGING if what == "staging" else Reason.PREFETCH
    assert [row[:3] for row in told(book)] == [(Outcome.WAIT, Gate.STORAGE, reason)] * 2


def test_another_pooling_mode_than_the_batchs_is_told(server_args):
    """A candidate that pools other tokens than the first member is passed over and told so."""
    scheduler, book = watch_of(server_args, queue=0)
    desk = scheduler.watch.desk
    running = SimpleNamespace(reqs=[], batch_size=lambda: 0)
    adder = scheduler.get_prefill_adder_class()(
        16, scheduler.tree_cache, scheduler.token_to_kv_pool_allocator, running, 1.0, 2048, 512
    )
    first, other = (make_request(name, prefix_ids(800 + place, 40), 8) for place, name in enumerate("ab"))
    other.token_indices_to_pool = [1]
    for request in (first, other):
        adder.budget_state()
        if request is first:
            request.init_next_round_input(scheduler.tree_cache)
            adder.add_one_req(request, has_chunked_req=False, truncation_align_size=None)
    standing = Standing(
        adder.terms, desk.ledger.number, 0, 4, {}, out_of_slots=False, no_hit=HostHit.DISABLED, estimates=False
    )
    result = Sheet(adder, standing).write([first, other])
    found = [Decision.read(flat) for flat in result.decisions]
    assert [(each.outcome, each.gate, each.reason) for each in found] == [
        (Outcome.ADMIT, None, None),
        (Outcome.WAIT, Gate.POOLING_MODE, Reason.MODE),
    ]
    assert book.errors == []


def test_requests_are_followed_from_arrival_to_end(server_args):
    """Arrival, first token, finish, abort and retraction each leave one record, under the request's number."""
    scheduler, book = watch_of(server_args, queue=0)
    names = ["served", "gone", "back"]
    requests = {name: make_request(name, prefix_ids(900 + place, 40), 8) for place, name in enumerate(names)}
    for request in requests.values():
        request.time_stats = SimpleNamespace(trace_ctx=SimpleNamespace(tracing_enable=False))
        scheduler._add_request_to_queue(request)
    assert book.arrivals == [(0, "served"), (1, "gone"), (2, "back")]
    book_of = scheduler.watch.ledger
    assert book_of.queued_tokens == 120
    scheduler.send_abort_output(
        SimpleNamespace(finished_reason=None, abort_message="its client left"), requests["gone"]
    )
    assert book_of.queued_tokens == 80
    for name in ("served", "back"):
        book_of.left_queue(requests[name])
        requests[name].output_ids.append(5)
    mode = SimpleNamespace(is_extend=lambda: True, is_decode=lambda: False)
    batch = SimpleNamespace(
        reqs=[requests["served"], requests["back"]], forward_mode=mode, launch_ts=0.0,
        prefill_stats=SimpleNamespace(_glassgate=7),
    )  # fmt: skip
    scheduler.process_batch_result(batch, None)
    book_of.kept(requests["back"]).freed = 48
    scheduler._add_request_to_queue(requests["back"], is_retracted=True)
    requests["served"].finished_reason = FINISH_LENGTH(1)
    scheduler.process_batch_result(batch, None)
    scheduler.process_batch_result(batch, None)
    kinds = [(type(each), getattr(each, "number", None)) for each in book.noted]
    assert kinds.count((Finish, 0)) == 1
    assert book.errors == []
    assert kinds.count((Abort, 1)) == 1
    assert [each.freed_tokens for each in book.noted if isinstance(each, Retract) and each.number == 2] == [48]
    steps = [each for each in book.noted if isinstance(each, StepEnd)]
    assert steps[0].passed == 7
    assert steps[0].first_tokens == (0, 2)
    assert all(each.first_tokens == () for each in steps[1:])
    requests["back"].finished_reason = FINISH_ABORT("out of memory")
    scheduler.process_batch_result(batch, None)
    assert [each.why for each in book.noted if isinstance(each, Abort)] == ["its client left", "out of memory"]


@pytest.mark.parametrize("tree", ["radix", "unified"])
def test_each_retraction_says_what_it_gave_back(server_args, tree):
    """Of two requests put aside together each gives back its own tokens; the prefix they share, who held it last."""
    spec = Spec(tree, 1, 256, 4, 1.0, 64, 256, prefixes=(Prefix(4, 0, locked=False),))
    scheduler, book = watch_of(server_args, queue=0, spec=spec)
    world, ledger_of = scheduler.world, scheduler.watch.ledger
    found = world.tree.match_prefix(MatchPrefixParams(key=RadixKey(prefix_ids(0, 4))))
    requests = []
    for number, held in enumerate((6, 8)):
        request = make_request(f"r{number}", prefix_ids(0, 4), 8)
        request.kv.cache_protected_len, request.lock = 4, world.tree.lock(found.last_device_node)
        world._row(request, held)
        request.kv.kv_committed_len = held
        world.rows.req_to_token[request.kv.req_pool_idx, 4:held] = world._take(held - 4)
        ledger_of.kept(request).arrived = True
        requests.append(request)
    before = world.allocator.available_size() + world.tree.evictable_size()
    for request in requests:
        schedule_batch.release_req(
            req=request, remaing_req_count=0, req_to_token_pool=world.rows, tree_cache=world.tree,
            token_to_kv_pool_allocator=world.allocator, hisparse_coordinator=None,
        )  # fmt: skip
    for request in requests:
        scheduler._add_request_to_queue(request, is_retracted=True)
    assert book.errors == []
    freed = {each.number: each.freed_tokens for each in book.noted}
    assert freed == {0: 2, 1: 8}
    assert world.allocator.available_size() + world.tree.evictable_size() == before + 10


def test_a_fault_gives_the_scheduler_back_to_itself(server_args, monkeypatch):
    """Whatever fails in a pass, the engine's answer stands, and from then on nothing of ours is around it."""
    scheduler, book = watch_of(server_args)
    monkeypatch.setattr(Sheet, "write", lambda *_: 1 // 0)
    release = schedule_batch.release_req
    assert scheduler.run() == (None, scheduler.running_batch)
    assert [type(error) for error in book.errors] == [ZeroDivisionError]
    assert len(book.asides) == 1
    assert scheduler.get_prefill_adder_class() is engine.PrefillAdder
    ours = {"get_prefill_adder_class", "_get_new_batch_prefill_raw", "process_batch_result", "send_abort_output"}
    assert not ours & set(scheduler.__dict__)
    assert schedule_batch.release_req is not release
    assert scheduler.run() == (None, scheduler.running_batch)
    assert len(book.errors) == 1


def test_the_requests_own_trace_is_recorded_where_the_engine_carries_one(server_args, monkeypatch):
    """With tracing on in the engine the record has the request's traceparent; without, it is absent."""
    propagate = pytest.importorskip("opentelemetry.propagate")
    api = pytest.importorskip("opentelemetry.trace")
    monkeypatch.setattr(ledger.trace, "propagate", propagate, raising=False)
    span = api.NonRecordingSpan(api.SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=api.TraceFlags(1)))
    scheduler, book = watch_of(server_args, queue=0)
    found = []
    book.arrived = lambda _number, name, *_, traceparent="", **__: found.append((name, traceparent))
    contexts = {
        "traced": SimpleNamespace(tracing_enable=True, root_span_context=api.set_span_in_context(span)),
        "not": SimpleNamespace(tracing_enable=False),
    }
    for place, (name, context) in enumerate(contexts.items()):
        request = make_request(name, prefix_ids(950 + place, 40), 8)
        request.time_stats = SimpleNamespace(trace_ctx=context)
        scheduler._add_request_to_queue(request)
    assert found == [("traced", f"00-{0xABC:032x}-{0xDEF:016x}-01"), ("not", "")]
