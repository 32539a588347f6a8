"""Prefixes: who shares how much with whom."""

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.prefixes import BLOCK_TOKENS, NOTHING_SHARED, BlockPrefixes, TokenPrefixes

SALT = b"0123456789abcdef"
stems = st.lists(st.integers(0, 2), min_size=0, max_size=6)


def agreeing(one, other):
    """How far two sequences agree."""
    return next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
                min(len(one), len(other)))  # fmt: skip


def restored(prefixes, known, block):
    """The blocks of each request as (owner, index), rebuilt from references alone."""
    chains = []
    for number, (prefix, tokens) in enumerate(zip(prefixes, known, strict=True)):
        shared = prefix.shared_tokens // block
        mine = [(number, at) for at in range(shared, -(-tokens // block))]
        chains.append([*(chains[prefix.like][:shared] if prefix.like >= 0 else ()), *mine])
    return chains


@settings(max_examples=200, deadline=None)
@given(st.lists(stems, max_size=12))
def test_references_restore_which_blocks_are_the_same(requests):
    """Two requests have a block in common, by reference, exactly where they have a chain of ids in common."""
    index = BlockPrefixes(SALT, 512)
    chains = restored([index.look(number, blocks) for number, blocks in enumerate(requests)],
                      [512 * len(blocks) for blocks in requests], 512)  # fmt: skip
    for one, first in enumerate(requests):
        for other, second in enumerate(requests):
            assert agreeing(chains[one], chains[other]) == agreeing(first, second)


@settings(max_examples=100, deadline=None)
@given(st.lists(stems, max_size=10))
def test_a_hash_stands_for_the_whole_chain(requests):
    """Blocks have the same hash where all before them are the same, in this index and in another with that salt."""
    whole = [BlockPrefixes(SALT, 512).look(0, blocks).hashes for blocks in requests]
    for one, first in enumerate(requests):
        for other, second in enumerate(requests):
            assert agreeing(whole[one], whole[other]) == agreeing(first, second)
    index = BlockPrefixes(SALT, 512)
    for number, blocks in enumerate(requests):
        prefix = index.look(number, blocks)
        assert prefix.hashes == whole[number][prefix.shared_tokens // 512 :]


def test_another_salt_gives_other_hashes():
    """Hashes of one run say nothing about those of another."""
    tokens = list(range(1024))
    assert TokenPrefixes(SALT).look(0, tokens).hashes != TokenPrefixes(SALT[::-1]).look(0, tokens).hashes
    assert BlockPrefixes(SALT, 512).look(0, (1, 2)).hashes != BlockPrefixes(SALT[::-1], 512).look(0, (1, 2)).hashes


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(stems, st.integers(0, 40)), max_size=8))
def test_tokens_agree_to_the_token(requests):
    """The request named shares exactly the tokens told, no earlier one shares more, and hashes cover the rest."""
    prompts = [[token for stem in stems_ for token in [stem] * 300][: 300 * len(stems_) - cut]
               for stems_, cut in requests]  # fmt: skip
    index = TokenPrefixes(SALT)
    for number, tokens in enumerate(prompts):
        prefix = index.look(number, tokens)
        most = max((agreeing(tokens, other) for other in prompts[:number]), default=0)
        assert prefix.shared_tokens == most
        assert prefix.like < number
        if most:
            assert agreeing(tokens, prompts[prefix.like]) == most
        else:
            assert prefix.like == -1
        assert len(prefix.hashes) == len(tokens) // BLOCK_TOKENS - most // BLOCK_TOKENS


def test_more_is_known_of_a_request_once_its_output_is():
    """A prompt that goes on from an earlier prompt and its output agrees with both, to the token."""
    index = TokenPrefixes(SALT)
    first = list(range(1000))
    assert index.look(0, first) == (-1, 0, index.look(1, first).hashes or TokenPrefixes(SALT).look(0, first).hashes)
    answer = [*first, *range(5000, 5300)]
    later = index.look(0, answer)
    assert len(later.hashes) == 1  # the second block is whole only with the answer in it
    assert index.look(2, [*answer, 1, 2, 3])[:2] == (0, 1300)


def test_what_is_remembered_is_bounded():
    """Past the bounds the oldest is forgotten, what is asked for again stays, and nothing false is told."""
    index = BlockPrefixes(SALT, 512, kept=10)
    for number in range(100):
        assert index.look(number, (1, 2)).like == (0 if number else -1)
        index.look(1000 + number, range(100 * number + 10, 100 * number + 15))
    assert len(index._owners) + len(index._older) <= 2 * (10 + 5)
    tokens = TokenPrefixes(SALT, kept_blocks=8, kept_bytes=8 * 2048)
    for number in range(50):
        tokens.look(number, range(number * 2000, number * 2000 + 1500))
    assert len(tokens._owners) + len(tokens._older) <= 2 * (8 + 3)
    kept = [*tokens._behind.values(), *tokens._behind_older.values()]
    assert sum(len(content) for known in kept for content, _ in known) <= 2 * (8 + 3) * 2048
    assert tokens.look(99, range(1500)) == (-1, 0, TokenPrefixes(SALT).look(0, range(1500)).hashes)


def test_nothing_is_shared_by_nothing():
    """A request without blocks or tokens shares nothing and has no hashes."""
    assert BlockPrefixes(SALT, 512).look(0, ()) == NOTHING_SHARED
    assert TokenPrefixes(SALT).look(0, ()) == NOTHING_SHARED
