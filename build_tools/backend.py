"""PEP 517 build backend: setuptools, plus one decision about torch.

An isolated build hides the packages of the environment it builds for, but the libraries are linked
to a torch, and whether CUDA kernels are built depends on which. So torch is looked for in the
target environment, and only when there is none is one asked for. That environment goes to the end
of sys.path: the isolated setuptools, ninja and pybind11 still win.
"""

import shutil
import site
import sys
import sysconfig
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401  (these hooks need nothing from us)
    build_editable,
    build_sdist,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)
from sources import installed_torch

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
    return [] if installed_torch() else [TORCH_WHEN_NONE_IS_INSTALLED]


get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    # setuptools packs whatever an earlier build left in build/lib*, deleted modules included.
    for leftover in Path("build").glob("lib*"):
        shutil.rmtree(leftover)
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
