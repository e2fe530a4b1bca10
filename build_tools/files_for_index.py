"""Wheels and the sdist for a package index, and the check of what the wheels' library needs."""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from check_symbols import faults

ROOT = Path(__file__).resolve().parent.parent
MANYLINUX = "2_28"  # torch's own
ARCHITECTURES = ("x86_64", "aarch64")
CONSTRAINTS = ROOT / "build_tools" / "release_constraints.txt"
NO_COMMIT_DATE = "1577836800"  # of files in the wheel, outside a clone


def commit_date():
    """The time of the last commit, which the files in a wheel or sdist get as theirs."""
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    try:
        return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL).strip()
    except (OSError, subprocess.CalledProcessError):
        return NO_COMMIT_DATE


def compiler_of(arch):
    """The compiler for a kind of machine; CXX names that for this one."""
    if arch == platform.machine() and os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])[0]
    return "c++" if arch == platform.machine() else f"{arch}-linux-gnu-g++"


def _build(arch, folder):
    """Build the wheel into an empty folder and return its path."""
    environment = os.environ | {
        "CXX": compiler_of(arch) if arch != platform.machine() else os.environ.get("CXX", "c++"),
        "ROTCELL_CUDA": "0",
        "ROTCELL_NATIVE": "1",
        "ROTCELL_PLATFORM": f"manylinux_{MANYLINUX}_{arch}",
        # Of the isolated build; pip from 25.3 on reads the second. Paths with spaces must be URLs.
        "PIP_CONSTRAINT": CONSTRAINTS.as_uri(),
        "PIP_BUILD_CONSTRAINT": CONSTRAINTS.as_uri(),
    }
    environment.setdefault("SOURCE_DATE_EPOCH", commit_date())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*command, "--wheel-dir", folder, str(ROOT)], env=environment, check=True)
    (wheel,) = Path(folder).glob("*.whl")
    return wheel


def check(wheel):
    """What is wrong with a wheel, as sentences."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        libraries = [name for name in archive.namelist() if ".so" in Path(name).suffixes]
        if libraries != ["rotcell/librotcell_cpu.so"]:
            yield f"{wheel.name} must have the library of CPU kernels only, and has {libraries}"
        for name in libraries:
            yield from faults(archive.extract(name, folder), MANYLINUX)


def make_wheel(arch, output):
    """Build, check and keep a wheel; its path. What is wrong with it ends the program."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = _build(arch, folder)
        found = list(check(wheel))
        if found:
            raise SystemExit("\n".join(found))
        output.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copyfile(wheel, output / wheel.name))


def make_sdist(output):
    """Build the sdist with the setuptools of releases, whichever this Python has; its path."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as packages, tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--target", packages, "--requirement", str(CONSTRAINTS)], check=True)
        environment = {"SOURCE_DATE_EPOCH": commit_date(), **os.environ}
        environment["PYTHONPATH"] = os.pathsep.join([packages, str(ROOT / "build_tools")])
        script = "import sys, backend; backend.build_sdist(sys.argv[1])"
        command = [sys.executable, "-c", script, folder]
        subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
        (sdist,) = Path(folder).glob("*.tar.gz")
        return Path(shutil.copyfile(sdist, output / sdist.name))
