"""Runs of engines: their account of themselves is short, so blocks and step times are found from the record."""

import random

import msgspec
import pytest

from controller.engines.replay import Workload, WorkloadRequest, open_trace
from controller.engines.replay.step_time import step_time_model
from controller.knobs import Knobs
from controller.prefixes import TokenPrefixes
from controller.records import Arrival, PrefixHashes, RunStart, decode, encode
from tests.ui.whatif import records
from tests.ui.whatif.records import decided, record
from ui.whatif.comparison import compare
from ui.whatif.recorded import read_recorded
from ui.whatif.requests import block_tokens_of
from ui.whatif.span import read_span
from ui.whatif.steps import steps_of
from ui.whatif.trace import trace_lines

PAGE = 16
STEPS = step_time_model("l4-llama-8b")
GENERATES = 40
ALLOWED = 200


def conversations():
    """Prompts of token ids: 12 conversations that begin alike and go on from what was answered before."""
    draw = random.Random(2)  # noqa: S311 - the same prompts each time
    system = [draw.randrange(1_000) for _ in range(333)]
    texts = [system + [draw.randrange(1_000) for _ in range(draw.randint(20, 900))] for _ in range(12)]
    prompts = []
    for _ in range(6):
        for place, text in enumerate(texts):
            prompts.append(list(text))
            answer = [draw.randrange(1_000) for _ in range(GENERATES)]
            texts[place] = text + answer + [draw.randrange(1_000) for _ in range(draw.randint(10, 80))]
    return prompts


def requests(prompts):
    """What an engine with pages of 16 tokens makes of prompts: blocks are the same where all tokens up to them are."""
    numbers = {}
    found = []
    for number, prompt in enumerate(prompts):
        blocks = tuple(
            numbers.setdefault(tuple(prompt[:end]), len(numbers)) for end in range(PAGE, len(prompt) + 1, PAGE)
        ) + ((10**9 + number,) if len(prompt) % PAGE else ())
        leaves = 150_000_000 if number % 17 == 5 else None
        at = number * 120_000_000
        found.append(
            WorkloadRequest(f"r{number}", at, len(prompt), GENERATES, blocks, number % 7 == 0, ALLOWED,
                            None if leaves is None else at + leaves)
        )  # fmt: skip
    return found


class Disguised:
    """A journal that takes a replay's own account away and says of prefixes what an engine's plug-in says."""

    def __init__(self, journal, prompts):
        self._journal, self._prompts = journal, prompts
        self._prefixes = TokenPrefixes(b"salt")

    def append(self, payload):
        """Keep the records as an engine would have written them."""
        return self._journal.append(encode([each for one in decode(payload) for each in self._as_engine(one)]))

    def _as_engine(self, one):
        if isinstance(one, RunStart):
            words = {"context_parallel": False, "data_parallel": 1, "lanes": 1, "has_model": False}
            yield msgspec.structs.replace(one, engine="sglang", simulated=False, setting=words)
        elif isinstance(one, Arrival):
            bare = {"prefix_hashes": (), "like": -1, "shared_tokens": 0, "known_tokens": 0}
            yield msgspec.structs.replace(one, **bare)
            prompt = self._prompts[one.number]
            prefix = self._prefixes.look(one.number, prompt)
            yield PrefixHashes(one.number, prefix.hashes, prefix.like, prefix.shared_tokens, len(prompt))
        else:
            yield one


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run as an engine would have recorded it."""
    prompts = conversations()
    workload = Workload(name="engine", block_tokens=PAGE, requests=iter(requests(prompts)))
    stock = records.Recorder
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "Recorder", lambda journal: stock(Disguised(journal, prompts)))
        return record(
            tmp_path_factory.mktemp("runs"), workload, knobs=Knobs(page_size=PAGE, chunked_prefill_size=512),
            step_time=STEPS, device_tokens=6_400, host_tokens=0, new_token_ratio=0.4,
        )  # fmt: skip


@pytest.fixture
def recorded(run):
    """The run as its record has it."""
    return read_recorded(run.path / "glassgate.db")


def test_it_is_a_run_of_which_little_is_said(recorded):
    """Neither its step times nor the share held back is in the record, and some clients gave up."""
    assert (recorded.engine, recorded.simulated, recorded.step_time) == ("sglang", False, None)
    assert "new_token_ratio" not in recorded.words
    span = read_span(recorded)
    assert sum(each.gave_up for each in span.requests) > 1
    assert any(each.shared_tokens % PAGE for each in span.requests)


def test_all_but_the_steps_is_reproduced_exactly(recorded):
    """With the steps that it had, blocks from references to the token, output and leavers give every batch again."""
    span = read_span(recorded)
    steps = steps_of(recorded, "fitted")._replace(model=STEPS, new_token_ratio=0.4)
    found = compare(recorded, span, {}, steps)
    assert found.fidelity.same_share == 1
    assert found.fidelity.exact
    assert found.recorded.cached_tokens > found.recorded.computed_tokens


def test_with_fitted_steps_it_is_reproduced_well(recorded):
    """Without a wish the steps are fitted and the share held back is estimated; no conclusion is refused."""
    found = compare(recorded, read_span(recorded), {"max_requests": 1}, steps_of(recorded))
    assert found.steps.fit is not None
    assert found.steps.new_token_ratio == pytest.approx(0.4, abs=0.1)
    found.check()
    assert found.changed.batch_size_max == 1


def test_the_largest_block_that_loses_nothing_is_taken(recorded):
    """Where shared beginnings end anywhere, blocks are as small as that wants and no smaller than a page."""
    requests_ = read_span(recorded).requests
    assert block_tokens_of(requests_, PAGE) < 128
    assert (
        block_tokens_of([each._replace(shared_tokens=each.shared_tokens // 512 * 512) for each in requests_], PAGE)
        == 512
    )
    assert block_tokens_of(requests_, 48) % 48 == 0
    assert block_tokens_of([], 1) == 512


def test_its_trace_is_served_as_it_was(recorded, run, tmp_path):
    """Exported and replayed: the same batches, also for clients that gave up and output that was not used."""
    span = read_span(recorded)
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"".join(trace_lines(recorded, span, STEPS, new_token_ratio=0.4)))
    text = path.read_text()
    assert '"like"' in text
    assert '"leaves_ns"' in text
    assert '"max_output_length":200' in text
    with open_trace(path) as workload:
        exported = workload.exported
        again = record(
            tmp_path, workload, name="two", knobs=exported.started(), setting=exported.served(),
            step_time=exported.steps(), device_tokens=exported.device_tokens, host_tokens=0,
            new_token_ratio=exported.new_token_ratio,
        )  # fmt: skip
    assert decided(again)[:4] == decided(run)[:4]
