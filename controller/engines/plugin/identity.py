"""EngineIdentity: which rank of which engine a record is of."""

from dataclasses import dataclass, field
from typing import Any

from controller.engines.plugin.status import InProcess, Way
from controller.limits import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineIdentity:
    """What a plug-in knows of the process it sits in when its record begins. Tokens unless said."""

    engine: str
    """`sglang` or `vllm`."""
    version: str
    model: str | None
    setting: Setting
    replaced: tuple[str, ...]
    """The engine's classes that Glassgate's stand in for, with their modules."""
    pool_tokens: int
    host_tokens: int = 0
    largest_prompt_tokens: int = 0
    """The largest prompt the engine can serve; 0 works it out from the pool."""
    rank: int = 0
    """Unique within the run: every scheduler process of the engine has another one."""
    group: str = ""
    """Ranks that must decide alike share a group; those of another (data-parallel) group differ rightly."""
    ranks: int = 1
    """Ranks of this group."""
    leads: bool = True
    """The first of its group: it records its passes whole, the others digests."""
    first_rank_here: int = 0
    """The rank that `collects`; its folder holds the database of all of them."""
    way: Way = field(default_factory=InProcess)
    """How a knob request reaches the engine."""
    engine_key: str | None = None
    """The engine's admin key; the collector alone gets it, and it is written nowhere."""
    buffers: str = ""
    """The estimator's run context as JSON, or empty without a model."""
    context: dict[str, Any] = field(default_factory=dict)
    """What else run.json should say, for instance flags that matter."""
    cautions: tuple[str, ...] = ()

    @property
    def collects(self) -> bool:
        """The first rank of the run on this machine: the collector is started for it, and takes the others too."""
        return self.rank == self.first_rank_here
