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
import threading
import types
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
    assert sources.OLDEST_TORCH == _torch_check.OLDEST_TORCH  # read from its text


def test_version_is_the_same_everywhere():
    version = importlib.metadata.version("rotcell")
    assert rotcell.build_info()["version"] == version
    assert rotcell.__version__ == version
    assert f"\nversion: {version}\n" in (REPOSITORY / "CITATION.cff").read_text()
    changes = (REPOSITORY / "CHANGELOG.md").read_text()
    assert f"\n## [{version}] - " in changes or f"What will be {version}," in changes


def test_type_hints_are_installed():
    assert Path(rotcell.__file__).with_name("py.typed").is_file()


# --- What an import says when it cannot work


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An empty folder instead of the package, for libraries that are loaded again."""
    monkeypatch.setattr(_torch_check, "PACKAGE", tmp_path)
    monkeypatch.setattr(_libraries, "_cpu", None)
    monkeypatch.setattr(_libraries, "_why_missing", None)
    return tmp_path


@pytest.mark.parametrize("running", ["2.10.0", "2.13.1+cu130", "2.14.0a0+git1234", "3.0.0"])
def test_every_torch_from_the_oldest_on_is_accepted(monkeypatch, running):
    monkeypatch.setattr(torch, "__version__", running)
    _torch_check.check_torch()


@pytest.mark.parametrize("running", ["1.13.1", "2.1.0", "2.9.1+cu128"])
def test_an_older_torch_is_refused_with_advice(monkeypatch, running):
    monkeypatch.setattr(torch, "__version__", running)
    expected = rf"needs torch 2\.10 or newer, but torch {re.escape(running)} is running"
    with pytest.raises(ImportError, match=expected) as error:
        _torch_check.check_torch()
    assert "pip install 'torch>=2.10'" in str(error.value)


RECORDS = {
    "a source tree": (None, r"start Python from another folder(.|\n)*pip install -e \."),
    "a lost library": ({"native": True}, r"pip install -e \."),
    "no compiler": ({"native": False, "native_reason": "no c++"}, r"\(no c\+\+\)\.\nInstall"),
}


@pytest.mark.parametrize(("record", "expected"), RECORDS.values(), ids=RECORDS.keys())
def test_a_missing_library_is_explained_once(package, record, expected):
    if record is not None:
        (package / "_build.json").write_text(json.dumps(record))
    with pytest.warns(UserWarning, match="runs on its reference code") as warned:
        assert [_libraries.load(), _libraries.load()] == [False, False]
    assert len(warned) == 1
    assert re.search(expected, str(warned[0].message))
    assert _libraries.why_missing() in str(warned[0].message)
    with pytest.raises(RuntimeError, match=r"rotcell has no kernels here: (.|\n)*pip install"):
        _libraries.instruction_sets()


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


def test_a_source_tree_without_a_build_runs_the_reference(tmp_path):
    """With one warning, and the same results as kernels."""
    tree = tmp_path / "rotcell"
    unbuilt = shutil.ignore_patterns("*.so", "_build.json", "__pycache__")
    shutil.copytree(Path(rotcell.__file__).parent, tree, ignore=unbuilt)
    code = """
import torch, rotcell
torch.manual_seed(0)
x = torch.randn(5, 3, 4, dtype=torch.float64)
for layer in (rotcell.RotLSTM, rotcell.LSTM, rotcell.GRU, rotcell.RUM):
    layer = layer(4, 6, num_layers=2, dtype=torch.float64)
    output, _ = layer(x)
    output.sum().backward()
    print(output.sum().item(), sum(p.grad.sum() for p in layer.parameters()).item())
"""
    with_kernels, without = (run_python(code, folder) for folder in (Path("/"), tmp_path))
    assert without.returncode == 0, without.stderr
    assert without.stderr.count("Warning:") == 1, without.stderr
    assert f"nothing is compiled in {tree}" in without.stderr
    numbers = [[float(n) for n in done.stdout.split()] for done in (with_kernels, without)]
    assert numbers[1] == pytest.approx(numbers[0], rel=1e-9)


@pytest.mark.parametrize(("option", "status"), [("--json", 0), ("--cuda-paths", 2)])
def test_the_command_works_without_a_build(tmp_path, option, status):
    unbuilt = shutil.ignore_patterns("*.so", "_build.json", "__pycache__")
    shutil.copytree(Path(rotcell.__file__).parent, tmp_path / "rotcell", ignore=unbuilt)
    command = [sys.executable, "-m", "rotcell", option]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    if option == "--json":
        assert json.loads(done.stdout)["native"] is False


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


def test_tracing_is_imported_at_first_use(tmp_path):
    code = """
import sys, rotcell
print("rotcell.tracing" in sys.modules, rotcell.trace is rotcell.tracing.trace, "trace" in dir())
from rotcell import *
print("trace" in dir())
"""
    answer = run_python(code, tmp_path)
    assert answer.stdout == "False True False\nTrue\n", answer.stderr


@pytest.fixture
def copied_package(tmp_path):
    """A copy of the package, found first by a Python that is started in its folder."""
    tree = tmp_path / "rotcell"
    ignored = shutil.ignore_patterns("lab", "__pycache__")
    shutil.copytree(Path(rotcell.__file__).parent, tree, ignore=ignored)
    return tree


def test_a_library_that_cannot_be_loaded_is_explained(copied_package):
    (copied_package / _libraries.CPU_LIBRARY).write_bytes(b"no library")
    answer = run_python("import rotcell", copied_package.parent)
    assert answer.returncode == 0
    assert f"{copied_package / _libraries.CPU_LIBRARY} could not be loaded" in answer.stderr
    assert "--no-deps .`" in answer.stderr


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
    for needed in ("setuptools", "ninja"):
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
        is_int8_kernel = name.startswith("int8_")
        assert ("-ffp-contract=off" in own_flags) == is_int8_kernel
    assert not any("-march=native" in own_flags for own_flags in flags.values())


def test_x86_files_are_left_out_on_other_machines(sources, monkeypatch):
    monkeypatch.setattr(sources, "X86", False)
    left = sources.cpu_sources()
    assert "int8_generic.cpp" in {source.name for source in left}
    assert not any("_avx" in source.name for source in left)


def test_the_libraries_need_nothing_of_torch_but_its_stable_abi():
    for program in ("nm", "readelf", "c++filt"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not there")
    libraries = sorted(Path(rotcell.__file__).parent.glob("librotcell_*.so"))
    script = REPOSITORY / "build_tools" / "check_symbols.py"
    command = [sys.executable, str(script), *map(str, libraries)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


@pytest.fixture
def native(sources, monkeypatch):
    for variable in ("ROTCELL_NATIVE", "ROTCELL_CUDA", "CXX"):
        monkeypatch.delenv(variable, raising=False)
    return importlib.import_module("native")


def test_nothing_is_compiled_without_a_compiler(native, monkeypatch, tmp_path):
    compiler = tmp_path / "c++"
    compiler.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native.native_decision() == (True, "compiled by c++")
    compiler.unlink()
    assert native.native_decision() == (False, "there is no C++ compiler (c++)")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert native.native_decision()[1].endswith("on Linux only so far, not on darwin")


@pytest.mark.parametrize(
    ("variable", "value"), [("ROTCELL_NATIVE", "1"), ("ROTCELL_CUDA", "1"), ("CXX", "g++-99")]
)
def test_a_missing_compiler_is_an_error_where_one_was_asked_for(
    native, monkeypatch, variable, value
):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv(variable, value)
    with pytest.raises(SystemExit, match=re.escape(f"{variable}={value}, but there is no C++")):
        native.native_decision()
    monkeypatch.setenv("ROTCELL_NATIVE", "0")
    assert native.native_decision() == (False, "ROTCELL_NATIVE=0")


def test_an_unknown_value_of_rotcell_native_is_refused(native, monkeypatch):
    monkeypatch.setenv("ROTCELL_NATIVE", "yes")
    with pytest.raises(SystemExit, match="ROTCELL_NATIVE must be 0, 1 or unset, not 'yes'"):
        native.native_decision()


def test_an_old_torch_is_refused(sources, installed_torch):
    installed_torch("2.9.1+cu128")
    with pytest.raises(SystemExit, match=r"needs torch 2\.10 or newer; torch 2\.9\.1\+cu128"):
        sources.installed_torch()


@pytest.mark.usefixtures("sources")
@pytest.mark.parametrize(
    "hook", ["get_requires_for_build_wheel", "get_requires_for_build_editable"]
)
def test_the_build_asks_for_torch_only_when_none_is_installed(installed_torch, hook, monkeypatch):
    pytest.importorskip("setuptools")
    ask = getattr(importlib.import_module("backend"), hook)
    installed_torch("2.12.1")
    assert ask() == ["ninja", "pybind11>=2.13"]
    installed_torch(None)
    assert ask() == ["ninja", "pybind11>=2.13", "torch==2.13.0"]
    monkeypatch.setenv("ROTCELL_NATIVE", "0")
    assert ask() == []


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


@pytest.mark.usefixtures("sources")
@pytest.mark.parametrize("hook", ["build_wheel", "build_editable"])
def test_builds_in_one_tree_take_turns(hook, monkeypatch, tmp_path):
    """All of them write into build/, whatever they are built with."""
    pytest.importorskip("setuptools")
    backend = importlib.import_module("backend")
    monkeypatch.chdir(tmp_path)
    began = threading.Event()
    monkeypatch.setattr(backend.build_meta, hook, lambda *arguments: began.set())
    second = threading.Thread(target=getattr(backend, hook), args=("dist",))
    with backend.only_build():
        second.start()
        assert not began.wait(0.3)
    assert began.wait(30)
    second.join()


@pytest.mark.usefixtures("sources")
@pytest.mark.parametrize("other", [("2.15.0", "first"), ("2.13.0", "second")])
def test_another_torch_compiles_again_only_what_includes_it(other, tmp_path):
    """Another version in the same folder, and the same version in another folder."""
    pytest.importorskip("setuptools")
    ninja_build = importlib.import_module("ninja_build")

    def commands(version, folder):
        path = str(tmp_path / folder / "torch" / "__init__.py")
        torch_there = types.SimpleNamespace(__file__=path, __version__=version)
        text = ninja_build.ninja_file(torch_there, ["c++"], None, [], None)
        own_flags = dict(re.findall(r"^build (\S+): compile .*\n  own_flags = (.*)$", text, re.M))
        return re.findall(r"^  command = .*$", text, re.M), own_flags

    rules, flags = commands("2.13.0", "first")
    rules_of_other, flags_of_other = commands(*other)
    assert rules_of_other == rules
    changed = {name for name, own in flags.items() if own != flags_of_other[name]}
    assert changed == {name for name in flags if name.startswith("torch/")} != set()
    assert {name.split("/")[0] for name in flags.keys() - changed} == {"cells", "cpu", "cuda"}


def test_the_commit_is_that_of_the_tree(sources, monkeypatch, tmp_path):
    if shutil.which("git") is None:
        pytest.skip("git is not there")
    monkeypatch.setattr(sources, "ROOT", tmp_path)
    assert sources.git_commit() == "unknown"

    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.check_output(command, text=True).strip()

    git("init", "--quiet")
    (tmp_path / "file").write_text("1")
    git("add", "file")
    git("commit", "--quiet", "-m", "first")
    commit = git("rev-parse", "HEAD")
    assert sources.git_commit() == commit
    (tmp_path / "file").write_text("2")
    assert sources.git_commit() == f"{commit}+changes"
