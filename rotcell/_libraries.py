"""Loads the compiled libraries, which register the ops, and calls what they offer besides."""

from __future__ import annotations

import ctypes
import warnings
from pathlib import Path
from typing import Any

import torch

from . import _torch_check

CUDA_LIBRARY = "librotcell_cuda.so"
#: As librotcell_cuda.so numbers them.
CUDA_PATHS = ("stepwise", "resident", "cooperative", "cluster")
CUDA_OPTIONS = ("", "projection", "change of the state")
CUDA_PASSES = ("forward", "backward")
CUDA_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
#: In the order in which it tells them.
CUDA_PROPERTIES = (
    "compute_capability",
    "multiprocessors",
    "shared_bytes_per_block",
    "shared_bytes_per_multiprocessor",
    "threads_per_multiprocessor",
    "cooperative_launch",
    "largest_cluster",
)


class CudaPathUse(ctypes.Structure):
    """A path for one cell, pass and number type on one device, and the call it is used for.

    As RotcellPathUse in csrc/ops/cuda/c_functions.h.
    """

    _fields_ = (
        *((name, ctypes.c_int) for name in ("device", "cell", "pass_number", "number")),
        *((name, ctypes.c_int) for name in ("path", "option")),
        *((name, ctypes.c_int64) for name in ("hidden", "batch", "steps")),
    )


#: Takes the use of a path, returns None or the text of an error.
CudaCheck = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(CudaPathUse))
#: What torch's products depend on besides their operands, as a number.
CudaProductSettings = ctypes.CFUNCTYPE(ctypes.c_int64)
#: Takes the use of the stepwise path, and a function to call with an argument, which returns None
#: or what went wrong; returns None or the text of an error.
CudaCapture = ctypes.CFUNCTYPE(
    ctypes.c_void_p,
    ctypes.POINTER(CudaPathUse),
    ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p),
    ctypes.c_void_p,
)
CUDA_GRAPH_STATISTICS = ("graphs", "bytes", "captured", "sequences")

_cpu: ctypes.CDLL | None = None
_cuda: ctypes.CDLL | None = None


def load() -> None:
    """Load the CPU library, and the CUDA library if it was built and torch has CUDA.

    Raises ImportError if the CPU library cannot be loaded. If the CUDA library cannot, that is a
    warning: on GPUs the layers then run on the reference.
    """
    global _cpu, _cuda
    if _cpu is not None:
        return
    _torch_check.check_torch()
    path = _torch_check.PACKAGE / _torch_check.CPU_LIBRARY
    try:
        library = _open(path)
    except OSError as error:
        raise ImportError(
            f"{path} could not be loaded with torch {torch.__version__}: {error}\n"
            "If the C++ library of this system is older than the one rotcell was built with, "
            "build rotcell here: `pip install --no-binary rotcell rotcell`, or `pip install .` in "
            "its source tree."
        ) from None
    path = _torch_check.PACKAGE / CUDA_LIBRARY
    if torch.version.cuda is not None and path.is_file():
        try:
            _cuda = _open(path)
        except OSError as error:
            warnings.warn(
                f"rotcell's CUDA kernels could not be loaded with torch {torch.__version__} (CUDA "
                f"{torch.version.cuda}): {error}. On GPUs its layers run on the slower reference "
                "code. Build rotcell again for this torch: `pip install --force-reinstall "
                "--no-deps .` in its source tree.",
                stacklevel=2,
            )
    _cpu = library


def _open(path: Path) -> ctypes.CDLL:
    """Load a library; OSError says why that, or the registration of its ops, failed."""
    torch.ops.load_library(str(path))
    library = ctypes.CDLL(str(path))
    library.rotcell_load_error.restype = ctypes.c_char_p
    error = library.rotcell_load_error()
    if error is not None:
        raise OSError(f"its ops could not be registered: {error.decode()}")
    return library


def _loaded_cpu() -> ctypes.CDLL:
    load()
    assert _cpu is not None
    return _cpu


def instruction_sets() -> list[str]:
    """The instruction sets built in that this machine runs, narrowest first."""
    function = _loaded_cpu().rotcell_instruction_sets
    function.restype = ctypes.c_char_p
    return str(function().decode()).split(",")


def instruction_set() -> str:
    """The one that the CPU kernels use."""
    function = _loaded_cpu().rotcell_instruction_set
    function.restype = ctypes.c_char_p
    name = function()
    if name is None:
        usable = ", ".join(instruction_sets())
        raise ValueError(f"ROTCELL_ISA must be one of {usable} on this machine")
    return str(name.decode())


def processors() -> int:
    """How many processors this process may use, by its affinity mask and its cgroups' quotas."""
    return int(_loaded_cpu().rotcell_processors())


def has_cuda() -> bool:
    """Whether there are kernels for GPUs, for this torch."""
    return _cuda is not None


def _loaded_cuda() -> ctypes.CDLL:
    if _cuda is None:
        raise RuntimeError("rotcell's CUDA kernels are not loaded")
    return _cuda


def cuda_has_code(index: int) -> bool:
    """Whether the kernels run on this GPU: some may be too old, or too new, for the build."""
    return bool(_loaded_cuda().rotcell_cuda_has_kernels(index))


def cuda_device(index: int) -> dict[str, int]:
    """Properties of a GPU of this machine, as ``_C.cuda_plan`` takes them."""
    values = (ctypes.c_int64 * len(CUDA_PROPERTIES))()
    if _loaded_cuda().rotcell_cuda_device(index, values) != 0:
        raise ValueError(f"there is no GPU of index {index} that rotcell can use")
    return dict(zip(CUDA_PROPERTIES, values, strict=True))


def _path_number(path: str | None) -> int:
    if path is not None and path not in CUDA_PATHS:
        raise ValueError(f"path must be one of {', '.join(CUDA_PATHS)}, got {path!r}")
    return -1 if path is None else CUDA_PATHS.index(path)


def force_cuda_path(path: str | None) -> None:
    """For tests: take this path always, or with None the fastest again."""
    _loaded_cuda().rotcell_cuda_force_path(_path_number(path))


def force_cuda_path_of_thread(path: str | None) -> None:
    """The same for the calling thread only."""
    _loaded_cuda().rotcell_cuda_force_path_of_thread(_path_number(path))


def allow_cuda_path(path: str, allowed: bool) -> None:
    """Whether a path may be taken at all."""
    _loaded_cuda().rotcell_cuda_allow_path(_path_number(path), int(allowed))


def switch_off_cuda_path(use: CudaPathUse) -> None:
    """Take this path no more in this process."""
    if _loaded_cuda().rotcell_cuda_switch_off(ctypes.byref(use)) != 0:
        raise ValueError("there is no such cell, pass, type or path")


def set_cuda_check(check: Any) -> None:
    """Call this `CudaCheck` before a path is used for the first time; None: nothing."""
    library = _loaded_cuda()
    library.rotcell_cuda_set_check.restype = None
    library.rotcell_cuda_set_check(check if check is not None else ctypes.c_void_p(None))


def forget_cuda_checks() -> None:
    """For tests: as if no path had been used."""
    _loaded_cuda().rotcell_cuda_forget_checks()


def set_cuda_graphs(settings: Any, capture: Any) -> None:
    """Make CUDA graphs by these, `CudaProductSettings` and `CudaCapture`; None, both: no graphs."""
    library = _loaded_cuda()
    library.rotcell_cuda_set_graphs.restype = None
    none = ctypes.c_void_p(None)
    library.rotcell_cuda_set_graphs(*(none if f is None else f for f in (settings, capture)))


def cuda_graph_statistics() -> dict[str, int]:
    """As `CUDA_GRAPH_STATISTICS` names them."""
    values = (ctypes.c_int64 * len(CUDA_GRAPH_STATISTICS))()
    library = _loaded_cuda()
    library.rotcell_cuda_graph_statistics.restype = None
    library.rotcell_cuda_graph_statistics(values)
    return dict(zip(CUDA_GRAPH_STATISTICS, values, strict=True))
