"""The gate `buffer_bytes`: what the estimator is asked, what it decides, and that the KV dtype shows nowhere else."""

import pytest

from controller.knobs import Knobs
from controller.limits import Setting
from controller.request import ActiveChunk, Candidate, Capacity, PrefixMatch
from controller.vocabulary import Gate, HostHit, Verdict

ROOM = Capacity(pool_tokens=1_000_000, free_tokens=500_000, evictable_tokens=500_000)


def waiting(number, prompt=100, **match):
    """A candidate that generates nothing."""
    return Candidate(number, prompt, 0, PrefixMatch(**match))


def verdict(driven, number):
    """What the gate said of one request, with its numbers."""
    decision = next(d for d in driven.decisions if d.number == number)
    check = decision.ladder()[Gate.BUFFER_BYTES]
    return check.verdict, check.observed, check.limit


def test_a_batch_grows_until_its_estimated_peak_passes_the_limit(drive, flat_estimator):
    """A candidate enters while the estimate of the batch with it is at most max_buffer_bytes, and waits beyond."""
    queue = [waiting(0), waiting(1), waiting(2)]
    driven = drive(queue, knobs=Knobs(max_buffer_bytes=2000), estimator=flat_estimator(extend=10))
    assert driven.engine.commits == [0, 1]
    assert driven.told[2] == ("wait", "buffer_bytes", "limit")
    (waited,) = [d for d in driven.decisions if d.number == 2]
    assert (waited.observed, waited.limit, waited.short_by, waited.unit) == (3000, 2000, 1000, "bytes")


def test_the_first_member_is_exempt_from_the_buffer_limit(drive, flat_estimator):
    """A lone request whose estimate is beyond the limit enters, marked exempt, and the next one waits."""
    driven = drive([waiting(0), waiting(1)], knobs=Knobs(max_buffer_bytes=10), estimator=flat_estimator())
    assert verdict(driven, 0) == (Verdict.EXEMPT, 100, 10)
    assert driven.engine.commits == [0]
    assert driven.told[1] == ("wait", "buffer_bytes", "limit")


def test_shadow_mode_records_what_the_buffer_gate_would_do(drive, flat_estimator):
    """With enforce off a batch grows past the limit, each member beyond it marked would_refuse."""
    knobs = Knobs(max_buffer_bytes=150, enforce=False)
    driven = drive([waiting(n) for n in range(3)], knobs=knobs, estimator=flat_estimator())
    assert driven.engine.commits == [0, 1, 2]
    assert verdict(driven, 1) == (Verdict.WOULD_REFUSE, 200, 150)
    assert verdict(driven, 2) == (Verdict.WOULD_REFUSE, 300, 150)


def test_without_a_limit_the_gate_is_off_and_the_batch_is_still_estimated(drive, flat_estimator):
    """With a model and no limit the gate is off, and the pass still ends with the batch's estimate."""
    driven = drive([waiting(0), waiting(1)], estimator=flat_estimator())
    assert verdict(driven, 1)[0] is Verdict.OFF
    assert driven.result.estimate.peak_bytes == 200


def test_without_a_model_the_gate_is_off(drive):
    """Without a model nothing can be estimated and the limit does nothing."""
    knobs, setting = Knobs(max_buffer_bytes=1), Setting(has_model=False)
    driven = drive([waiting(0), waiting(1)], knobs=knobs, setting=setting)
    assert driven.engine.commits == [0, 1]
    assert verdict(driven, 1)[0] is Verdict.OFF


def test_the_estimate_is_of_what_the_pass_computes_after_the_cut(drive, flat_estimator):
    """A candidate that is cut is estimated with the tokens this pass computes of it, not with its prompt."""
    estimator = flat_estimator()
    drive([waiting(0, 50_000)], estimator=estimator)
    assert estimator.added == [(0, 8192, 0)]


def test_done_tokens_of_a_continuing_chunk_are_prefix_to_the_estimate(drive, flat_estimator):
    """A continuing chunk stands on what it computed before, and is the first member of the estimate."""
    estimator = flat_estimator(extend=1, prefix=1)
    driven = drive([waiting(1)], estimator=estimator, chunk=ActiveChunk(0, 9000, 8192, 0))
    assert estimator.added == [(8192, 808, 0), (0, 100, 0)]
    assert driven.result.estimate.peak_bytes == 9000 + 100


def test_a_prefix_is_the_device_hit_and_the_planned_load(drive, flat_estimator):
    """The estimate sees the whole prefix, and how much of it a load brings."""
    estimator = flat_estimator()
    queue = [waiting(0, 1000, device_tokens=300, unlocked_tokens=300, host_tokens=500)]
    drive(queue, capacity=ROOM, estimator=estimator)
    assert estimator.added == [(800, 200, 500)]


def test_after_a_failed_load_the_estimate_is_made_again_without_it(drive, flat_estimator, fake_engine):
    """The second ladder estimates the candidate computed whole, and that estimate stays with the batch."""
    estimator = flat_estimator()
    engine = fake_engine(failures={0: (HostHit.ALLOCATOR, 0)})
    driven = drive([waiting(0, 1000, host_tokens=500)], estimator=estimator, engine=engine)
    assert estimator.added == [(500, 500, 500), (0, 1000, 0)]
    assert driven.result.estimate.peak_bytes == 1000


def test_a_candidate_kept_out_leaves_no_trace_in_the_estimate(drive, flat_estimator):
    """The estimate a pass ends with is that of its members; one that waited or was refused is not in it."""
    queue = [waiting(0), waiting(1, 2_000_000), waiting(2), waiting(3, 900)]
    driven = drive(queue, knobs=Knobs(max_buffer_bytes=500), estimator=flat_estimator())
    assert driven.engine.commits == [0, 2]
    assert driven.result.estimate.peak_bytes == 200


def test_an_estimate_that_shrinks_by_nothing_enters_at_the_limit(drive, flat_estimator):
    """An estimate just at the limit passes."""
    driven = drive([waiting(0), waiting(1)], knobs=Knobs(max_buffer_bytes=200), estimator=flat_estimator())
    assert verdict(driven, 1) == (Verdict.PASS, 200, 200)


MODELS = ["deepseek-v3.2", "deepseek-v3", "qwen3-32b"]


@pytest.mark.parametrize("model", MODELS)
def test_a_named_model_is_estimated_and_bounded(decided, model):
    """With a model named, `decide` estimates the batch and the limit between one and two members holds."""
    queue = [{"prompt_tokens": 3000}] * 2
    both = decided(queue, model=model).data["estimate"]["peak_bytes"]
    one = decided(queue[:1], model=model).data["estimate"]["peak_bytes"]
    assert 0 < one < both
    answer = decided(queue, model=model, knobs={"max_buffer_bytes": both - 1})
    assert answer.told["b"] == ("wait", "buffer_bytes", "limit")
    assert answer.numbers("b") == (both, both - 1, 1, "bytes")
    assert answer.data["estimate"]["peak_bytes"] == one
    assert list(decided(queue, model=model, knobs={"max_buffer_bytes": both}).extends) == ["a", "b"]


@pytest.mark.parametrize("model", MODELS)
def test_the_parts_of_an_estimate_add_up_to_its_peak(decided, model):
    """The parts shown beside an estimate add up to the peak that the gate compared."""
    queue = [{"prompt_tokens": 3000}, {"prompt_tokens": 30_000, "host_hit_tokens": 28_000}]
    estimate = decided(queue, model=model).data["estimate"]
    assert sum(estimate["parts"].values()) == estimate["peak_bytes"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("context_parallel", [False, True])
def test_bf16_and_fp8_take_the_same_path(decided, model, context_parallel):
    """For the same pool the KV dtype changes no decision; it shows only in the estimate."""
    queue = [
        {"prompt_tokens": 3000, "host_hit_tokens": 2000},
        {"prompt_tokens": 4000, "device_hit_tokens": 500},
        {"prompt_tokens": 9000},
        {"prompt_tokens": 2_000_000},
    ]
    answers = [
        decided(
            queue,
            context_parallel=context_parallel,
            model=model,
            run={"kv_dtype": dtype},
            knobs={"page_size": 64, "shared_kv_batching": True},
            capacity={"evictable_tokens": 1000},
        ).data
        for dtype in ("bf16", "fp8")
    ]
    for answer in answers:
        for decision in answer["decisions"]:
            decision["checks"] = [c for c in decision["checks"] if c["gate"] != "buffer_bytes"]
    bf16, fp8 = answers
    assert all(bf16[key] == fp8[key] for key in ("batch", "decisions", "closed_by", "not_reached", "effective"))
