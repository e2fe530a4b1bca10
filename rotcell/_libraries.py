"""Loads the compiled libraries, which register the ops, and wraps their C functions."""

from __future__ import annotations

import ctypes
import functools
import os
import warnings
from pathlib import Path

import torch

from . import _torch_check

CPU_LIBRARY = "librotcell_cpu.so"
CUDA_LIBRARY = "librotcell_cuda.so"
#: As the libraries number them.
CUDA_PATHS = ("stepwise", "resident", "cooperative", "cluster")
#: What only the stepwise path supports; "" for what all paths support.
CUDA_OPTIONS = ("", "projection", "state hooks")
CUDA_PASSES = ("forward", "backward")
CUDA_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class CudaRequest(ctypes.Structure):
    """A call to plan: RotcellRequest in csrc/cuda/runtime/plan_functions.h."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("path", "cell", "pass_number", "number")),
        ("projection", ctypes.c_int),
        *((name, ctypes.c_int64) for name in ("hidden", "batch", "steps")),
    )


_cpu: ctypes.CDLL | None = None
_cuda: ctypes.CDLL | None = None
_why_missing: str | None = None


def load() -> bool:
    """Load the CPU library, and the CUDA library if it was built and torch has CUDA.

    Returns whether there are ops. Without the CPU library there are none: a warning says why, and
    all layers run on the reference, as they do on GPUs without the CUDA library.
    """
    global _cpu, _cuda, _why_missing
    if _cpu is not None or _why_missing is not None:
        return _cpu is not None
    _torch_check.check_torch()
    _cpu, _why_missing = _load_cpu()
    if _why_missing is not None:
        warnings.warn(
            "rotcell runs on its reference code, which is many times slower than its kernels: "
            f"{_why_missing}",
            stacklevel=2,
        )
    path = _torch_check.PACKAGE / CUDA_LIBRARY
    if _cpu is not None and torch.version.cuda is not None and path.is_file():
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
    return _cpu is not None


def _load_cpu() -> tuple[ctypes.CDLL | None, str | None]:
    """The CPU library, or why there is none and what to do."""
    path = _torch_check.PACKAGE / CPU_LIBRARY
    record = _torch_check.build_record()
    if path.is_file():
        try:
            return _open(path), None
        except OSError as error:
            return None, (
                f"{path} could not be loaded with torch {torch.__version__}: {error}\n"
                "If that is a wheel for another system, compile rotcell here: `pip install "
                "--force-reinstall --no-deps .` in its source tree."
            )
    if record is None or record["native"]:
        return None, (
            f"nothing is compiled in {_torch_check.PACKAGE}.\n"
            "If that is the source tree and rotcell is installed, start Python from another "
            "folder, so that the installed rotcell is found.\n"
            "To use the source tree itself, run `pip install -e .` in it."
        )
    return None, (
        f"it was installed without them ({record['native_reason']}).\n"
        "Install a wheel for this system, or a C++20 compiler and then rotcell again: "
        "`ROTCELL_NATIVE=1 pip install --force-reinstall --no-deps --no-cache-dir .` in its source "
        "tree."
    )


def why_missing() -> str | None:
    """Why there are no compiled ops, and what to do; None if there are."""
    load()
    return _why_missing


def _open(path: Path) -> ctypes.CDLL:
    """Load a library; OSError if loading it or registering its ops fails."""
    torch.ops.load_library(str(path))
    library = ctypes.CDLL(str(path))
    library.rotcell_load_error.restype = ctypes.c_char_p
    error = library.rotcell_load_error()
    if error is not None:
        raise OSError(f"its ops could not be registered: {error.decode()}")
    return library


def _loaded_cpu() -> ctypes.CDLL:
    if not load():
        raise RuntimeError(f"rotcell has no kernels here: {_why_missing}")
    assert _cpu is not None
    return _cpu


def instruction_sets() -> list[str]:
    """The instruction sets built in that this machine runs, narrowest first."""
    function = _loaded_cpu().rotcell_instruction_sets
    function.restype = ctypes.c_char_p
    return str(function().decode()).split(",")


def instruction_set() -> str:
    """The instruction set that the CPU kernels use."""
    function = _loaded_cpu().rotcell_instruction_set
    function.restype = ctypes.c_char_p
    name = function()
    if name is None:
        usable = ", ".join(instruction_sets())
        given = os.environ.get("ROTCELL_ISA")
        raise ValueError(f"ROTCELL_ISA must be one of {usable} on this machine, got {given!r}")
    return str(name.decode())


@functools.cache
def computes_in_bfloat16() -> bool:
    """Whether CPU matmuls of bfloat16 layers are made in bfloat16, not in float32."""
    return why_missing() is None and instruction_set().endswith("bf16")


def int8_instructions() -> str:
    """The instructions that matmuls with int8 weights use."""
    function = _loaded_cpu().rotcell_int8_instructions
    function.restype = ctypes.c_char_p
    instruction_set()  # raises if ROTCELL_ISA is none of them
    return str(function().decode())


def processors() -> int:
    """How many processors this process may use, by its affinity mask and its cgroups' quotas."""
    return int(_loaded_cpu().rotcell_processors())


def has_cuda() -> bool:
    """Whether there are kernels for GPUs, for this torch."""
    return _cuda is not None


def _loaded_cuda() -> ctypes.CDLL:
    if _cuda is None:
        raise RuntimeError("rotcell's CUDA kernels are not loaded; `python -m rotcell` shows why")
    return _cuda


def cuda_has_code(index: int) -> bool:
    """Whether the kernels run on this GPU: some may be too old, or too new, for the build."""
    return bool(_loaded_cuda().rotcell_cuda_has_kernels(index))


def cuda_device(index: int) -> dict[str, int]:
    """Properties of a GPU of this machine, as `cuda_plan` takes them."""
    names = _names("rotcell_cuda_property_names")
    values = (ctypes.c_int64 * len(names))()
    if _loaded_cuda().rotcell_cuda_device(index, values) != 0:
        raise ValueError(f"there is no GPU of index {index} that rotcell can use")
    return dict(zip(names, values, strict=True))


def known_cuda_devices() -> dict[str, dict[str, int]]:
    """Properties of well-known GPUs, by name."""
    names = _names("rotcell_cuda_property_names")
    function = _loaded_cpu().rotcell_cuda_known_device
    function.restype = ctypes.c_char_p
    devices: dict[str, dict[str, int]] = {}
    values = (ctypes.c_int64 * len(names))()
    while (name := function(len(devices), values)) is not None:
        devices[name.decode()] = dict(zip(names, values, strict=True))
    return devices


def cuda_has_cell(cell: int) -> bool:
    """Whether a GPU runs the cell with this number in the list."""
    return bool(_loaded_cpu().rotcell_cuda_has_cell(cell))


def cuda_plan(request: CudaRequest, device: dict[str, int]) -> dict[str, int] | None:
    """The plan of a call on a GPU; None if the requested path cannot run it."""
    properties = _names("rotcell_cuda_property_names")
    if missing := [name for name in properties if name not in device]:
        raise ValueError(f"device must have all properties; {missing[0]} is missing")
    fields = _names("rotcell_cuda_plan_fields")
    values = (ctypes.c_int64 * len(fields))()
    given = (ctypes.c_int64 * len(properties))(*(device[name] for name in properties))
    if _loaded_cpu().rotcell_cuda_plan(ctypes.byref(request), given, values) != 0:
        return None
    return dict(zip(fields, values, strict=True))


@functools.cache
def _names(function_name: str) -> tuple[str, ...]:
    """The names that a function of the CPU library returns, with commas between them."""
    function = getattr(_loaded_cpu(), function_name)
    function.restype = ctypes.c_char_p
    return tuple(function().decode().split(","))


def _path_number(path: str | None) -> int:
    if path is not None and path not in CUDA_PATHS:
        raise ValueError(f"path must be one of {', '.join(CUDA_PATHS)}, got {path!r}")
    return -1 if path is None else CUDA_PATHS.index(path)


def force_cuda_path(path: str | None) -> None:
    """For tests: always take this path, or with None the plan's choice again."""
    _loaded_cuda().rotcell_cuda_force_path(_path_number(path))


def force_cuda_path_of_thread(path: str | None) -> None:
    """As `force_cuda_path`, for the calling thread only."""
    _loaded_cuda().rotcell_cuda_force_path_of_thread(_path_number(path))


def allow_cuda_path(path: str, allowed: bool) -> None:
    """Whether a path may be taken at all."""
    _loaded_cuda().rotcell_cuda_allow_path(_path_number(path), int(allowed))


def switch_off_cuda(index: int, cell: int, dtype: torch.dtype, what: str) -> None:
    """Disable a path or an option for this device, cell and dtype."""
    switches = (*CUDA_PATHS, *CUDA_OPTIONS[1:])
    number = CUDA_TYPES.index(dtype)
    if _loaded_cuda().rotcell_cuda_switch_off(index, cell, number, switches.index(what)) != 0:
        raise ValueError(f"there is no cell of number {cell}")


def cuda_can_run(index: int, cell: int, dtype: torch.dtype, projection: bool, hooks: bool) -> bool:
    """Whether any path is still enabled for such calls."""
    number = CUDA_TYPES.index(dtype)
    return bool(_loaded_cuda().rotcell_cuda_can_run(index, cell, number, projection, hooks))


def switch_on_all_cuda() -> None:
    """For tests: undo every `switch_off_cuda`."""
    _loaded_cuda().rotcell_cuda_switch_on_all()
