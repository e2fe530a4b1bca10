"""When the reference runs instead of a kernel."""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from rotcell import _libraries
from rotcell.cuda import paths as cuda_paths
from rotcell.reference import Cell

from .private_torch import (
    constant_when_compiled,
    in_function_transform,
    may_be_in_forward_ad,
    rnn_precision,
)

__all__ = [
    "has_kernels",
    "kernels_work",
    "lowers_float32",
    "needs_reference",
    "use_reference",
    "warn_of_missing_ops",
]


class _Mode(threading.local):
    def __init__(self) -> None:
        # Set here, not in the class: compiled code guards on attributes of the object only.
        self.reference = False


_mode = _Mode()


@contextlib.contextmanager
def use_reference() -> Iterator[None]:
    """Run all layers and cells in this block (and thread) on `rotcell.reference`.

    For debugging and comparison; slow.

    >>> import rotcell
    >>> layer, x = rotcell.RotLSTM(3, 4), torch.randn(5, 2, 3)
    >>> with rotcell.use_reference():
    ...     expected, _ = layer(x)
    >>> torch.allclose(layer(x)[0], expected, atol=1e-6)
    True
    """
    before = _mode.reference
    _mode.reference = True
    try:
        yield
    finally:
        _mode.reference = before


def needs_reference(
    cell: Cell,
    device: torch.device,
    device_type: str,
    tensors: Sequence[Any],
    has_hooks: bool = False,
) -> bool:
    """Whether a call with these tensors (x, states, weights) must run on the reference."""
    if _mode.reference:
        return True
    if device_type != "cpu" and not has_kernels(device):
        _warn_of_missing_kernels(device)
        return True
    if device_type in _CHECKED_DEVICES and not has_cell(cell.op_name):
        _warn_of_missing_kernels(device, cell.name)
        return True
    if device_type in _CHECKED_DEVICES and not cell.reads_h:
        _warn_of_missing_kernels(device, cell.name)
        return True
    if device_type in _CHECKED_DEVICES and _angles_are_from_input(cell, tensors):
        _warn_of_missing_kernels(device, f'{cell.name} with angles_from="input"')
        return True
    if not torch.compiler.is_compiling():
        if in_function_transform():
            return True
        if may_be_in_forward_ad() and any(
            forward_ad.unpack_dual(t).tangent is not None for t in tensors if t is not None
        ):
            return True
    if device_type not in _CHECKED_DEVICES:
        return False
    projects = cell.can_project and tensors[-1] is not None
    return not kernels_work(cell.op_name, device, tensors[0].dtype, projects, has_hooks)


#: Types of devices whose kernels are checked before their first use.
_CHECKED_DEVICES = {"cuda"}


@constant_when_compiled
def lowers_float32() -> bool:
    """Whether float32 layers on the CPU are to compute in bfloat16, and can.

    As for nn.LSTM, ``torch.backends.mkldnn.rnn.fp32_precision = "bf16"`` asks for it. A compiled
    model keeps what was set when it was compiled.
    """
    return rnn_precision() == "bf16" and _libraries.computes_in_bfloat16()


@constant_when_compiled
def has_cell(cell_name: str) -> bool:
    """Whether the kernels of a checked device have a cell at all."""
    return cuda_paths.has_cell(cell_name)


@constant_when_compiled
def kernels_work(
    cell_name: str, device: torch.device, dtype: torch.dtype, projection: bool, hooks: bool
) -> bool:
    """Whether a checked device's kernels passed the check."""
    return cuda_paths.can_run(cell_name, device, dtype, projection, hooks)


@constant_when_compiled
def has_kernels(device: torch.device) -> bool:
    """Whether our kernels run on a device: some GPUs may be too old, or too new, for the build."""
    if device.type in ("cpu", "meta"):
        return True
    if device.type != "cuda" or not _libraries.has_cuda():
        return False
    if not torch.cuda.is_available():
        return True  # without a GPU these are fake tensors, traced for a machine that has one
    index = torch.cuda.current_device() if device.index is None else device.index
    return _gpu_has_kernels(index)


@functools.cache
def _gpu_has_kernels(index: int) -> bool:
    return _libraries.cuda_has_code(index)


def _angles_are_from_input(cell: Cell, tensors: Sequence[Any]) -> bool:
    if not cell.rotates:
        return False
    w_ih, w_hh = tensors[1 + len(cell.states) : 3 + len(cell.states)]
    return bool(w_hh.shape[0] < w_ih.shape[0])


_warned_cells: set[str] = set()


def warn_of_missing_ops(cell: Cell) -> None:
    """Say once per cell that it has no compiled ops; not in `use_reference`, nor in a graph."""
    if torch.compiler.is_compiling() or _mode.reference or cell.name in _warned_cells:
        return
    if _libraries.why_missing() is not None:  # a warning said so when rotcell was imported
        return
    _warned_cells.add(cell.name)
    warnings.warn(
        f"rotcell has no kernels for the cell {cell.name!r}: it runs on the slower reference code.",
        stacklevel=3,
    )


_warned_devices: set[tuple[torch.device, str]] = set()


def _warn_of_missing_kernels(device: torch.device, cell: str = "") -> None:
    if (device, cell) not in _warned_devices:
        _warned_devices.add((device, cell))
        what, layers = (f" of {cell}", "such layers") if cell else ("", "its layers")
        warnings.warn(
            f"rotcell has no kernels{what} for device {str(device)!r}: {layers} run on the slower "
            "reference code there.",
            stacklevel=3,
        )
