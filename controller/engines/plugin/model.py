"""The estimator for the model that an engine serves, from the engine's own configuration of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from estimator.batch import BatchEstimator
from estimator.errors import GlassgateError
from estimator.geometry import KNOWN_KEYS, Geometry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from estimator.context import RunContext


class ModelEstimate(NamedTuple):
    """The estimator, or None and why there is none."""

    estimator: BatchEstimator | None
    caution: str


def estimate_model(config: Mapping[str, Any], name: str, context: Callable[[Geometry], RunContext]) -> ModelEstimate:
    """The estimator for a model by its `config.json`, and the engine's run by `context`.

    Keys of the configuration that no formula knows are left out.
    """
    try:
        geometry = Geometry.from_config(config, name=name, ignore=set(config) - KNOWN_KEYS)
        return ModelEstimate(BatchEstimator(geometry, context(geometry)), "")
    except GlassgateError as error:
        return ModelEstimate(
            None, f"max_buffer_bytes cannot bind, since buffers of this model are not estimated: {error}"
        )
