"""Salted hashes of a prompt's prefixes: they tell which requests share how much, and nothing of what was said."""

from __future__ import annotations

from array import array
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK_TOKENS: Final = 512
"""One hash for each whole block of so many tokens, over everything up to the block's end."""
_ITEM_BYTES: Final = 8


def prefix_hashes(tokens: Sequence[int], salt: bytes) -> tuple[int, ...]:
    """The hashes, 63 bits each, of a prompt's token ids. About 10 µs a thousand tokens.

    With the same salt equal prefixes have equal hashes; without it they say nothing. Raises TypeError or OverflowError
    for what is no token id.
    """
    whole = len(tokens) // BLOCK_TOKENS * BLOCK_TOKENS
    content = memoryview(array("q", tokens[:whole]).tobytes())
    step = BLOCK_TOKENS * _ITEM_BYTES
    running = blake2b(key=salt, digest_size=8)
    hashes = []
    for at in range(0, len(content), step):
        running.update(content[at : at + step])
        hashes.append(int.from_bytes(running.copy().digest(), "big") >> 1)
    return tuple(hashes)
