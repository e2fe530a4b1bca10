"""Checks, before the compiled libraries are loaded, that they exist and can run with this torch."""

import json
import re
from pathlib import Path
from typing import TypedDict

import torch

PACKAGE = Path(__file__).resolve().parent
CPU_LIBRARY = "librotcell_cpu.so"
OLDEST_TORCH = (2, 10)


class Build(TypedDict):
    """What the build wrote about itself."""

    version: str
    commit: str  # of git, or "unknown"
    torch: str
    python: str
    compiler: str
    cuda: bool
    cuda_reason: str
    cuda_version: str | None  # of nvcc
    cuda_architectures: list[str]


def check_torch() -> Build:
    """Return what the build recorded, or raise ImportError when that build cannot run here."""
    record, library = PACKAGE / "_build.json", PACKAGE / CPU_LIBRARY
    if not record.is_file() or not library.is_file():
        raise ImportError(
            f"The compiled part of rotcell is missing in {PACKAGE}.\n"
            "If that is the source tree and rotcell is installed, start Python from another "
            "folder, so that the installed rotcell is found.\n"
            "To use the source tree itself, run `pip install -e .` in it."
        )
    running = str(torch.__version__)
    if tuple(int(number) for number in re.findall(r"\d+", running)[:2]) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise ImportError(
            f"rotcell needs torch {oldest} or newer, but torch {running} is running: "
            f"`pip install 'torch>={oldest}'`."
        )
    build: Build = json.loads(record.read_text(encoding="utf-8"))
    return build
