"""An app that is done with one key before the next one acts, however close together they come."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from textual.app import App, ScreenStackError
from textual.events import Key

if TYPE_CHECKING:
    from textual.dom import DOMNode
    from textual.events import Event
    from textual.message_pump import MessagePump

_ROUNDS: Final = 5
"""How often what a key set off may set off something further: Enter, what was typed, the order, the focus."""
_MOST_S: Final = 0.5
"""A key is held up no longer by the one before it."""
_LOOK_S: Final = 0.01
"""How often a widget is looked at that may have been removed with its messages."""


class OrderedKeys(App[None]):
    """An app for keys over a slow connection, pasted ones, and those that were typed while it painted.

    Textual hands each key to what has the focus as it comes, and acts on a bound one only after it went up to the app:
    of `:live` in one burst the letters went to the list behind the prompt that `:` was about to open.
    """

    def __init__(self, *, ansi_color: bool | None = None) -> None:
        super().__init__(ansi_color=ansi_color)
        self._typed_ahead: deque[Key] = deque()
        self._settling: asyncio.Task[None] | None = None
        self._listens = False

    def on_ready(self) -> None:
        """Act on what was typed before there was a screen to act on."""
        self._listens = True
        self.call_later(self._next)

    async def on_event(self, event: Event) -> None:
        """Keep a key back while the one before it is being acted on, and until there is a screen."""
        if not isinstance(event, Key) or event.is_forwarded:
            await super().on_event(event)
        elif self._listens and self._settling is None:
            await self._act_on(event)
        else:
            self._typed_ahead.append(event)

    async def _act_on(self, key: Key) -> None:
        target = self._target
        await super().on_event(key)
        self._settling = asyncio.create_task(self._settle(target))

    @property
    def _target(self) -> DOMNode:
        """What a key goes to."""
        return self.focused or self.screen

    async def _settle(self, target: DOMNode) -> None:
        """Wait until a key, and what it set off, went up from where it was handed to, then take the next one."""
        with suppress(TimeoutError, ScreenStackError):  # the latter once it is left
            async with asyncio.timeout(_MOST_S):
                for _ in range(_ROUNDS):
                    for node in target.ancestors_with_self:
                        await _worked_off(node)
                    target = self._target
        self.call_later(self._next)

    async def _next(self) -> None:
        self._settling = None
        if self._typed_ahead:
            await self._act_on(self._typed_ahead.popleft())


async def _worked_off(node: MessagePump) -> None:
    """Return once a node is through with the messages it has at this moment, or ends with them."""
    through = asyncio.Event()
    if not node.call_later(through.set):
        return
    ran = False
    while not through.is_set() and (node.is_running or not ran):  # one that is being mounted begins to run
        ran = ran or node.is_running
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await through.wait()
