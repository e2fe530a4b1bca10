"""What is compiled, with which flags, and against which torch."""

import importlib.metadata
import platform
import re
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
    """Every C++ source of any build, with the flags that only it gets."""
    folders = ("csrc/cpu", "csrc/cuda", "csrc/ops")
    for source in sorted(source for folder in folders for source in ROOT.glob(f"{folder}/*.cpp")):
        if source.stem.endswith("_avx2"):
            flags = AVX2_FLAGS
        elif source.stem.endswith("_avx512"):
            flags = AVX512_FLAGS
        else:
            flags = []
        if X86 or not flags:
            yield source, flags


def cuda_sources():
    """What nvcc compiles, if there are to be CUDA kernels."""
    return sorted(ROOT.glob("csrc/cuda/*.cu"))


def cuda_cxx_sources():
    """What the C++ compiler compiles only if there are to be CUDA kernels."""
    return sorted(ROOT.glob("csrc/ops/cuda/*.cpp"))


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
