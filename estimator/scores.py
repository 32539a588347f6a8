"""The indexer's score matrix: its real size, and the row chunks a byte budget cuts it into."""

from typing import NamedTuple

# Below this many elements the engine neither asks for a budget nor cuts (mqa_logits_utils.py:21).
UNCUT_ELEMENTS = 8_000_000
# DeepGEMM pads each row by 256 columns and rounds up to 256 (DeepGEMM csrc/apis/attention.hpp).
COLUMN_ALIGN = 256
SCORE_BYTES = 4


class ScoreShape(NamedTuple):
    """How a layer's scores are cut. Rows in query tokens, columns in keys, the rest in bytes.

    `next_bytes` is the chunk that is allocated while its predecessor is still referenced (dsa_indexer.py:1641-1707),
    zero when nothing is cut.
    """

    rows: int
    cols: int
    chunk_rows: int
    chunks: int
    chunk_bytes: int
    next_bytes: int


def matrix_bytes(rows: int, cols: int, row_align: int) -> int:
    """Return the bytes DeepGEMM allocates for rows x cols fp32 scores."""
    if rows <= 0 or cols <= 0:
        return 0
    stride = -(-(cols + COLUMN_ALIGN) // COLUMN_ALIGN) * COLUMN_ALIGN
    return -(-rows // row_align) * row_align * stride * SCORE_BYTES


def score_shape(rows: int, cols: int, *, row_align: int, budget: int) -> ScoreShape:
    """Apply SGLang's chunk rule (dsa_indexer.py:1587-1626): cut by rows if the unpadded matrix exceeds the budget."""
    elements = rows * cols
    if elements == 0:
        return ScoreShape(rows, cols, 0, 0, 0, 0)
    if elements < UNCUT_ELEMENTS or elements * SCORE_BYTES <= budget:
        return ScoreShape(rows, cols, rows, 1, matrix_bytes(rows, cols, row_align), 0)
    chunk = min(rows, max(1, budget // (cols * SCORE_BYTES)))
    following = min(chunk, rows - chunk)
    return ScoreShape(
        rows,
        cols,
        chunk,
        -(-rows // chunk),
        matrix_bytes(chunk, cols, row_align),
        matrix_bytes(following, cols, row_align),
    )


def plain_score_bytes(rows: int, keys: int, *, masks: int = 0) -> int:
    """Return the bytes of rows x keys fp32 scores with `masks` one-byte masks of the same shape beside them.

    Source: the unchunked DeepSeek-V4 indexer, sgl-project/sglang#39187. 16,384 x 487,936 is 29.8 GiB, 44.7 with two
    masks.
    """
    return rows * keys * (SCORE_BYTES + masks)


def compressed_score_bytes(rows: int, context: int, *, ratio: int = 4) -> int:
    """Return the bytes of scores against a context compressed `ratio` to one: 4 x rows x align256(context / ratio).

    Source: the DeepSeek-V4 indexer, sgl-project/sglang#35201. 4,096 rows at 800,000 tokens are 3.05 GiB, 1.42 at
    372,000.
    """
    cols = -(-context // ratio)
    return rows * (-(-cols // COLUMN_ALIGN) * COLUMN_ALIGN) * SCORE_BYTES
