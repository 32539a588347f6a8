"""What can go wrong with a device, and how torch is asked for."""

import warnings
from types import ModuleType

from estimator.errors import GlassgateError


class ProbeError(GlassgateError):
    """A device cannot be probed: torch is missing, the device is not there, or its memory does not suffice."""

    exit_code = 9


def need_torch() -> ModuleType:
    """Return torch. Raises ProbeError that names the extra where it is not installed."""
    try:
        with warnings.catch_warnings():
            # torch warns as it is imported where there is no NumPy; nothing here uses NumPy.
            warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
            import torch  # noqa: PLC0415 - the rest of Glassgate runs without torch
    except ImportError as error:
        raise ProbeError(
            f"torch: cannot be imported ({error}); install it with pip install 'glassgate[gpu]', "
            "or run this in the engine's own environment"
        ) from error
    return torch


def check_device(device: str) -> str:
    """Return a device's name in full: `cpu`, `meta` or `cuda:N`. Raises ProbeError for any other, or one not there."""
    if device in {"cpu", "meta"}:
        return device
    kind, _, index = device.partition(":")
    if kind != "cuda" or (index and not index.isdecimal()):
        raise ProbeError(f"device: {device!r} is not a device; give cuda:0, cuda:1, ... or cpu")
    torch = need_torch()
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    number = int(index or 0)
    if number >= count:
        raise ProbeError(
            f"device: {device} is not there, torch {torch.__version__} sees {count} CUDA devices; "
            "check CUDA_VISIBLE_DEVICES and the driver, or give cpu"
        )
    return f"cuda:{number}"
