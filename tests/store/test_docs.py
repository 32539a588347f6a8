"""The guide to the store names what there is."""

import re
from pathlib import Path

from store import tables
from store.named import NAMED
from store.views import VIEWS
from store.why import why

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "store.md").read_text()


def test_the_guide_names_every_query():
    """The table of named queries in the guide holds every one, in order, and no other."""
    section = GUIDE.split("## Named queries")[1].split("## SQL")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE) == list(NAMED)


def test_the_guide_names_every_table_and_view():
    """The guide's tables of tables and views hold every one."""
    section = GUIDE.split("## SQL")[1].split("## What it costs")[0]
    rows = "\n".join(line.split("|")[1] for line in section.splitlines() if line.startswith("| `"))
    wanted = {re.match(r"CREATE TABLE (\w+)", each)[1] for each in tables.TABLES} | set(VIEWS)
    assert set(re.findall(r"`(\w+)`", rows)) == wanted


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
