"""A host tier for vLLM's KV cache on a machine without a GPU, for tests: `HostSpec` for the offloading connector.

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config":
        {"cpu_bytes_to_use": 268435456, "spec_name": "HostSpec", "spec_module_path": "host_offload"}}'

HOST_OFFLOAD_SECONDS is how long each transfer pretends to take.
"""

import os
import time
from typing import Any, Final

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

_SECONDS: Final = float(os.environ.get("HOST_OFFLOAD_SECONDS", "0"))


class HostWorker(OffloadingWorker):
    """Copies blocks between the engine's cache and host tensors of the same shape, at once; it says so later."""

    def __init__(self, caches: Any, blocks: int) -> None:
        self._device = [each.tensor for each in caches.tensors]
        self._host = [torch.zeros((blocks, each.page_size_bytes), dtype=torch.int8) for each in caches.tensors]
        self._groups = caches.group_data_refs
        self._under_way: list[tuple[float, TransferResult]] = []

    def submit_store(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """From the engine's cache to the host."""
        return self._copy(job_id, src_spec.group_sizes, (self._device, src_spec), (self._host, dst_spec))

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: Any) -> bool:
        """From the host to the engine's cache."""
        return self._copy(job_id, dst_spec.group_sizes, (self._host, src_spec), (self._device, dst_spec))

    def get_finished(self) -> list[TransferResult]:
        """The transfers that are over."""
        now = time.monotonic()
        over = [result for due, result in self._under_way if due <= now]
        self._under_way = [each for each in self._under_way if each[0] > now]
        return over

    def wait(self, job_ids: set[int]) -> None:
        """These are over now."""
        self._under_way = [(0.0 if result.job_id in job_ids else due, result) for due, result in self._under_way]

    def _copy(self, job_id: int, sizes: Any, source: tuple[Any, Any], target: tuple[Any, Any]) -> bool:
        begun = time.monotonic()
        (sources, from_), (targets, to) = source, target
        at = copied = 0
        for group, size in zip(self._groups, sizes, strict=True):
            rows = torch.from_numpy(from_.block_ids[at : at + size].astype("int64"))
            places = torch.from_numpy(to.block_ids[at : at + size].astype("int64"))
            for each in group:
                targets[each.tensor_idx][places] = sources[each.tensor_idx][rows]
                copied += size * each.page_size_bytes
            at += size
        taken = time.monotonic() - begun + _SECONDS
        self._under_way.append((begun + taken, TransferResult(job_id, True, copied, taken)))
        return True


class HostSpec(CPUOffloadingSpec):
    """vLLM's own host tier, with a worker that needs no GPU. One block a chunk."""

    def get_worker(self, kv_caches: Any) -> HostWorker:
        """The worker, made once."""
        if self.blocks_per_chunk != 1:
            raise ValueError(f"{self.blocks_per_chunk} blocks a chunk; this worker copies one")
        if self._worker is None:
            self._worker = HostWorker(kv_caches, self.num_chunks)
        return self._worker
