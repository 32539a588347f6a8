"""Forward: knob requests left beside a run, passed on to its engine's own endpoint, which tells every rank at one step.

The engine records what became of a request. One that gets no further than here is left for it with the reason.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from controller.engines.plugin.broadcast import Forwarded, is_forwarded, leave_forwarded, to_numbers
from controller.engines.plugin.status import Http, read_status
from controller.knob_requests import plain
from controller.settings import ENGINE_KEY
from estimator.errors import KnobError

if TYPE_CHECKING:
    from collections.abc import Callable

    from controller.knob_requests import KnobRequest
    from controller.run_directory import RunDirectory

POLL_SECONDS: Final = 0.2
ANSWER_SECONDS: Final = 30.0
"""An engine in the middle of a long step answers only after it."""
_LONGEST: Final = 4096
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_REFUSED_KEY: Final = (401, 403)


class Forwarder(threading.Thread):
    """Serves the runs it was given, whose engines live, in a thread of its own. `say` is told of each refusal."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(name="glassgate-forward", daemon=True)
        self.runs: tuple[RunDirectory, ...] = ()
        self._say = say
        self._over = threading.Event()

    def run(self) -> None:
        """Look for requests until told to stop."""
        while not self._over.wait(POLL_SECONDS):
            for run in self.runs:
                forward(run, self._say)

    def stop(self) -> None:
        """Begin nothing more; what is under way is left behind."""
        self._over.set()


def forward(run: RunDirectory, say: Callable[[str], None]) -> int:
    """Pass on what was left beside a run whose engine takes it by HTTP, and return how many requests that was."""
    status = read_status(run.path)
    if status is None or not isinstance(status.way, Http):
        return 0
    requests = run.take_requests()
    for request in requests:
        why = _forward_one(run, status.way, request)
        if why:
            say(f"knob request {request.name} of run {run.path.name}: {why}")
    return len(requests)


def _forward_one(run: RunDirectory, way: Http, request: KnobRequest) -> str:
    """Pass one on; why it got no further, or nothing."""
    folder = run.requests
    left = Forwarded(request.name, time.time_ns(), request.uid, request.content, request.error)
    posted = False
    try:
        numbers = to_numbers(request)
        leave_forwarded(folder, left)  # before the engine knows, so that it finds who asked
        posted = True
        why = _post(way, numbers)
    except KnobError as error:
        why = str(error)
    except OSError as error:
        why = f"it cannot be passed on: {error.strerror or error}; free space"
    if posted and not is_forwarded(folder, request.name):
        return ""  # the engine has recorded its own answer
    if why:
        try:
            leave_forwarded(folder, msgspec.structs.replace(left, why=why))
        except OSError as error:
            return f"{why} (and the engine cannot be told: {error.strerror})"
    return why


def _post(way: Http, numbers: dict[str, int]) -> str:
    """Tell the engine; why it did not take them, or nothing."""
    headers = {"Content-Type": "application/json"}
    key = os.environ.get(ENGINE_KEY)
    if key:
        headers["Authorization"] = f"Bearer {key}"
    body = json.dumps({way.wrap: numbers}).encode()
    asked = urllib.request.Request(way.url, body, headers, method="POST")  # noqa: S310 - the engine's own address
    # It is on this machine: no proxy, and a certificate that names another host is the engine's all the same.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=_tls(way.url))
    )
    try:
        with opener.open(asked, timeout=ANSWER_SECONDS) as response:
            answer = response.read(_LONGEST).decode(errors="replace")
    except urllib.error.HTTPError as error:
        if error.code in _REFUSED_KEY:
            had = "does not take the key in" if key else "wants its admin key in"
            return f"{way.url} {had} {ENGINE_KEY} (HTTP {error.code}); start the collector with it"
        return f"{way.url} answered HTTP {error.code}: {_plain(error.read(_LONGEST).decode(errors='replace'))}"
    except TimeoutError:
        return (
            f"{way.url} gave no answer within {ANSWER_SECONDS:.0f} s; if the engine goes on, it may still take effect"
        )
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        return f"{way.url} cannot be reached: {reason}"
    return "" if _taken(answer) else f"{way.url} did not take it: {_plain(answer)}"


def _tls(url: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if urlsplit(url).hostname in _LOOPBACK:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _taken(answer: str) -> bool:
    """Whether no rank said that it changed nothing."""
    try:
        found = json.loads(answer)
    except ValueError:
        return True
    ranks = found if isinstance(found, list) else [found]
    return all(each.get("updated", True) for each in ranks if isinstance(each, dict))


def _plain(text: str) -> str:
    return plain(" ".join(text.split()))[:300]
