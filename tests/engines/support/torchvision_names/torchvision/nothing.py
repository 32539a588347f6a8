"""What stands behind a name of torchvision in these tests: nothing."""

from collections.abc import Callable
from typing import Any


class Nothing:
    """Stands for a function or class; calling it is an error."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("torchvision is not installed in this test environment; only its names are")


def names_of(module: str) -> Callable[[str], type[Nothing]]:
    """A module's `__getattr__` that has every public name."""

    def get(name: str) -> type[Nothing]:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Nothing,), {"__module__": module})

    return get
