"""What may explain a result that differs: versions, machine, threads."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

import torch

import rotcell


def environment(device: torch.device | None = None) -> dict[str, str | int]:
    """The environment of this process, as written to results."""
    info = rotcell.build_info()
    place = device or torch.device("cpu")
    return {
        "rotcell": str(rotcell.__version__),
        "commit": commit(),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": torch.cuda.get_device_name(place) if place.type == "cuda" else machine(),
        "instruction_set": str(info.get("instruction_set", "unknown")),
        "torch_instruction_set": str(torch.backends.cpu.get_cpu_capability()),
        "threads": torch.get_num_threads(),
    }


@cache
def machine() -> str:
    """The name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


@cache
def commit() -> str:
    """The commit that rotcell was made from, "unknown" if it is not recorded.

    Asked in turn: the record of the build, git where the package is a clone's, and what pip noted
    of an installation from a repository. A clone with changes adds "+changes".
    """
    package = Path(rotcell.__file__).resolve().parent
    return _of_build(package) or _of_clone(package) or _of_pip() or "unknown"


def _of_build(package: Path) -> str | None:
    try:
        found = json.loads((package / "_build.json").read_text(encoding="utf-8")).get("commit")
    except (OSError, ValueError):
        return None
    return str(found) if found else None


def _of_clone(package: Path) -> str | None:
    if not (package.parent / ".git").exists():
        return None  # a virtual environment inside of some clone is not that clone's package
    try:
        head = _git(package, "rev-parse", "HEAD")
        changed = _git(package, "status", "--porcelain", "--untracked-files=no", "--", "rotcell")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}+changes" if changed else head


def dates_of(commits: Iterable[str]) -> list[str]:
    """The days of those commits that the clone of rotcell has, if it is in one."""
    package, days = Path(rotcell.__file__).resolve().parent, []
    for each in commits:
        try:
            days.append(_git(package, "show", "--no-patch", "--format=%cs", each.split("+")[0]))
        except (OSError, subprocess.SubprocessError):
            continue
    return days


def _git(package: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(package.parent), *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    return done.stdout.strip()


def _of_pip() -> str | None:
    try:
        text = metadata.distribution("rotcell").read_text("direct_url.json")
        found = json.loads(text or "{}").get("vcs_info", {}).get("commit_id")
    except (metadata.PackageNotFoundError, ValueError):
        return None
    return str(found) if found else None
