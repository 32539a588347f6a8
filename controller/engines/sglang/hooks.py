"""Hooks: what stands in front of the engine's own methods, on single objects, and is taken away again."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_NOTHING: Final = object()


class Hooks:
    """Methods of objects, or functions of a module, that were replaced for one watch."""

    def __init__(self) -> None:
        self._places: list[tuple[Any, str, Any]] = []

    def around(self, owner: Any, name: str, ours: Callable[..., Any]) -> None:
        """Have `ours(stock, *arguments)` called in place of what `owner` has under a name."""
        found = owner.__dict__.get(name, _NOTHING)
        owner.__dict__[name] = functools.partial(ours, getattr(owner, name))
        self._places.append((owner, name, found))

    def let_go(self) -> None:
        """Leave every owner as it was. A second time does nothing."""
        while self._places:
            owner, name, found = self._places.pop()
            if found is _NOTHING:
                owner.__dict__.pop(name, None)
            else:
                owner.__dict__[name] = found
