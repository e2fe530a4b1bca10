"""How this installation of rotcell was built and what it runs on."""

import os
import platform
from typing import Any

import torch

from . import _libraries
from ._torch_check import Build, build_record
from ._version import __version__

INSTRUCTION_SET_VARIABLE = "ROTCELL_ISA"

#: Facts of a source tree in which nothing was built.
NOT_BUILT: Build = {
    "version": __version__,
    "commit": "unknown",
    "native": False,
    "native_reason": "nothing was built",
    "torch": None,
    "python": platform.python_version(),
    "compiler": None,
    "cuda": False,
    "cuda_reason": "nothing was built",
    "cuda_version": None,
    "cuda_architectures": [],
}


def build_info() -> dict[str, str | int | bool | list[str] | None]:
    """How rotcell was built and what it runs on here.

    Example:
        >>> import rotcell
        >>> rotcell.build_info()["torch_running"] == torch.__version__
        True
    """
    build = build_record() or NOT_BUILT
    missing = _libraries.why_missing()
    return {
        "version": __version__,
        "commit": build["commit"],
        "torch_built_against": build["torch"],
        "torch_running": str(torch.__version__),
        "python_built_with": build["python"],
        "python_running": platform.python_version(),
        "native": missing is None,
        "native_reason": missing or build["native_reason"],
        "instruction_set": None if missing else _libraries.instruction_set(),
        "instruction_sets": [] if missing else _libraries.instruction_sets(),
        "int8_instructions": None if missing else _libraries.int8_instructions(),
        "instruction_set_override": os.environ.get(INSTRUCTION_SET_VARIABLE),
        "cuda": build["cuda"],
        "cuda_loaded": _libraries.has_cuda(),
        "cuda_reason": build["cuda_reason"],
        "cuda_version": build["cuda_version"],
        "cuda_architectures": build["cuda_architectures"],
        "compiler": build["compiler"],
        "threads": torch.get_num_threads(),
        "processors": os.cpu_count() if missing else _libraries.processors(),
    }


def describe() -> str:
    """`build_info` as lines for people to read."""
    info = build_info()
    lines = {"rotcell": f"{info['version']} (commit {info['commit']})"}
    if info["native"]:
        sets = info["instruction_sets"]
        assert isinstance(sets, list)
        override = info["instruction_set_override"]
        forced = f" (chosen by {INSTRUCTION_SET_VARIABLE}={override})" if override else ""
        lines |= {
            "torch": f"{info['torch_running']} (built against {info['torch_built_against']})",
            "Python": f"{info['python_running']} (built with {info['python_built_with']})",
            "instruction set": f"{info['instruction_set']}{forced}",
            **_instructions_of_dtypes(str(info["instruction_set"])),
            "usable here": ", ".join(sets),
            "int8 weights": str(info["int8_instructions"]),
            "CUDA kernels": _cuda_kernels(info),
            "compiler": str(info["compiler"]),
        }
    else:
        lines |= {
            "torch": str(info["torch_running"]),
            "Python": str(info["python_running"]),
            "kernels": "none; layers run on the slow reference code",
            "reason": " ".join(str(info["native_reason"]).split()),
        }
    lines["threads"] = f"{info['threads']} (processors: {info['processors']})"
    width = max(map(len, lines))
    return "\n".join(f"{name:{width}}  {value}" for name, value in lines.items())


def _instructions_of_dtypes(instruction_set: str) -> dict[str, str]:
    """Which instructions run for which dtype."""
    plain = instruction_set.removesuffix("_bf16")
    converted = f"in float32, by {plain}"
    how = "emulated" if plain == "generic" else "vdpbf16ps"
    in_bfloat16 = f"{instruction_set} ({how})" if instruction_set != plain else converted
    return {"float32, float64": plain, "bfloat16": in_bfloat16, "float16": converted}


def _cuda_kernels(info: dict[str, Any]) -> str:
    if not info["cuda"]:
        return f"not built: {info['cuda_reason']}"
    built = f"CUDA {info['cuda_version']}, for {', '.join(info['cuda_architectures'])}"
    return built if info["cuda_loaded"] else f"{built}; not loaded with this torch"
