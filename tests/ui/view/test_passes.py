"""Passes: bars, what closed them, room, filters and pages; and the opened pass."""

import json

import pytest

from controller.records import KnobsInForce
from controller.vocabulary import Gate
from tests.ui.view.showing import S
from tests.ui.view.story import LIMIT
from ui.view.snapshot import MOST_ROWS, Ask


@pytest.fixture
def passes(show):
    """Passes at the recording's end, newest first, as asked for."""

    def ask(only="", **more):
        more["pass_filter"] = only
        return show(panels=frozenset({"live"}), **more)

    return ask


def test_each_bar_is_its_batch(passes, sql):
    """A pass's members are the decisions that let a request enter, and their tokens add up to the pass's."""
    rows = passes(rows=MOST_ROWS).passes
    assert len(rows) == sql("SELECT count(*) FROM passes")[0][0]
    for row in rows:
        for part in ("device", "loaded", "computed"):
            assert sum(getattr(member, part) for member in row.members) == getattr(row, part)
        found = sql(
            "SELECT request_id FROM members WHERE pass = ? ORDER BY position",
            row.number,
        )
        assert [member.request for member in row.members] == [name for (name,) in found]
        assert (row.peak_bytes is None) == (not row.members)


def test_what_closed_a_pass_has_its_number(passes, sql):
    """The stop of a pass is what its last candidate was told; a spent budget has what was charged against its limit."""
    rows = {row.number: row for row in passes(rows=MOST_ROWS).passes}
    told = sql(
        """SELECT d.pass, g.gate, e.reason, d.observed, d.limit_value, d.short_by, q.id
        FROM decisions d JOIN passes p ON p.number = d.pass AND p.closed_gate = d.gate AND p.closed_reason = d.reason
        JOIN gates g ON g.id = d.gate JOIN reasons e ON e.id = d.reason JOIN requests q ON q.number = d.request
        WHERE d.outcome = 3"""
    )
    assert told
    for number, gate, reason, observed, limit, short_by, request in told:
        stop = rows[number].closed
        assert (stop.gate, stop.reason, stop.observed, stop.limit, stop.short_by, stop.request) == (
            gate, reason, observed, limit, short_by, request,
        )  # fmt: skip
    spent = [row for row in rows.values() if row.closed is not None and row.closed.request is None]
    assert spent
    for row in spent:
        assert (row.closed.gate, row.closed.limit, row.room) == ("chunk_tokens", 8_192, 0)
        assert row.shadowed is None  # everything is enforced in this run
        assert row.closed.observed == 8_192


def test_room_is_what_the_tightest_limit_left(passes, sql):
    """Room counts to the tightest limit, whichever gate closed the pass: of extend or chunk tokens, or the pool's."""
    pool = dict(sql("SELECT number, room_after FROM passes"))
    bounded = set()
    for row in passes(rows=MOST_ROWS).passes:
        limit = min(6_144 if row.revision == 0 else 12_288, 8_192)
        charged = sum(-(-each.computed // 64) * 64 for each in row.members)
        assert row.room == max(0, min(limit - charged, pool[row.number]))
        bounded.add("pool" if row.room == pool[row.number] else "batch")
    assert bounded == {"pool", "batch"}


def test_pages_meet_without_gap(passes):
    """Paging back page by page gives every pass once, and says whether there are older and newer ones."""
    whole = [row.number for row in passes(rows=MOST_ROWS).passes]
    read, before = [], None
    while True:
        page = passes(rows=17, passes_before=before)
        assert page.newer_passes == (before is not None)
        read += [row.number for row in page.passes]
        if not page.older_passes:
            break
        before = read[-1]
    assert read == whole


@pytest.mark.parametrize("text", ["kv_capacity", "limit", "KV", "chunk"])
def test_a_filter_and_its_inverse_share_the_passes(passes, text):
    """A gate or reason lets through the passes it closed, `!` the others, and nothing is in both."""
    whole = {row.number: row for row in passes(rows=MOST_ROWS).passes}
    through = passes(rows=MOST_ROWS, only=text).passes
    others = passes(rows=MOST_ROWS, only=f"!{text}").passes
    assert {row.number for row in through} | {row.number for row in others} == set(whole)
    assert len(through) + len(others) == len(whole)
    for row in through:
        assert text.lower() in f"{row.closed.gate} {row.closed.reason}"


def test_a_filter_by_request_gives_the_passes_that_looked_at_it(passes, sql):
    """An id's beginning lets through the passes that looked at such a request."""
    looked = {
        number
        for (number,) in sql(
            "SELECT d.pass FROM decisions d JOIN requests q ON q.number = d.request WHERE q.id LIKE 's3.t%'"
        )
    }
    rows = passes(rows=MOST_ROWS, only="s3.t").passes
    assert {row.number for row in rows} == looked
    assert passes(only="nobody").passes == ()
    inverse = passes(rows=MOST_ROWS, only="!s3.t").passes
    assert looked.isdisjoint(row.number for row in inverse)


def test_a_filtered_page_says_that_there_is_more(passes):
    """A page of a filter holds as many as were asked for and says that older ones fit too."""
    page = passes(rows=3, only="kv_capacity")
    assert len(page.passes) == 3
    assert page.older_passes
    older = passes(rows=3, only="kv_capacity", passes_before=page.passes[-1].number)
    assert max(row.number for row in older.passes) < page.passes[-1].number


def test_the_opened_pass_shows_every_ladder(passes, sql):
    """Each decision has nine checks in order, the refusing one with what is short; the parts add up to the estimate."""
    for number, decisions in sql("SELECT pass, count(*) FROM decisions GROUP BY 1"):
        detail = passes(open_pass=number).detail
        assert detail.row.number == number
        assert len(detail.decisions) == decisions
        for decision in detail.decisions:
            assert len(decision.checks) == 9
            refusing = [check for check in decision.checks if check.verdict == "refuse"]
            if decision.outcome in ("wait", "refuse"):
                (check,) = refusing
                stop = decision.stop
                assert (check.gate, check.observed, check.limit, check.short_by) == (
                    stop.gate, stop.observed, stop.limit, stop.short_by,
                )  # fmt: skip
        assert sum(size for _, size in detail.parts) == (detail.row.peak_bytes or 0)
        raw = json.loads(detail.raw)
        assert raw["number"] == number
        assert len(raw["decisions"]) == decisions


def test_both_ladders_of_a_failed_load_are_shown(passes, sql):
    """A request whose load failed has the ladder before it and the one that decided."""
    ((number,),) = sql("SELECT pass FROM decisions WHERE checks_before_load_failure IS NOT NULL")
    decisions = passes(open_pass=number).detail.decisions
    (failed,) = [each for each in decisions if each.checks_before_load_failure]
    assert (failed.host_status, failed.host_reason) == ("skipped", "allocator")
    assert len(failed.checks_before_load_failure) == 9


def test_a_pass_that_is_not_there_opens_the_newest(show):
    """A pass that had not begun at the moment cannot be opened; the newest one is."""
    shown = show(140, panels=frozenset({"live"}), open_pass=10**9)
    assert shown.detail.row == shown.passes[0]


def test_a_step_that_was_running_has_no_length(show, sql):
    """At a moment within a pass's step its length is not known yet."""
    number, start_ns, end_ns = sql(
        "SELECT pass, start_ns, end_ns FROM steps WHERE pass > 0 AND end_ns > start_ns + 10 LIMIT 1"
    )[0]
    within = show((start_ns + 5) / S, panels=frozenset({"live"}))
    assert within.passes[0].number == number
    assert within.passes[0].step_ns is None
    assert (
        show(end_ns / S + 1e-6, panels=frozenset({"live"}), passes_before=number + 1).passes[0].step_ns
        == end_ns - start_ns
    )


def test_a_pass_in_shadow_mode_says_what_a_gate_would_have_done(story, open_view):
    """The first stop that was not enforced, with its numbers; what is not enforced leaves no less room."""
    story.note(KnobsInForce(0, 1, (
        ("enforce", "", False, False, "ok", ""), ("max_extend_tokens", "tokens", 500, 500, "ok", ""),
    )))  # fmt: skip
    story.revision = 1
    for name in "ab":
        story.arrive(name, 1)
    story.passed(2, enter="ab", would=Gate.EXTEND_TOKENS)
    view = open_view(story.into())
    (row,) = view.answer(Ask(), whole=True).passes
    stop = row.shadowed
    assert (stop.gate, stop.reason, stop.observed, stop.limit, stop.short_by, stop.unit, stop.request) == (
        "extend_tokens", "would_refuse", LIMIT + 100, LIMIT, 100, "tokens", "a",
    )  # fmt: skip
    assert row.closed is None
    assert row.room == 30_000
