"""Figures from public threads, worked by hand."""

import pytest

from estimator.buffers_attention import materialised_kv_bytes
from estimator.context import RunContext
from estimator.presets import preset
from estimator.scores import compressed_score_bytes, plain_score_bytes, score_shape
from estimator.static import static_memory

GIB = 1 << 30


def test_plain_scores_of_a_long_request():
    """16,384 rows against 487,936 keys are 29.8 GiB of fp32 scores."""
    assert plain_score_bytes(16384, 487936) == 31_977_373_696
    assert round(plain_score_bytes(16384, 487936) / GIB, 1) == 29.8


def test_plain_scores_with_two_masks():
    """Two one-byte masks beside those scores make it 44.7 GiB."""
    assert plain_score_bytes(16384, 487936, masks=2) == 31_977_373_696 + 2 * 16384 * 487936
    assert round(plain_score_bytes(16384, 487936, masks=2) / GIB, 1) == 44.7


@pytest.mark.parametrize(("context", "gib"), [(372_000, 1.42), (800_000, 3.05)])
def test_compressed_scores(context, gib):
    """4,096 rows against keys compressed four to one take 1.42 GiB at 372,000 tokens and 3.05 at 800,000."""
    assert round(compressed_score_bytes(4096, context) / GIB, 2) == gib


def test_materialised_keys_and_values():
    """MLA's K and V with 128 heads a rank are 81,920 B a token, 10 GiB for a prompt of 131,072."""
    geometry = preset("deepseek-v3")
    assert materialised_kv_bytes(geometry, 1) == 81_920
    assert materialised_kv_bytes(geometry, 131_072) == 10 * GIB


@pytest.mark.parametrize(
    ("name", "run", "rows", "gib"),
    [
        ("glm-5.2", {"kv_dtype": "fp8", "prefill_impl": "trtllm", "shard_size": 8}, 8_396_864, 11.07),
        ("deepseek-v3.2", {"kv_dtype": "fp8", "prefill_impl": "trtllm", "shard_size": 8}, 1_318_976, 1.74),
    ],
)
def test_sharded_scratch(name, run, rows, gib):
    """The sharded-KV scratch of GLM-5.2 is 11.07 GiB a rank and that of DeepSeek-V3.2 1.74, both outside the batch."""
    geometry = preset(name)
    static = static_memory(geometry, RunContext.from_run({**run, "page_size": 64, "sm_major": 10}, geometry))
    assert static.rows == rows
    assert static.row_bytes == 708
    assert round(static.bytes / GIB, 2) == gib


def test_scratch_rows_by_kind_of_row():
    """A scratch row is 1,284 B in bf16, 788 B in packed fp8, and a draft doubles the scratch."""
    geometry = preset("deepseek-v3.2")
    bf16 = RunContext.from_run({"shard_size": 8}, geometry)
    packed = RunContext.from_run({"shard_size": 8, "kv_dtype": "fp8", "prefill_impl": "flashmla_kv"}, geometry)
    draft = RunContext.from_run({"shard_size": 8, "draft": True}, geometry)
    assert static_memory(geometry, bf16).row_bytes == 1152 + 132
    assert static_memory(geometry, packed).row_bytes == 656 + 132
    assert static_memory(geometry, draft).bytes == 2 * static_memory(geometry, bf16).bytes


def test_small_matrix_is_never_cut():
    """Below eight million scores the engine asks no budget, however small it is."""
    shape = score_shape(1000, 7999, row_align=2, budget=1)
    assert (shape.chunks, shape.chunk_rows, shape.next_bytes) == (1, 1000, 0)
    assert score_shape(1000, 8000, row_align=2, budget=1).chunk_rows == 1


def test_last_chunk_may_be_short():
    """With two chunks the second holds only the rows that are left, rounded up to the kernel's rows."""
    shape = score_shape(3001, 10_000, row_align=2, budget=2000 * 10_000 * 4)
    assert (shape.chunk_rows, shape.chunks) == (2000, 2)
    assert shape.chunk_bytes == 2000 * 10_496 * 4
    assert shape.next_bytes == 1002 * 10_496 * 4
