"""The id of a run that several processes of one engine share, passed on in the environment of those they start."""

from __future__ import annotations

import os
import re
import uuid
from typing import TYPE_CHECKING, Final

from controller.settings import RUN

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_SOUND: Final = re.compile(r"[0-9A-Za-z._]{4,64}")


def announce_run(environ: MutableMapping[str, str] = os.environ) -> str:
    """A run begins here: its new id, which the processes that are started from here on find in GLASSGATE_RUN."""
    environ[RUN] = name = uuid.uuid4().hex[:8]
    return name


def shared_run_id(environ: MutableMapping[str, str] = os.environ) -> str:
    """The id that was announced to this process, or one that is announced now."""
    name = environ.get(RUN, "")
    return name if _SOUND.fullmatch(name) and not name.startswith(".") else announce_run(environ)
