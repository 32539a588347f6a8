"""The guide names what there is."""

import re
from pathlib import Path

from controller.engines.replay.exported import Exported
from controller.engines.replay.mooncake import ExportedRow
from ui.whatif.fidelity import FLOOR
from ui.whatif.goal import METRICS
from ui.whatif.span import MOST_WARM_REQUESTS

GUIDE = (Path(__file__).resolve().parents[3] / "docs" / "whatif.md").read_text()


def first_column(section):
    """The names in the first column of the tables of a section."""
    return [name for line in section.splitlines() if line.startswith("| `") for name in
            re.findall(r"`(\w+)`", line.split("|")[1])]  # fmt: skip


def test_the_guide_names_every_figure():
    """The table of figures holds every one that a search may name, and no other."""
    assert first_column(GUIDE.split("## Searching")[1].split("## Traces")[0]) == list(METRICS)


def test_the_guide_names_every_key_of_a_trace():
    """The tables of keys hold what a line and its first line may have."""
    section = GUIDE.split("## Traces")[1].split("## Where the hashes")[0]
    plain = {"timestamp", "input_length", "output_length", "hash_ids", "request_id"}
    assert set(first_column(section)) == {*ExportedRow.__struct_fields__, "glassgate"} - plain
    listed = section.split("Under `glassgate` stand")[1]
    assert set(re.findall(r"`(\w+)`", listed)) == set(Exported.__struct_fields__)


def test_the_guide_tells_the_bounds():
    """The floor of the fidelity and the bound on what warms the cache are those of the code."""
    assert f"no conclusion is drawn, {FLOOR:g} |" in GUIDE
    assert f"no more than {MOST_WARM_REQUESTS:,} requests" in GUIDE
