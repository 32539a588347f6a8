"""Hand-made snapshots, and a tiny app that holds panels as the screen does and keeps what they ask for."""

import asyncio
import math

from textual.app import App, ComposeResult
from textual.message import Message
from textual.widget import Widget

from controller.knobs import SPEC_BY_NAME, Knobs
from controller.limits import Setting, explain
from tests.ui.app import script
from ui.app.colours import theme_name, themes
from ui.app.panel import Panel
from ui.view import snapshot as s

SECOND = 1_000_000_000
NOW = 400 * SECOND
GIB = 1 << 30
SETTING = Setting(context_parallel=True, lanes=8, slots=2048)
KNOBS = Knobs(
    shared_kv_batching=True,
    max_extend_tokens=65_536,
    max_buffer_bytes=4 * GIB,
    chunked_prefill_size=131_072,
    page_size=64,
)


def head(**more):
    """A headline of a live run at 400 s, five minutes of passes behind it."""
    values = {
        "run": "7f3a0000",
        "rank": 0,
        "engine": "replay",
        "version": "1",
        "model": "deepseek-v3.2",
        "simulated": True,
        "presence": "live",
        "at_ns": NOW,
        "wall_ns": None,
        "first_ns": 0,
        "last_ns": NOW,
        "last_pass": 18_204,
        "last_pass_age_ns": SECOND // 10,
        "revision": 12,
        "queue": 37,
        "running": 20,
        "ttft": s.Quantiles(None, None, None, 0),
        "queue_time": s.Quantiles(None, None, None, 0),
        "binding": None,
        "strip": tuple(s.Slice(each * SECOND, (each + 5) * SECOND, "extend_tokens", 9) for each in range(100, 400, 5)),
        "passes_in_window": 2_113,
    }
    return s.Head(**{**values, **more})


def snap(**parts):
    """A snapshot of these parts."""
    return s.Snapshot(ask=parts.pop("ask", s.Ask()), head=parts.pop("head", head()), runs=(), **parts)


def waiting_row(request, **more):
    """A row of the waiting room: held by extend_tokens for 0.4 s."""
    values = {
        "request": request,
        "number": 1,
        "arrival_ns": NOW - 2 * SECOND,
        "waited_ns": 2 * SECOND,
        "stop": s.Stop("extend_tokens", "limit", 66_496, 65_536, 960, "tokens", request),
        "since_ns": NOW - 4 * SECOND // 10,
        "behind": None,
        "attempts": 3,
        "overtaken": 2,
        "needs": 5_056,
        "prompt": 9_000,
        "never": False,
    }
    return s.WaitingRow(**{**values, **more})


def never_row(request, **more):
    """A row of the waiting room that can never fit."""
    stop = s.Stop("kv_capacity", "can_never", 837_782, 756_736, 81_046, "tokens", request)
    return waiting_row(request, **{"stop": stop, "never": True, "needs": 837_782, **more})


def room(*rows, **more):
    """A waiting room of these rows."""
    return s.WaitingRoom(**{"rows": rows, "total": len(rows), "offset": 0, "never_in_window": 0, **more})


def gate_row(gate, **more):
    """A row of the gates: nothing stopped, half of the limit left."""
    values = {
        "gate": gate,
        "unit": "tokens",
        "stops": 0,
        "share": 0.0,
        "headroom": tuple(None if each % 17 == 3 else 0.5 + 0.4 * math.sin(each / 5) for each in range(60)),
        "observed": 30_720,
        "limit": 65_536,
        "knob": None,
        "set_to": None,
        "effective": None,
        "state": "",
        "why": "",
        "last_stop_ns": None,
    }
    return s.GateRow(**{**values, **more})


def ladder():
    """The nine gates: extend_tokens binds and is clamped, cached_tokens is off."""
    clamped = {
        "knob": "max_extend_tokens",
        "set_to": 131_072,
        "effective": 65_536,
        "state": "clamped",
        "why": "by the chunk",
    }
    raised = {"set_to": 16_384, "effective": 65_536, "state": "raised", "why": "to the effective extend limit"}
    off = {"limit": None, "headroom": (), "observed": None, "state": "off"}
    return (
        gate_row("batch_mode", unit="requests", knob="shared_kv_batching", set_to=True, effective=True, limit=None),
        gate_row("request_slots", unit="slots", observed=312, limit=2_048),
        gate_row("request_count", unit="requests", knob="max_requests", stops=3, share=0.0014, observed=5, limit=8),
        gate_row("kv_capacity", stops=444, share=0.21, observed=1_100_000, limit=1_200_000, last_stop_ns=NOW - SECOND),
        gate_row("extend_tokens", stops=1_310, share=0.62, observed=61_440, last_stop_ns=NOW - 3 * SECOND, **clamped),
        gate_row("cached_tokens", knob="max_cached_tokens", **off),
        gate_row("buffer_bytes", unit="bytes", knob="max_buffer_bytes", observed=2 * GIB, limit=4 * GIB),
        gate_row("input_tokens", knob="max_prefill_tokens", **raised),
        gate_row("chunk_tokens", knob="chunked_prefill_size", set_to=131_072, effective=131_072, state="as set"),
    )


def host_hits(**more):
    """The host cache: 812,000 tokens resident, two reasons to skip, 40 skips."""
    values = {
        "funnel": s.Funnel(812_000, 790_000, 641_000, 598_000, 598_000),
        "skips": (("quota", 31_000, 98), ("below_threshold", 12_000, 4)),
        "recomputed": 43_000,
        "trend": tuple(
            (each * SECOND, int(9_000 + 8_000 * math.sin(each / 4)), int(2_000 + 2_000 * math.sin(each / 3)))
            for each in range(60)
        ),
        "recent": tuple(
            (18_200 - each, f"s{each}.t4", ("quota", "owner_lane")[each % 2], 1_000 + each * 77) for each in range(40)
        ),
    }
    return s.HostHits(**{**values, **more})


PHASES = ("prepare", "embed", "index_score", "index_topk", "attn", "mlp", "final_gather", "logits")


def buffer_point(place):
    """A stretch of five seconds; in some no batch ran."""
    at_ns = (100 + 5 * place) * SECOND
    if place % 19 == 4:
        return s.BufferPoint(at_ns, None, ())
    share = 0.6 + 0.4 * math.sin(place / 6)
    parts = (("scores", int(1.6 * GIB * share)), ("attention", int(GIB * share)), ("mlp", int(0.4 * GIB)))
    return s.BufferPoint(at_ns, sum(held for _, held in parts), parts)


def window(name, stream, gib, alive):
    """A buffer of the last batch; `alive` has a 1 for each phase in which it is."""
    return s.WindowBar(name, stream, int(gib * GIB), tuple(each == "1" for each in alive))


def buffers(**more):
    """Estimates under a limit of 4 GiB, and a smoke allocation that passed."""
    points = tuple(buffer_point(each) for each in range(60))
    values = {
        "points": points,
        "limit": 4 * GIB,
        "safety_percent": 110,
        "smoke_asked": 4 * GIB,
        "smoke_peak": 4 * GIB + 100_000_000,
        "smoke_device": "cuda:0",
        "smoke_passed": True,
        "last": points[-1].peak,
        "most": max(each.peak or 0 for each in points),
        "phases": PHASES,
        "phase_bytes": tuple(int(each * GIB) for each in (0.1, 0.5, 2.3, 2.2, 1.7, 0.4, 0.4, 0.05)),
        "windows": (
            window("index scores", "compute", 1.6, "00110000"),
            window("mla prefill", "compute", 1.0, "00001000"),
            window("gathered hidden", "gather", 0.4, "01111110"),
            window("next layer keys", "prefetch", 0.2, "00111100"),
            window("load-back", "transfer", 0.1, "11110000"),
        ),
        "of_pass": 18_204,
    }
    return s.Buffers(**{**values, **more})


def knob_panel(knobs=KNOBS, **more):
    """The knobs of a run on the shared path, as the controller explains them."""
    rows = tuple(
        s.KnobRow(
            name=each.name,
            unit=each.unit,
            kind=SPEC_BY_NAME[each.name].kind,
            gate=SPEC_BY_NAME[each.name].gate,
            bounds=SPEC_BY_NAME[each.name].bounds,
            set_to=each.set_to,
            effective=each.effective,
            state=each.state,
            why=each.why,
            changed_ns=NOW - 60 * SECOND if each.name == "max_extend_tokens" else None,
            changed_by="alice@box" if each.name == "max_extend_tokens" else None,
        )
        for each in explain(knobs, SETTING)
    )
    values = {"revision": 12, "knobs": rows, "changes": (), "may_change": True, "why_not": "", "setting": SETTING}
    return s.KnobPanel(**{**values, **more})


def knob_change(**more):
    """A change that was accepted a minute ago."""
    values = {
        "at_ns": NOW - 60 * SECOND,
        "who": "alice@box",
        "revision": 12,
        "knob": "max_extend_tokens",
        "old": 32_768,
        "new": 65_536,
        "accepted": True,
        "why": "",
        "request": "r1",
    }
    return s.ChangeRow(**{**values, **more})


def life(**more):
    """A request that stood behind one gate, was held by another, and decodes."""
    values = {
        "request": "s95.t12",
        "words": ("request s95.t12 of run 7f3a0000", "waited 51.0 s, of which", "  40.0 s behind input_tokens"),
        "spans": (
            s.LifeSpan(100 * SECOND, 140 * SECOND, "behind", "input_tokens"),
            s.LifeSpan(140 * SECOND, 150 * SECOND, "held", "extend_tokens"),
            s.LifeSpan(150 * SECOND, 151 * SECOND, "between passes", None),
            s.LifeSpan(151 * SECOND, 158 * SECOND, "computing", None),
            s.LifeSpan(158 * SECOND, 170 * SECOND, "decoding", None),
        ),
        "passes": (1_040, 1_049, 1_050),
        "raw": '{"number": 95}',
    }
    return s.RequestLife(**{**values, **more})


def alarm(**more):
    """An alarm that stands for 99 s."""
    values = {
        "number": 1,
        "alarm": "long_wait",
        "state": "open",
        "opened_ns": NOW - 99 * SECOND,
        "last_ns": NOW,
        "closed_ns": None,
        "count": 40,
        "measured": 99 * SECOND,
        "threshold": 60 * SECOND,
        "unit": "ns",
        "request": "b00b",
        "gate": "extend_tokens",
        "detail": "40 looks",
        "meaning": "One request is told to wait for one reason for so long.",
    }
    return s.AlarmRow(**{**values, **more})


def log_line(place, **more):
    """A line of the log; every third is a fault, of a pass and a request."""
    values = {
        "at_ns": NOW - place * SECOND,
        "kind": ("knob", "refuse", "run")[place % 3],
        "text": f"event {place} happened",
        "fault": place % 3 == 1,
        "pass_number": 18_000 - place if place % 3 == 1 else None,
        "request": f"r{place}" if place % 3 else None,
        "raw": f'{{"event": {place}}}',
    }
    return s.LogLine(**{**values, **more})


def log(*alarms, lines=30, hidden=0):
    """Alarms, and so many lines."""
    standing = sum(each.closed_ns is None for each in alarms)
    return s.Log(alarms, standing, tuple(log_line(each) for each in range(lines)), hidden)


class BareApp(App[None]):
    """An app in the screen's colours; what it holds is mounted with it."""

    def __init__(self) -> None:
        super().__init__()
        self.complete = asyncio.Event()
        for theme in themes():
            self.register_theme(theme)
        self.theme = theme_name("dark")

    def on_mount(self) -> None:
        """All is there."""
        self.complete.set()


class PanelApp(BareApp):
    """Holds panels as the screen does and keeps the messages they post."""

    CSS = ".panel { border-top: solid $foreground; padding: 0 1; }"

    def __init__(self, *panels: Panel, snapshot: s.Snapshot | None = None, readonly: bool = False) -> None:
        super().__init__()
        self.panels = panels
        self.first = snapshot
        self.readonly = readonly
        self.posted: list[Message] = []

    def compose(self) -> ComposeResult:
        """The panels, under each other."""
        yield from self.panels

    def on_mount(self) -> None:
        """Show them the first snapshot."""
        if self.first is not None:
            self.show(self.first)

    def show(self, snapshot: s.Snapshot) -> None:
        """Give every panel a snapshot."""
        for panel in self.panels:
            panel.show(snapshot)

    def on_posted(self, message: Message) -> None:
        """Keep what a panel asked for."""
        self.posted.append(message)

    on_open_request = on_open_pass = on_next_event = on_posted
    on_search_request = on_filter_waiting = on_filter_log = on_posted

    @property
    def asked(self):
        """What was asked for, as (kind, values)."""
        names = ("request", "number", "gate", "text", "offset", "faults_only")
        return [
            (type(each).__name__, *(getattr(each, name) for name in names if hasattr(each, name)))
            for each in self.posted
        ]


def text_of(widget: Widget) -> str:
    """What is readable on the screen where a widget is."""
    screen, region = widget.screen, widget.region
    lines = ["".join(segment.text for segment in strip) for strip in screen._compositor.render_strips(screen.size)]
    return "\n".join(line[region.x : region.right].rstrip() for line in lines[region.y : region.bottom])


def drive(app, do=None, size=(80, 24)):
    """Run an app of that size, let `do(pilot)` do something, and give back what is on the screen then."""
    return script.drive(app, do, size)


def line_with(text, word):
    """The only line of a text that has a word in it."""
    found = [line for line in text.splitlines() if word in line]
    assert len(found) == 1, (word, text)
    return found[0]
