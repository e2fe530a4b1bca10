"""The paths of the CUDA kernels: which one runs a call, and whether any may.

``ROTCELL_CUDA_PATHS`` names the paths that may run: ``stepwise``, or ``stepwise,resident``.
``reference`` means none. The stepwise path runs what no other path can, so it cannot be left out.

``python -m rotcell --cuda-paths`` prints `describe`.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from rotcell import _libraries
from rotcell.reference import CELLS

VARIABLE = "ROTCELL_CUDA_PATHS"
REFERENCE = "reference"

SIZES = (50, 128, 256, 512, 1024)
BATCH, STEPS = 32, 100
DTYPES = ("float32", "float16")


def has_cell(cell_name: str) -> bool:
    """Whether any path runs this cell, by its description in csrc/cells."""
    return cell_name in CELLS and _libraries.cuda_has_cell(list(CELLS).index(cell_name))


def can_run(
    cell_name: str, device: torch.device, dtype: torch.dtype, projection: bool, hooks: bool
) -> bool:
    """Whether kernels run this cell there; otherwise the reference does.

    The first call for a device, cell and dtype compares all paths with the reference
    (`rotcell.cuda.self_check`), forward and backward, on the calling thread. So a backward pass
    finds everything checked: its forward pass asked.

    Args:
        cell_name: a name of `rotcell.reference.CELLS`.
        device: where the tensors are.
        dtype: the dtype of the tensors.
        projection: whether the output is projected.
        hooks: whether the call has resets, recurrent dropout or zoneout.
    """
    if device.type == "cuda" and not torch.cuda.is_available():
        return True  # fake tensors, traced for a machine with a GPU
    if dtype not in _libraries.CUDA_TYPES:
        return True  # the op raises an error that names it
    if not _allowed:
        return False
    from . import self_check  # it needs the ops, which need this module

    self_check.check_once(CELLS[cell_name], device, dtype)
    cell = list(CELLS).index(cell_name)
    return _libraries.cuda_can_run(device.index or 0, cell, dtype, projection, hooks)


def allowed_paths(text: str) -> tuple[str, ...]:
    """The paths that a value of ``ROTCELL_CUDA_PATHS`` names."""
    if text == REFERENCE:
        return ()
    names = [name.strip() for name in text.split(",")] if text else list(_libraries.CUDA_PATHS)
    if unknown := [name for name in names if name not in _libraries.CUDA_PATHS]:
        known = ", ".join(_libraries.CUDA_PATHS)
        raise ValueError(
            f"{VARIABLE} must be {REFERENCE}, or some of {known} with commas between them; "
            f"got {unknown[0]!r}"
        )
    return tuple(path for path in _libraries.CUDA_PATHS if path in ("stepwise", *names))


_allowed: tuple[str, ...] = _libraries.CUDA_PATHS


def allowed() -> tuple[str, ...]:
    """The paths that may run."""
    return _allowed


def allow(names: tuple[str, ...]) -> None:
    """Let only these paths run."""
    global _allowed
    _allowed = names
    if _libraries.has_cuda():
        for path in _libraries.CUDA_PATHS:
            _libraries.allow_cuda_path(path, path in names)


def set_up() -> None:
    """Allow the paths that the environment names. Called when rotcell is imported."""
    allow(allowed_paths(os.environ.get(VARIABLE, "")))


# The plan


def gpus() -> dict[str, dict[str, int]]:
    """Properties of the GPUs of this machine by name; without any, of well-known ones."""
    if not (_libraries.has_cuda() and torch.cuda.is_available()):
        return _libraries.known_cuda_devices()
    return {
        f"{torch.cuda.get_device_name(index)} (cuda:{index})": _libraries.cuda_device(index)
        for index in range(torch.cuda.device_count())
    }


def plan(
    cell: str,
    pass_name: str,
    hidden: int,
    batch: int,
    steps: int,
    dtype: str | torch.dtype,
    device: str | dict[str, int],
    projection: bool = False,
    path: str | None = None,
) -> dict[str, Any] | None:
    """The path that runs a sequence on a GPU, and its launch. A pure function: it needs no GPU.

    Args:
        cell: a name of `rotcell.reference.CELLS`.
        pass_name: "forward" or "backward".
        hidden: number of units.
        batch: rows of the batch.
        steps: length of the longest sequence.
        dtype: float32, float64, float16 or bfloat16.
        device: properties of a GPU, or the name of a well-known one (see `gpus`).
        projection: whether the output is projected.
        path: how this path would run, instead of the one that is predicted to be the fastest.

    Returns:
        None if the given path cannot run the sequence there.
    """
    dtypes = [str(known).removeprefix("torch.") for known in _libraries.CUDA_TYPES]
    if isinstance(device, str):
        known = _libraries.known_cuda_devices()
        device = known[_one_of("device", device, list(known))]
    for name, size in (("hidden", hidden), ("batch", batch), ("steps", steps)):
        if size < 0:
            raise ValueError(f"{name} must not be negative, got {size}")
    request = _libraries.CudaRequest(
        _libraries.CUDA_PATHS.index(_one_of("path", path, _libraries.CUDA_PATHS)) if path else -1,
        list(CELLS).index(_one_of("cell", cell, list(CELLS))),
        _libraries.CUDA_PASSES.index(_one_of("pass_name", pass_name, _libraries.CUDA_PASSES)),
        dtypes.index(_one_of("dtype", str(dtype).removeprefix("torch."), dtypes)),
        projection,
        *(hidden, batch, steps),
    )
    found = _libraries.cuda_plan(request, device)
    if found is None:
        return None
    return {**found, "path": _libraries.CUDA_PATHS[found["path"]]}


def _one_of(what: str, name: str, known: list[str] | tuple[str, ...]) -> str:
    if name not in known:
        raise ValueError(f"{what} must be one of {', '.join(known)}, got {name!r}")
    return name


def fits(path: str, *call: Any) -> bool:
    """Whether a path can run a call: the arguments of `plan` up to the device."""
    on_path: dict[str, Any] = {"path": path}
    return plan(*call, **on_path) is not None


def chosen_path(*call: Any) -> str:
    """The path that runs a call: the arguments of `plan` up to the device."""
    found = plan(*call)
    if found is None:
        return REFERENCE  # the stepwise path runs every call of a cell that has paths
    return str(found["path"])


def describe() -> str:
    """A table of the paths by size, for people to read."""
    lines = [f"Paths for a batch of {BATCH} and {STEPS} steps, by hidden size"]
    for name, gpu in gpus().items():
        lines += ["", f"{name:34}" + "".join(f"{size:>13}" for size in SIZES)]
        for cell in CELLS:
            for dtype in DTYPES:
                for pass_name in _libraries.CUDA_PASSES:
                    paths = [
                        chosen_path(cell, pass_name, size, BATCH, STEPS, dtype, gpu)
                        for size in SIZES
                    ]
                    row = f"  {cell:12}{dtype:10}{pass_name:10}"
                    lines.append(f"{row:34}" + "".join(f"{path:>13}" for path in paths))
    return "\n".join(lines)
