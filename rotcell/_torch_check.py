"""Checks, before the compiled library is loaded, that it exists and fits the running torch."""

import json
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TypedDict

import torch

PACKAGE = Path(__file__).resolve().parent


class Build(TypedDict):
    """What the build wrote about itself."""

    version: str
    torch: str
    python: str
    compiler: str
    cuda: bool
    cuda_reason: str
    cuda_version: str | None  # of nvcc
    cuda_architectures: list[str]


def minor_version(version: str) -> str:
    """``"2.13.0+cpu"`` -> ``"2.13"``."""
    return ".".join(version.split(".")[:2])


def check_torch() -> Build:
    """Return what the build recorded, or raise ImportError when that build cannot run here."""
    record = PACKAGE / "_build.json"
    libraries = [PACKAGE / f"_C{suffix}" for suffix in EXTENSION_SUFFIXES]
    if not record.is_file() or not any(library.is_file() for library in libraries):
        raise ImportError(
            f"The compiled part of rotcell for this Python is missing in {PACKAGE}.\n"
            "If that is the source tree and rotcell is installed, start Python from another "
            "folder, so that the installed rotcell is found.\n"
            "To use the source tree itself, run `pip install -e .` in it."
        )
    build: Build = json.loads(record.read_text(encoding="utf-8"))
    built, running = build["torch"], str(torch.__version__)
    if minor_version(built) != minor_version(running):
        raise ImportError(
            f"This rotcell was built against torch {built}, but torch {running} is running; "
            "torch's C++ interface changes between minor versions.\n"
            "Build rotcell again for this torch (`pip install --force-reinstall --no-deps .` in "
            f"its source tree), or install torch {minor_version(built)}."
        )
    return build
