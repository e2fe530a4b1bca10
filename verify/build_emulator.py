"""Compiles _emulator: the CUDA ops and kernels for the emulator. For tests only.

`python verify/build_emulator.py` prints the path of the module. CXXFLAGS and LDFLAGS are heeded,
for sanitizers; each set of flags has a separate folder.
"""

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "build_tools"))

from ninja_build import find_ninja, path, pybind11_include, words
from sources import COMMON_FLAGS, ROOT, TARGET_FLAGS, cuda_cxx_sources, cuda_sources

# These speak to a GPU; the emulator answers in their place.
ONLY_FOR_A_GPU = [
    ROOT / "csrc" / name
    for name in (
        "cuda/platform/device.cu",
        "torch/cuda/current_device.cpp",
        "torch/cuda/registration.cpp",
    )
]


def compiler():
    """The C++ compiler as a list of words, or None if there is none."""
    command = shlex.split(os.environ.get("CXX", "c++"))
    return command if shutil.which(command[0]) else None


def emulator_sources():
    of_library = [s for s in (*cuda_sources(), *cuda_cxx_sources()) if s not in ONLY_FOR_A_GPU]
    return sorted([*of_library, *ROOT.glob("verify/emulator/*.cpp")])


def ninja_file(torch, cxx):
    root = Path(torch.__file__).parent
    includes = [root / "include", pybind11_include(), sysconfig.get_path("include")]
    flags = [
        *COMMON_FLAGS,
        *TARGET_FLAGS,
        # More would take longer to compile than it saves in tests.
        *["-O1", "-DROTCELL_EMULATOR=1", "-Wno-unknown-pragmas"],
        *[f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'verify'}"],
        *(f"-isystem{folder}" for folder in includes),
        *shlex.split(os.environ.get("CXXFLAGS", "")),
    ]
    link_flags = [
        *[f"-L{root / 'lib'}", "-ltorch_cpu"],
        *shlex.split(os.environ.get("LDFLAGS", "")),
    ]
    lines = [
        "rule compile",
        f"  command = {words(cxx)} -MMD -MF $out.d {words(flags)} -x c++ -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "rule link",
        f"  command = {words(cxx)} -shared $in {words(link_flags)} -o $out",
    ]
    objects = []
    for source in emulator_sources():
        objects.append(path(f"{source.relative_to(ROOT)}.o"))
        lines.append(f"build {objects[-1]}: compile {path(source)}")
    lines.append(f"build _emulator.so: link {' '.join(objects)}")
    return "\n".join(lines) + "\n"


def build():
    """The path of the module, which is up to date."""
    import torch

    text = ninja_file(torch, compiler())
    own_flags = hashlib.sha256(text.split("\nbuild ", 1)[0].encode()).hexdigest()[:8]
    name = f"emulator-{sys.implementation.cache_tag}-torch-{torch.__version__}-{own_flags}"
    folder = ROOT / "build" / name
    folder.mkdir(parents=True, exist_ok=True)
    jobs = os.environ.get("MAX_JOBS") or str(len(os.sched_getaffinity(0)))
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process of the tests may be at it
        (folder / "build.ninja").write_text(text, encoding="utf-8")
        command = [find_ninja(), "-C", str(folder), "-j", jobs]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"Compiling the emulator's module failed:\n{done.stdout}{done.stderr}")
    return folder / "_emulator.so"


if __name__ == "__main__":
    print(build())
