"""What the measurements were made on and with."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import rotcell

#: Variables that hold rotcell, torch, oneDNN or MKL to fewer instructions than the processor has.
_HOLDING_BACK = (
    "ROTCELL_ISA",
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_ENABLE_INSTRUCTIONS",
)


def usable_cores() -> int:
    """Count the cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe(device: torch.device) -> dict[str, Any]:
    """Collect processor, GPU, versions and the commit of the source, if it is in git."""
    info = rotcell.build_info()
    machine: dict[str, Any] = {
        "cpu": _cpu_model(),
        "cores": usable_cores(),
        "load_at_start": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "instruction_set": info["instruction_set"],
        "held_back_by": {name: os.environ[name] for name in _HOLDING_BACK if name in os.environ},
        "rotcell": info,
        "versions": _versions(),
        "commit": _commit(),
    }
    if device.type == "cuda":
        machine["gpu"] = torch.cuda.get_device_name(device)
        machine["cuda"] = torch.version.cuda
        machine["cudnn"] = torch.backends.cudnn.version()
        machine["cudnn_allow_tf32"] = torch.backends.cudnn.allow_tf32
    return machine


def summary(machine: dict[str, Any]) -> str:
    """Say it in one line."""
    where = machine.get("gpu") or f"{machine['cpu']}, {machine['instruction_set']}"
    held_back = [f", {name}={value}" for name, value in machine.get("held_back_by", {}).items()]
    return f"{where}, torch {machine['versions']['torch']}{''.join(held_back)}"


def is_busy(machine: dict[str, Any]) -> bool:
    """Tell whether other programs were using the processor when the measurement began."""
    return bool(machine["load_at_start"] > 0.5 * machine["cores"])


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown processor"


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("rotcell", "torch", "numpy", "jax", "jaxlib", "onnxruntime", "matplotlib"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _commit() -> str | None:
    folder = Path(__file__).resolve().parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip() or None
