"""The device that is checked."""

from __future__ import annotations

import contextlib
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import torch

from rotcell import _libraries
from rotcell.cuda.self_check import driver_version
from rotcell.info import build_info

#: Batch and hidden size of the sequences that are compared. A path skips sizes that do not fit.
SIZES = ((5, 21), (18, 50), (3, 112), (17, 160), (33, 256), (300, 38))


class Gpu:
    """A GPU of this machine."""

    #: Streams and graphs can be tested.
    has_streams = True
    sizes: tuple[tuple[int, int], ...] = SIZES

    def __init__(self, index: int = 0) -> None:
        self.device = torch.device("cuda", index)
        torch.cuda.set_device(self.device)

    def properties(self) -> dict[str, int]:
        """The device's properties, as `rotcell.cuda.paths.plan` takes them."""
        return _libraries.cuda_device(self.device.index or 0)

    def force_path(self, path: str | None) -> None:
        """Force this path; None follows the plan."""
        _libraries.force_cuda_path(path)

    @contextlib.contextmanager
    def forced(self, path: str | None) -> Iterator[None]:
        """Force this path inside the block."""
        self.force_path(path)
        try:
            yield
        finally:
            self.force_path(None)

    def synchronize(self) -> None:
        """Wait for the device; raises if it can do no more."""
        torch.cuda.synchronize(self.device)

    def seconds(self, function: Callable[[], object], calls: int) -> float:
        """Seconds per call on the device."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.synchronize()
        start.record()
        for _ in range(calls):
            function()
        end.record()
        self.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / calls

    def facts(self) -> dict[str, Any]:
        """Everything that may explain what is found."""
        found = torch.cuda.get_device_properties(self.device)
        return {
            "name": found.name,
            "compute_capability": f"{found.major}.{found.minor}",
            "memory_bytes": found.total_memory,
            "properties": self.properties(),
            "has_code": _libraries.cuda_has_code(self.device.index or 0),
            "driver": driver_version(),
            "nvidia_smi": _nvidia_smi(),
            "cuda_of_torch": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "tf32": torch.backends.cuda.matmul.allow_tf32,
            "platform": platform.platform(),
            "rotcell": build_info(),
        }


def _nvidia_smi() -> str | None:
    """Clocks and power, if nvidia-smi reports them."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    query = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu"
    command = [program, f"--query-gpu={query}", "--format=csv"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
