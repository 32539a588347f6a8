"""Two runs beside each other: every batch in one row, in order on both sides, with the one that goes with it."""

from hypothesis import given
from hypothesis import strategies as st

from ui.view.alignment import NEAR_NS, SAME_NS, Batch, Row, align, parts, rows_of

S = 1_000_000_000


def batch(number, start_ns, members=("a",), **more):
    """A batch that computed 1,000 tokens and that nothing closed."""
    values = {"device": 0, "loaded": 0, "computed": 1_000, "gate": "", "reason": ""}
    return Batch(number, start_ns, tuple(members), **{**values, **more})


@st.composite
def runs(draw):
    """A run: batches of one to three of five requests, in time."""
    starts = sorted(draw(st.lists(st.integers(0, 40 * S), max_size=25)))
    members = st.lists(st.sampled_from("abcde"), min_size=1, max_size=3, unique=True)
    return [batch(number + 1, at, draw(members)) for number, at in enumerate(starts)]


@given(runs(), runs())
def test_every_batch_stands_in_one_row_in_its_order(left, right):
    """However many there are on either side, none is lost, none comes twice, and none overtakes another."""
    rows = align(left, right)
    assert [i for i, _ in rows if i is not None] == list(range(len(left)))
    assert [j for _, j in rows if j is not None] == list(range(len(right)))
    assert (None, None) not in rows


@given(runs(), runs())
def test_a_pair_is_near_in_time(left, right):
    """What stands in one row began within ten seconds, or within one where it is paired by its members."""
    for i, j in align(left, right):
        if i is not None and j is not None:
            assert abs(left[i].start_ns - right[j].start_ns) <= NEAR_NS


@given(runs(), runs())
def test_nothing_stands_alone_that_has_a_free_neighbour(left, right):
    """Between two pairs there are no lone batches of both sides that are near: they would be a pair."""
    lefts, rights = [], []
    for i, j in [*align(left, right), (0, 0)]:
        if i is None:
            rights.append(right[j].start_ns)
        elif j is None:
            lefts.append(left[i].start_ns)
        else:
            assert all(abs(one - other) > NEAR_NS for one in lefts for other in rights)
            lefts, rights = [], []


@given(runs())
def test_a_run_beside_itself_parts_nowhere(run):
    """Every batch stands beside itself, and no row parts."""
    assert align(run, run) == [(at, at) for at in range(len(run))]
    assert all(not row.parts for row in rows_of(run, run))


@given(runs(), st.integers(0, SAME_NS))
def test_the_same_batches_a_little_later_are_the_same(run, shift_ns):
    """A run that is held up by up to a second is aligned by its members, as far as a member does not come back."""
    distinct = [batch(each.number, each.start_ns, (f"r{each.number}",)) for each in run]
    later = [batch(each.number, each.start_ns + shift_ns, each.members) for each in distinct]
    assert align(distinct, later) == [(at, at) for at in range(len(run))]


@given(runs(), st.integers(1, 9))
def test_more_batches_on_one_side_leave_the_others_where_they_are(run, count):
    """Batches that the other run does not have, long after, stand alone; all before them stay paired."""
    last = run[-1].start_ns if run else 0
    more = [batch(900 + at, last + 2 * NEAR_NS + at * S, ("z",)) for at in range(count)]
    paired, alone = [(at, at) for at in range(len(run))], range(len(run), len(run) + count)
    assert align([*run, *more], run) == [*paired, *((at, None) for at in alone)]
    assert align(run, [*run, *more]) == [*paired, *((None, at) for at in alone)]


def test_one_batch_in_place_of_two_stands_beside_the_nearer():
    """Where a larger batch takes the place of two, it stands beside the one that began with it."""
    left = [batch(1, 0, "a"), batch(2, 2 * S, "b"), batch(3, 4 * S, "c")]
    right = [batch(1, 0, "ab"), batch(2, 4 * S + 50, "c")]
    assert align(left, right) == [(0, 0), (1, None), (2, 1)]


def test_what_two_batches_part_in():
    """Members whatever their order, tokens, gate, verdict of those that stayed out; or all of it, alone."""
    one = batch(1, 0, "ab", told=(("c", "wait", "extend_tokens", "limit"),))
    assert parts(one, batch(9, 5, "ba", told=one.told)) == ()
    assert parts(one, batch(9, 5, "abd", told=one.told)) == ("members",)
    assert parts(one, batch(9, 5, "ab", computed=7, told=one.told)) == ("tokens",)
    assert parts(one, batch(9, 5, "ab", gate="kv_capacity", reason="pool", told=one.told)) == ("gate",)
    told = (("c", "refuse", "kv_capacity", "can_never"),)
    assert parts(one, batch(9, 5, "ab", told=told)) == ("verdict",)
    assert parts(one, batch(9, 5, "ab")) == ("verdict",)
    assert parts(one, batch(9, 5, "a")) == ("members",)
    assert parts(one, batch(9, 5, "a", told=told)) == ("members", "verdict")
    assert parts(one, None) == ("alone",)
    assert Row(None, one, ("alone",)).start_ns == 0
