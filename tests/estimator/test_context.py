"""Reading what depends on the run."""

from fractions import Fraction

import pytest
from estimator_strategies import models_and_runs
from hypothesis import given, settings

from estimator.batch import BatchEstimator
from estimator.case import read_case, read_cases
from estimator.context import MqaBudget, RunContext, default_prefill_impl
from estimator.errors import InputError
from estimator.estimate import estimate_batch
from estimator.presets import preset

V32 = preset("deepseek-v3.2")
GIB = 1 << 30


@settings(max_examples=100, deadline=None)
@given(models_and_runs())
def test_a_recorded_run_reads_back(model_and_run):
    """What is recorded of a run beside an estimate gives the same run again."""
    geometry, run = model_and_run
    assert RunContext.from_run(run.as_run(), geometry) == run


@pytest.mark.parametrize(
    ("run", "says"),
    [
        ({"pages": 64, "colour": 1}, r"run: unknown key colour, pages; known are .*page_size"),
        ({"mqa_budget": {"bytes": 1}}, r"run: mqa_budget: unknown key bytes"),
        ({"mqa_budget": {}}, r"mqa_budget needs fixed_bytes, or total_bytes"),
        ({"mqa_budget": {"total_bytes": 1, "mem_fraction_static": 2}}, r"mem_fraction_static is 2"),
        ({"mqa_budget": 5}, r"mqa_budget is 5, but must be an object"),
        ({"mlp": {"experts": 1}}, r"run: mlp: unknown key experts"),
        ({"mlp": {"kind": "moe_magic"}}, r"mlp\.kind is 'moe_magic', but must be one of dense"),
        ({"tp": "8"}, r"tp is '8', but must be a whole number"),
        ({"tp": True}, r"tp is True, but must be a whole number"),
        ({"tp": 0}, r"tp is 0, but must be at least 1"),
        ({"tp": 3}, r"tp is 3, but must divide the 128 heads"),
        ({"page_size": -64}, r"page_size is -64"),
        ({"kv_dtype": "int4"}, r"kv_dtype is 'int4', but must be one of bf16, fp8"),
        ({"prefill_impl": "fa2"}, r"prefill_impl is 'fa2', but deepseek-v3\.2 takes one of"),
        ({"cp": 4, "cp_strategy": "zigzag"}, r"zigzag, but deepseek-v3\.2 has a sparse indexer; use interleave"),
        ({"cp_strategy": "interleave"}, r"cp is 1 with cp_strategy interleave"),
        ({"safety_factor": 0.9}, r"safety_factor is 0\.9, but must be at least 1"),
        ({"safety_factor": "a lot"}, r"safety_factor is 'a lot'"),
        ({"safety_factor": "1/0"}, r"safety_factor is '1/0'"),
        ({"draft": 1}, r"draft is 1, but must be true or false"),
    ],
)
def test_bad_run_names_the_key(run, says):
    """A run that cannot be read is one line that names the key, the value and what it may be."""
    with pytest.raises(InputError, match=says) as caught:
        RunContext.from_run(run, V32)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "run", "says"),
    [
        ("qwen3-32b", {"cp": 2, "cp_strategy": "interleave"}, "no sparse indexer; use zigzag"),
        ("qwen3-32b", {"mlp": {"kind": "moe_triton"}}, "has no experts; use dense"),
    ],
)
def test_run_that_does_not_fit_the_model(name, run, says):
    """A setting that the model cannot have is an error that says what to use."""
    with pytest.raises(InputError, match=says):
        RunContext.from_run(run, preset(name))


@pytest.mark.parametrize(
    ("case", "says"),
    [
        (7, "must be an object"),
        ({"model": "deepseek-v3.2"}, "key requests is missing"),
        ({"requests": [[0, 1]]}, "key model is missing"),
        ({"model": 3, "requests": [[0, 1]]}, "model is 3"),
        ({"model": "deepseek-v3.2", "requests": []}, "requests is"),
        ({"model": "deepseek-v3.2", "requests": [[1]]}, r"requests\[0\] is \[1\]"),
        ({"model": "deepseek-v3.2", "requests": [[0, 1.5]]}, r"requests\[0\]"),
        ({"model": "deepseek-v3.2", "requests": [[0, 1]], "runs": {}}, "unknown key runs"),
        ({"model": "deepseek-v3.2", "requests": [[0, 1]], "run": 4}, "run is 4"),
    ],
)
def test_bad_case_names_the_key(case, says):
    """A case that cannot be read names the key at fault."""
    with pytest.raises(InputError, match=says):
        read_case(case)


@pytest.mark.parametrize("request_", [[-1, 5], [0, 0], [5, 5, 6], [0, 5, -1]])
def test_impossible_request(request_):
    """A negative length, nothing to compute, or more loaded than its prefix is an error with the request's index."""
    with pytest.raises(InputError, match="request 1"):
        read_case({"model": "deepseek-v3.2", "requests": [[0, 8], request_]}).estimate()


def test_case_file_errors_name_the_file(tmp_path):
    """A case file that is missing, no JSON, or wrong in one of its cases says which file and which case."""
    file = tmp_path / "cases.json"
    with pytest.raises(InputError, match=r"cases\.json: No such file"):
        read_cases(file)
    file.write_text("[", encoding="utf-8")
    with pytest.raises(InputError, match=r"cases\.json: not JSON"):
        read_cases(file)
    file.write_text('[{"model": "glm-5", "requests": [[0, 1]]}, {"model": "glm-6", "requests": []}]', encoding="utf-8")
    with pytest.raises(InputError, match=r"cases\.json \[1\]: model glm-6"):
        read_cases(file)


def test_score_budget_is_the_engines_rule():
    """The budget is min(0.3 total, 0.2 of the slack, 0.2 free), in the engine's own float steps, at least one byte."""
    total = 80 * GIB
    assert MqaBudget(None, total).bytes == int(total * 0.3)
    assert MqaBudget(None, total, None, 0.8).bytes == int(int(total * (1.0 - 0.8)) * 0.2)
    assert MqaBudget(None, total, 4 * GIB, 0.8).bytes == int(4 * GIB * 0.2)
    assert MqaBudget(None, total, 0, 0.8).bytes == 1
    assert RunContext.from_run({"mqa_budget": {"total_bytes": total, "free_bytes": GIB}}, V32).mqa_budget.bytes == int(
        GIB * 0.2
    )


@pytest.mark.parametrize(
    ("name", "dtype", "sm_major", "impl"),
    [
        ("deepseek-v3.2", "bf16", 9, "flashmla_sparse"),
        ("deepseek-v3.2", "fp8", 9, "flashmla_kv"),
        ("deepseek-v3.2", "fp8", 10, "trtllm"),
        ("deepseek-v3", "bf16", 9, "fa3"),
        ("qwen3-32b", "bf16", 10, "trtllm_mha"),
    ],
)
def test_default_kernel(name, dtype, sm_major, impl):
    """Without a named kernel the engine's own choice for dtype and card stands in the context."""
    geometry = preset(name)
    assert default_prefill_impl(geometry, dtype, sm_major) == impl
    assert RunContext.from_run({"kv_dtype": dtype, "sm_major": sm_major}, geometry).prefill_impl == impl


def test_safety_factor_of_the_gate():
    """A factor of 1.1 raises the gate's figure by a tenth, rounded up, and the explanation keeps the plain sum."""
    run = RunContext.from_run({"safety_factor": 1.1}, V32)
    assert run.safety_factor == Fraction(11, 10)
    estimator = BatchEstimator(V32, run)
    state = estimator.add(estimator.empty, 0, 4097)
    plain = estimate_batch(V32, RunContext.default_for(V32), [(0, 4097)]).requested
    assert state.peak_bytes == -(-plain * 11 // 10)
    assert estimator.explain(state).requested == plain
    assert estimator.parts(state)[-1] == state.peak_bytes - plain
