"""What the CUDA ops run on in these tests: the emulator on the CPU, or a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from kernel_cases import Case
from torch import Tensor

from rotcell import _libraries
from rotcell.cuda import paths

KNOWN = _libraries.known_cuda_devices()

#: What the emulator can pose as. With two multiprocessors, a resident block carries several rows
#: of the batch and a cooperative block many units; a T4 has tensor cores for float16 only.
POSES = {
    **KNOWN,
    "small": KNOWN["H100"] | {"multiprocessors": 2},
    "small T4": KNOWN["T4"] | {"multiprocessors": 2},
}


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Setting:
    """A path, and what the emulator poses as while it is taken."""

    path: str
    pose: str

    def __str__(self) -> str:
        return f"{self.path}-{self.pose.replace(' ', '-')}"

    def plan(
        self, case: Case, dtype: torch.dtype, pass_name: str, device: dict[str, int] | None = None
    ) -> dict[str, Any] | None:
        return paths.plan(
            case.kind.name,
            pass_name,
            case.hidden,
            case.batch,
            case.steps,
            dtype_name(dtype),
            device or POSES[self.pose],
            projection=case.outputs > 0,
            path=self.path,
        )


class Emulator:
    """The kernels on CPU tensors."""

    device = torch.device("cpu")

    def __init__(self, module: Any) -> None:
        self.module = module

    def use(self, setting: Setting, case: Case, dtype: torch.dtype) -> None:
        for pass_name in ("forward", "backward"):
            assert setting.plan(case, dtype, pass_name), "this case does not fit the posed device"
        self.module.pose_as(POSES[setting.pose])
        self.force_path(setting.path)

    def force_path(self, path: str | None) -> None:
        self.module.force_path(path)

    def launches(self) -> dict[str, int]:
        """Launches since the last time this was asked, by kernel."""
        counts = self.module.launches()
        self.module.reset_launches()
        return counts


class Gpu:
    """The first GPU of this machine."""

    device = torch.device("cuda", 0)

    def use(self, setting: Setting, case: Case, dtype: torch.dtype) -> None:
        for pass_name in ("forward", "backward"):
            if setting.plan(case, dtype, pass_name, _libraries.cuda_device(0)) is None:
                pytest.skip(f"this GPU cannot run {case} on the {setting.path} path")
        self.force_path(setting.path)

    def force_path(self, path: str | None) -> None:
        _libraries.force_cuda_path(path)


Machine = Emulator | Gpu


def on(machine: Machine, tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    return [None if t is None else t.to(machine.device) for t in tensors]


STEPWISE = Setting("stepwise", "T4")
RESIDENT = Setting("resident", "H100")
RESIDENT_ROWS = Setting("resident", "small")
COOPERATIVE = Setting("cooperative", "H100")
COOPERATIVE_UNITS = Setting("cooperative", "small")
COOPERATIVE_PLAIN = Setting("cooperative", "small T4")
CLUSTER = Setting("cluster", "H100")
#: For every dtype; clusters are for fp16 and bf16.
SETTINGS = [STEPWISE, RESIDENT, RESIDENT_ROWS, COOPERATIVE, COOPERATIVE_UNITS]
