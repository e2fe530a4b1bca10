"""What is compiled, with which flags, and against which torch."""

import importlib.metadata
import os
import platform
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_TORCH = (2, 6)
X86 = platform.machine().lower() in ("x86_64", "amd64")

# No -march=native: one wheel for every machine. No -ffast-math: NaN and Inf keep their meaning.
COMMON_FLAGS = [
    *["-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden", "-fopenmp", "-Wall", "-Wextra"],
    *["-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"],
]
AVX2_FLAGS = ["-mavx2", "-mfma"]
AVX512_FLAGS = [
    *["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mprefer-vector-width=512"],
    *AVX2_FLAGS,
]


def cxx_sources():
    """Every C++ source, with the flags that only it gets."""
    for source in sorted([*ROOT.glob("csrc/cpu/*.cpp"), *ROOT.glob("csrc/ops/*.cpp")]):
        if source.stem.endswith("_avx2"):
            flags = AVX2_FLAGS
        elif source.stem.endswith("_avx512"):
            flags = AVX512_FLAGS
        else:
            flags = []
        if X86 or not flags:
            yield source, flags


def cuda_sources():
    return sorted(ROOT.glob("csrc/cuda/*.cu"))


def cuda_decision(torch):
    """Whether to build the CUDA kernels, and why (not). ROTCELL_CUDA=0 or 1 forces it."""
    wish = os.environ.get("ROTCELL_CUDA", "")
    if wish not in ("", "0", "1"):
        raise SystemExit(f"ROTCELL_CUDA must be 0, 1 or unset, not {wish!r}.")
    if wish == "0":
        return False, "ROTCELL_CUDA=0"
    obstacles = {
        "torch is a CPU build": torch.version.cuda is None,
        "nvcc was not found": shutil.which("nvcc") is None,
        "this version of rotcell has no CUDA kernels": not cuda_sources(),
    }
    found = [reason for reason, is_so in obstacles.items() if is_so]
    if wish == "1" and found:
        raise SystemExit(f"ROTCELL_CUDA=1 asks for CUDA kernels, but {found[-1]}.")
    return not found, found[0] if found else "torch and nvcc support it"


def torch_minor():
    """(major, minor) of the torch to build against, or None when there is none."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None
    minor = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if minor < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise SystemExit(f"rotcell needs torch {oldest} or newer; torch {version} is installed.")
    return minor


def runtime_requirements():
    """What an installed rotcell needs; torch's C++ interface changes between minor versions."""
    minor = torch_minor()
    torch = "torch=={}.{}.*".format(*minor) if minor else "torch>={}.{}".format(*OLDEST_TORCH)
    return [torch, "numpy"]  # without numpy, torch warns when it is imported
