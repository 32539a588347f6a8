"""The embedded engine: a workload, a two-tier prefix cache, a clock and a step-time model."""

from controller.engines.replay.cache import PrefixCache, WritePolicy
from controller.engines.replay.durations import StepTime
from controller.engines.replay.engine import (
    DEFAULT_DEVICE_TOKENS,
    DEFAULT_HOST_TOKENS,
    DEFAULT_NEW_TOKEN_RATIO,
    Progress,
    ReplayEngine,
    Role,
)
from controller.engines.replay.pace import Pace
from controller.engines.replay.schedule import KnobsAt
from controller.engines.replay.sessions import agent_sessions
from controller.engines.replay.step_time import DEFAULT_PRESET, PRESETS, StepTimeModel, step_time_model
from controller.engines.replay.stuck import ReplayStuck
from controller.engines.replay.summary import Summary
from controller.engines.replay.traces import open_trace
from controller.engines.replay.workload import Workload, WorkloadRequest

__all__ = [
    "DEFAULT_DEVICE_TOKENS",
    "DEFAULT_HOST_TOKENS",
    "DEFAULT_NEW_TOKEN_RATIO",
    "DEFAULT_PRESET",
    "PRESETS",
    "KnobsAt",
    "Pace",
    "PrefixCache",
    "Progress",
    "ReplayEngine",
    "ReplayStuck",
    "Role",
    "StepTime",
    "StepTimeModel",
    "Summary",
    "Workload",
    "WorkloadRequest",
    "WritePolicy",
    "agent_sessions",
    "open_trace",
    "step_time_model",
]
