"""The window's counts, against SQL over the whole recording."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ui.view.showing import S
from ui.view.bucket import Timed
from ui.view.moment import BUCKET_NS, BUCKETS
from ui.view.quantiles import quantiles
from ui.view.repeats import last_repeat_ns, repeated_by

WINDOW = BUCKET_NS * BUCKETS
MOMENTS = (20, 61.5, 140, 178.7, 299.9, 300, 301, 430.2, 515.1, 612)


def from_ns(at_ns):
    """Where the window of a moment begins."""
    return (at_ns // BUCKET_NS - BUCKETS + 1) * BUCKET_NS


@pytest.mark.parametrize("seconds", MOMENTS)
def test_passes_are_counted_with_their_repeats(show, sql, seconds):
    """The strip, the gates and the headline count the same passes: those that SQL counts, repeats by their time."""
    snapshot = show(seconds)
    at_ns = snapshot.head.at_ns
    ((whole,),) = sql("SELECT count(*) FROM passes WHERE start_ns BETWEEN ? AND ?", from_ns(at_ns), at_ns)
    repeats = sum(
        repeated_by(at_ns, *row) - repeated_by(from_ns(at_ns) - 1, *row)
        for row in sql("SELECT count, first_ns, last_ns FROM repeats")
    )
    assert snapshot.head.passes_in_window == sum(cell.passes for cell in snapshot.head.strip) == whole + repeats
    stops = {row.gate: row.stops for row in snapshot.gates}
    nothing = whole + repeats - sum(stops.values())
    open_ended = "SELECT count(*) FROM passes WHERE closed_gate IS NULL AND start_ns BETWEEN ? AND ?"
    ((closed_by_nothing,),) = sql(open_ended, from_ns(at_ns), at_ns)
    assert nothing == closed_by_nothing
    for row in snapshot.gates:
        assert row.share == pytest.approx(row.stops / (whole + repeats))


@pytest.mark.parametrize("seconds", MOMENTS)
def test_waits_and_first_tokens_are_those_of_the_window(show, sql, seconds):
    """Percentiles rest on every request that entered in the window, and are the values of those ranks."""
    head = show(seconds).head
    at_ns = head.at_ns
    waits = sorted(
        row[0]
        for row in sql(
            "SELECT admit_ns - arrival_ns FROM requests WHERE admit_ns BETWEEN ? AND ?", from_ns(at_ns), at_ns
        )
    )
    assert head.queue_time.count == len(waits)
    for percent, value in ((50, head.queue_time.p50_ns), (95, head.queue_time.p95_ns), (99, head.queue_time.p99_ns)):
        assert value == waits[-(-len(waits) * percent // 100) - 1]
    tokens = sql(
        """SELECT q.first_token_ns - q.arrival_ns FROM requests q JOIN steps s ON s.end_ns = q.first_token_ns
        AND s.first_tokens > 0 JOIN passes p ON p.number = s.pass
        WHERE p.start_ns >= ? AND q.first_token_ns <= ?""",
        from_ns(at_ns),
        at_ns,
    )
    assert head.ttft.count == len(tokens)


@pytest.mark.parametrize("seconds", MOMENTS)
def test_the_funnel_is_that_of_requests_that_entered(show, sql, seconds):
    """Resident, matched, asked, loaded, and what was skipped add up over the decisions that let a request enter."""
    hits = show(seconds).hits
    at_ns = round(seconds * S)
    where = """FROM decisions d JOIN passes p ON p.number = d.pass JOIN host_hits h ON h.id = d.host_hit
        WHERE d.outcome < 2 AND d.done_tokens = 0 AND p.start_ns BETWEEN ? AND ?"""
    ((resident, matched, asked, loaded),) = sql(
        f"""SELECT coalesce(sum(resident_tokens), 0), coalesce(sum(matched_tokens), 0), coalesce(sum(asked_tokens), 0),
        coalesce(sum(CASE d.host_hit WHEN 1 THEN asked_tokens ELSE 0 END), 0) {where}""",
        from_ns(at_ns),
        at_ns,
    )
    funnel = hits.funnel
    assert (funnel.resident, funnel.matched, funnel.asked, funnel.loaded) == (resident, matched, asked, loaded)
    assert funnel.used <= funnel.loaded
    skipped = sql(
        f"""SELECT h.host_hit, sum(matched_tokens), count(*) {where}
        AND d.host_hit BETWEEN 2 AND 8 AND matched_tokens > 0 GROUP BY 1""",
        from_ns(at_ns),
        at_ns,
    )
    assert sorted(hits.skips) == sorted(skipped)
    assert hits.recomputed == sum(tokens for _, tokens, _ in skipped)
    assert sum(loaded for _, loaded, _ in hits.trend) == funnel.loaded
    assert sum(skipped for _, _, skipped in hits.trend) == hits.recomputed
    assert len(hits.recent) == sum(decisions for _, _, decisions in hits.skips)


def test_at_the_end_everything_loaded_was_used(show):
    """When every batch has been computed, what was loaded for it counts as used."""
    funnel = show().hits.funnel
    assert funnel.used == funnel.loaded > 0


@pytest.mark.parametrize("seconds", MOMENTS)
def test_the_largest_estimates_are_those_of_the_batches(show, sql, seconds):
    """Each point of the buffers is the largest estimate of its stretch with parts that add up to it."""
    snapshot = show(seconds)
    at_ns = snapshot.head.at_ns
    largest = dict(
        sql(
            f"""SELECT start_ns / {BUCKET_NS} * {BUCKET_NS}, max(peak_bytes) FROM passes
            WHERE members > 0 AND start_ns BETWEEN ? AND ? GROUP BY 1""",
            from_ns(at_ns),
            at_ns,
        )
    )
    points = {point.at_ns: point.peak for point in snapshot.buffers.points if point.peak is not None}
    assert points == largest
    for point in snapshot.buffers.points:
        assert sum(size for _, size in point.parts) == (point.peak or 0)
    assert snapshot.buffers.most == max(largest.values())


def test_headroom_is_the_least_of_each_stretch(show, sql):
    """The headroom of a gate in a stretch is what its fullest pass left of the limit then in force."""
    snapshot = show(140)
    rows = {row.gate: row for row in snapshot.gates}
    for place, cell in enumerate(snapshot.head.strip):
        values = sql(
            "SELECT max(members), max(extend_tokens), min(room_after) FROM passes WHERE start_ns BETWEEN ? AND ?",
            cell.from_ns,
            min(cell.to_ns - 1, 140 * S),
        )[0]
        if values[0] is None:
            assert rows["request_count"].headroom[place] is None
            continue
        assert rows["request_count"].headroom[place] == pytest.approx(1 - values[0] / 4)
        assert rows["extend_tokens"].headroom[place] == pytest.approx(max(0, 1 - values[1] / 6_144))
        assert rows["kv_capacity"].headroom[place] == pytest.approx(max(0, values[2]) / 90_112)


@given(st.lists(st.lists(st.integers(min_value=0, max_value=10**12), max_size=30), max_size=12))
def test_quantiles_are_those_of_all_values_together(parts):
    """Percentiles over sorted parts are those of the values put together."""
    timed = [Timed() for _ in parts]
    for each, values in zip(timed, parts, strict=True):
        for value in values:
            each.add(0, value)
    found = quantiles([each.sorted_by(0) for each in timed])
    together = sorted(value for values in parts for value in values)
    assert found.count == len(together)
    ranks = [-(-len(together) * percent // 100) - 1 for percent in (50, 95, 99)]
    expected = [together[rank] for rank in ranks] if together else [None] * 3
    assert [found.p50_ns, found.p95_ns, found.p99_ns] == expected


@given(
    values=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 1_000))),
    at_ns=st.integers(-1, 101),
)
def test_timed_values_are_known_from_their_time_on(values, at_ns):
    """Sums and sorted values hold what was known by a moment, whenever they are asked for."""
    timed = Timed()
    for known_ns, value in values:
        timed.add(known_ns, value)
        timed.sorted_by(100)
    known = [value for known_ns, value in values if known_ns <= at_ns]
    assert timed.sum_by(at_ns) == sum(known)
    assert list(timed.sorted_by(at_ns)) == sorted(known)


@given(
    count=st.integers(1, 50),
    first_ns=st.integers(0, 1_000),
    length=st.integers(0, 10_000),
    at_ns=st.integers(0, 12_000),
)
def test_repeats_come_evenly_and_never_before_their_time(count, first_ns, length, at_ns):
    """So many repeats have come by a moment: none before the first, all by the last, never fewer later."""
    last_ns = first_ns + (length if count > 1 else 0)
    come = repeated_by(at_ns, count, first_ns, last_ns)
    assert 0 <= come <= count
    assert (come == 0) == (at_ns < first_ns)
    assert repeated_by(last_ns, count, first_ns, last_ns) == count
    assert repeated_by(at_ns + 1, count, first_ns, last_ns) >= come
    last = last_repeat_ns(at_ns, count, first_ns, last_ns)
    assert last is None if come == 0 else first_ns <= last <= min(at_ns, last_ns)
