"""Compiles _simt: the CUDA ops and kernels for the executor of csrc/simt. For tests only.

`python build_tools/simt_build.py` prints the path of the module. CXXFLAGS and LDFLAGS are heeded,
for sanitizers; each set of flags has a folder of its own.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from ninja_build import find_ninja, path, words
from sources import COMMON_FLAGS, ROOT

# These speak to a GPU; the executor answers in their place.
ONLY_FOR_A_GPU = ("current_device.cpp", "device.cu", "registration.cpp")
# What the ops share with those of the CPU.
SHARED = ("csrc/ops/sequence.cpp", "csrc/ops/plan_module.cpp")


def compiler():
    """The C++ compiler as a list of words, or None if there is none."""
    command = shlex.split(os.environ.get("CXX", "c++"))
    return command if shutil.which(command[0]) else None


def simt_sources():
    patterns = ("csrc/cuda/*.cu", "csrc/cuda/*.cpp", "csrc/ops/cuda/*.cpp", "csrc/simt/*.cpp")
    found = [source for pattern in patterns for source in ROOT.glob(pattern)]
    own = [source for source in found if source.name not in ONLY_FOR_A_GPU]
    return sorted([*own, *(ROOT / name for name in SHARED)])


def ninja_file(torch, cxx):
    from torch.utils import cpp_extension

    includes = [*cpp_extension.include_paths(), sysconfig.get_path("include")]
    flags = [
        *(flag for flag in COMMON_FLAGS if flag != "-fopenmp"),  # torch's products bring their own
        *["-DROTCELL_SIMT=1", "-Wno-unknown-pragmas", f"-I{ROOT / 'csrc'}"],
        *(f"-isystem{folder}" for folder in includes),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *shlex.split(os.environ.get("CXXFLAGS", "")),
    ]
    link_flags = [
        *(f"-L{folder}" for folder in cpp_extension.library_paths()),
        *["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"],
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
    for source in simt_sources():
        objects.append(path(f"{source.relative_to(ROOT / 'csrc')}.o"))
        lines.append(f"build {objects[-1]}: compile {path(source)}")
    lines.append(f"build _simt.so: link {' '.join(objects)}")
    return "\n".join(lines) + "\n"


def build():
    """The path of the module, which is up to date."""
    import torch

    text = ninja_file(torch, compiler())
    own_flags = hashlib.sha256(text.split("\nbuild ", 1)[0].encode()).hexdigest()[:8]
    name = f"simt-{sys.implementation.cache_tag}-torch-{torch.__version__}-{own_flags}"
    folder = ROOT / "build" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "build.ninja").write_text(text, encoding="utf-8")
    jobs = os.environ.get("MAX_JOBS") or str(len(os.sched_getaffinity(0)))
    done = subprocess.run(
        [find_ninja(), "-C", str(folder), "-j", jobs], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"Compiling the executor's module failed:\n{done.stdout}{done.stderr}")
    return folder / "_simt.so"


if __name__ == "__main__":
    print(build())
