"""What is drawn of passes, strips and decisions, as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.vocabulary import LADDER_GATES, Gate
from tests.ui.app.script import SECOND, check, decision, detail_of, head, pass_row, stop
from ui.app.colours import (
    COMPUTED,
    DEVICE,
    GATE_LETTERS,
    LOADED,
    ROOM,
    THEMES,
    UNKNOWN_GATE,
    gate_mark,
    gate_style,
    themes,
)  # fmt: skip
from ui.app.detail_lines import detail_lines
from ui.app.figures import bar, brief_size, lasting, of_limit, percent, short, whole_items, with_unit
from ui.app.pass_line import legend, pass_line, scale_of, stop_number
from ui.app.strip import KNOB_CHANGE, strip_line
from ui.view.snapshot import Slice

MARKS = (DEVICE, LOADED, COMPUTED, ROOM)


# colours


def test_every_gate_has_a_letter_and_a_style_of_its_own():
    """All gates of the vocabulary, the engines' too; no letter stands for two."""
    assert set(GATE_LETTERS) == {gate.word for gate in Gate}
    assert len(set(GATE_LETTERS.values())) == len(GATE_LETTERS)
    assert len({gate_style(gate.word) for gate in Gate}) == len(Gate)


def test_every_theme_knows_every_style():
    """No style of a gate or mark is unknown to a theme."""
    wanted = {gate_style(gate.word).removeprefix("$") for gate in Gate}
    wanted |= {mark.style.removeprefix("$") for mark in MARKS if mark.style.startswith("$")}
    wanted |= {UNKNOWN_GATE.style.removeprefix("$"), "good", "warn", "bad", "line", "line-focus", "cursor"}
    for theme in themes():
        assert wanted <= set(theme.variables), theme.name


def test_colours_of_gates_differ_within_a_theme():
    """Dark and light give each gate a colour of its own; plain gives none any colour."""
    for name, theme in zip(THEMES, themes(), strict=True):
        colours = {theme.variables[gate_style(gate.word).removeprefix("$")] for gate in LADDER_GATES}
        assert len(colours) == (1 if name == "plain" else len(LADDER_GATES))


def test_shapes_alone_tell_tokens_apart():
    """Without colour the four marks of a bar differ."""
    assert len({mark.sign for mark in MARKS}) == 4


def test_a_gate_that_is_not_known_is_marked_as_such():
    """A newer engine's gate does not borrow another's letter."""
    assert gate_mark("brand_new") == UNKNOWN_GATE
    assert UNKNOWN_GATE.sign not in GATE_LETTERS.values()
    assert gate_mark("").word == "nothing bound"
    assert gate_mark(None).sign == " "


# figures


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=4), st.integers(1, 200))
def test_a_bar_is_as_wide_as_it_was_asked_to_be(amounts, cells):
    """Whatever the parts, a bar has exactly its cells, and no part that is something vanishes where there is room."""
    parts = list(zip(amounts, MARKS, strict=False))
    drawn = bar(parts, sum(amounts), cells).plain
    assert len(drawn) == cells
    if cells >= len(parts) and sum(amounts):
        assert all((mark.sign in drawn) == (amount > 0) for amount, mark in parts)


@given(st.integers(0, 10**12))
def test_a_short_number_is_at_most_five_wide(number):
    """Columns of short numbers never move."""
    assert len(short(number)) <= 6 if number >= 10**12 * 0.9995 else len(short(number)) <= 5


@given(st.integers(0, 1 << 50))
def test_a_brief_size_is_at_most_eight_wide(number):
    """A size fits its column."""
    assert len(brief_size(number)) <= 8


@pytest.mark.parametrize(("part", "words"), [
    (0, "0 %"), (0.001, "<1 %"), (0.624, "62 %"), (0.999, ">99 %"), (1, "100 %"), (None, "—"),
])  # fmt: skip
def test_some_is_not_none_and_most_is_not_all(part, words):
    """A rounded share never says 0 % or 100 % of what is neither."""
    assert percent(part) == words


def test_numbers_carry_their_unit():
    """Bytes as sizes, switches as words, the rest with its unit."""
    assert with_unit(4 << 30, "bytes") == "4.00 GiB"
    assert with_unit(True, "") == "on"
    assert with_unit(65_536, "tokens") == "65,536 tok"
    assert with_unit(None, "slots") == "—"
    assert of_limit(66_496, 65_536, 960, "tokens") == "66,496 of 65,536, 960 short"
    assert of_limit(5, None, None, "tokens") == "5"


# passes


@pytest.mark.parametrize("width", [50, 78, 90, 100, 130])
def test_a_pass_is_one_line_with_its_bar_and_the_gate_that_closed_it(width):
    """At every width the number, both parts of the bar and the gate are there, and no line is too long."""
    row = pass_row(18_204)
    scale = scale_of([row], joined=False)
    line = pass_line(row, width, scale, time="12:03:10").plain
    assert len(line) <= width
    assert "18,204   2" in line
    assert all(mark.sign in line for mark in MARKS)
    assert "extend_tokens" in line
    assert len(legend(width, scale).plain) <= width + 12


def test_columns_of_the_legend_stand_over_those_of_the_passes():
    """The line between cached and computed tokens is one line down the screen."""
    row = pass_row(7)
    scale = scale_of([row], joined=False)
    for width in (78, 90, 100, 130):
        assert legend(width, scale).plain.index("│") == pass_line(row, width, scale).plain.index("│")
        assert legend(width, scale).plain.index("closed by") == pass_line(row, width, scale).plain.index("extend_tok")


def test_a_full_bar_of_computed_tokens_is_their_limit():
    """One pass that another gate closed with much room does not shrink all the others."""
    rows = [pass_row(each) for each in range(9)]
    odd = pass_row(9, "kv_capacity", room=2_000_000)
    assert scale_of([*rows, odd], joined=False) == scale_of(rows, joined=False)
    assert scale_of(rows, joined=False).computed == 66_000
    drawn = pass_line(odd, 78, scale_of([*rows, odd], joined=False)).plain
    assert drawn.count(ROOM.sign) + drawn.count(COMPUTED.sign) == len(
        drawn[drawn.index("│") + 1 : drawn.index("  kv_")]
    )


def test_all_tokens_can_be_drawn_to_one_scale():
    """Joined, nothing divides the bar."""
    row = pass_row(1)
    scale = scale_of([row], joined=True)
    assert scale.cached == scale.computed == 120_000
    assert "│" not in pass_line(row, 78, scale).plain
    assert "a full bar is 120k" in legend(78, scale).plain


def test_a_pass_that_admitted_nothing_is_a_thin_line_that_counts_its_repeats():
    """Refusals that repeat are one line."""
    row = pass_row(5, members=(), device=0, loaded=0, computed=0, repeats=37)
    line = pass_line(row, 78, scale_of([row], joined=False)).plain
    assert "╌ nothing, 38 times ╌" in line
    wide = pass_line(row, 130, scale_of([row], joined=False)).plain
    assert " nothing entered, nor in 37 passes more " in wide
    row = pass_row(5, members=(), device=0, loaded=0, computed=0, repeats=1)
    assert " nor in 1 pass more " in pass_line(row, 130, scale_of([row], joined=False)).plain
    assert not any(mark.sign in line for mark in MARKS)


def test_a_pass_without_room_has_none_drawn():
    """Where the tightest limit is reached the bar ends with what was computed."""
    row = pass_row(5, room=0)
    assert ROOM.sign not in pass_line(row, 78, scale_of([row], joined=False)).plain


def test_a_pass_that_nothing_closed_says_so():
    """It took the whole queue."""
    assert "took the whole queue" in pass_line(pass_row(5, ""), 78, scale_of([pass_row(5)], joined=False)).plain


@pytest.mark.parametrize(
    ("width", "words"), [(78, "~extend_tokens 960 short"), (140, "~extend_tokens 66,496 of 65,536")]
)
def test_a_pass_in_shadow_mode_names_the_gate_that_would_have_closed_it(width, words):
    """With a mark of its own in place of the gate that closed it, and in a line of the opened pass."""
    row = pass_row(5, "", shadowed=stop(reason="would_refuse", request="b5"))
    assert words in pass_line(row, width, scale_of([row], joined=False)).plain
    told = "~ in shadow mode, extend_tokens would have kept out b5: 66,496 of 65,536, 960 short"
    assert told in lines_of(detail_of(row))


@pytest.mark.parametrize(("reason", "width", "words"), [
    (stop(), 31, "66,496 of 65,536, 960 short"),
    (stop(), 14, "960 short"),
    (stop(observed=None, short_by=None), 14, "limit 65,536"),
    (stop("input_tokens", observed=16_384, limit=16_384, short_by=0), 20, "16,384 of 16,384"),
    (stop("buffer_bytes", unit="bytes", observed=4788 << 20, limit=4 << 30, short_by=692 << 20), 14, "692 MiB short"),
    (stop(), 3, ""),
])  # fmt: skip
def test_the_number_that_says_most_and_fits_is_shown(reason, width, words):
    """All of it, else how much was short, else the limit; never a cut number."""
    assert stop_number(reason, width) == words


# strip


def slices(*gates, passes=5):
    """A second each."""
    return tuple(Slice(at * SECOND, (at + 1) * SECOND, gate, passes) for at, gate in enumerate(gates))


def test_the_strip_draws_a_letter_a_stretch():
    """Gates by letter, nothing bound as a dot, no pass as a blank; the legend names what is there."""
    line = strip_line(slices("extend_tokens", "kv_capacity", "", None) * 10, 100).plain
    assert line.startswith("5 min      ek. ek. ")
    assert "e extend_tokens" in line
    assert "k kv_capacity" in line
    assert len(line) <= 100


def test_stretches_that_do_not_fit_are_merged_by_their_passes():
    """Of two stretches in one cell the one with more passes is drawn; a change of knobs in either is."""
    busy = Slice(0, SECOND, "kv_capacity", 50)
    quiet = Slice(SECOND, 2 * SECOND, "extend_tokens", 1, knob_change=True)
    assert strip_line((busy, quiet) * 200, 60).plain[11:20] == KNOB_CHANGE * 9
    assert strip_line((busy, Slice(1, 2, "extend_tokens", 1)) * 200, 60).plain[11:20] == "k" * 9


def test_a_change_of_knobs_is_one_mark_however_wide_its_stretch():
    """A stretch drawn over several cells has its mark once."""
    line = strip_line((Slice(0, SECOND, "kv_capacity", 5, knob_change=True), *slices("", "")), 60).plain
    assert line[11:41].count(KNOB_CHANGE) == 1


def test_without_a_strip_there_is_only_its_label():
    """Nothing recorded, nothing drawn."""
    assert strip_line((), 80).plain.strip() == "5 min"


# the opened pass


def lines_of(detail, opened=frozenset()):
    """As text."""
    return [whole_items(line.items, 200).plain for line in detail_lines(detail, head(), opened)]


def test_an_opened_pass_tells_members_refusals_and_what_was_not_reached():
    """What it was decided from, each decision, the rest of the queue, the pool and the buffers."""
    text = "\n".join(lines_of(detail_of(pass_row(12))))
    assert "00:02:00  knobs r12  queue 34  decided in 10 ms  step 230 ms" in text
    assert "a12              12,288      8,192     5,056         1.2 s" in text
    assert "cut to a chunk" in text
    assert "4f02         waits  extend_tokens limit  66,496 of 65,536, 960 short" in text
    assert "31 not reached: extend_tokens closed the pass before their turn" in text
    assert "free 120,000  evictable 80,000  reserved 9,000  running 12" in text
    assert "buffers peak 3.00 GiB: scores 2.00 GiB  attention 1.00 GiB" in text


@given(st.integers(20, 130))
def test_what_does_not_fit_is_left_out_whole(width):
    """A line of the opened pass ends with a whole item at any width, never in the middle of a number."""
    detail = replace(detail_of(pass_row(12)), lanes=((40, 10), (30, 20)))
    for line in detail_lines(detail, head(), frozenset({0, 2})):
        drawn = whole_items(line.items, width)
        assert drawn.cell_length <= width
        whole = {"".join(item.plain for item in line.items[:count]) for count in range(1, len(line.items) + 1)}
        if line.items[0].cell_length <= width:
            assert drawn.plain.removesuffix(" …") in whole


def test_a_ladder_has_every_gate_in_order_with_its_verdict():
    """The nine gates in the order of their evaluation, observed, limit, short by; what was not evaluated is said."""
    lines = lines_of(detail_of(pass_row(12)), frozenset({2}))
    start = next(at for at, line in enumerate(lines) if "observed" in line) + 1
    ladder = lines[start : start + 9]
    assert [line.split()[1] if line.split()[0] in "✓✗" else line.split()[0] for line in ladder] == [
        gate.word for gate in LADDER_GATES
    ]
    assert "66,496      65,536         960  refuse  tokens" in ladder[4]
    assert all("not evaluated" in line for line in ladder[5:])


def test_exempt_off_and_would_refuse_are_told():
    """A soft limit passed by a first member, a gate without a limit, and shadow mode look different."""
    checks = (
        check(LADDER_GATES[0], "off", limit=None), check(LADDER_GATES[4], "exempt", 70_000, 65_536, 4_464),
        check(LADDER_GATES[5], "would_refuse", 9, 8, 1),
    )  # fmt: skip
    row = pass_row(1, members=(), closed=None, not_reached=0)
    detail = detail_of(row)
    detail = replace(detail, decisions=(decision("x", checks=checks),))
    text = "\n".join(lines_of(detail, frozenset({0})))
    assert "off, no limit set" in text
    assert "+ extend_tokens" in text
    assert "4,464  exempt" in text
    assert "~ cached_tokens" in text
    assert "would refuse" in text
    assert "every waiting request was looked at" in text


def test_both_ladders_of_a_failed_load_are_shown():
    """Before the load failed, and after, with what was evicted in vain."""
    row = pass_row(1, closed=None)
    detail = detail_of(row)
    failed = decision("x", checks_before_load_failure=(check(LADDER_GATES[3]),), evicted=512, host_status="skipped",
                      host_reason="allocator")  # fmt: skip
    detail = replace(detail, decisions=(failed,))
    text = "\n".join(lines_of(detail, frozenset({0})))
    assert "before the load from the host failed:" in text
    assert "512 tokens evicted for it in vain" in text
    assert "host hit skipped: allocator  resident 8,192  matched 8,192  asked 8,192" in text


def test_what_can_never_fit_is_refused_in_words():
    """The reason stands out."""
    row = pass_row(1, members=(), closed=None)
    detail = detail_of(row)
    never = stop("kv_capacity", reason="can_never", observed=837_782, limit=756_736, short_by=81_046)
    detail = replace(detail, decisions=(decision("b00b", "refuse", never),))
    assert "refused  kv_capacity can_never  837,782 of 756,736, 81,046 short" in "\n".join(lines_of(detail))


def test_a_long_id_keeps_its_ends_and_its_column():
    """An id of any length and content takes its twelve cells."""
    detail = detail_of(pass_row(1))
    odd = decision("0123456789abcdef\x1b[31m")
    detail = replace(detail, decisions=(odd,))
    line = lines_of(detail)[2]
    assert "\x1b" not in line
    assert line[2:14] == "012345…?[31m"


@pytest.mark.parametrize(("ns", "words"), [
    (649_000_000, "649 ms"), (58 * 60 * SECOND + 3 * SECOND, "58 min 3 s"), (3_599 * SECOND, "59 min 59 s"),
    (2 * 3_600 * SECOND + 33 * 60 * SECOND + 24 * SECOND, "2 h 33 min"), (103 * 3_600 * SECOND, "4 d 7 h"), (None, "—"),
])  # fmt: skip
def test_a_long_time_is_told_shortly(ns, words):
    """Seconds no longer matter after an hour, nor minutes after some days."""
    assert lasting(ns) == words
