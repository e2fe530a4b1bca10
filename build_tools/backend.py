"""PEP 517 build backend: setuptools, plus one decision about torch.

An isolated build hides the packages of the environment it builds for, but the libraries are linked
to a torch, and whether CUDA kernels are built depends on which. So torch is looked for in the
target environment, and only when there is none is one asked for. That environment goes to the end
of sys.path: the isolated setuptools, ninja and pybind11 still win. Where nothing is compiled,
setuptools is enough.
"""

import contextlib
import gzip
import io
import os
import re
import shutil
import site
import sys
import sysconfig
import tarfile
from pathlib import Path

from native import native_decision
from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401  (these hooks need nothing from us)
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)
from sources import COMMIT_FILE, PLATFORM, git_commit, installed_torch

TORCH_WHEN_NONE_IS_INSTALLED = "torch==2.13.0"


def target_site_packages():
    """The folders in which the interpreter we build for keeps its packages."""
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    settings = Path(sys.prefix, "pyvenv.cfg")
    if settings.is_file():
        lines = settings.read_text(encoding="utf-8").lower().replace(" ", "").splitlines()
        if "include-system-site-packages=true" not in lines:
            return folders
        folders += site.getsitepackages([sys.base_prefix])
    return [site.getusersitepackages(), *folders]  # what `pip install --user` installs into


sys.path += [folder for folder in target_site_packages() if folder not in sys.path]


def get_requires_for_build_wheel(config_settings=None):
    if not native_decision()[0]:
        return []
    torch = [] if installed_torch() else [TORCH_WHEN_NONE_IS_INSTALLED]
    return ["ninja", *([] if PLATFORM else ["pybind11>=2.13"]), *torch]


get_requires_for_build_editable = get_requires_for_build_wheel


@contextlib.contextmanager
def only_build():
    """Wait until no other process builds in this tree: all of them write into build/."""
    if os.name != "posix":
        yield
        return
    import fcntl

    Path("build").mkdir(exist_ok=True)
    with Path("build", "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build_sdist(sdist_directory, config_settings=None):
    """setuptools' sdist, with the commit, and the same bytes wherever and whenever it is made."""
    with only_build():
        # setuptools packs whatever was in an earlier sdist, too.
        Path("rotcell.egg-info", "SOURCES.txt").unlink(missing_ok=True)
        name = build_meta.build_sdist(sdist_directory, config_settings)
    path = Path(sdist_directory, name)
    top = name.removesuffix(".tar.gz")
    date = int(os.environ.get("SOURCE_DATE_EPOCH", 0)) or int(path.stat().st_mtime)
    # What setuptools adds depends on whether it packs a clone or an unpacked sdist.
    made = re.compile(rf"{re.escape(top)}/(setup\.cfg$|rotcell\.egg-info/)")
    with tarfile.open(path) as archive:
        members = [m for m in archive if m.isfile() and not made.match(m.name)]
        files = {m.name: archive.extractfile(m).read() for m in members}
        executable = {m.name for m in members if m.mode & 0o100}
    files[f"{top}/{COMMIT_FILE}"] = f"{git_commit()}\n".encode()
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", mtime=date, fileobj=raw) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as archive,
    ):
        for file in sorted(files):
            member = tarfile.TarInfo(file)
            member.size, member.mtime = len(files[file]), date
            member.mode = 0o755 if file in executable else 0o644
            archive.addfile(member, io.BytesIO(files[file]))
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with only_build():
        # setuptools packs whatever an earlier build left in build/lib*, deleted modules included.
        for leftover in Path("build").glob("lib*"):
            shutil.rmtree(leftover)
        return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    with only_build():
        return build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
