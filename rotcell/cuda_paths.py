"""Which path the kernels take on GPUs: those of this machine, or else some well-known ones."""

from __future__ import annotations

from typing import Any

import torch

from . import _libraries
from .reference import CELLS

SIZES = (50, 128, 256, 512, 1024)
BATCH, STEPS = 32, 100
DTYPES = ("float32", "float16")


def _module() -> Any:
    """The compiled module that knows the plan; it is built for one Python."""
    try:
        from . import _C
    except ImportError as error:
        raise RuntimeError(
            f"this needs rotcell's module for this Python, which was not built: {error}"
        ) from None
    return _C


def gpus() -> dict[str, dict[str, int]]:
    """Properties of the GPUs of this machine by name; without any, of well-known ones."""
    if not (_libraries.has_cuda() and torch.cuda.is_available()):
        known: dict[str, dict[str, int]] = _module().known_cuda_devices()
        return known
    return {
        f"{torch.cuda.get_device_name(index)} (cuda:{index})": _libraries.cuda_device(index)
        for index in range(torch.cuda.device_count())
    }


def path_of(cell: str, pass_name: str, hidden: int, dtype: str, gpu: dict[str, int]) -> str:
    """The name of the path, for the batch and the steps of the table."""
    plan = _module().cuda_plan(cell, pass_name, hidden, BATCH, STEPS, dtype, gpu)
    assert plan is not None  # that is for a path one asks for
    return str(plan["path"])


def _plan(
    path: str | None,
    cell: str,
    pass_name: str,
    hidden: int,
    batch: int,
    steps: int,
    dtype: torch.dtype,
    gpu: dict[str, int],
) -> Any:
    name = str(dtype).removeprefix("torch.")
    return _module().cuda_plan(cell, pass_name, hidden, batch, steps, name, gpu, path=path)


def fits(path: str, *call: Any) -> bool:
    """Whether a path can run a call: cell, pass, hidden size, batch, steps, type and GPU."""
    return _plan(path, *call) is not None


def chosen_path(*call: Any) -> str:
    """The path that the same call takes."""
    return str(_plan(None, *call)["path"])


def describe_cuda_paths() -> str:
    """A table for people to read."""
    lines = [f"Paths for a batch of {BATCH} and {STEPS} steps, by hidden size"]
    for name, gpu in gpus().items():
        lines += ["", f"{name:34}" + "".join(f"{size:>13}" for size in SIZES)]
        for cell in CELLS:
            for dtype in DTYPES:
                for pass_name in ("forward", "backward"):
                    paths = [path_of(cell, pass_name, size, dtype, gpu) for size in SIZES]
                    row = f"  {cell:12}{dtype:10}{pass_name:10}"
                    lines.append(f"{row:34}" + "".join(f"{path:>13}" for path in paths))
    return "\n".join(lines)
