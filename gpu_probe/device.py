"""Which device it is: its name, its memory, its driver."""

import importlib
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_probe.errors import ProbeError, check_device, need_torch
from gpu_probe.host import host_memory


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device as it is at this moment. Bytes; `free` is what can still be taken.

    `driver` is a version, or the kernel's for `cpu`; `source` says who gave the figures: nvml, torch or proc.
    """

    device: str
    name: str
    total: int
    free: int
    driver: str
    source: str

    @property
    def line(self) -> str:
        """The device in one line for a person."""
        return f"{self.device}: {self.name}, {gib(self.free)} of {gib(self.total)} free, driver {self.driver}"


def describe(device: str) -> DeviceInfo:
    """Describe `cpu` (host memory, a container's limit heeded) or `cuda:N` (through NVML, else through torch).

    Raises ProbeError for a device that is not there, or for CUDA without torch.
    """
    device = check_device(device)
    if device == "cpu":
        memory = host_memory()
        kernel = platform.release() or "unknown"
        return DeviceInfo(device, _processor(), memory.total, memory.usable, kernel, "proc")
    if device == "meta":
        raise ProbeError("device: meta holds no memory; give cuda:0, cuda:1, ... or cpu")
    return _by_nvml(device) or _by_torch(device)


def gib(size: int) -> str:
    """Return bytes as GiB with two decimals, or as MiB or bytes where that reads better."""
    if size >= 1 << 30:
        return f"{size / (1 << 30):.2f} GiB"
    return f"{size / (1 << 20):.1f} MiB" if size >= 1 << 20 else f"{size} B"


def _by_torch(device: str) -> DeviceInfo:
    torch = need_torch()
    try:
        properties = torch.cuda.get_device_properties(device)
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError as error:
        raise ProbeError(f"device: {device} does not answer ({_first_line(error)}); look at nvidia-smi") from error
    return DeviceInfo(device, properties.name, total, free, f"CUDA {torch.version.cuda}", "torch")


def _by_nvml(device: str) -> DeviceInfo | None:
    """Ask NVML by the device's UUID, since its numbering is not torch's; None where there is no NVML."""
    torch = need_torch()
    try:
        nvml: Any = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001 - without the package, the library or a driver there is no NVML; torch answers then
        return None
    try:
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        name, driver = _text(nvml.nvmlDeviceGetName(handle)), _text(nvml.nvmlSystemGetDriverVersion())
        return DeviceInfo(device, name, int(memory.total), int(memory.free), driver, "nvml")
    except Exception:  # noqa: BLE001 - a card in MIG mode or a container may hide it from NVML; torch answers then
        return None
    finally:
        nvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.machine() or "host"
