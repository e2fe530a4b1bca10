"""Compiles rotcell._C with ninja.

torch's own BuildExtension gives every source the same flags. The kernels need different ones: each
instruction set is a file of its own, and the choice between them is made at run time.
"""

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from cuda_compiler import chosen_architectures, cuda_decision, nvcc_command, runtime_library
from setuptools.command.build_ext import build_ext
from sources import (
    COMMON_FLAGS,
    ROOT,
    X86,
    cuda_cxx_sources,
    cuda_sources,
    cxx_sources,
    torch_minor,
)


def find_ninja():
    """The ninja beside this Python, or else any on the PATH."""
    ninja = shutil.which("ninja", path=Path(sys.executable).parent) or shutil.which("ninja")
    if ninja is None:
        raise SystemExit("rotcell is built with ninja, which was not found: pip install ninja")
    return ninja


def words(arguments):
    return shlex.join(arguments).replace("$", "$$")


def path(name):
    return re.sub(r"([$ :])", r"$\1", str(name))


def ninja_file(torch, compiler, toolkit, architectures):
    """The text of build.ninja, which makes _C.so; without a toolkit, of CPU kernels only."""
    from torch.utils import cpp_extension

    includes = [*cpp_extension.include_paths(), sysconfig.get_path("include")]
    libraries = ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
    # A second OpenMP runtime would not know torch's number of threads: link the one torch carries.
    carried = sorted(Path(torch.__file__).parent.glob("lib/libgomp*.so*"))
    libraries += [str(library) for library in carried] or ["-fopenmp"]
    if toolkit:
        includes += toolkit.folders()[0]
        libraries += ["-lc10_cuda", "-ltorch_cuda", *runtime_library(toolkit)]
    flags = [
        *COMMON_FLAGS,
        f"-I{ROOT / 'csrc'}",
        *(f"-isystem{folder}" for folder in includes),
        "-DTORCH_EXTENSION_NAME=_C",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(["-DROTCELL_X86=1"] if X86 else []),
        *(["-DROTCELL_CUDA=1"] if toolkit else []),
        *shlex.split(os.environ.get("CXXFLAGS", "")),
    ]
    link_flags = [
        *(f"-L{folder}" for folder in cpp_extension.library_paths()),
        *["-Wl,--as-needed", *libraries],
        *shlex.split(os.environ.get("LDFLAGS", "")),
    ]
    lines = [
        "rule compile",
        f"  command = {words(compiler)} -MMD -MF $out.d {words(flags)} $own_flags -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "rule link",
        f"  command = {words(compiler)} -shared $in {words(link_flags)} -o $out",
    ]
    objects = []
    if toolkit:
        nvcc = [*nvcc_command(toolkit, compiler), *(a.gencode for a in architectures)]
        lines += [
            "rule compile_cuda",
            f"  command = {words(nvcc)} -MD -MF $out.d -c $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
        ]
        for source in cuda_sources():  # first: these take the longest
            objects.append(object_of(source))
            lines.append(f"build {objects[-1]}: compile_cuda {path(source)}")
    only_with_cuda = [(source, []) for source in cuda_cxx_sources()] if toolkit else []
    for source, own_flags in [*cxx_sources(), *only_with_cuda]:
        objects.append(object_of(source))
        lines.append(f"build {objects[-1]}: compile {path(source)}")
        lines.append(f"  own_flags = {words(own_flags)}")
    lines.append(f"build _C.so: link {' '.join(objects)}")
    return "\n".join(lines) + "\n"


def object_of(source):
    """With the whole name of the source: there may be a .cpp and a .cu of the same name."""
    return path(f"{source.relative_to(ROOT / 'csrc')}.o")


class NinjaBuild(build_ext):
    """Builds the extension and writes _build.json, which says how, beside it."""

    def build_extension(self, ext):
        if not sys.platform.startswith("linux"):
            raise SystemExit("rotcell builds on Linux only so far.")
        if torch_minor() is None:
            raise SystemExit("rotcell is built against an installed torch, and none was found.")
        import torch

        toolkit, reason = cuda_decision(torch)
        architectures = chosen_architectures(torch, toolkit) if toolkit else []
        names = [str(architecture) for architecture in architectures]
        if toolkit:
            print(f"CPU and CUDA kernels: {reason}; for {', '.join(names)}", flush=True)
        else:
            print(f"CPU kernels only: {reason}", flush=True)

        # Not self.build_temp: for an editable install that is a new folder every time.
        folder = ROOT / "build" / f"{sys.implementation.cache_tag}-torch-{torch.__version__}"
        folder.mkdir(parents=True, exist_ok=True)
        compiler = shlex.split(os.environ.get("CXX", "c++"))
        steps = ninja_file(torch, compiler, toolkit, architectures)
        (folder / "build.ninja").write_text(steps, encoding="utf-8")
        jobs = os.environ.get("MAX_JOBS") or str(len(os.sched_getaffinity(0)))
        if subprocess.call([find_ninja(), "-C", str(folder), "-j", jobs]):
            raise SystemExit("Compiling rotcell failed; the compiler's message is above.")

        output = Path(self.get_ext_fullpath(ext.name))
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / "_C.so", output)
        answer = subprocess.check_output([*compiler, "--version"], text=True)
        facts = {
            "version": self.distribution.get_version(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "compiler": answer.splitlines()[0],
            "cuda": toolkit is not None,
            "cuda_reason": reason,
            "cuda_version": toolkit and toolkit.release,
            "cuda_architectures": names,
        }
        text = json.dumps(facts, indent=2) + "\n"
        output.with_name("_build.json").write_text(text, encoding="utf-8")

    def copy_extensions_to_source(self):
        """The last step of an editable install."""
        super().copy_extensions_to_source()
        for built in self.get_outputs():
            shutil.copyfile(Path(built).with_name("_build.json"), ROOT / "rotcell/_build.json")
