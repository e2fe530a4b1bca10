"""What is compiled into which library, and with which flags."""

import functools
import importlib.metadata
import os
import re
import shlex
import subprocess
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMIT_FILE = "COMMIT"  # in an sdist, which is no clone


def _oldest_torch():
    """The version that the installed package checks. To raise it: docs/internals/stable-abi.md."""
    text = (ROOT / "rotcell" / "_torch_check.py").read_text(encoding="utf-8")
    found = re.search(r"^OLDEST_TORCH = \((\d+), (\d+)\)", text, re.MULTILINE)
    return int(found[1]), int(found[2])


OLDEST_TORCH = _oldest_torch()

# The tag of a wheel for a package index, such as manylinux_2_28_aarch64: set by build_tools/wheel.
PLATFORM = os.environ.get("ROTCELL_PLATFORM", "")
X86 = (PLATFORM or sysconfig.get_platform()).lower().endswith(("x86_64", "amd64"))

# No -march=native: one wheel for every machine. No -ffast-math: NaN and Inf keep their meaning.
COMMON_FLAGS = [
    *["-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"],
    *["-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"],
]
AVX2_FLAGS = ["-mavx2", "-mfma"]
AVX512_FLAGS = [
    *["-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mprefer-vector-width=512"],
    *AVX2_FLAGS,
]
AVX512_BF16_FLAGS = ["-mavx512bf16", *AVX512_FLAGS]

# For the int8 kernels: without contraction every instruction set gives the same bits.
INT8_FLAGS = {
    "int8_generic": ["-ffp-contract=off"],
    "int8_avx2": [*AVX2_FLAGS, "-ffp-contract=off"],
    "int8_avx_vnni": ["-mavxvnni", *AVX2_FLAGS, "-ffp-contract=off"],
    "int8_avx512_vnni": ["-mavx512vnni", *AVX512_FLAGS, "-ffp-contract=off"],
}

# torch's headers then declare only what every torch from the oldest on has.
TARGET_FLAGS = [f"-DTORCH_TARGET_VERSION=0x{OLDEST_TORCH[0]:02x}{OLDEST_TORCH[1]:02x}000000000000"]

# What the CUDA library shares with the CPU library.
SHARED = [
    "cells/sequence.cpp",
    *(f"cpu/runtime/{name}.cpp" for name in ("fork_worker", "thread_pool")),
    *(f"torch/{n}.cpp" for n in ("arguments", "registration", "sequence", "tensor", "thread_pool")),
    "torch/older_libstdcxx.cpp",
]
# What _C asks the CPU runtime about the machine.
RUNTIME_FACTS = [f"cpu/runtime/{name}.cpp" for name in ("instruction_set", "processors")]


def _found(*patterns):
    return sorted(source for pattern in patterns for source in ROOT.glob(f"csrc/{pattern}"))


def own_flags(source):
    """The flags that only this source gets."""
    if source.stem in INT8_FLAGS:
        return INT8_FLAGS[source.stem]
    if source.stem.endswith("_avx2"):
        return AVX2_FLAGS
    if source.stem.endswith("_avx512"):
        return AVX512_FLAGS
    if source.stem.endswith("_avx512_bf16"):
        return AVX512_BF16_FLAGS
    return []


def _is_for_x86(source):
    return any(flag.startswith("-m") for flag in own_flags(source))


@functools.cache
def knows_avx512_bf16():
    """Whether the compiler (GCC 10, Clang 9 or newer) has the instructions for bfloat16."""
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    test = [*compiler, "-mavx512bf16", "-x", "c++", "-fsyntax-only", "-"]
    return X86 and subprocess.run(test, input="", capture_output=True, text=True).returncode == 0


def cpu_definitions():
    """Definitions for the CPU library: the kernels that it is built with."""
    has = {"X86": X86, "AVX512_BF16": knows_avx512_bf16()}
    return [f"-DROTCELL_{name}=1" for name, is_so in has.items() if is_so]


def cpu_sources():
    """The sources of librotcell_cpu.so: the kernels and ops of the CPU, and the plan for GPUs."""
    plan = ("cuda/runtime/plan.cpp", "cuda/runtime/plan_functions.cpp")
    found = _found("cells/*.cpp", "cpu/**/*.cpp", "torch/*.cpp", *plan)
    left_out = AVX512_BF16_FLAGS if X86 and not knows_avx512_bf16() else None
    return [s for s in found if (X86 or not _is_for_x86(s)) and own_flags(s) != left_out]


def cuda_sources():
    """What nvcc compiles for librotcell_cuda.so."""
    return _found("cuda/**/*.cu")


def cuda_cxx_sources():
    """What the C++ compiler compiles for librotcell_cuda.so."""
    return _found("cuda/**/*.cpp", "torch/cuda/*.cpp", *SHARED)


def module_sources():
    """The sources of _C, which knows nothing of torch."""
    return _found("module/*.cpp", *RUNTIME_FACTS)


def installed_torch():
    """The version of the torch to build against, or None when there is none."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None
    minor = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if minor < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise SystemExit(f"rotcell needs torch {oldest} or newer; torch {version} is installed.")
    return version


def git_commit():
    """The commit of the source tree, with "+changes" if files differ from it, or "unknown"."""
    if (ROOT / COMMIT_FILE).is_file():
        return (ROOT / COMMIT_FILE).read_text(encoding="utf-8").strip()
    if not (ROOT / ".git").exists():
        return "unknown"
    git = ["git", "-C", str(ROOT)]
    try:
        commit = subprocess.check_output(
            [*git, "rev-parse", "HEAD"], text=True, stderr=subprocess.DEVNULL
        ).strip()
        changed = subprocess.check_output(
            [*git, "status", "--porcelain", "--untracked-files=no"], text=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}+changes" if changed.strip() else commit
