"""Compiles the libraries of rotcell with ninja.

librotcell_cpu.so and librotcell_cuda.so hold kernels and ops. They use LibTorch's stable ABI only,
so that one build serves every torch from the oldest supported one on, and every Python. _C is a
small module for this Python for tests, built if pybind11 is there.

torch's own BuildExtension gives every source the same flags. The kernels need different ones: each
instruction set is a separate file, and the choice between them is made at run time.
"""

import importlib.util
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

from check_symbols import SHIM
from cuda_compiler import chosen_architectures, cuda_decision, nvcc_command, runtime_library
from native import compiler, native_decision
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from sources import (
    COMMON_FLAGS,
    PLATFORM,
    ROOT,
    TARGET_FLAGS,
    X86,
    cpu_definitions,
    cpu_sources,
    cuda_cxx_sources,
    cuda_sources,
    git_commit,
    installed_torch,
    knows_avx512_bf16,
    module_sources,
    own_flags,
)

CPU_LIBRARY = "librotcell_cpu.so"
CUDA_LIBRARY = "librotcell_cuda.so"
MODULE = "_C.so"


def find_ninja():
    """The ninja next to this Python, or else any on the PATH."""
    ninja = shutil.which("ninja", path=Path(sys.executable).parent) or shutil.which("ninja")
    if ninja is None:
        raise SystemExit("rotcell is built with ninja, which was not found: pip install ninja")
    return ninja


def pybind11_include():
    """pybind11's headers, or None: then, and in a wheel for an index, there is no _C."""
    if PLATFORM or importlib.util.find_spec("pybind11") is None:
        return None
    import pybind11

    return pybind11.get_include()


def is_cross_build():
    """Whether the libraries are for another kind of processor than this machine's."""
    return bool(PLATFORM) and not PLATFORM.endswith(platform.machine().lower())


def torch_stub(command, torch_library, folder):
    """Makes a libtorch_cpu.so with the C functions of torch's, empty, to link with.

    The libraries take nothing else from torch, so a cross build needs no torch for its processor.
    """
    listed = subprocess.check_output(["nm", "-D", "--defined-only", torch_library], text=True)
    names = sorted({line.split()[-1] for line in listed.splitlines()})
    functions = "".join(f"void {name}(void) {{}}\n" for name in names if SHIM.match(name))
    stub, source = folder / "libtorch_cpu.so", folder / "torch_stub.c"
    source.write_text(functions, encoding="utf-8")
    flags = ["-shared", "-fPIC", "-nostdlib", "-w", "-x", "c", f"-Wl,-soname,{stub.name}"]
    subprocess.run([*command, *flags, str(source), "-o", str(stub)], check=True)


def words(arguments):
    return shlex.join(arguments).replace("$", "$$")


def path(name):
    return re.sub(r"([$ :])", r"$\1", str(name))


def object_of(source):
    """With the whole name of the source: there may be a .cpp and a .cu of the same name."""
    return path(f"{source.relative_to(ROOT / 'csrc')}.o")


def is_below(source, folder):
    """Whether some folder of csrc that the source is in has this name."""
    return folder in source.relative_to(ROOT / "csrc").parts[:-1]


class NinjaFile:
    """The text of build.ninja, target by target; objects may be shared between targets."""

    def __init__(self, compiler, flags, flags_below):
        """`flags_below`: by a folder's name, flags for what is below it only."""
        self.compiler = compiler
        self.flags_below = flags_below
        self.lines = [
            "rule compile",
            f"  command = {words([*compiler, *flags])} $own_flags -MMD -MF $out.d -c $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
            "rule link",
            f"  command = {words(compiler)} -shared $in $libraries -o $out",
        ]
        self.compiled = set()

    def add_rule(self, name, command):
        self.lines += [
            f"rule {name}",
            f"  command = {words(command)} -MD -MF $out.d -c $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
        ]

    def object(self, source, rule="compile"):
        name = object_of(source)
        if name not in self.compiled:
            self.compiled.add(name)
            self.lines.append(f"build {name}: {rule} {path(source)}")
            if rule == "compile":
                flags = [
                    f
                    for folder in self.flags_below
                    if is_below(source, folder)
                    for f in self.flags_below[folder]
                ]
                self.lines.append(f"  own_flags = {words([*own_flags(source), *flags])}")
        return name

    def library(self, name, objects, libraries):
        # Whatever is missing is an error here and not when the library is loaded.
        link = ["-Wl,--as-needed", "-Wl,-z,defs", "-Wl,--build-id=none", *libraries]
        link += shlex.split(os.environ.get("LDFLAGS", ""))
        self.lines.append(f"build {name}: link {' '.join(objects)}")
        self.lines.append(f"  libraries = {words(link)}")

    def text(self):
        return "\n".join(self.lines) + "\n"


def ninja_file(torch, compiler, toolkit, architectures, pybind11):
    """The text of build.ninja; without a toolkit, of what a CPU needs."""
    root = Path(torch.__file__).parent
    flags = [
        *COMMON_FLAGS,
        *TARGET_FLAGS,
        f"-I{ROOT / 'csrc'}",
        *cpu_definitions(),
        *shlex.split(os.environ.get("CXXFLAGS", "")),
    ]
    # What needs neither torch nor pybind11, which is most of the work, is compiled once for all of
    # them: pip may build with a torch in a folder that is new every time.
    flags_below = {
        "torch": [
            f"-isystem{root / 'include'}",
            # ninja does not look at the headers of the system: it compiles again when this changes.
            f"-DROTCELL_BUILT_WITH_TORCH={torch.__version__}",
            # Its __FILE__ is the same wherever the sources are.
            f"-ffile-prefix-map={ROOT}=.",
        ],
        # Nothing in it needs to be fast, except its compilation.
        "module": ["-O1", f"-isystem{pybind11}", f"-isystem{sysconfig.get_path('include')}"],
    }
    if toolkit:
        flags_below["cuda"] = ["-DUSE_CUDA=1", *(f"-isystem{f}" for f in toolkit.folders()[0])]
    ninja = NinjaFile(compiler, flags, flags_below)
    exports = f"-Wl,--version-script={ROOT / 'build_tools' / 'exports.map'}"
    torch_folder = "." if is_cross_build() else root / "lib"
    torch_libraries = [exports, f"-L{torch_folder}", "-ltorch_cpu"]
    if toolkit:
        nvcc = [*nvcc_command(toolkit, compiler), *(a.gencode for a in architectures)]
        ninja.add_rule("compile_cuda", nvcc)
        # First: what nvcc compiles takes the longest.
        objects = [ninja.object(source, "compile_cuda") for source in cuda_sources()]
        objects += [ninja.object(source) for source in cuda_cxx_sources()]
        libraries = [*torch_libraries, "-ltorch_cuda", *runtime_library(toolkit)]
        ninja.library(CUDA_LIBRARY, objects, libraries)
    ninja.library(CPU_LIBRARY, [ninja.object(s) for s in cpu_sources()], torch_libraries)
    if pybind11:
        for_module = [ninja.object(source) for source in module_sources()]
        # Python's own symbols are in the interpreter.
        ninja.library(MODULE, for_module, ["-Wl,-z,undefs"])
    return ninja.text()


def write_compile_commands(ninja, folder):
    """For tools such as clangd, which look into build/."""
    text = subprocess.check_output([ninja, "-C", str(folder), "-t", "compdb"], text=True)
    entries = [e for e in json.loads(text) if e["file"].endswith((".cpp", ".cu"))]
    target = ROOT / "build" / "compile_commands.json"
    target.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


# Further entries of _build.json if no libraries are built.
WITHOUT_LIBRARIES = {
    "torch": None,
    "python": platform.python_version(),
    "compiler": None,
    "cuda": False,
    "cuda_reason": "nothing is compiled",
    "cuda_version": None,
    "cuda_architectures": [],
}


def compile_libraries(module):
    """Compile the libraries into the folder of `module`, _C; returns the record for _build.json."""
    if installed_torch() is None:
        raise SystemExit("rotcell is built against an installed torch, and none was found.")
    import torch

    toolkit, reason = cuda_decision(torch)
    architectures = chosen_architectures(torch, toolkit) if toolkit else []
    names = [str(architecture) for architecture in architectures]
    if toolkit:
        print(f"CPU and CUDA kernels: {reason}; for {', '.join(names)}", flush=True)
    else:
        print(f"CPU kernels only: {reason}", flush=True)
    if X86 and not knows_avx512_bf16():
        print(
            "No kernels for AVX-512 BF16: the compiler does not know -mavx512bf16 (GCC 10 and "
            "Clang 9 do). Layers in bfloat16 will compute in float32.",
            flush=True,
        )

    # Not build_ext's build_temp: for an editable install that is a new folder every time.
    folder = ROOT / "build" / (PLATFORM if is_cross_build() else sys.implementation.cache_tag)
    folder.mkdir(parents=True, exist_ok=True)
    if is_cross_build():
        torch_library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
        torch_stub(compiler(), torch_library, folder)
    pybind11 = pybind11_include()
    steps = ninja_file(torch, compiler(), toolkit, architectures, pybind11)
    (folder / "build.ninja").write_text(steps, encoding="utf-8")
    jobs = os.environ.get("MAX_JOBS") or str(len(os.sched_getaffinity(0)))
    ninja = find_ninja()
    if subprocess.call([ninja, "-C", str(folder), "-j", jobs]):
        raise SystemExit(
            "Compiling rotcell failed; the compiler's message is above. It takes C++20: GCC 12 is "
            "tested. ROTCELL_NATIVE=0 installs rotcell without kernels, which is much slower."
        )
    write_compile_commands(ninja, folder)

    if pybind11:
        shutil.copyfile(folder / MODULE, module)
    shutil.copyfile(folder / CPU_LIBRARY, module.with_name(CPU_LIBRARY))
    if toolkit:
        shutil.copyfile(folder / CUDA_LIBRARY, module.with_name(CUDA_LIBRARY))
    answer = subprocess.check_output([*compiler(), "--version"], text=True)
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "compiler": answer.splitlines()[0],
        "cuda": toolkit is not None,
        "cuda_reason": reason,
        "cuda_version": toolkit and toolkit.release,
        "cuda_architectures": names,
    }


class NinjaBuild(build_ext):
    """Builds the libraries and writes _build.json, which says how, next to them."""

    def build_extension(self, ext):
        output = Path(self.get_ext_fullpath(ext.name))
        output.parent.mkdir(parents=True, exist_ok=True)
        native, reason = native_decision()
        facts = {
            "version": self.distribution.get_version(),
            "commit": git_commit(),
            "native": native,
            "native_reason": reason,
            **(compile_libraries(output) if native else WITHOUT_LIBRARIES),
        }
        if not native:
            print(f"No kernels, so layers will run on the slow reference: {reason}", flush=True)
        text = json.dumps(facts, indent=2) + "\n"
        output.with_name("_build.json").write_text(text, encoding="utf-8")

    def copy_extensions_to_source(self):
        """The last step of an editable install."""
        super().copy_extensions_to_source()
        for built in self.get_outputs():
            for name in (CPU_LIBRARY, CUDA_LIBRARY, "_build.json"):
                source, target = Path(built).with_name(name), ROOT / "rotcell" / name
                if source.is_file():
                    shutil.copyfile(source, target)
                else:
                    target.unlink(missing_ok=True)


class AnyPythonWheel(bdist_wheel):
    """A wheel for every Python: only _C is for one, and nothing needs it."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = not native_decision()[0]

    def get_tag(self):
        return "py3", "none", "any" if self.root_is_pure else PLATFORM or super().get_tag()[2]
