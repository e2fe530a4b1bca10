"""The decisions of the build, and clear errors when what it built cannot run."""

import contextlib
import importlib
import importlib.metadata
import json
import os
import re
import shutil
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import rotcell
from rotcell import _libraries, _torch_check

with contextlib.suppress(ImportError):
    import setuptools  # noqa: F401  (adds to sys.path, which must be before a fixture changes it)

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


def test_the_package_requires_the_oldest_supported_torch(sources):
    oldest = ".".join(map(str, sources.OLDEST_TORCH))
    assert f"torch>={oldest}" in importlib.metadata.requires("rotcell")
    assert sources.OLDEST_TORCH == _torch_check.OLDEST_TORCH


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
    """A folder with the record of a build and an empty library."""
    monkeypatch.setattr(_torch_check, "PACKAGE", tmp_path)
    (tmp_path / "_build.json").write_text(json.dumps({"torch": "2.13.0+cpu"}))
    (tmp_path / _torch_check.CPU_LIBRARY).touch()
    return tmp_path


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("running", ["2.10.0", "2.13.1+cu130", "2.14.0a0+git1234", "3.0.0"])
def test_every_torch_from_the_oldest_on_is_accepted(monkeypatch, running):
    monkeypatch.setattr(torch, "__version__", running)
    assert _torch_check.check_torch()["torch"] == "2.13.0+cpu"


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize("running", ["1.13.1", "2.1.0", "2.9.1+cu128"])
def test_an_older_torch_is_refused_with_advice(monkeypatch, running):
    monkeypatch.setattr(torch, "__version__", running)
    expected = rf"needs torch 2\.10 or newer, but torch {re.escape(running)} is running"
    with pytest.raises(ImportError, match=expected) as error:
        _torch_check.check_torch()
    assert "pip install 'torch>=2.10'" in str(error.value)


@pytest.mark.parametrize("missing", ["_build.json", _torch_check.CPU_LIBRARY])
def test_a_missing_build_is_explained(package, missing):
    (package / missing).unlink()
    with pytest.raises(ImportError, match=r"pip install -e \."):
        _torch_check.check_torch()


def test_import_is_refused_before_the_library_is_loaded(tmp_path):
    code = """
import sys, torch
torch.__version__ = "1.0.0"
try:
    import rotcell
except ImportError as error:
    print(error, "librotcell" in open("/proc/self/maps").read())
"""
    answer = run_python(code, tmp_path)
    assert "but torch 1.0.0 is running" in answer.stdout, answer.stderr
    assert answer.stdout.endswith("False\n")


def test_import_in_a_source_tree_without_a_build_is_explained(tmp_path):
    tree = tmp_path / "rotcell"
    unbuilt = shutil.ignore_patterns("*.so", "_build.json", "__pycache__")
    shutil.copytree(Path(rotcell.__file__).parent, tree, ignore=unbuilt)
    answer = run_python("import rotcell", tmp_path)
    assert f"missing in {tree}" in answer.stderr
    assert "start Python from another folder" in answer.stderr


def test_an_import_loads_no_compiler(tmp_path):
    """torch's own is as slow to import as torch itself."""
    code = """
import sys, torch
before = set(sys.modules)
import rotcell
loaded = {name.split(".")[1] for name in set(sys.modules) - before if name.startswith("torch.")}
print(loaded & {"_dynamo", "_inductor"})
"""
    answer = run_python(code, tmp_path)
    assert answer.stdout == "set()\n", answer.stderr


@pytest.fixture
def copied_package(tmp_path):
    """A copy of the package, found first by a Python that is started in its folder."""
    tree = tmp_path / "rotcell"
    ignored = shutil.ignore_patterns("lab", "__pycache__")
    shutil.copytree(Path(rotcell.__file__).parent, tree, ignore=ignored)
    return tree


def test_a_library_that_cannot_be_loaded_is_explained(copied_package):
    (copied_package / _torch_check.CPU_LIBRARY).write_bytes(b"no library")
    answer = run_python("import rotcell", copied_package.parent)
    assert f"ImportError: {copied_package / _torch_check.CPU_LIBRARY} could not be loaded" in (
        answer.stderr
    )
    assert "pip install ." in answer.stderr


def test_layers_work_without_the_module_for_this_python(copied_package):
    """The wheel is for every Python, the module in it for one."""
    for module in copied_package.glob("_C*.so"):
        module.unlink()
    code = """
import torch, rotcell
rotcell.RotLSTM(3, 4)(torch.randn(5, 2, 3))[0].sum().backward()
print(rotcell.build_info()["instruction_set"])
"""
    answer = run_python(code, copied_package.parent)
    assert answer.stdout.strip() == rotcell.build_info()["instruction_set"], answer.stderr


def test_a_cuda_library_that_cannot_be_loaded_is_a_warning(copied_package):
    (copied_package / _libraries.CUDA_LIBRARY).write_bytes(b"no library")
    code = """
import torch
torch.version.cuda = "13.0"
import rotcell
rotcell.RotLSTM(3, 4)(torch.randn(5, 2, 3))
print(rotcell.build_info()["cuda_loaded"])
"""
    answer = run_python(code, copied_package.parent)
    assert answer.stdout == "False\n", answer.stderr
    assert "CUDA kernels could not be loaded" in answer.stderr


def test_a_cuda_library_is_left_alone_where_torch_has_no_cuda(copied_package):
    (copied_package / _libraries.CUDA_LIBRARY).write_bytes(b"no library")
    code = "import torch; torch.version.cuda = None; import rotcell"
    answer = run_python(code, copied_package.parent)
    assert (answer.returncode, answer.stderr) == (0, "")


# --- A wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """A wheel of this tree. What is compiled already is not compiled again."""
    for needed in ("setuptools", "ninja", "pybind11"):
        pytest.importorskip(needed)
    if shutil.which(os.environ.get("CXX", "c++").split()[0]) is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("wheel")
    command = ["pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    environment = os.environ | {"ROTCELL_CUDA": "0"}
    subprocess.run(
        [sys.executable, "-m", *command, str(folder), str(REPOSITORY)], env=environment, check=True
    )
    (found,) = folder.glob("*.whl")
    return found


def test_a_wheel_is_for_every_python(wheel):
    assert re.fullmatch(r"rotcell-[\d.]+-py3-none-linux_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {"rotcell/librotcell_cpu.so", "rotcell/_build.json", "rotcell/py.typed"} <= set(names)


def test_a_wheel_needs_no_compiler(wheel, tmp_path):
    """The README's example runs where no program is to be found, so no compiler either."""
    target, empty = tmp_path / "target", tmp_path / "empty"
    empty.mkdir()
    environment = {"PATH": str(empty), "PYTHONPATH": str(target), "HOME": str(tmp_path)}
    install = ["pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([sys.executable, "-m", *install, str(wheel)], env=environment, check=True)
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", readme, re.DOTALL).group(1)
    where = "\nimport rotcell; print(rotcell.__file__)"
    answer = subprocess.run(
        [sys.executable, "-c", example + where],
        cwd=empty,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout == f"{target / 'rotcell/__init__.py'}\n", answer.stderr


# --- The build's decisions


def test_every_instruction_set_is_compiled_with_its_own_flags(sources):
    flags = {source.name: sources.own_flags(source) for source in sources.cpu_sources()}
    for name, own_flags in flags.items():
        assert ("-mavx512f" in own_flags) == ("_avx512" in name)
        assert ("-mavx2" in own_flags) == ("_avx" in name)
    assert not any("-march=native" in own_flags for own_flags in flags.values())


def test_x86_files_are_left_out_on_other_machines(sources, monkeypatch):
    monkeypatch.setattr(sources, "X86", False)
    left = sources.cpu_sources()
    assert left
    assert not any(sources.own_flags(source) or "_avx" in source.name for source in left)


def test_the_libraries_need_nothing_of_torch_but_its_stable_abi():
    for program in ("nm", "readelf", "c++filt"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not there")
    libraries = sorted(Path(rotcell.__file__).parent.glob("librotcell_*.so"))
    script = REPOSITORY / "build_tools" / "check_symbols.py"
    command = [sys.executable, str(script), *map(str, libraries)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


def test_an_old_torch_is_refused(sources, installed_torch):
    installed_torch("2.9.1+cu128")
    with pytest.raises(SystemExit, match=r"needs torch 2\.10 or newer; torch 2\.9\.1\+cu128"):
        sources.installed_torch()


@pytest.mark.usefixtures("sources")
@pytest.mark.parametrize(
    "hook", ["get_requires_for_build_wheel", "get_requires_for_build_editable"]
)
def test_the_build_asks_for_torch_only_when_none_is_installed(installed_torch, hook):
    pytest.importorskip("setuptools")
    ask = getattr(importlib.import_module("backend"), hook)
    installed_torch("2.12.1")
    assert ask() == []
    installed_torch(None)
    assert ask() == ["torch==2.13.0"]


@pytest.mark.usefixtures("sources")
@pytest.mark.parametrize(("setting", "seen"), [(None, True), ("true", True), ("false", False)])
def test_the_build_sees_the_user_site_where_python_does(monkeypatch, tmp_path, setting, seen):
    """`pip install --user` installs there; a virtual environment does not look there."""
    pytest.importorskip("setuptools")
    backend = importlib.import_module("backend")
    if setting is not None:
        (tmp_path / "pyvenv.cfg").write_text(f"include-system-site-packages = {setting}\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    folders = backend.target_site_packages()
    assert (site.getusersitepackages() in folders) == seen


def test_the_commit_is_that_of_the_tree(sources, monkeypatch, tmp_path):
    pytest.importorskip("setuptools")
    if shutil.which("git") is None:
        pytest.skip("git is not there")
    ninja_build = importlib.import_module("ninja_build")
    monkeypatch.setattr(ninja_build, "ROOT", tmp_path)
    assert ninja_build.git_commit() == "unknown"

    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.check_output(command, text=True).strip()

    git("init", "--quiet")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "--quiet", "-m", "first")
    commit = git("rev-parse", "HEAD")
    assert ninja_build.git_commit() == commit
    (tmp_path / "file").write_text("2")
    assert ninja_build.git_commit() == f"{commit}+changes"
