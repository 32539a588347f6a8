"""An input whose editing keys act in the order in which they were typed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual.binding import Binding
from textual.widgets import Input

if TYPE_CHECKING:
    from textual.events import Key

_EDITING: Final = {
    key: each.action for each in Input.BINDINGS if isinstance(each, Binding) for key in each.key.split(",")
}


class OrderedInput(Input):
    """An `Input` for lines over a slow connection.

    Textual acts on a bound key such as backspace only after it went up to the app, and letters that came in the same
    burst are there before it: `backspace, 2` on `16` would give `1`.
    """

    async def on_key(self, event: Key) -> None:
        """Act on an editing key at once."""
        action = _EDITING.get(event.key)
        if action is not None:
            event.prevent_default().stop()
            await self.run_action(action)
