"""CUDA graphs of the stepwise path: many small launches as one.

Where no faster path runs a sequence on a GPU, each of its steps is a few small launches. From the
third sequence of a kind on, 16 steps at a time are one launch of a CUDA graph instead, where that
is predicted to be faster. A kind is a cell, a pass, a number type, a hidden size and a batch;
lengths and values may differ. Packed input of different lengths and projections take no part.

A graph has its own copy of the recurrent weights: all graphs of a device together up to 128 MB,
beside the workspaces that torch gives its products for one more stream. `statistics` tells.

``ROTCELL_CUDA_GRAPHS=0``, or `enable`, turns them off. If a graph cannot be made, or is wrong when
the self-check compares it with the reference, they are turned off with a warning.
"""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

from . import _libraries, self_check

__all__ = ["enable", "enabled", "statistics"]

SWITCH = self_check.GRAPHS

#: What torch's products depend on besides their operands: a graph that was captured with other
#: settings is another graph.
_SETTINGS: tuple[Callable[[], Any], ...] = (
    lambda: torch.backends.cuda.matmul.fp32_precision,
    torch.get_float32_matmul_precision,
    lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
    lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    lambda: torch.backends.cuda.matmul.allow_fp16_accumulation,
    torch.backends.cuda.preferred_blas_library,
    torch.are_deterministic_algorithms_enabled,
)
_numbers: dict[tuple[Any, ...], int] = {}


def _ask(setting: Callable[[], Any]) -> Any:
    try:
        return setting()
    except (AttributeError, RuntimeError):  # one that this torch lacks, or will not tell
        return None


def product_settings() -> int:
    """The settings that hold now, as a number."""
    return _numbers.setdefault(tuple(_ask(setting) for setting in _SETTINGS), len(_numbers))


# Memory that nobody else is given

_pools: dict[int, Any] = {}


def _scratch(device: int) -> AbstractContextManager[Any]:
    """Where torch's products find their workspace while a graph is captured.

    A graph keeps the address. torch itself may free a workspace at any time: then it goes back to
    this pool, from which only graphs are served, and they run one after the other.
    """
    if torch.cuda.get_allocator_backend() != "native":
        raise RuntimeError(f"torch's allocator is {torch.cuda.get_allocator_backend()}")
    if device not in _pools:
        with torch.cuda.device(device):
            _pools[device] = torch.cuda.MemPool()
    return torch.cuda.use_mem_pool(_pools[device], device)


# What the library asks for

_errors = threading.local()
_on = False


def _turn_off(what: str) -> None:
    enable(False)
    reason = what.rstrip(".")
    warnings.warn(
        f"rotcell: CUDA graphs do not work here: {reason}. The stepwise path launches every step "
        "for the rest of this process.",
        RuntimeWarning,
        stacklevel=2,
    )


def _capture(use: _libraries.CudaPathUse, run: Any, context: int, scratch: Callable[[int], Any],
             device_of: Callable[[int], torch.device]) -> None:  # fmt: skip
    wrong = self_check.check_graph(use, device_of(use.device))
    if wrong is not None:
        _turn_off(wrong)
        return
    try:
        with scratch(use.device):
            text = run(context)
    except Exception as error:  # of torch's pool; whatever it is, the call can do without
        text = (str(error) or repr(error)).encode()
    if text is not None:
        _turn_off(text.decode())


def _make_callbacks(
    scratch: Callable[[int], Any], device_of: Callable[[int], torch.device]
) -> tuple[Any, Any]:
    def settings() -> int:
        try:
            return product_settings()
        except BaseException:  # Ctrl-C: the call goes on without a graph
            return -1

    def capture(pointer: Any, run: Any, context: int) -> int | None:
        use = _libraries.CudaPathUse.from_buffer_copy(pointer.contents)
        try:
            _capture(use, run, context, scratch, device_of)
        except BaseException as unexpected:  # a warning that is an error, or Ctrl-C
            _errors.text = ctypes.create_string_buffer(
                (str(unexpected) or repr(unexpected)).encode()
            )
            return ctypes.addressof(_errors.text)
        return None

    return _libraries.CudaProductSettings(settings), _libraries.CudaCapture(capture)


_callbacks = _make_callbacks(_scratch, lambda index: torch.device("cuda", index))


def enable(on: bool = True) -> None:
    """Use CUDA graphs on the stepwise path, or do not. The environment decides at first.

    Turned off, the graphs that are there, and their memory, go.
    """
    global _on
    _on = on
    if _libraries.has_cuda():
        _libraries.set_cuda_graphs(*(_callbacks if on else (None, None)))


def enabled() -> bool:
    """Whether CUDA graphs may do the work of the stepwise path."""
    return _on


def statistics() -> dict[str, int]:
    """Graphs and bytes of their buffers now; graphs captured and sequences run by them so far."""
    if not _libraries.has_cuda():
        return dict.fromkeys(_libraries.CUDA_GRAPH_STATISTICS, 0)
    return _libraries.cuda_graph_statistics()


def set_up() -> None:
    """As the environment says; done when rotcell is imported."""
    switch = os.environ.get(SWITCH, "1")
    if switch not in ("0", "1"):
        raise ValueError(f"{SWITCH} must be 0 or 1, got {switch!r}")
    enable(switch == "1")
