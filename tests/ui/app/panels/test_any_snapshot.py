"""Whatever a record holds, a panel shows it: no value crashes one, and none becomes markup or an escape."""

import types
from typing import Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from controller.limits import Setting
from controller.vocabulary import Gate
from tests.ui.app.panels.scenes import (
    SETTING,
    PanelApp,
    alarm,
    buffers,
    drive,
    gate_row,
    host_hits,
    knob_change,
    knob_panel,
    life,
    log_line,
    room,
    snap,
    text_of,
    waiting_row,
    window,
)
from tests.ui.app.script import settle
from ui.app.panels.buffers import BuffersPanel
from ui.app.panels.gates import GatesPanel
from ui.app.panels.hits import HitsPanel
from ui.app.panels.knobs import KnobsPanel
from ui.app.panels.log import LogPanel
from ui.app.panels.request import RequestPanel
from ui.app.panels.waiting import WaitingPanel
from ui.view import snapshot as s

PARTS = {
    WaitingPanel: ("waiting", s.WaitingRoom),
    GatesPanel: ("gates", tuple[s.GateRow, ...]),
    HitsPanel: ("hits", s.HostHits),
    BuffersPanel: ("buffers", s.Buffers),
    KnobsPanel: ("knobs", s.KnobPanel),
    RequestPanel: ("request", s.RequestPanel),
    LogPanel: ("log", s.Log),
}
FORMS = [
    (panel, small) for panel in PARTS for small in (False, True) if not (small and panel in (KnobsPanel, RequestPanel))
]
ODD = "[red]x[/red]\x1b[31m\u202e\x00\n漢字\U0001f600[@click=app.quit]y[/]"
TEXT = st.text(max_size=30) | st.sampled_from([ODD, "", *(gate.word for gate in Gate)])
NUMBER = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 100)


PLAIN = {
    int: NUMBER,
    str: TEXT,
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    type(None): st.none(),
    Setting: st.just(SETTING),
}


def values_of(hint):
    """Any value of a type that a snapshot holds."""
    if hint in PLAIN:
        return PLAIN[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(each) for each in arguments])
    if origin is not None:
        several = origin is frozenset or arguments[-1] is ...
        made = st.lists(values_of(arguments[0]), max_size=4) if several else st.tuples(*map(values_of, arguments))
        return made.map(origin)
    assert issubclass(hint, msgspec.Struct), hint
    return st.builds(hint, **{name: values_of(each) for name, each in get_type_hints(hint).items()})


def snapshots(panel):
    """Any snapshot that holds the panel's part."""
    name, part = PARTS[panel]
    return st.builds(lambda head, ask, value: s.Snapshot(ask=ask, head=head, runs=(), **{name: value}),
                     values_of(s.Head), values_of(s.Ask), values_of(part))  # fmt: skip


@pytest.mark.parametrize(("panel", "small"), FORMS)
@settings(
    max_examples=6,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(data=st.data())
def test_any_snapshot_is_shown(panel, small, data):
    """Any values whatever are shown at any size without a crash, and only printable text reaches the terminal."""
    shown = data.draw(st.lists(snapshots(panel), min_size=1, max_size=4))
    width, height = data.draw(st.sampled_from([(80, 24), (46, 8), (20, 3), (180, 50)]))
    app = PanelApp(panel(small=small), snapshot=shown[0])

    async def do(pilot):
        for each in shown[1:]:
            app.show(each)
            await settle(pilot)
            for key in ("tab", "down", "end"):
                await pilot.press(key)
        assert all(each.isprintable() for each in text_of(app.screen).split("\n"))
        app.panels[0].raw()
        app.panels[0].as_json()
        app.panels[0].as_sql()

    drive(app, do, size=(width, height))


def odd_snapshot():
    """Every text of a record that people or engines choose is odd."""
    stop = s.Stop("kv_capacity", ODD, 1, 1, 1, ODD, ODD)
    return snap(
        waiting=room(waiting_row(ODD, stop=stop, behind=ODD)),
        gates=(gate_row(ODD, why=ODD, state=ODD, knob=ODD),),
        hits=host_hits(recent=((1, ODD, ODD, 1),), skips=((ODD, 1, 1),)),
        buffers=buffers(windows=(window(ODD, ODD, 1, "1"),), phases=(ODD,), phase_bytes=(1,), smoke_device=ODD),
        knobs=knob_panel(
            changes=(knob_change(who=ODD, why=ODD, accepted=False, knob=ODD),), why_not=ODD, may_change=False
        ),
        request=s.RequestPanel(ODD, life(request=ODD, words=(ODD,)), ()),
        log=s.Log((alarm(request=ODD, detail=ODD, alarm=ODD),), 1, (log_line(1, text=ODD, request=ODD),), 0),
    )


@pytest.mark.parametrize(("panel", "small"), FORMS)
def test_texts_of_a_record_are_neither_markup_nor_escapes(panel, small):
    """Ids, reasons and names stand as they are: brackets as brackets, an escape as a mark."""
    snapshot = odd_snapshot()
    text = drive(PanelApp(panel(small=small), snapshot=snapshot), size=(200, 60))
    assert "\x1b" not in text
    assert "\u202e" not in text
    if not (small and panel in (GatesPanel, BuffersPanel)):
        assert "[red]x[/red]\N{REPLACEMENT CHARACTER}" in text or "[red]x[/red…" in text or "[red]x[/re…" in text
