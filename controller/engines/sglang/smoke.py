"""The smoke allocation of an SGLang engine: made by every rank on its own device, once everything else stands there."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from sglang.srt.runtime_context import get_device

from controller.records import Smoke
from gpu_probe.smoke import pieces_of, smoke

if TYPE_CHECKING:
    from controller.engines.sglang.settings import EngineSettings

_log: Final = logging.getLogger("glassgate")


def smoke_rank(scheduler: Any, found: EngineSettings) -> Smoke | None:
    """Allocate what `max_buffer_bytes` allows on this rank's device; None where nothing is asked for.

    All ranks of the engine hear of all answers, so that they go on or end together: raises SystemExit on every one of
    them where it does not fit on one and the setting is `require`.
    """
    asked, wanted = found.settings.knobs.max_buffer_bytes, found.settings.smoke
    if asked is None or wanted == "off":
        return None
    mine = _allocate(scheduler, found, asked)
    answers = scheduler.world_group.all_gather_object((mine.device, mine.passed, mine.why))
    failed = [f"rank {rank} ({device}): {why}" for rank, (device, passed, why) in enumerate(answers) if not passed]
    for line in failed:
        _log.log(logging.ERROR if wanted == "require" else logging.WARNING, "glassgate: %s", line)
    if failed and wanted == "require":
        raise SystemExit(
            f"glassgate: the start is refused, since GLASSGATE_SMOKE is require and {len(failed)} of {len(answers)} "
            f"ranks cannot hold max_buffer_bytes: {failed[0]}"
        )
    return mine


def _allocate(scheduler: Any, found: EngineSettings, asked: int) -> Smoke:
    """Allocate, touch and free; whatever keeps it from being tried is told as a failure."""
    device = str(scheduler.device)
    if device != "cpu":
        device = f"{device}:{int(get_device().gpu_id)}"
    at_ns = time.monotonic_ns()
    try:
        return Smoke(**smoke(device, asked, _pieces(found)).record_fields())
    except Exception as error:  # noqa: BLE001 - the other ranks wait for an answer, whatever it is
        return Smoke(at_ns, device, asked, 0, 0, 0, passed=False, why=str(error))


def _pieces(found: EngineSettings) -> list[int] | None:
    """The buffers that a full chunk has alive at its peak; None without an estimate."""
    estimator, chunk = found.estimate.estimator, found.settings.knobs.chunked_prefill_size
    if estimator is None or chunk is None:
        return None
    return pieces_of(estimator.explain(estimator.add(estimator.empty, 0, chunk)))
