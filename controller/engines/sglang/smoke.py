"""The smoke allocation of an SGLang engine: made by every rank on its own device, once everything else stands there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from sglang.srt.runtime_context import get_device

from controller.engines.plugin import warn_or_refuse
from controller.records import Smoke
from gpu_probe.smoke import chunk_pieces, smoke

if TYPE_CHECKING:
    from controller.engines.sglang.settings import EngineSettings


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
    warn_or_refuse(failed, len(answers), "ranks", wanted)
    return mine


def _allocate(scheduler: Any, found: EngineSettings, asked: int) -> Smoke:
    """Allocate, touch and free; whatever keeps it from being tried is told as a failure."""
    device = str(scheduler.device)
    if device != "cpu":
        device = f"{device}:{int(get_device().gpu_id)}"
    at_ns = time.monotonic_ns()
    try:
        pieces = chunk_pieces(found.estimate.estimator, found.settings.knobs.chunked_prefill_size)
        return Smoke(**smoke(device, asked, pieces).record_fields())
    except Exception as error:  # noqa: BLE001 - the other ranks wait for an answer, whatever it is
        return Smoke(at_ns, device, asked, 0, 0, 0, passed=False, why=str(error))
