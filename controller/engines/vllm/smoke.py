"""The smoke allocation of a vLLM engine: made by its workers, which own the devices, once everything else stands.

The scheduler's process opens no device: it asks every worker, waits for all answers, and then lets the start go on or
not, so that all ranks agree.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from controller.engines.vllm.settings import engine_settings
from controller.records import Smoke
from estimator.errors import GlassgateError
from gpu_probe.smoke import pieces_of, smoke

if TYPE_CHECKING:
    from vllm.v1.executor.abstract import Executor

    from controller.engines.vllm.settings import EngineSettings

_log: Final = logging.getLogger("glassgate")
PENDING: Final[list[Smoke]] = []
"""What was found in this process before there was a record to write it to."""


def smoke_workers(executor: Executor) -> None:
    """Allocate what `max_buffer_bytes` allows on every worker's device.

    Raises SystemExit where it does not fit and the setting is `require`; tells it where the setting is `warn`.
    """
    config = executor.vllm_config
    found = engine_settings(config, config.cache_config.block_size, config.scheduler_config.max_num_seqs)
    asked, wanted = found.settings.knobs.max_buffer_bytes, found.settings.smoke
    if asked is None or wanted == "off":
        return
    try:
        answers: list[dict[str, Any]] = executor.collective_rpc(allocate, args=(asked, _pieces(found)))
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
    for line in failed:
        _log.log(logging.ERROR if wanted == "require" else logging.WARNING, "glassgate: %s", line)
    if failed and wanted == "require":
        raise SystemExit(
            f"glassgate: the start is refused, since GLASSGATE_SMOKE is require and {len(failed)} of {len(answers)} "
            f"workers cannot hold max_buffer_bytes: {failed[0]}"
        )


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


def _pieces(found: EngineSettings) -> list[int] | None:
    """The buffers that a full chunk has alive at its peak; None without an estimate."""
    estimator, chunk = found.estimate.estimator, found.settings.knobs.chunked_prefill_size
    if estimator is None or chunk is None:
        return None
    return pieces_of(estimator.explain(estimator.add(estimator.empty, 0, chunk)))
