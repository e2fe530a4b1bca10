"""How this installation of rotcell was built and what it runs on."""

import os
import platform
from typing import Any

import torch

from . import _libraries
from ._torch_check import check_torch

INSTRUCTION_SET_VARIABLE = "ROTCELL_ISA"


def build_info() -> dict[str, str | int | bool | list[str] | None]:
    """How rotcell was built and what it runs on here.

    Example:
        >>> import rotcell
        >>> rotcell.build_info()["instruction_set"] in rotcell.build_info()["instruction_sets"]
        True
    """
    build = check_torch()
    return {
        "version": build["version"],
        "commit": build["commit"],
        "torch_built_against": build["torch"],
        "torch_running": str(torch.__version__),
        "python_built_with": build["python"],
        "python_running": platform.python_version(),
        "instruction_set": _libraries.instruction_set(),
        "instruction_sets": _libraries.instruction_sets(),
        "instruction_set_override": os.environ.get(INSTRUCTION_SET_VARIABLE),
        "cuda": build["cuda"],
        "cuda_loaded": _libraries.has_cuda(),
        "cuda_reason": build["cuda_reason"],
        "cuda_version": build["cuda_version"],
        "cuda_architectures": build["cuda_architectures"],
        "compiler": build["compiler"],
        "threads": torch.get_num_threads(),
        "processors": _libraries.processors(),
    }


def describe() -> str:
    """`build_info` as lines for people to read."""
    info = build_info()
    sets = info["instruction_sets"]
    assert isinstance(sets, list)
    override = info["instruction_set_override"]
    forced = f" (chosen by {INSTRUCTION_SET_VARIABLE}={override})" if override else ""
    lines = {
        "rotcell": f"{info['version']} (commit {info['commit']})",
        "torch": f"{info['torch_running']} (built against {info['torch_built_against']})",
        "Python": f"{info['python_running']} (built with {info['python_built_with']})",
        "instruction set": f"{info['instruction_set']}{forced}",
        "usable here": ", ".join(sets),
        "CUDA kernels": _cuda_kernels(info),
        "compiler": info["compiler"],
        "threads": f"{info['threads']} (processors: {info['processors']})",
    }
    width = max(map(len, lines))
    return "\n".join(f"{name:{width}}  {value}" for name, value in lines.items())


def _cuda_kernels(info: dict[str, Any]) -> str:
    if not info["cuda"]:
        return f"not built: {info['cuda_reason']}"
    built = f"CUDA {info['cuda_version']}, for {', '.join(info['cuda_architectures'])}"
    return built if info["cuda_loaded"] else f"{built}; not loaded with this torch"
