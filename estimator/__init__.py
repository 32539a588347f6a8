"""Bytes of temporary device buffers for a prefill batch, computed on the CPU.

The controller's seam is `BatchEstimator`; `estimate_batch` says the same of a whole batch at once; `Estimate`
explains it.
"""

from estimator.batch import BatchEstimator, BatchState
from estimator.buffers import BUFFERS, PARTS
from estimator.context import MlpSpec, MqaBudget, RunContext
from estimator.estimate import Estimate, estimate_batch
from estimator.geometry import Geometry
from estimator.presets import PRESETS, model, preset
from estimator.timeline import PHASES, TIMELINE, Window

__all__ = [
    "BUFFERS",
    "PARTS",
    "PHASES",
    "PRESETS",
    "TIMELINE",
    "BatchEstimator",
    "BatchState",
    "Estimate",
    "Geometry",
    "MlpSpec",
    "MqaBudget",
    "RunContext",
    "Window",
    "estimate_batch",
    "model",
    "preset",
]
