"""The guide to the store names what there is."""

import re
from pathlib import Path

from store.alarms import ALARMS
from store.named import NAMED
from store.schema import TABLE_NAMES, VIEW_NAMES
from store.why import why

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "store.md").read_text()


def test_the_guide_names_every_query():
    """The table of named queries in the guide holds every one, in order, and no other."""
    section = GUIDE.split("## Named queries")[1].split("## Alarms")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE) == list(NAMED)


def test_the_guide_names_every_table_and_view():
    """The guide's tables of tables and views hold every one."""
    section = GUIDE.split("## SQL")[1].split("`decisions.checks`")[0]
    rows = "\n".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", rows)) == {*TABLE_NAMES, *VIEW_NAMES}


def test_the_guide_names_every_alarm():
    """The guide's table of alarms holds every kind, in order, with its threshold."""
    section = GUIDE.split("## Alarms")[1].split("## SQL")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| `")]
    told = [
        (
            f"`{each.name}`",
            "60 s" if each.unit == "ns" else f"{each.threshold:,} {each.unit}".replace("1 passes", "1 pass"),
        )
        for each in ALARMS
    ]
    assert [(row[0], row[2]) for row in rows] == [(name, text.replace("1 loads", "1 load")) for name, text in told]
    assert next(each.threshold for each in ALARMS if each.unit == "ns") == 60_000_000_000


def test_the_guide_shows_what_why_prints(world, database):
    """The life told in the guide is word for word what `why` tells of that run."""
    engine = world(max_extend_tokens=65_536, chunked_prefill_size=None, max_prefill_tokens=1_000_000)
    engine.arrive("first", 0, 62_400)
    engine.arrive(
        "chat-17", 3, 17_344, 512, device_tokens=8192, unlocked_tokens=8192, host_tokens=4096, resident_tokens=4096
    )
    engine.step(5)
    for look in range(40):
        engine.step(905 + 5 * look, free=15_000)
    engine.step(1203, free=900_000)
    engine.first_token("chat-17", 1543, 42)
    engine.finish("chat-17", 4203, 512)
    engine.into(database)
    told = "\n".join("    " + line for line in why(database, "chat-17").words())
    assert told in GUIDE
