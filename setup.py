"""The parts of the build that pyproject.toml cannot say; the rest is there and in build_tools."""

import sys
from pathlib import Path

from setuptools import Extension, setup

sys.path.insert(0, str(Path(__file__).resolve().parent / "build_tools"))

from ninja_build import AnyPythonWheel, NinjaBuild

setup(
    ext_modules=[Extension("rotcell._C", sources=[], optional=True)],
    cmdclass={"build_ext": NinjaBuild, "bdist_wheel": AnyPythonWheel},
)
