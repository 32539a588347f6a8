"""Targets: what a person writes by hand: cases of `decide` and `estimate`, model configurations, traces."""

import gzip
import json
from itertools import islice
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from mutate import bytes_like, json_like
from quiet import printed_json
from target import Aim, Room, target

from controller.case import decide
from controller.engines.replay import open_trace
from estimator.allocation import allocation_plan, play
from estimator.batch import BatchEstimator
from estimator.case import answer, read_cases
from estimator.fit import largest_batch, largest_prompt
from estimator.geometry import Geometry
from estimator.given_file import read_given_json

CASE: dict[str, Any] = {
    "context_parallel": True,
    "data_parallel": 1,
    "knobs": {
        "shared_kv_batching": True, "max_requests": None, "max_extend_tokens": 65536, "max_cached_tokens": None,
        "max_buffer_bytes": "4GiB", "chunked_prefill_size": 8192, "max_prefill_tokens": 16384, "page_size": 64,
        "enforce": True, "buffer_safety_percent": 110, "load_back_threshold": 10,
    },
    "model": "deepseek-v3.2",
    "run": {"tp": 8, "safety_factor": 1.1, "mqa_budget": {"total_bytes": 1 << 37, "mem_fraction_static": 0.9}},
    "capacity": {
        "pool_tokens": 1000000, "free_tokens": 200000, "evictable_tokens": 50000, "running_slots": 128,
        "lanes": [{"free_pages": 40, "evictable_pages": 10}, {"free_pages": 60}],
    },
    "running": [{"id": "r1", "remaining_output_tokens": 800, "ignore_eos": True}],
    "new_token_ratio": 1.0,
    "active_chunk": {"id": "L", "prompt_tokens": 20000, "done_tokens": 8192, "output_tokens": 16, "first_lane": 0},
    "queue": [
        {"id": "a", "prompt_tokens": 5000, "device_hit_tokens": 64, "device_hit_locked": False,
        "host_hit_tokens": 1280,
         "output_tokens": 128, "ignore_eos": False, "first_lane": 1, "host_load": "loaded", "generated_tokens": 3},
        {"id": "b", "prompt_tokens": 500},
    ],
}  # fmt: skip
PLAIN: dict[str, Any] = {"capacity": {"pool_tokens": 76640}, "queue": [{"id": "x", "prompt_tokens": 100000}]}

CONFIG_MLA: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168, "intermediate_size": 18432, "vocab_size": 129280,
    "moe_intermediate_size": 2048, "num_experts_per_tok": 8, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "index_n_heads": 64, "index_head_dim": 128,
    "index_topk": 2048, "num_hidden_layers": 61, "max_position_embeddings": 163840, "rope_scaling": {"factor": 40},
}  # fmt: skip
CONFIG_GQA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128256,
    "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "max_position_embeddings": 131072,
}  # fmt: skip
ESTIMATE: dict[str, Any] = {
    "name": "one", "model": "deepseek-v3.2", "requests": [[32768, 1024, 512], [0, 2048]],
    "run": {"tp": 8, "cp": 2, "cp_strategy": "interleave", "page_size": 64, "kv_dtype": "fp8", "sm_major": 9,
            "mqa_budget": {"total_bytes": 1 << 37, "free_bytes": 1 << 35, "mem_fraction_static": 0.88},
            "mlp": {"kind": "moe_deepgemm", "moe_tp": 1, "ep": 8, "tokens": 0, "dp_tokens": 4096, "full_rows": False},
            "logprob_rows": 10, "logprob_chunk": None, "chunked_prefill_size": 8192, "safety_factor": "11/10"},
}  # fmt: skip
OWN_MODEL: dict[str, Any] = {"model": CONFIG_GQA, "requests": [[0, 4096]], "run": {"tp": 2, "kv_dtype": "bf16"}}

MOONCAKE = [
    {"timestamp": 0, "input_length": 900, "output_length": 20, "hash_ids": [1, 2], "id": "a"},
    {"timestamp": 30.5, "input_length": 1024, "output_length": 2, "hash_ids": [1, 3]},
    {"timestamp": 90, "input_length": 3.0, "output_length": 1, "hash_ids": [9], "request_id": 17},
]
AZURE = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens,id\n2023-11-16 18:17:03.9799600,4808,10,a\n"
    b'2023-11-16T18:17:04.1+01:00,3180,8,"b,c"\n2023-11-16 18:17:04Z,110.0,27,\n'
)
MOST_REQUESTS = 10_000


def lines_of(rows: list[dict[str, Any]]) -> bytes:
    """A trace of JSON lines."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@target("case of decide", cost=4, is_bytes=True)
def case_of_decide(room: Room) -> Aim:
    """A case file, from its bytes to its answer."""

    def parse(content: bytes) -> None:
        printed_json(decide(read_given_json(room.file("case.json", content))))

    return Aim(json_like(CASE, PLAIN), parse)


@target("case of estimate", cost=8, is_bytes=True)
def case_of_estimate(room: Room) -> Aim:
    """A case file, from its bytes to its answer and what else would fit."""

    def parse(content: bytes) -> None:
        for case in read_cases(room.file("estimate.json", content))[:3]:
            printed_json(answer(case))
            play(allocation_plan(case.estimate()))
            estimator = BatchEstimator(case.geometry, case.context)
            largest_prompt(estimator, 1 << 32)
            if case.requests:
                prefix, extend = case.requests[0][:2]
                largest_batch(estimator, 1 << 32, prefix=prefix, extend=extend)

    return Aim(json_like(ESTIMATE, OWN_MODEL, [ESTIMATE, OWN_MODEL]), parse)


@target("model configuration", is_bytes=True)
def model_configuration(room: Room) -> Aim:
    """A config.json of Hugging Face."""

    def parse(content: bytes) -> None:
        Geometry.from_config_file(room.file("config.json", content))

    return Aim(json_like(CONFIG_MLA, CONFIG_GQA), parse)


def read_trace(path: Path) -> None:
    """All of a trace's requests, as far as they are worth reading, strictly and with bad lines skipped."""
    for skip in (True, False):
        with open_trace(path, skip_bad_lines=skip, speed=1.5) as workload:
            for _ in islice(workload, MOST_REQUESTS):
                pass


@target("trace: lines", cost=2, is_bytes=True)
def trace_lines(room: Room) -> Aim:
    """Mooncake JSON lines and Azure CSV, by their bytes; what looks like gzip is unpacked."""
    samples = bytes_like(lines_of(MOONCAKE), AZURE, gzip.compress(lines_of(MOONCAKE)), gzip.compress(AZURE))
    return Aim(samples, lambda content: read_trace(room.file("trace", content)))


@target("trace: fields", cost=2, is_bytes=True)
def trace_fields(room: Room) -> Aim:
    """Mooncake lines whose fields are not what they should be."""
    row = json_like(*MOONCAKE)
    inputs = st.lists(row, min_size=1, max_size=3).map(b"\n".join)
    return Aim(inputs, lambda content: read_trace(room.file("trace", content)))


@target("trace: exported", cost=4, is_bytes=True)
def trace_exported(room: Room) -> Aim:
    """A trace that Glassgate exported: how its run was served, and its lines."""
    rows = [json.loads(line) for line in (room.folder / "exported.jsonl").read_bytes().splitlines()[:4]]
    head, rest = rows[0], rows[1:]
    inputs = st.one_of(
        json_like(head).map(lambda first: first + b"\n" + lines_of(rest)),
        json_like(*rest).map(lambda last: lines_of([head]) + last),
    )
    return Aim(inputs, lambda content: read_trace(room.file("trace", content)))
