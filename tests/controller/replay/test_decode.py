"""The running batch."""

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.engines.replay.decode import RunningBatch
from controller.engines.replay.inflight import InFlight
from controller.engines.replay.workload import WorkloadRequest
from controller.request import running_reserve


def request(number, prompt, output, *, ignore_eos=False, generated=1, unused=0):
    """A request that has `generated` tokens and is about to join; `unused` tokens it may generate and will not."""
    made = InFlight(number, WorkloadRequest(f"r{number}", 0, prompt, output, (), ignore_eos, output + unused))
    made.generated = generated
    return made


class Token:
    """One running request in a batch that goes step by step."""

    def __init__(self, made, order):
        self.made, self.order = made, order
        self.prompt, self.generated, self.left = made.workload_prompt, made.generated, made.output - made.generated
        self.unused = made.allowed - made.output

    @property
    def kv(self):
        """Tokens whose KV is there."""
        return self.prompt + self.generated - 1


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("join"),
            st.integers(1, 40),
            st.integers(2, 30),
            st.booleans(),
            st.integers(0, 3),
            st.sampled_from([0, 5, 4_080]),
        ),
        st.tuples(
            st.just("join"),
            st.integers(1, 40),
            st.integers(4090, 4110),
            st.booleans(),
            st.integers(0, 3),
            st.sampled_from([0, 3]),
        ),
        st.tuples(st.just("remove"), st.integers(0, 10)),
        st.tuples(st.just("advance"), st.integers(1, 30)),
        st.tuples(st.just("leap")),
        st.tuples(st.just("retract")),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 9), steps, st.sampled_from([0.0, 0.25, 0.7, 1.0]))
def test_a_span_of_steps_is_the_steps_one_by_one(page, operations, ratio):
    """Context, reserve, pages and finishes after any span are those of a batch that decodes token by token."""
    batch = RunningBatch(page)
    naive = []
    order = 0
    for what, *given_ in operations:
        if what == "join":
            prompt, output, ignore_eos, generated, unused = given_
            generated = 1 + min(generated, output - 2)
            made = request(order, prompt, output, ignore_eos=ignore_eos, generated=generated, unused=unused)
            order += 1
            batch.join(made)
            naive.append(Token(made, order))
        elif what == "remove" and naive:
            leaver = naive.pop(given_[0] % len(naive))
            batch.remove(leaver.made)
            assert leaver.made.generated == leaver.generated
        elif what == "retract" and naive:
            least = min(naive, key=lambda token: (token.generated, -token.prompt, -token.order))
            naive.remove(least)
            assert batch.retract() is least.made
            assert least.made.generated == least.generated
        elif what in ("advance", "leap") and naive:
            most = min(token.left for token in naive)
            assert batch.steps_to_finish == most
            count = most if what == "leap" else min(most, given_[0])
            pages = sum(sum((token.kv + s) % page == 0 for s in range(count)) for token in naive)
            assert batch.pages_for(count) == pages
            within = batch.steps_within(pages)
            assert within >= count
            assert batch.pages_for(within) <= pages < batch.pages_for(within + 1)
            finished = batch.advance(count)
            for token in naive:
                token.generated += count
                token.left -= count
            assert finished == [token.made for token in naive if token.left == 0]
            assert all(made.generated == made.output for made in finished)
            naive = [token for token in naive if token.left]
        assert batch.size == len(naive)
        assert batch.context_tokens == sum(token.kv + 1 for token in naive)
        left = [(token.left + token.unused, token.made.ignore_eos) for token in naive]
        assert abs(batch.reserved_tokens(ratio) - running_reserve(left, ratio)) < 1e-6


def test_retraction_takes_the_one_that_lost_least():
    """Fewest generated tokens go first, then the longest prompt, then the last to join (SGLang 0.5.23)."""
    batch = RunningBatch(4)
    old, long, short, twin = (
        request(0, 9, 50, generated=5),
        request(1, 30, 50),
        request(2, 10, 50),
        request(3, 10, 50),
    )
    for made in (old, long, short, twin):
        batch.join(made)
    batch.advance(2)
    assert [batch.retract() for _ in range(4)] == [long, twin, short, old]
    assert (batch.size, batch.context_tokens, batch.pages_for(9)) == (0, 0, 0)
    assert old.generated == 7


def test_memory_does_not_grow_with_requests_served():
    """After many requests the batch remembers no more than those that run and a few others."""
    batch = RunningBatch(4)
    batch.join(request(0, 5, 1 << 40))
    for number in range(1, 2_000):
        batch.join(request(number, 5, 3))
        batch.advance(2)
    assert len(batch._retractable) < 100
    assert len(batch._finishes) < 100
