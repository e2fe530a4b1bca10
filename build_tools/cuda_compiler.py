"""The CUDA compiler: where it is, whether it fits torch, and its options."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import cuda_architectures
from sources import ROOT, cuda_sources

NVCC_FLAGS = [
    # The cells' descriptions are constexpr functions of both host and device.
    *["-std=c++20", "-O3", "--expt-relaxed-constexpr"],
    "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall",
]
USUAL_PLACE = "/usr/local/cuda/bin"
WRAPPERS = ("ccache", "sccache", "distcc", "icecc")  # what may precede the compiler in CXX


class Toolkit(NamedTuple):
    nvcc: str
    version: str  # such as 13.0
    release: str  # such as 13.0.88

    def ask(self, *arguments):
        done = subprocess.run([self.nvcc, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{self.nvcc} {shlex.join(arguments)} failed:\n{done.stderr}")
        return done.stdout + done.stderr

    def architectures(self):
        """The numbers ('75', '80', ...) of the architectures that it can compile for."""
        return re.findall(r"\bsm_(\d+)\b", self.ask("--list-gpu-code"))

    def folders(self):
        """Folders of headers and of libraries, from nvcc itself: it may be a script elsewhere."""
        steps = self.ask("--dryrun", "-c", "-x", "cu", os.devnull, "-o", os.devnull)
        settings = dict(re.findall(r"^#\$ (\w+)=(.*)$", steps, re.MULTILINE))
        includes = re.findall(r'"-I([^"]+)"', settings.get("INCLUDES", ""))
        libraries = re.findall(r'"-L([^"]+)"', settings.get("LIBRARIES", ""))
        # The compiler searches /usr/include anyway, and must do so last.
        includes = [f for f in map(os.path.realpath, includes) if f != "/usr/include"]
        return includes, [os.path.realpath(folder) for folder in libraries]


def find_nvcc(packages=None):
    """nvcc of CUDA_HOME or CUDA_PATH if set; else on the PATH, in the usual place or from pip."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            return shutil.which("nvcc", path=Path(os.environ[variable], "bin"))
    installed = sorted(packages.glob("nvidia/*/bin")) if packages else []
    for folder in (None, USUAL_PLACE, *installed):
        nvcc = shutil.which("nvcc", path=folder)
        if nvcc:
            return nvcc
    return None


def toolkit_of(nvcc):
    answer = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"release (\d+\.\d+), V(\d+(?:\.\d+)+)", answer)
    if found is None:
        raise SystemExit(f"{nvcc} --version does not print its version: {answer!r}")
    return Toolkit(nvcc, *found.groups())


def cuda_decision(torch):
    """The toolkit to build CUDA kernels with, or None, and why (not). ROTCELL_CUDA forces it."""
    requested = os.environ.get("ROTCELL_CUDA", "")
    if requested not in ("", "0", "1"):
        raise SystemExit(f"ROTCELL_CUDA must be 0, 1 or unset, not {requested!r}.")
    if requested == "0":
        return None, "ROTCELL_CUDA=0"
    toolkit, obstacle = _fitting_toolkit(torch)
    if obstacle is None:
        return toolkit, f"nvcc {toolkit.version} fits torch"
    if requested == "1":
        raise SystemExit(f"ROTCELL_CUDA=1 asks for CUDA kernels, but {obstacle}.")
    return None, obstacle


def _fitting_toolkit(torch):
    if not cuda_sources():
        return None, "this version of rotcell has no CUDA kernels"
    if torch.version.cuda is None:
        return None, "torch is a CPU build (install a CUDA build of torch first)"
    newest = torch.version.cuda.split(".")[0]
    advice = f"set CUDA_HOME to a CUDA {newest} toolkit, or put its nvcc on the PATH"
    nvcc = find_nvcc(Path(torch.__file__).parent.parent)
    if nvcc is None:
        return None, f"nvcc was not found ({advice})"
    toolkit = toolkit_of(nvcc)
    # The runtime is linked in, so it need not be torch's. But it needs a driver of at least its
    # major version, and a user's driver is only sure to be as new as torch's CUDA.
    if int(toolkit.version.split(".")[0]) > int(newest):
        versions = f"{nvcc} is of CUDA {toolkit.version}, newer than torch's {torch.version.cuda}"
        return None, f"{versions} ({advice})"
    return toolkit, None


def chosen_architectures(torch, toolkit):
    """The architectures of TORCH_CUDA_ARCH_LIST, or else those that torch was built for."""
    requested = os.environ.get("TORCH_CUDA_ARCH_LIST", "").strip()
    if requested == "native":
        seen = {torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())}
        if not seen:
            raise SystemExit("TORCH_CUDA_ARCH_LIST=native, but torch sees no GPU here.")
        requested = ";".join(f"{major}.{minor}" for major, minor in seen)
    known = toolkit.architectures()
    if not requested:  # torch.cuda.get_arch_list() says nothing without a GPU in some versions
        return cuda_architectures.of_torch(torch._C._cuda_getArchFlags() or "", known)
    chosen = cuda_architectures.parse_list(requested)
    cuda_architectures.check_supported(chosen, known, toolkit.version)
    return chosen


def nvcc_command(toolkit, compiler, csrc=ROOT / "csrc"):
    """nvcc with the options for every file, except for the architectures."""
    host, *host_flags = [word for word in compiler if Path(word).name not in WRAPPERS]
    passed_on = [f"-Xcompiler={flag}" for flag in host_flags]
    return [toolkit.nvcc, "-ccbin", host, *NVCC_FLAGS, f"-I{csrc}", *passed_on]


def runtime_library(toolkit):
    """What to link: the CUDA runtime itself, so that none need be found when it is loaded."""
    _, libraries = toolkit.folders()
    own = ["-lcudart_static", "-lrt", "-ldl", "-lpthread"]
    return [*(f"-L{folder}" for folder in libraries), *own]
