"""A scripted reader and clock: a run of twelve passes made by hand, of which any moment can be asked for."""

import asyncio

import msgspec

from controller.vocabulary import LADDER_GATES, unit_of
from ui.app.direct import DirectReader
from ui.app.main import settled
from ui.app.screen import Glassgate
from ui.view import snapshot as s

SECOND = 1_000_000_000
FIRST_WALL = 1_767_225_600 * SECOND
"""2026-01-01T00:00:00Z."""
END = 125 * SECOND
GATES = ("extend_tokens", "extend_tokens", "kv_capacity", "extend_tokens", "")
NONE = s.Quantiles(None, None, None, 0)


def stop(gate="extend_tokens", **more):
    """A stop of a gate: 66,496 of 65,536, 960 short."""
    values = {
        "reason": "limit",
        "observed": 66_496,
        "limit": 65_536,
        "short_by": 960,
        "unit": "tokens",
        "request": "4f02",
    }
    return s.Stop(**{"gate": gate, **values, **more})


def pass_row(number, gate="extend_tokens", **more):
    """A pass that took 10 ms to decide, at ten seconds times its number, with two members."""
    members = (
        s.MemberBar(f"a{number}", 4_096, 8_192, 5_056, 0, "admit", 1_200_000_000),
        s.MemberBar(f"b{number}", 24_576, 0, 6_144, 0, "admit_chunk", 300_000_000),
    )
    values = {
        "start_ns": number * 10 * SECOND,
        "members": members,
        "device": 28_672,
        "loaded": 8_192,
        "computed": 11_200,
        "room": 54_336,
        "closed": stop(gate) if gate else None,
        "queue": 34,
        "not_reached": 31,
        "revision": 12,
        "decide_ns": 10_000_000,
        "step_ns": 230_000_000,
        "peak_bytes": 3 << 30,
        "repeats": 0,
    }
    return s.PassRow(number=number, **{**values, **more})


def check(gate, verdict="pass", observed=11_200, limit=65_536, short_by=None):
    """One gate of a ladder."""
    return s.CheckView(gate.word, verdict, observed, limit, short_by, unit_of(gate))


def decision(request, outcome="admit", reason=None, **more):
    """A decision whose ladder passes every gate."""
    values = {
        "prompt": 17_344,
        "done": 0,
        "output": 128,
        "extend": 5_056,
        "device": 4_096,
        "host_status": "loaded",
        "host_reason": None,
        "resident": 8_192,
        "matched": 8_192,
        "asked": 8_192,
        "evicted": 0,
        "checks": tuple(check(gate) for gate in LADDER_GATES),
    }
    return s.DecisionView(request=request, outcome=outcome, stop=reason, **{**values, **more})


def detail_of(row):
    """The pass opened: its members, and the head of the queue that was kept out."""
    decisions = [decision(member.request, member.outcome) for member in row.members]
    if row.closed is not None:
        ladder = (
            *(check(gate) for gate in LADDER_GATES[:4]),
            check(LADDER_GATES[4], "refuse", 66_496, 65_536, 960),
            *(check(gate, "not_evaluated", None, None) for gate in LADDER_GATES[5:]),
        )
        decisions.append(decision("4f02", "wait", row.closed, checks=ladder))
    return s.PassDetail(
        row=row, decisions=tuple(decisions), free=120_000, evictable=80_000, reserved=9_000, running=12,
        quota_after=100_000, room_after=54_336, lanes=(), parts=(("scores", 2 << 30), ("attention", 1 << 30)),
        raw=f'{{"number": {row.number}}}',
    )  # fmt: skip


def head(**more):
    """The headline of a live run at its end."""
    values = {
        "run": "7f3a0000",
        "rank": 0,
        "engine": "sglang",
        "version": "0.5.23",
        "model": "glm-5",
        "simulated": False,
        "presence": "live",
        "at_ns": END,
        "wall_ns": FIRST_WALL + END,
        "first_ns": 0,
        "last_ns": END,
        "last_pass": 12,
        "last_pass_age_ns": 100_000_000,
        "revision": 12,
        "queue": 37,
        "running": 12,
        "ttft": s.Quantiles(1_900_000_000, 7_400_000_000, 9_000_000_000, 400),
        "queue_time": s.Quantiles(400_000_000, 5_000_000_000, 6_000_000_000, 400),
        "binding": s.Binding(stop(), 100 * SECOND, 0.62, 2_113),
        "strip": tuple(
            s.Slice(each * SECOND, (each + 1) * SECOND, GATES[each % 5], 7, each == 60) for each in range(0, 120, 1)
        ),
        "passes_in_window": 2_113,
        "changes_ns": (60 * SECOND,),
    }
    return s.Head(**{**values, **more})


def run_choice(key, **more):
    """A run that can be chosen."""
    values = {"run": f"run{key}", "rank": 0, "engine": "sglang", "model": "glm-5", "started_wall_ns": FIRST_WALL}
    return s.RunChoice(key=key, **{**values, "presence": "ended", "passes": 12, **more})


class Script:
    """Answers every ask as a run of these passes would, and keeps what was asked."""

    def __init__(self, rows=None, **of_head):
        self.asked = []
        self.of_head = of_head
        self.parts = {}
        self.rows = rows if rows is not None else [pass_row(each, GATES[each % 5]) for each in range(12, 0, -1)]
        self.closed = False

    @property
    def ask(self):
        """The last ask."""
        return self.asked[-1]

    def answer(self, ask):
        """What the run says of it."""
        self.asked.append(ask)
        sought = ""
        if ask.seek:
            at_ns = self._sought(ask)
            sought = "" if at_ns is not None else f"there is no such {ask.seek}"
            ask = msgspec.structs.replace(ask, seek="", at_ns=ask.at_ns if at_ns is None else at_ns)
        rows = [row for row in self.rows if ask.at_ns is None or row.start_ns <= ask.at_ns]
        newer = len(rows)
        if ask.passes_before is not None:
            rows = [row for row in rows if row.number < ask.passes_before]
        newer -= len(rows)
        shown = rows[: ask.rows]
        opened = next((row for row in rows if row.number == ask.open_pass), rows[0] if rows else None)
        values = {"at_ns": END if ask.at_ns is None else ask.at_ns, "following": ask.at_ns is None, **self.of_head}
        if values["at_ns"] is not None and "wall_ns" not in values:
            values["wall_ns"] = FIRST_WALL + values["at_ns"]
        live = "live" in ask.panels
        return s.Snapshot(
            ask=ask,
            head=head(**values),
            runs=(run_choice(1, run="7f3a0000", presence="live"), run_choice(2)),
            passes=tuple(shown) if live else (),
            older_passes=len(rows) > len(shown),
            newer_passes=newer > 0,
            detail=detail_of(opened) if live and opened is not None else None,
            sought=sought,
            **self.parts,
        )

    def _sought(self, ask):
        from_ns = END + 1 if ask.at_ns is None else ask.at_ns
        over = [(row.start_ns + row.decide_ns, row) for row in self.rows]
        if ask.seek == "stop":
            over = [(at, row) for at, row in over if row.closed is not None and ask.seek_gate in ("", row.closed.gate)]
        if ask.seek_back:
            return max((at for at, _ in over if at < from_ns), default=None)
        return min((at for at, _ in over if at > from_ns), default=None)

    def close(self):
        """The screen has ended."""
        self.closed = True


class ScriptedClock:
    """A clock that stands until it is moved."""

    def __init__(self):
        self.now = 1_000 * SECOND

    def monotonic_ns(self):
        """The reading."""
        return self.now

    def wall_ns(self):
        """The run's end, and what has passed since the clock was made."""
        return FIRST_WALL + END + self.now - 1_000 * SECOND


class Later(DirectReader):
    """A reader that answers again a second later."""

    def __init__(self, script, clock):
        super().__init__(script)
        self._clock = clock

    def again(self):
        """Answer the same a second later."""
        self._clock.now += SECOND
        super().again()


def screen(script=None, clock=None, **more):
    """The app on a script, with its reader in `app.reader` and the clock in `app.clock`."""
    script, clock = script or Script(), clock or ScriptedClock()
    reader = Later(script, clock)
    app = Glassgate(reader, clock=clock, **more)
    app.script = script
    app.reader = reader
    return app


def drive(app, do=None, size=(120, 35)):
    """Run the app at that size, let `do(pilot)` act, and give back the text on the screen."""

    async def run():
        async with app.run_test(size=size) as pilot:
            await settle(pilot)
            if do is not None:
                await do(pilot)
                await settle(pilot)
            return text_of(app)

    return asyncio.run(run())


async def settle(pilot):
    """Wait until all is mounted and drawn."""
    await settled(pilot.app, pilot)


async def still(pilot):
    """Wait until what is readable has been the same for a while: a picture is taken of a screen that stands."""
    await settle(pilot)
    seen, looks = text_of(pilot.app), 0
    while looks < 4:
        await pilot.pause(0.03)
        await settle(pilot)
        text = text_of(pilot.app)
        looks = looks + 1 if text == seen else 0
        seen = text


def text_of(app):
    """What is readable on the screen."""
    size = app.screen.size
    lines = app.screen._compositor.render_strips(size)
    return "\n".join("".join(segment.text for segment in line).rstrip() for line in lines)


def line_with(text, word):
    """The first line that has a word in it."""
    found = [line for line in text.splitlines() if word in line]
    assert found, (word, text)
    return found[0]
