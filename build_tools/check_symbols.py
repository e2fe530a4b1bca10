"""Checks what the libraries need and what the objects of the CPU kernels define.

`python build_tools/check_symbols.py librotcell_cpu.so ...` lists what each library needs, and fails
if that is anything of torch's C++ interface, of Python, or of a second OpenMP runtime, or anything
else that no C or C++ library provides. With `--manylinux 2_28` it also fails if a symbol is too new
for wheels of that tag.

`python build_tools/check_symbols.py --kernels kernels_avx2.cpp.o ...` fails if an object defines a
weak symbol outside its instruction set's namespace. The linker keeps one of several weak
definitions for the whole library: a copy compiled for wide registers would also run on machines
that do not have them.

Needs nm, readelf and c++filt of binutils.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

# C functions of the stable ABI, and the libraries that have them.
SHIM = re.compile(r"^(aoti_torch_|torch_)\w+$")
ALLOWED_LIBRARIES = re.compile(
    r"^(libtorch_cpu|libtorch_cuda|libstdc\+\+|libgcc_s|libm|libc|libdl|librt|libpthread|"
    r"ld-linux[\w-]*)\.so(\.\d+)*$"
)
# What a wheel may need at most, by its tag: the versions of the manylinux policies.
MANYLINUX = {
    "2_28": {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (8, 0, 0)},
}
# As demangled.
FORBIDDEN = {
    "torch's C++ interface": re.compile(r"(^|[^\w])(at|c10|torch|caffe2)::"),
    "Python": re.compile(r"^_?Py[A-Z_]"),
    "an OpenMP runtime": re.compile(r"^(GOMP|__kmpc)_"),
}
# What may be missing when a library is loaded. Each is asked for before it is used.
WEAK = {
    "aoti_torch_cuda_add_Tensor",
    "aoti_torch_cuda_cat",
    "aoti_torch_cuda_mm_out",
    "aoti_torch_cuda_addmm_out",
    "omp_get_num_procs",
    "omp_in_parallel",
    "torch_exception_get_what_without_backtrace",
}


def needed(library):
    """(strong symbols, weak ones, libraries) that a library needs; symbols as {name: version}."""
    symbols = {"U": {}, "w": {}}
    listed = subprocess.check_output(["nm", "-D", "--undefined-only", library], text=True)
    for line in listed.splitlines():
        kind, symbol = line.split()[-2:]
        name, _, version = symbol.partition("@")
        symbols["w" if kind in "wv" else "U"][name] = version.lstrip("@")
    dynamic = subprocess.check_output(["readelf", "-dW", library], text=True)
    libraries = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    return symbols["U"], symbols["w"], libraries


def demangled(names):
    ordered = sorted(names)
    answer = subprocess.run(
        ["c++filt"], input="\n".join(ordered), capture_output=True, text=True, check=True
    )
    return dict(zip(ordered, answer.stdout.splitlines(), strict=True))


def newest_versions(versions):
    """{"GLIBC": (2, 14), ...}: the newest of each family."""
    newest = {}
    for version in versions:
        family, _, number = version.partition("_")
        numbers = tuple(int(part) for part in re.findall(r"\d+", number))
        newest[family] = max(newest.get(family, ()), numbers)
    return newest


def faults(library, manylinux=None):
    """What is wrong with a library, as sentences; prints what it needs."""
    strong, weak, libraries = needed(library)
    shims = sorted(name for name in strong if SHIM.match(name))
    print(f"{library}: {Path(library).stat().st_size} bytes, {len(shims)} functions of torch:")
    print("  " + " ".join(shims))
    print(f"  libraries: {' '.join(libraries)}")
    newest = newest_versions(filter(None, {*strong.values(), *weak.values()}))
    texts = {family: ".".join(map(str, newest[family])) for family in sorted(newest)}
    print("  newest symbols: " + ", ".join(f"{family}_{text}" for family, text in texts.items()))
    if manylinux:
        for family, text in texts.items():
            if newest[family] > MANYLINUX[manylinux].get(family, ()):
                yield f"{library} needs {family}_{text}, which manylinux_{manylinux} does not have"
    for name, readable in demangled(strong.keys() | weak.keys()).items():
        for what, pattern in FORBIDDEN.items():
            if pattern.search(readable):
                yield f"{library} needs {what}: {readable}"
        if strong.get(name) == "" and not SHIM.match(name):
            yield f"{library} needs what no C or C++ library has: {readable}"
        if name in weak and not name.startswith("_") and name not in WEAK:
            yield f"{library} has a weak reference that no one accounts for: {readable}"
    for name in libraries:
        if not ALLOWED_LIBRARIES.match(name):
            yield f"{library} needs the library {name}"


def kernel_faults(path):
    """The weak symbols of a kernel object that are outside its namespace, as sentences."""
    name = re.match(r"(kernels|int8)_([a-z0-9_]+)\.", Path(path).name)
    if name is None:
        yield f"{path}: expected an object named kernels_INSTRUCTION_SET.o or int8_INSTRUCTIONS.o"
        return
    isa = name[2] if name[1] == "kernels" else f"int8_isa_{name[2]}"
    # Mangled, because c++filt does not know all lambdas: _ZN7rotcell3cpu4avx2..., with letters
    # before the N for lambdas, guards and tables.
    own = re.compile(rf"_Z[ZGVTRSI]*NK?7rotcell3cpu{len(isa)}{isa}")
    listed = subprocess.check_output(["nm", "--defined-only", path], text=True)
    kinds_and_names = [line.split()[-2:] for line in listed.splitlines()]
    # DW.ref. is the compiler's pointer to a function that handles exceptions.
    weak = {n for kind, n in kinds_and_names if kind in "WVu" and not n.startswith("DW.ref.")}
    for readable in demangled(n for n in weak if not own.match(n)).values():
        yield f"{path} defines a weak symbol outside rotcell::cpu::{isa}: {readable}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY")
    parser.add_argument(
        "--kernels",
        nargs="+",
        default=[],
        metavar="OBJECT",
        help="compiled kernels_*.cpp, int8_*.cpp: no weak symbol outside their namespace",
    )
    parser.add_argument(
        "--manylinux", choices=MANYLINUX, help="no symbol newer than wheels of this tag may need"
    )
    arguments = parser.parse_args()
    if not arguments.libraries and not arguments.kernels:
        parser.error("expected a LIBRARY or --kernels OBJECT")
    found = [
        fault for library in arguments.libraries for fault in faults(library, arguments.manylinux)
    ]
    found += [fault for path in arguments.kernels for fault in kernel_faults(path)]
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
