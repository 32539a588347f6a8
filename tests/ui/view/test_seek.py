"""Seeking goes to the nearest pass, stop, knob change or alarm, and says where that is."""

import pytest

from tests.ui.view.showing import S
from ui.view.snapshot import Ask

LIVE = frozenset({"live"})


@pytest.mark.parametrize("back", [False, True])
def test_stepping_meets_every_pass_once(open_view, sql, back):
    """Step by step every time at which a pass began is come to, in order."""
    view = open_view()
    times = sorted({row[0] for row in sql("SELECT start_ns FROM passes")}, reverse=back)
    at_ns, met = (None if back else -1), []
    while True:
        answer = view.answer(Ask(panels=LIVE, at_ns=at_ns, seek="pass", seek_back=back))
        assert answer.ask.seek == ""
        if answer.sought:
            break
        at_ns = answer.ask.at_ns
        met.append(at_ns)
        assert answer.head.at_ns == at_ns == answer.passes[0].start_ns
    assert met == times
    assert answer.sought == f"no pass {'before' if back else 'after'} this moment"
    assert answer.ask.at_ns == at_ns


@pytest.mark.parametrize(
    ("what", "gate", "sql_of"),
    [
        ("stop", "", "SELECT start_ns FROM passes WHERE closed_gate IS NOT NULL"),
        ("stop", "buffer_bytes", "SELECT start_ns FROM passes WHERE closed_gate = 6"),
        ("knob", "", "SELECT at_ns FROM knob_changes"),
        ("fault", "", "SELECT opened_ns FROM alarms"),
    ],
)
def test_events_are_found_in_both_directions(open_view, sql, what, gate, sql_of):
    """From any moment the nearest event of a kind is the one SQL finds."""
    view = open_view()
    times = sorted({row[0] for row in sql(sql_of)})
    for seconds in (0, 100, 153.9, 300, 611):
        at_ns = int(seconds * S)
        for back in (False, True):
            wanted = [each for each in times if (each < at_ns if back else each > at_ns)]
            answer = view.answer(Ask(at_ns=at_ns, seek=what, seek_gate=gate, seek_back=back))
            if wanted:
                assert answer.ask.at_ns == (wanted[-1] if back else wanted[0])
            else:
                assert answer.ask.at_ns == at_ns
                assert answer.sought


def test_what_is_not_found_is_named(open_view):
    """A stop of a gate that never comes is named."""
    answer = open_view().answer(Ask(at_ns=600 * S, seek="stop", seek_gate="cached_tokens"))
    assert answer.sought == "no pass that cached_tokens closed after this moment"


@pytest.mark.parametrize("at_ns", [-(1 << 63), (1 << 63) - 1])
def test_the_ends_of_time_can_be_asked_for(open_view, at_ns):
    """A moment that no run's clock shows is answered like any other."""
    answer = open_view().answer(Ask(panels=frozenset({"live", "gates", "waiting", "buffers"}), at_ns=at_ns))
    assert answer.head is not None
