"""What stands for the engine's kernels computes what a kernel computes."""

import pytest


@pytest.fixture
def kernels(torch):
    """The module under test, with small tiles so that every loop runs."""
    from gpu_probe import kernels as module  # noqa: PLC0415 - imports torch

    torch.manual_seed(0)
    return module


def test_dense_attention(kernels, torch, monkeypatch):
    """Tiled attention is softmax(QK)V over the keys each row may see, and its log-sum-exp."""
    monkeypatch.setitem(kernels._TILE, "cpu", 64)
    queries, keys, values = torch.randn(5, 4, 8), torch.randn(9, 2, 8), torch.randn(9, 2, 6)
    reach = torch.tensor([1, 3, 5, 9, 9])
    out, lse = torch.empty(5, 4, 6), torch.empty(5, 4)
    kernels.attend(out, lse, queries, keys, values, reach)
    for row in range(5):
        seen = int(reach[row])
        for head in range(4):
            dots = keys[:seen, head // 2] @ queries[row, head] * 8**-0.5
            torch.testing.assert_close(out[row, head], torch.softmax(dots, 0) @ values[:seen, head // 2])
            torch.testing.assert_close(lse[row, head], torch.logsumexp(dots, 0))


def test_two_halves_merge_into_the_whole(kernels, torch):
    """Attention over two halves of the keys, merged, is attention over all of them."""
    queries, keys, values = torch.randn(3, 2, 8), torch.randn(10, 2, 8), torch.randn(10, 2, 8)
    reach = torch.full((3,), 10)
    parts = []
    for span in (slice(0, 4), slice(4, 10), slice(0, 10)):
        out, lse = torch.empty(3, 2, 8), torch.empty(3, 2)
        kernels.attend(out, lse, queries, keys[span], values[span], reach)
        parts.append((out, lse))
    merged, merged_lse = torch.empty(3, 2, 8), torch.empty(3, 2)
    kernels.merge(merged, merged_lse, parts[0], parts[1])
    torch.testing.assert_close(merged, parts[2][0])
    torch.testing.assert_close(merged_lse, parts[2][1])


def test_choice_and_sparse_attention_agree_with_dense(kernels, torch, monkeypatch):
    """When the top-k covers every key a row may see, sparse attention is dense attention."""
    monkeypatch.setitem(kernels._TILE, "cpu", 64)
    keys = torch.randn(7, 12, dtype=torch.bfloat16)
    queries = torch.randn(4, 2, 12, dtype=torch.bfloat16)
    starts, ends = torch.zeros(4, dtype=torch.int32), torch.tensor([1, 2, 5, 7], dtype=torch.int32)
    chosen = torch.full((4, 9), -1, dtype=torch.int32)
    kernels.choose(chosen, torch.randn(4, 7), starts, ends)
    for row in range(4):
        assert sorted(place for place in chosen[row].tolist() if place >= 0) == list(range(int(ends[row])))
    out = torch.empty(4, 2, 8)
    kernels.attend_chosen(out, queries, keys, chosen)
    dense = torch.empty(4, 2, 8)
    kernels.attend(dense, None, queries, keys.unsqueeze(1), keys[:, :8].unsqueeze(1), ends)
    torch.testing.assert_close(out, dense, atol=1e-4, rtol=1e-4)


def test_scores_follow_the_indexer(kernels, torch, monkeypatch):
    """A score is the gated sum over heads of relu(query . key), times the key's scale."""
    monkeypatch.setitem(kernels._TILE, "cpu", 64)
    queries = torch.randn(3, 2, 16).to(torch.float8_e4m3fn)
    keys, scales, gates = torch.randn(5, 16).to(torch.float8_e4m3fn), torch.rand(5, 1), torch.randn(3, 2)
    logits = torch.empty(3, 5)
    kernels.score(logits, queries, gates, keys, scales)
    expected = torch.einsum("rhd,kd->rhk", queries.float(), keys.float()).relu()
    expected = (expected * gates.unsqueeze(-1)).sum(1) * scales.T
    torch.testing.assert_close(logits, expected, atol=0.05, rtol=0.05)


def test_quantised_rows_come_back(kernels, torch):
    """fp8 groups with their scales give the rows back within fp8's precision."""
    rows = torch.randn(4, 3, 256)
    values, scales = torch.empty(4, 3, 256, dtype=torch.float8_e4m3fn), torch.empty(4, 3, 2)
    kernels.quantise(values, scales, rows)
    back = (values.float().view(4, 3, 2, 128) * scales.unsqueeze(-1)).view(4, 3, 256)
    torch.testing.assert_close(back, rows, atol=0.02, rtol=0.07)


def test_normalised_rows_have_unit_size(kernels, torch):
    """A row has root-mean-square 1 after the norm, and the residual takes the row in."""
    rows, residual = torch.randn(4, 64) * 5, torch.ones(4, 64)
    before = rows.clone()
    kernels.normalise(rows, rows, residual)
    torch.testing.assert_close(residual, before + 1)
    torch.testing.assert_close(rows.square().mean(-1), torch.ones(4), atol=1e-4, rtol=1e-4)
