"""The real scheduler of vLLM without a model: a configuration, a pool, requests, and steps whose tokens we make up."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import torch
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput

BLOCK = 16
VOCABULARY = 500


def configure(model: str, **arguments: Any) -> VllmConfig:
    """The configuration of an engine for the tiny model."""
    chosen = {
        "model": model, "max_model_len": 8192, "block_size": BLOCK, "max_num_batched_tokens": 512, "max_num_seqs": 8,
        "enforce_eager": True, "enable_prefix_caching": True, "enable_chunked_prefill": True, "seed": 0,
    }  # fmt: skip
    return EngineArgs(**(chosen | arguments)).create_engine_config()


def build(scheduler_class: type, config: VllmConfig, blocks: int = 1000) -> Any:
    """A scheduler with a pool of so many blocks, one of which is the engine's null block."""
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=2, head_size=32, dtype=torch.bfloat16)
    pool = KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    config.cache_config.num_gpu_blocks = blocks
    init_none_hash(sha256)
    return scheduler_class(
        vllm_config=config,
        kv_cache_config=pool,
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        hash_block_size=BLOCK,
        log_stats=True,
    )


def tokens(count: int, seed: int) -> list[int]:
    """Token ids; with the same seed a longer list begins with a shorter one."""
    draw = random.Random(seed)  # noqa: S311 - the same tokens every time
    return [draw.randrange(3, VOCABULARY) for _ in range(count)]


def prompts(count: int, block: int = 32) -> list[list[int]]:
    """Token ids of prompts of which many share a beginning of whole blocks, up to 600 tokens long."""
    shared = tokens(300, 11)
    return [
        [*shared[: block * (number % 7)], *tokens(9 + (67 * number) % 400, 100 + number)] for number in range(count)
    ]


def request(name: str, prompt: int | list[int] = 64, output: int = 8, **keywords: Any) -> Request:
    """A request whose prompt shares nothing with another's, or with the token ids that are given."""
    ids = tokens(prompt, hash(name)) if isinstance(prompt, int) else prompt
    return Request(
        request_id=name,
        prompt_token_ids=ids,
        sampling_params=SamplingParams(max_tokens=output, ignore_eos=True, temperature=0),
        pooling_params=None,
        block_hasher=get_request_block_hasher(BLOCK, sha256),
        **keywords,
    )


def output_of(scheduler: Any, output: SchedulerOutput, transfer: KVConnectorOutput | None = None) -> ModelRunnerOutput:
    """What a model would have answered to a step: one token for each request whose prompt is complete."""
    names = list(output.num_scheduled_tokens)
    sampled = [[] if scheduler.requests[name].is_prefill_chunk else [7] for name in names]
    return ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: place for place, name in enumerate(names)},
        sampled_token_ids=sampled,
        kv_connector_output=transfer,
    )


def step(scheduler: Any, transfer: KVConnectorOutput | None = None) -> SchedulerOutput:
    """One step to its end."""
    output = scheduler.schedule()
    scheduler.update_from_output(output, output_of(scheduler, output, transfer))
    return output
