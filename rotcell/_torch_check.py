"""Checks that torch is new enough, and reads what the build wrote about itself."""

import json
import re
from pathlib import Path
from typing import TypedDict

import torch

PACKAGE = Path(__file__).resolve().parent
OLDEST_TORCH = (2, 10)  # also in pyproject.toml; the build reads it here


class Build(TypedDict):
    """What the build wrote about itself."""

    version: str
    commit: str  # of git, or "unknown"
    native: bool  # whether the libraries were compiled
    native_reason: str
    torch: str | None
    python: str
    compiler: str | None
    cuda: bool
    cuda_reason: str
    cuda_version: str | None  # of nvcc
    cuda_architectures: list[str]


def check_torch() -> None:
    """Raise ImportError if torch is too old."""
    running = str(torch.__version__)
    if tuple(int(number) for number in re.findall(r"\d+", running)[:2]) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise ImportError(
            f"rotcell needs torch {oldest} or newer, but torch {running} is running: "
            f"`pip install 'torch>={oldest}'`."
        )


def build_record() -> Build | None:
    """What the build recorded; None in a source tree in which nothing was built."""
    record = PACKAGE / "_build.json"
    if not record.is_file():
        return None
    build: Build = json.loads(record.read_text(encoding="utf-8"))
    return build
