"""The decisions of the build, and clear errors when what it built cannot run."""

import importlib
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rotcell
from rotcell import _torch_check

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture
def sources(monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "build_tools")
    return importlib.import_module("sources")


@pytest.fixture
def installed_torch(monkeypatch):
    """A function that makes the given torch version, or none, look installed."""

    def pretend(version):
        def lookup(name):
            if version is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return version

        monkeypatch.setattr(importlib.metadata, "version", lookup)

    return pretend


def run_python(code, folder):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


# --- What was built


def test_the_package_requires_the_minor_of_the_torch_it_was_built_against():
    minor = _torch_check.minor_version(_torch_check.check_torch()["torch"])
    assert f"torch=={minor}.*" in importlib.metadata.requires("rotcell")


def test_version_is_the_same_everywhere():
    version = importlib.metadata.version("rotcell")
    assert rotcell.build_info()["version"] == version
    assert f'\nversion = "{version}"\n' in (REPOSITORY / "pyproject.toml").read_text()
    assert f"\nversion: {version}\n" in (REPOSITORY / "CITATION.cff").read_text()
    assert f"\n## {version}" in (REPOSITORY / "CHANGELOG.md").read_text()


def test_type_hints_are_installed():
    assert Path(rotcell.__file__).with_name("py.typed").is_file()


# --- What an import says when it cannot work


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A folder with the record of a build against torch 2.13.0 and an empty library."""
    monkeypatch.setattr(_torch_check, "PACKAGE", tmp_path)
    (tmp_path / "_build.json").write_text(json.dumps({"torch": "2.13.0+cpu"}))
    (tmp_path / f"_C{_torch_check.EXTENSION_SUFFIXES[0]}").touch()
    return tmp_path


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("running", ["2.13.0", "2.13.1+cu130", "2.13.0a0+git1234"])
def test_the_same_torch_minor_is_accepted(monkeypatch, running):
    monkeypatch.setattr(torch, "__version__", running)
    assert _torch_check.check_torch()["torch"] == "2.13.0+cpu"


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("running", ["2.1.0", "2.12.1", "2.14.0.dev2026", "3.13.0", "2.130.0"])
def test_another_torch_minor_is_refused_with_advice(monkeypatch, running):
    monkeypatch.setattr(torch, "__version__", running)
    expected = rf"built against torch 2\.13\.0\+cpu, but torch {re.escape(running)} is running"
    with pytest.raises(ImportError, match=expected) as error:
        _torch_check.check_torch()
    assert "or install torch 2.13" in str(error.value)


@pytest.mark.parametrize("missing", ["_build.json", "_C*"])
def test_a_missing_build_is_explained(package, missing):
    next(package.glob(missing)).unlink()
    with pytest.raises(ImportError, match=r"pip install -e \."):
        _torch_check.check_torch()


def test_a_library_for_another_python_counts_as_missing(package):
    next(package.glob("_C*")).rename(package / "_C.cpython-39-x86_64-linux-gnu.so")
    with pytest.raises(ImportError, match="for this Python is missing"):
        _torch_check.check_torch()


def test_import_is_refused_before_the_library_is_loaded(tmp_path):
    code = """
import sys, torch
torch.__version__ = "1.0.0"
try:
    import rotcell
except ImportError as error:
    print(error, "rotcell._C" in sys.modules)
"""
    answer = run_python(code, tmp_path)
    assert "but torch 1.0.0 is running" in answer.stdout, answer.stderr
    assert answer.stdout.endswith("False\n")


def test_import_in_a_source_tree_without_a_build_is_explained(tmp_path):
    tree = tmp_path / "rotcell"
    unbuilt = shutil.ignore_patterns("_C*.so", "_build.json", "__pycache__")
    shutil.copytree(Path(rotcell.__file__).parent, tree, ignore=unbuilt)
    answer = run_python("import rotcell", tmp_path)
    assert f"missing in {tree}" in answer.stderr
    assert "start Python from another folder" in answer.stderr


# --- The build's decisions


def test_every_instruction_set_is_compiled_with_its_own_flags(sources):
    flags = {source.name: own_flags for source, own_flags in sources.cxx_sources()}
    for name, own_flags in flags.items():
        assert ("-mavx512f" in own_flags) == name.endswith("_avx512.cpp")
        assert ("-mavx2" in own_flags) == name.endswith(("_avx2.cpp", "_avx512.cpp"))
    assert not any("-march=native" in own_flags for own_flags in flags.values())


def test_x86_files_are_left_out_on_other_machines(sources, monkeypatch):
    monkeypatch.setattr(sources, "X86", False)
    left = list(sources.cxx_sources())
    assert left
    assert not any(own_flags or "_avx" in source.name for source, own_flags in left)


@pytest.mark.parametrize(
    ("version", "requirement"),
    [("2.13.0+cpu", "torch==2.13.*"), ("2.6.0", "torch==2.6.*"), (None, "torch>=2.6")],
)
def test_required_torch_follows_the_installed_one(sources, installed_torch, version, requirement):
    installed_torch(version)
    assert requirement in sources.runtime_requirements()


def test_an_old_torch_is_refused(sources, installed_torch):
    installed_torch("2.5.1+cu124")
    with pytest.raises(SystemExit, match=r"needs torch 2\.6 or newer; torch 2\.5\.1\+cu124"):
        sources.torch_minor()


@pytest.mark.usefixtures("sources")
@pytest.mark.parametrize(
    "hook", ["get_requires_for_build_wheel", "get_requires_for_build_editable"]
)
def test_the_build_asks_for_torch_only_when_none_is_installed(installed_torch, hook):
    pytest.importorskip("setuptools")
    ask = getattr(importlib.import_module("backend"), hook)
    installed_torch("2.9.1")
    assert ask() == []
    installed_torch(None)
    assert ask() == ["torch==2.13.0"]
