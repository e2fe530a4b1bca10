"""Checks that the libraries of kernels need nothing of torch but its stable ABI.

`python build_tools/check_symbols.py librotcell_cpu.so ...` lists what each library needs, and fails
if that is anything of torch's C++ interface, of Python, or of an OpenMP runtime of its own. Needs
nm, readelf and c++filt of binutils.
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
    """(names of strong symbols, names of weak ones, libraries) that a library needs."""
    symbols = {"U": set(), "w": set()}
    listed = subprocess.check_output(["nm", "-D", "--undefined-only", library], text=True)
    for line in listed.splitlines():
        kind, name = line.split()[-2:]
        symbols["w" if kind in "wv" else "U"].add(name.split("@")[0])
    dynamic = subprocess.check_output(["readelf", "-dW", library], text=True)
    libraries = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
    return symbols["U"], symbols["w"], libraries


def demangled(names):
    ordered = sorted(names)
    answer = subprocess.run(
        ["c++filt"], input="\n".join(ordered), capture_output=True, text=True, check=True
    )
    return dict(zip(ordered, answer.stdout.splitlines(), strict=True))


def faults(library):
    """What is wrong with a library, as sentences; prints what it needs."""
    strong, weak, libraries = needed(library)
    shims = sorted(name for name in strong if SHIM.match(name))
    print(f"{library}: {Path(library).stat().st_size} bytes, {len(shims)} functions of torch:")
    print("  " + " ".join(shims))
    print(f"  libraries: {' '.join(libraries)}")
    for name, readable in demangled(strong | weak).items():
        for what, pattern in FORBIDDEN.items():
            if pattern.search(readable):
                yield f"{library} needs {what}: {readable}"
        if name in weak and not name.startswith("_") and name not in WEAK:
            yield f"{library} has a weak reference that no one accounts for: {readable}"
    for name in libraries:
        if not ALLOWED_LIBRARIES.match(name):
            yield f"{library} needs the library {name}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("libraries", nargs="+", metavar="LIBRARY")
    found = [fault for library in parser.parse_args().libraries for fault in faults(library)]
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
