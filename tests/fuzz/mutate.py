"""Mutation of valid input: JSON values by structure, bytes and text by pieces, with what parsers trip over."""

import copy
import json
import re
from random import Random
from typing import Any, Final

from hypothesis import strategies as st

_RAW: Final = "\x00RAW:"
_RAW_JSON: Final = re.compile(r'"\\u0000RAW:((?:[^"\\]|\\.)*)"')


def raw(text: str) -> str:
    """A JSON value that stands in the text as it is written here: `1e999`, a number of 5,000 digits."""
    return _RAW + text


SCALARS: Final[tuple[Any, ...]] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 64, 1000, 2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64,
    -(2**63) - 1,
    1 << 50, (1 << 50) + 1, 10**30, 10**400, 0.0, 0.5, -0.5, 1.0, 1e308, 5e-324, 1e18, raw("1e999"), raw("-1e999"),
    raw("NaN"), raw("Infinity"), raw("1" + "0" * 5000), raw("0." + "1" * 5000), raw("1e-999999999"), raw("-0"),
    "", " ", "a", "0", "1", "-1", "off", "on", "none", "1e999", "nan", "1" + "0" * 5000, "9" * 30, "4GiB", "\x00",
    "a\x00b",
    "\n", "\x1b[31m\x1b]0;x\x07", "é", "\u202e", "\ud800", "\U0001f600" * 50, "x" * 100_000, "../../etc", "$(id)",
    "%s%n",
    "{}", "[]", "٣", "²", [], {}, [[]], [None], {"": None},
)  # fmt: skip
"""Values that are at the edge of something."""

PIECES: Final[tuple[bytes, ...]] = (
    b"\x00", b"\xff", b"\xfe\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc0\x80", b"\n", b"\r\n", b"\r", b"\t",
    b"\x1b[2J",
    b"{", b"}", b"[", b"]", b",", b":",
    b'"', b"'", b"\\", b"\\u0000", b"\\ud800", b"null", b"true", b"NaN", b"Infinity",
    b"-", b"+", b".", b"0", b"9" * 5000, b"1e999", b"1e-999", b"-1", b"99999999999999999999", b"0x10", b"1_000",
    b"[" * 3000,
    b'{"a":' * 3000, b"(" * 3000, b"#", b"=", b" ", b" " * 5000, b"\x1f\x8b\x08", b"/*", b"--", b";", b"%", b"%s",
    b"e", b"E",
)  # fmt: skip
_NUMBER: Final = re.compile(rb"-?\d+(?:\.\d+)?")


def mutate_value(value: Any, random: Random) -> Any:
    """A copy of a JSON value with one thing about it changed, somewhere in it."""
    root = [copy.deepcopy(value)]
    places = list(_places(root))
    holder, key = places[random.randrange(len(places))]
    what = random.randrange(7)
    if what <= 2:
        holder[key] = copy.deepcopy(random.choice(SCALARS))
    elif what == 3 and holder is not root:
        del holder[key]
    elif what == 4:
        other, at = places[random.randrange(len(places))]
        holder[key] = copy.deepcopy(other[at])
    elif what == 5:
        holder[key] = _nested(holder[key], random)
    else:
        holder[key] = _nudged(holder[key], random)
    return root[0] if root else None


def _nested(held: Any, random: Random) -> Any:
    """A value one level deeper, or levels without end in its place."""
    depth = random.choice((1, 5, 60, 900))
    if depth == 1:
        return [held] if random.random() < 0.5 else {"a": held}
    text = "[" * depth + "]" * depth if random.random() < 0.5 else '{"a":' * depth + "1" + "}" * depth
    return raw(text)


def _nudged(held: Any, random: Random) -> Any:
    """A value of the same kind that is not quite the same."""
    if isinstance(held, dict):
        return {**held, random.choice(("", "unknown", "\x1b[31m", "x" * 10_000, "\ud800", "__class__", "id")): None}
    if isinstance(held, list):
        return held * random.choice((0, 2, 50))
    if isinstance(held, bool):
        return not held
    if isinstance(held, int):
        return held + random.choice((-1, 1, held, 10**6, -held, 10**12))
    if isinstance(held, str):
        return mutate_bytes(held.encode("utf-8", "surrogatepass"), random).decode("utf-8", "replace")
    return held


def _places(holder: Any) -> Any:
    keys = holder if isinstance(holder, dict) else range(len(holder))
    for key in list(keys)[:200]:
        yield holder, key
        if isinstance(holder[key], dict | list):
            yield from _places(holder[key])


def as_json(value: Any) -> bytes:
    """A mutated value as text, with what was to stand there raw."""
    try:
        text = json.dumps(value)
    except ValueError:
        text = "null"  # a number too long to write that is not raw
    return _RAW_JSON.sub(lambda found: json.loads(f'"{found[1]}"'), text).encode()


def mutate_bytes(content: bytes, random: Random) -> bytes:
    """Bytes with one piece of them changed: flipped, left out, repeated, cut off, moved, another number or noise."""
    at = random.randrange(len(content) + 1)
    end = min(len(content), at + int(random.expovariate(0.05)))
    before, piece, after = content[:at], content[at:end], content[end:]
    what = random.randrange(9)
    if what == 0 and piece:
        piece = bytes((piece[0] ^ (1 << random.randrange(8)),)) + piece[1:]
    elif what == 1:
        piece = b""
    elif what == 2:
        piece *= random.choice((2, 3, 40))
    elif what == 3:
        after = b""
    elif what == 4:
        other = random.randrange(len(content) + 1)
        piece = content[other : other + len(piece)] + piece
    elif what == 5:
        return _with_another_number(content, random)
    elif what == 6:
        piece = random.randbytes(1 + len(piece))
    else:
        piece = random.choice(PIECES) + piece
    return before + piece + after


def _with_another_number(content: bytes, random: Random) -> bytes:
    numbers = list(_NUMBER.finditer(content))
    if not numbers:
        return content
    found, wanted = random.choice(numbers), random.choice(SCALARS)
    text = wanted if isinstance(wanted, str) else "null" if wanted is None else repr(wanted)
    piece = text.removeprefix(_RAW).encode("utf-8", "replace")
    return content[: found.start()] + piece + content[found.end() :]


_SEEDS: Final = st.integers(0, 2**48)
_STEPS: Final = st.integers(1, 4)


@st.composite
def json_like(draw: Any, *samples: Any) -> bytes:
    """JSON text near one of the samples: by structure, then perhaps by bytes."""
    random = Random(draw(_SEEDS))  # noqa: S311 - a fuzzer's, not a secret's
    value = samples[random.randrange(len(samples))]
    for _ in range(draw(_STEPS)):
        value = mutate_value(value, random)
    content = as_json(value)
    return mutate_bytes(content, random) if random.random() < 0.15 else content


@st.composite
def bytes_like(draw: Any, *samples: bytes) -> bytes:
    """Bytes near one of the samples."""
    random = Random(draw(_SEEDS))  # noqa: S311 - as above
    content = samples[random.randrange(len(samples))]
    for _ in range(draw(_STEPS)):
        content = mutate_bytes(content, random)
    return content[: 4 << 20]


def text_like(*samples: str) -> st.SearchStrategy[str]:
    """Text near one of the samples, halves of surrogate pairs among it."""
    known = bytes_like(*(sample.encode() for sample in samples)).map(
        lambda each: each.decode("utf-8", "surrogateescape")
    )
    return st.one_of(known, known, st.sampled_from(samples), st.text(max_size=40))
