"""The line under the headline that says what is wrong or missing; it takes no room while nothing is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.content import Content
from textual.widget import Widget

from ui.app.colours import PRESENCES, WARN
from ui.app.moments import SECOND, age, clock, wall_of

if TYPE_CHECKING:
    from textual.geometry import Size

    from ui.view.snapshot import Head, Snapshot


_MOST: Final = 4


class Notice(Widget):
    """As many lines as the words take, four at most; none while nothing is wrong. Words left out show as `…`."""

    DEFAULT_CSS = """
    Notice { height: auto; padding: 0 1; display: none; }
    Notice.shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__()
        self.words = Content("")

    def say(self, words: Content) -> None:
        """Say it, or nothing."""
        if not words.is_same(self.words):
            self.words = words
            self.set_class(bool(words), "shown")
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Lines that the words take."""
        del container, viewport
        return len(self._lines(width))

    def render(self) -> Content:
        """The words."""
        return Content("\n").join(self._lines(self.content_size.width))

    def _lines(self, width: int) -> list[Content]:
        lines = self.words.wrap(width) if width > 0 else []
        if len(lines) <= _MOST:
            return lines
        last = lines[_MOST - 1].rstrip()
        return [*lines[: _MOST - 1], last.truncate(width - 1) + "…"]


def notice_of(snapshot: Snapshot | None, words: str, wall_ns: int) -> Content:
    """What is to be said of a snapshot: the engine or collector that is gone first, then what could not be read."""
    parts: list[Content] = []
    if snapshot is not None:
        gone = _gone(snapshot.head, wall_ns)
        if gone:
            mark = PRESENCES[snapshot.head.presence]
            parts.append(Content.assemble((f" {mark.sign} {mark.word} ", mark.style), f" {gone}"))
    if words:
        parts.append(Content(words))
    if snapshot is not None:
        if snapshot.problem:
            parts.append(Content.assemble(("cannot read: ", WARN), snapshot.problem))
        if snapshot.missing:
            parts.append(Content(snapshot.missing))
        if snapshot.head.losses:
            parts.append(Content.styled(f"{snapshot.head.losses:,} frames of this record are lost", WARN))
    return Content("   ").join(parts)


def _gone(head: Head, wall_ns: int) -> str:
    """That the numbers are old, of when they are, and what to do; empty while somebody feeds the record."""
    if head.presence not in ("engine_gone", "collector_gone"):
        return ""
    last = wall_of(head, head.last_ns)
    since = None if last is None or head.simulated else wall_ns - last
    when = f"the last of {clock(head, head.last_ns)}" + (f", {age(since)}" if since and since > SECOND else "")
    if head.presence == "engine_gone":
        return f"its process died without an end; what stands here is {when}"
    return (
        f"nothing feeds this record; what stands here is {when}."
        f" Start one beside the engine: glassgate collect {head.run}"
    )
