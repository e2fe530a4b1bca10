"""What the measurements were made on and with."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import subprocess
import time
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
#: Where changes cannot change a measurement: results of other benchmarks, texts.
_HARMLESS = ("bench/results", "*.md")
#: Share of the cores that other processes may use while a measurement begins.
_MOST_USED_BY_OTHERS = 0.1
#: Load average per core above which a run counts as loaded if nothing better is known.
_MOST_LOAD = 0.5
_LOOK_SECONDS = 0.5


def usable_cores() -> int:
    """Count the cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe(device: torch.device) -> dict[str, Any]:
    """Collect processor, GPU, versions, load, and the commit of the source, if it is in git."""
    info = rotcell.build_info()
    machine: dict[str, Any] = {
        "cpu": _cpu_model(),
        "cores": usable_cores(),
        "load_at_start": round(os.getloadavg()[0], 2),
        "cores_used_by_others": _cores_used_by_others(),
        "system": f"{platform.system()} {platform.machine()}",
        "instruction_set": info["instruction_set"],
        "held_back_by": {name: os.environ[name] for name in _HOLDING_BACK if name in os.environ},
        "rotcell": info,
        "versions": _versions(),
        "commit": _git("rev-parse", "--short=12", "HEAD"),
        "dirty": _is_dirty(),
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


def is_loaded(machine: dict[str, Any]) -> bool:
    """Return whether other programs were using the processor when the measurement began.

    The load average still holds what this program's own predecessors did, so it only decides for
    files without a look at the processes.
    """
    others = machine.get("cores_used_by_others")
    if others is not None:
        return bool(others > _MOST_USED_BY_OTHERS * machine["cores"])
    return bool(machine.get("load_at_start", 0.0) > _MOST_LOAD * machine["cores"])


def is_dirty(machine: dict[str, Any]) -> bool:
    """Return whether the source had changes that are in no commit."""
    return bool(machine.get("dirty") or str(machine.get("commit")).endswith("-dirty"))


def faults(machine: dict[str, Any]) -> list[str]:
    """Say what makes a measurement less than it should be; empty if nothing does."""
    found = []
    if is_loaded(machine):
        others = machine.get("cores_used_by_others")
        used = "" if others is None else f", other processes used {others} of them"
        found.append(
            f"on a loaded machine (load average {machine['load_at_start']} on "
            f"{machine['cores']} cores{used})"
        )
    if is_dirty(machine):
        commit = str(machine["commit"]).removesuffix("-dirty")
        found.append(f"with uncommitted changes to {commit}")
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what allows measurements that are less than they should be."""
    parser.add_argument(
        "--allow-load",
        action="store_true",
        help="write a result file although other processes use the processor",
    )
    parser.add_argument(
        "--allow-dirty",
        action="store_true",
        help="write a result file although the source has uncommitted changes",
    )


def describe_or_refuse(
    parser: argparse.ArgumentParser, options: argparse.Namespace, device: torch.device
) -> dict[str, Any]:
    """Describe the machine; end with an error if it is loaded or the source dirty, and that is not
    allowed."""
    machine = describe(device)
    refused = []
    if is_loaded(machine) and not options.allow_load:
        refused.append("--allow-load")
    if is_dirty(machine) and not options.allow_dirty:
        refused.append("--allow-dirty")
    if refused:
        parser.error(
            f"this would be measured {' and '.join(faults(machine))}; to write a result file "
            f"that says so, give {' '.join(refused)}"
        )
    return machine


def _cores_used_by_others() -> float | None:
    """How many cores all other processes keep busy together now; None without Linux's /proc."""

    def busy_seconds() -> float:
        line = Path("/proc/stat").read_text().splitlines()[0]
        user, nice, system, _idle, _wait, irq, softirq, *_ = map(int, line.split()[1:])
        ticks = user + nice + system + irq + softirq
        return ticks / os.sysconf("SC_CLK_TCK") - time.process_time()

    try:
        before, begin = busy_seconds(), time.perf_counter()
        time.sleep(_LOOK_SECONDS)
        used = (busy_seconds() - before) / (time.perf_counter() - begin)
    except (OSError, ValueError):
        return None
    return round(max(used, 0.0), 2)


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


def _is_dirty() -> bool | None:
    exclude = [f":(top,exclude){path}" for path in _HARMLESS]
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":(top)", *exclude)
    return None if changed is None else bool(changed)


def _git(*arguments: str) -> str | None:
    """What git answers about the source; None if it is not in git."""
    try:
        found = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).resolve().parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
