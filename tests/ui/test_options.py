"""Words of options that stand for numbers: whatever is typed is a number in its range or a plain refusal."""

import click
import pytest

from controller.knobs import parse_bytes
from estimator.errors import KnobError
from ui.options import Bytes, Size


@pytest.mark.parametrize("kind", [Size(), Bytes()])
@pytest.mark.parametrize("text", ["9" * 5_000, "9" * 400 + "k", "1e999", "-1", "", "²", "x" * 100_000], ids=range(7))
def test_what_is_no_size_is_refused_in_short_words(kind, text: str):
    """Digits without end are not read, and not handed back whole."""
    with pytest.raises(click.BadParameter) as refused:
        kind.convert(text, None, None)
    assert len(refused.value.format_message()) < 300


def test_a_size_below_the_least_is_refused_with_it():
    """A size that keeps next to nothing is no slip that a record should pay for; the least itself is taken."""
    with pytest.raises(click.BadParameter, match=r"'0' is less than 1\.00 MiB; write that or more"):
        Bytes(least=1 << 20).convert("0", None, None)
    assert Bytes(least=1 << 20).convert("1MiB", None, None) == 1 << 20


@pytest.mark.parametrize("text", ["1GB", "1GiB", "1.5 gb", "2MB", "3kB", "1_000", "4k", "10G", "1.1GiB", "2 parsecs"])
def test_a_size_is_read_as_a_knob_reads_it(text: str):
    """One grammar of sizes: what an option takes is what a knob takes, and as many bytes."""
    try:
        known = parse_bytes(text)
    except KnobError:
        with pytest.raises(click.BadParameter, match="is no size in whole bytes; write for instance 500MiB"):
            Bytes().convert(text, None, None)
    else:
        assert Bytes().convert(text, None, None) == known


@pytest.mark.parametrize(
    "words",
    [("ui",), ("query", "stops", "--run"), ("trace", "export"), ("db", "stats", "--database"), ("collect",)],
)
def test_a_name_too_long_for_a_file_is_refused_in_short_words(glassgate, words):
    """In one line, which does not say the whole name back."""
    done = glassgate(*words, "x" * 300)
    assert done.returncode == 2
    assert done.stderr.endswith("is too long for a name of a file or run\n")
    assert len(done.stderr) < 200
