"""Prefixes: which requests share how much of their beginnings, told by salted hashes and by reference.

A hash stands for everything up to the end of a block; without the salt it says nothing of what was said. A prompt names
the earlier request that it agrees with longest, and has hashes of its own for the blocks behind that alone.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCK_TOKENS: Final = 512
"""Tokens of one block that is hashed, those of public traces."""
KEPT_BLOCKS: Final = 1 << 17
"""Blocks that are known at least, the most recent ones; up to twice as many are."""
KEPT_BYTES: Final = 16 << 20
"""Bytes of token ids kept at least, so that a shared beginning is found to the token; at most twice as many are."""

_CHAIN_BYTES: Final = 8
_HASH_BYTES: Final = 4
_TOKEN_BYTES: Final = 4
_BLOCK_BYTES: Final = BLOCK_TOKENS * _TOKEN_BYTES


class Prefix(NamedTuple):
    """What is known of a request's beginning."""

    like: int
    """The number of the earlier request that it agrees with longest; -1 where it agrees with none."""
    shared_tokens: int
    """How far the two agree."""
    hashes: tuple[int, ...]
    """Hashes, 32 bits each, of the blocks behind those that lie wholly in what is shared."""


NOTHING_SHARED: Final = Prefix(-1, 0, ())


class BlockPrefixes:
    """Beginnings of requests whose blocks have ids, as those of a workload; two agree where their ids do.

    `kept` blocks are known at least. The same `salt` gives the same hashes.
    """

    __slots__ = ("_block_tokens", "_kept", "_older", "_owners", "_salted")

    def __init__(self, salt: bytes, block_tokens: int, kept: int = KEPT_BLOCKS) -> None:
        self._salted = blake2b(digest_size=_CHAIN_BYTES, salt=salt)
        self._block_tokens = block_tokens
        self._kept = kept
        # By the hash of the chain before and the id: the hash with it, and the request that had it first. What was not
        # asked for since the last turn-over is in the second, and goes with the next.
        self._owners: dict[bytes, tuple[bytes, int]] = {}
        self._older: dict[bytes, tuple[bytes, int]] = {}

    def look(self, number: int, blocks: Sequence[int]) -> Prefix:
        """What is known of a request's beginning, which is known from then on. About 1 µs a block not seen before."""
        owners, older = self._owners, self._older
        chain, like, shared = b"", -1, 0
        for block in blocks:
            key = chain + block.to_bytes(8, "big")
            found = owners.get(key)
            if found is None:
                found = older.get(key)
                if found is None:
                    break
                owners[key] = found
            chain, like = found
            shared += 1
        hashes = []
        salted = self._salted.copy
        for block in blocks[shared:]:
            key = chain + block.to_bytes(8, "big")
            running = salted()
            running.update(key)
            chain = running.digest()
            owners[key] = (chain, number)
            hashes.append(int.from_bytes(chain[:_HASH_BYTES], "big"))
        if len(owners) > self._kept:
            self._older, self._owners = owners, {}
        return Prefix(like, shared * self._block_tokens, tuple(hashes))


class TokenPrefixes:
    """Beginnings of requests whose token ids are known, as in an engine; two agree as far as their tokens do.

    `kept_blocks` and `kept_bytes` bound what is remembered. The same `salt` gives the same hashes. One thread calls it.
    """

    __slots__ = (
        "_behind", "_behind_bytes", "_behind_older", "_kept_blocks", "_kept_bytes", "_older", "_owners", "_salted",
    )  # fmt: skip

    def __init__(self, salt: bytes, *, kept_blocks: int = KEPT_BLOCKS, kept_bytes: int = KEPT_BYTES) -> None:
        self._salted = blake2b(digest_size=_CHAIN_BYTES, salt=salt)
        self._kept_blocks, self._kept_bytes = kept_blocks, kept_bytes
        self._owners: dict[bytes, int] = {}
        self._older: dict[bytes, int] = {}
        # By the hash of the blocks before: what followed them, sorted, each with the request that had it.
        self._behind: dict[bytes, list[tuple[bytes, int]]] = {}
        self._behind_older: dict[bytes, list[tuple[bytes, int]]] = {}
        self._behind_bytes = 0

    def look(self, number: int, tokens: Sequence[int]) -> Prefix:
        """What is known of a request's beginning, which is known from then on. About 20 µs a thousand tokens.

        A request may be looked at again when more of its tokens are known; what it shares with others stands as it was
        told first. Raises TypeError or OverflowError for what is no token id.
        """
        content = array("I", tokens).tobytes()
        chains = self._chains(content)
        whole, like = self._deepest(chains)
        mine = like == number  # looked at before
        before = chains[whole]
        shared = whole * BLOCK_TOKENS
        if not mine:
            tokens_more, better = self._agreeing(before, content[whole * _BLOCK_BYTES : (whole + 1) * _BLOCK_BYTES])
            if tokens_more and better != number:
                shared, like = shared + tokens_more, better
        for block, chain in enumerate(chains[whole:], whole):
            if block > whole:
                self._owners[chain] = number
            self._keep(chain, content[block * _BLOCK_BYTES : (block + 1) * _BLOCK_BYTES], number)
        self._turn_over()
        hashes = tuple([int.from_bytes(chain[:_HASH_BYTES], "big") for chain in chains[whole + 1 :]])
        return Prefix(-1, 0, hashes) if mine else Prefix(like, shared, hashes)

    def _chains(self, content: bytes) -> list[bytes]:
        """The hash up to the end of each whole block, that of no block first."""
        running = self._salted.copy()
        chains = [running.digest()]
        view = memoryview(content)
        for at in range(0, len(content) - _BLOCK_BYTES + 1, _BLOCK_BYTES):
            running.update(view[at : at + _BLOCK_BYTES])
            chains.append(running.digest())
        return chains

    def _deepest(self, chains: list[bytes]) -> tuple[int, int]:
        """How many whole blocks are known, and who had the last of them first."""
        owners, older = self._owners, self._older
        like = -1
        for block, chain in enumerate(chains[1:]):
            found = owners.get(chain)
            if found is None:
                found = older.get(chain)
                if found is None:
                    return block, like
                owners[chain] = found
            like = found
        return len(chains) - 1, like

    def _agreeing(self, before: bytes, content: bytes) -> tuple[int, int]:
        """How many tokens of a block agree with what followed the same blocks before it, and with whose."""
        best = (0, -1)
        for behind in (self._behind, self._behind_older):
            known = behind.get(before, ())
            place = bisect_left(known, (content,))
            # Sorted, the longest agreement is with a neighbour.
            for other, number in known[max(0, place - 1) : place + 1]:
                agree = _agreeing_bytes(content, other) // _TOKEN_BYTES
                if agree > best[0]:
                    best = (agree, number)
        return best

    def _keep(self, before: bytes, content: bytes, number: int) -> None:
        if not content:
            return
        known = self._behind.setdefault(before, [])
        place = bisect_left(known, (content,))
        if place < len(known) and known[place][0] == content:
            return
        known.insert(place, (content, number))
        self._behind_bytes += len(content)

    def _turn_over(self) -> None:
        """Forget what was not asked for since the last time, where too much is known."""
        if len(self._owners) > self._kept_blocks:
            self._older, self._owners = self._owners, {}
        if self._behind_bytes > self._kept_bytes:
            self._behind_older, self._behind, self._behind_bytes = self._behind, {}, 0


def _agreeing_bytes(one: bytes, other: bytes) -> int:
    """How many bytes two begin with alike, by halves."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
