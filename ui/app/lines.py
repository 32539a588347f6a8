"""A list of lines with a cursor, of which only those in view are drawn; the cursor keeps to what it is on."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.segment import Segment
from textual.cache import LRUCache
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.style import Style

from ui.app.panel import error_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.events import Click


_MOST_STRIPS: Final = 256


class HoldsLines:
    """The cursor commands of whoever holds lines."""

    lines: Lines

    @property
    def in_hand(self) -> Lines:
        """The lines whose cursor the commands move; whoever holds several says which."""
        return self.lines

    def action_cursor(self, by: int) -> None:
        """Move by lines."""
        self.in_hand.move(self.in_hand.cursor + by)

    def action_cursor_page(self, by: int) -> None:
        """Move by a page."""
        self.in_hand.move(self.in_hand.cursor + by * self.in_hand.page)

    def action_cursor_end(self, by: int) -> None:
        """Move to the first or the last line."""
        self.in_hand.move(0 if by < 0 else self.in_hand.count - 1)


class Lines(ScrollView, can_focus=True, inherit_bindings=False):
    """Lines of one row each. Whoever holds it decides what they are, and moves the cursor by `move`."""

    rows: Sequence[Any] = ()
    """What the lines are of, one each."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"lines--cursor", "lines--cursor-blurred"}
    DEFAULT_CSS = """
    Lines {
        height: 1fr;
        overflow-x: hidden;
        scrollbar-size-vertical: 1;
    }
    """

    ALLOW_SELECT = False

    class _Told(Message):
        """Something happened on a line."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    class Moved(_Told):
        """The cursor is on another line, moved there by the operator."""

    class Chosen(_Told):
        """The line under the cursor was clicked once more."""

    class Beyond(_Told):
        """The operator would move the cursor to a line before the first or after the last."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id)
        self.cursor = 0
        self._strips: LRUCache[tuple[Any, ...], Strip] = LRUCache(_MOST_STRIPS)

    @property
    def count(self) -> int:
        """How many lines there are."""
        return len(self.rows)

    @abstractmethod
    def line(self, index: int, width: int) -> Content:
        """One line, at most `width` cells."""

    def changed(self, cursor: int) -> None:
        """The lines are others; the cursor goes to this one without telling anybody."""
        self._measure()
        self.cursor = max(0, min(cursor, self.count - 1))
        if self.cursor == 0:
            self.scroll_to(y=0, animate=False)
        else:
            self._into_view()
        self.refresh()

    def show_from(self, index: int) -> None:
        """Scroll until this line is the first in view, as far as there are lines below."""
        self.scroll_to(y=index, animate=False)

    def move(self, to: int) -> None:
        """The operator moves the cursor."""
        asked, to = to, max(0, min(to, self.count - 1))
        if not self.count:
            return
        if to == self.cursor:
            if asked != to:
                self.post_message(self.Beyond(asked))
            return
        before, self.cursor = self.cursor, to
        self.refresh_line(before)
        self.refresh_line(to)
        self._into_view()
        self.post_message(self.Moved(to))

    @property
    def page(self) -> int:
        """Lines in view."""
        return max(1, self.scrollable_content_region.height)

    @property
    def width(self) -> int:
        """Cells of a line."""
        return self.scrollable_content_region.width

    def _measure(self) -> None:
        """Tell how long the list is; any that is in view at once has one length, since a change costs a layout."""
        self.virtual_size = Size(self.width, max(self.count, self.page))

    def _into_view(self) -> None:
        top = self.scroll_offset.y
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False)
        elif self.cursor >= top + self.page:
            self.scroll_to(y=self.cursor - self.page + 1, animate=False)

    def render_line(self, y: int) -> Strip:
        """One line of what is in view."""
        index = y + self.scroll_offset.y
        width = self.width
        if not 0 <= index < self.count:
            return Strip.blank(width, self.rich_style)
        style = self.visual_style
        if index == self.cursor:
            style += self._cursor_style()
        return self._strip(self._told(index, width), width, style)

    def _told(self, index: int, width: int) -> Content:
        """A line, or that it could not be drawn."""
        try:
            return self.line(index, width)
        except Exception as error:  # noqa: BLE001 - a fault of one line must not take the screen from the operator
            words = f"could not be drawn: {error_words(error)}; the record is untouched, report this"
            return Content(words).truncate(width, ellipsis=True)

    def _strip(self, content: Content, width: int, style: Style) -> Strip:
        """A line as it is painted. Lines move more than they change, so those painted last are kept."""
        key = (content.plain, tuple(content.spans), width, style)
        strip = self._strips.get(key)
        if strip is None:
            content = content.pad_right(max(0, width - content.cell_length))
            parts = content.render(style, end="", parse_style=self._get_style)
            strip = Strip([Segment(text, (style + part).rich_style) for text, part in parts]).crop(0, width)
            self._strips[key] = strip
        return strip

    def _cursor_style(self) -> Style:
        """A background of its own; where there are no colours, reversed, or underlined while another has the focus."""
        if self.app.native_ansi_color:
            return Style(reverse=True) if self.has_focus else Style(underline=True)
        return self.get_visual_style("lines--cursor" if self.has_focus else "lines--cursor-blurred")

    def on_resize(self) -> None:
        """What is in view is another; keep the cursor in it."""
        self._measure()
        self._into_view()
        self.refresh()

    def on_click(self, event: Click) -> None:
        """Move the cursor to the line clicked; a click on it again chooses it."""
        index = event.y + self.scroll_offset.y
        if index >= self.count:
            return
        event.stop()
        if index == self.cursor:
            self.post_message(self.Chosen(index))
        else:
            self.move(index)
