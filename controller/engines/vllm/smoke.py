"""The smoke allocation of a vLLM engine: made by its workers, which own the devices, once everything else stands.

The scheduler's process opens no device: it asks every worker, waits for all answers, and then lets the start go on or
not, so that all ranks agree.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from controller.engines.plugin import warn_or_refuse
from controller.engines.vllm.settings import engine_settings
from controller.records import Smoke
from estimator.errors import GlassgateError
from gpu_probe.smoke import chunk_pieces, smoke

if TYPE_CHECKING:
    from vllm.v1.executor.abstract import Executor


PENDING: Final[list[Smoke]] = []
"""What was found in this process before there was a record to write it to."""


def smoke_workers(executor: Executor) -> None:
    """Allocate what `max_buffer_bytes` allows on every worker's device.

    Raises SystemExit where it does not fit and the setting is `require`; tells it where the setting is `warn`.
    """
    config = executor.vllm_config
    found = engine_settings(config, config.cache_config.block_size)
    asked, wanted = found.settings.knobs.max_buffer_bytes, found.settings.smoke
    if asked is None or wanted == "off":
        return
    try:
        pieces = chunk_pieces(found.estimate.estimator, found.settings.knobs.chunked_prefill_size)
        answers: list[dict[str, Any]] = executor.collective_rpc(allocate, args=(asked, pieces))
    except Exception as error:
        if wanted == "require":
            raise SystemExit(
                f"glassgate: the start is refused, since GLASSGATE_SMOKE is require and the smoke allocation cannot be "
                f"made: {error}"
            ) from error
        raise
    PENDING[:] = [Smoke(**answer["smoke"]) for answer in answers]
    failed = [
        f"worker {answer['rank']}: {answer['smoke']['why']}" for answer in answers if not answer["smoke"]["passed"]
    ]
    warn_or_refuse(failed, len(answers), "workers", wanted)


def allocate(worker: Any, asked: int, pieces: list[int] | None) -> dict[str, Any]:
    """In a worker: allocate, touch and free `asked` bytes of its device, in those pieces. What it found, as plain data.

    Whatever keeps it from being tried is told as a failure.
    """
    device = str(worker.device)
    at_ns = time.monotonic_ns()
    try:
        found: dict[str, Any] = smoke(device, asked, pieces).record_fields()
    except GlassgateError as error:
        found = {
            "at_ns": at_ns, "device": device, "asked": asked, "reserved": 0, "peak": 0, "free_before": 0,
            "passed": False, "why": str(error),
        }  # fmt: skip
    return {"rank": int(worker.rank), "smoke": found}
