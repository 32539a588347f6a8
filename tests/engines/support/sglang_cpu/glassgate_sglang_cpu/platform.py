"""A platform of plain CPU tensors: SGLang's native paths, no kernels of its own, no graphs."""

import random

import numpy as np
import torch
from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform


class NativePlatform(CpuDeviceMixin, SRTPlatform):
    """What SGLang asks of a platform from outside its tree; whatever is not here keeps its careful default."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"
    capabilities = PlatformCapabilities()

    def get_default_attention_backend(self) -> str:
        """Attention in plain torch."""
        return "torch_native"

    def get_dispatch_key_name(self) -> str:
        """Layers take the path named `forward_native`."""
        return "native"

    def get_compile_backend(self, mode: str | None = None) -> str:
        """Nothing is compiled."""
        del mode
        return "eager"

    def get_torch_profiler_activity_str(self) -> str:
        """What a profile would be of."""
        return "CPU"

    def get_torch_profiler_activity(self) -> torch.profiler.ProfilerActivity:
        """The same as torch's constant."""
        return torch.profiler.ProfilerActivity.CPU

    @classmethod
    def seed_everything(cls, seed: int | None = None) -> None:
        """Make what is drawn at random repeatable."""
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002 - the engine draws from numpy's old generator
            torch.manual_seed(seed)
