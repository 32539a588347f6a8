"""A file that somebody hands over: read whole up to a bound, and its JSON without a surprise."""

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from estimator.errors import InputError, shown

_HALF_PAIR: Final = re.compile(rb"\\u[dD][89a-fA-F]")
MOST_BYTES: Final = 64 << 20
"""Of a case file or a model configuration. A case of 100,000 waiting requests has a fifth of it."""


def read_given(name: str | Path, most: int = MOST_BYTES) -> bytes:
    """The content of a file, or of standard input for `-`, of at most `most` bytes. Raises InputError."""
    try:
        if name == "-":
            content = sys.stdin.buffer.read(most + 1)
        else:
            with Path(name).open("rb") as file:
                content = file.read(most + 1)
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}; name a readable file") from None
    except ValueError as error:  # a name that cannot be one
        raise InputError(f"{shown(str(name))}: {error}; name a readable file") from None
    if len(content) > most:
        raise InputError(f"{name}: has more than {most >> 20} MiB, the most that is read; hand over less at once")
    return content


def read_given_json(name: str | Path) -> Any:
    """The JSON in a file. Raises InputError where it cannot be read, is no JSON or is nested without end."""
    content = read_given(name)
    try:
        found = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_once, parse_constant=_no_json)
        if _HALF_PAIR.search(content):
            json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except _TwiceError as twice:
        raise InputError(
            f"{name}: the key {shown(twice.args[0])} stands twice in one object; leave one of them"
        ) from None
    except ValueError as error:
        raise InputError(f"{name}: not JSON ({error})") from None
    except RecursionError:
        raise InputError(f"{name}: not JSON (it is nested too deep)") from None
    return found


class _TwiceError(Exception):
    """A key that stands twice in one object; JSON readers take the last one without a word."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _TwiceError(Counter(name for name, _ in pairs).most_common(1)[0][0])
    return found


def _no_json(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON's")
