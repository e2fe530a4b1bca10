"""The decisions of the build about CUDA: whether, with which compiler, for which GPUs."""

import importlib
import types
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

REPOSITORY = Path(__file__).resolve().parent.parent


def torch_with(cuda, flags=""):
    return types.SimpleNamespace(
        __file__="nowhere/torch/__init__.py",
        version=types.SimpleNamespace(cuda=cuda),
        _C=types.SimpleNamespace(_cuda_getArchFlags=lambda: flags),
        cuda=types.SimpleNamespace(device_count=lambda: 0),
    )


def make_nvcc(folder, release="13.0", build="88", architectures=(75, 80, 90, 100, 120)):
    """A fake with the answers that the build needs."""
    codes = "\\n".join(f"sm_{number}" for number in architectures)
    nvcc = folder / "bin/nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f'--version) echo "Cuda compilation tools, release {release}, V{release}.{build}";;\n'
        f'--list-gpu-code) printf "{codes}\\n";;\n'
        '*) echo "unexpected: $*" >&2; exit 1;;\n'
        "esac\n"
    )
    nvcc.chmod(0o755)
    return str(nvcc)


@pytest.fixture
def modules(monkeypatch):
    """The build's modules, with kernels to build and no CUDA anywhere."""
    monkeypatch.syspath_prepend(REPOSITORY / "build_tools")
    for variable in ("ROTCELL_CUDA", "TORCH_CUDA_ARCH_LIST", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    compiler = importlib.import_module("cuda_compiler")
    monkeypatch.setattr(compiler, "USUAL_PLACE", "/nonexistent")
    monkeypatch.setattr(compiler, "cuda_sources", lambda: [Path("some.cu")])
    return compiler, importlib.import_module("cuda_architectures")


@pytest.fixture
def compiler(modules):
    return modules[0]


@pytest.fixture
def architectures(modules):
    return modules[1]


# --- Whether


def test_a_fitting_nvcc_means_cuda_kernels(compiler, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    nvcc = make_nvcc(tmp_path)
    toolkit, reason = compiler.cuda_decision(torch_with("13.2"))  # another minor is no obstacle
    assert toolkit == (nvcc, "13.0", "13.0.88")
    assert reason == "nvcc 13.0 fits torch"


def test_an_older_toolkit_serves_a_newer_torch(compiler, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    make_nvcc(tmp_path, "12.4")
    toolkit, _ = compiler.cuda_decision(torch_with("13.0"))
    assert toolkit.version == "12.4"


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize(
    ("built_with", "release", "reason"),
    [
        (None, "13.0", "torch is a CPU build (install a CUDA build of torch first)"),
        ("13.0", None, "nvcc was not found (set CUDA_HOME to a CUDA 13 toolkit, or put its nvcc"),
        (
            "12.8",
            "13.0",
            "is of CUDA 13.0, newer than torch's 12.8 (set CUDA_HOME to a CUDA 12 toolkit",
        ),
    ],
)
def test_an_obstacle_is_a_reason_or_an_error(
    compiler, tmp_path, monkeypatch, built_with, release, reason, forced
):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    if release:
        make_nvcc(tmp_path, release)
    if not forced:
        toolkit, why = compiler.cuda_decision(torch_with(built_with))
        assert toolkit is None
        assert reason in why
        return
    monkeypatch.setenv("ROTCELL_CUDA", "1")
    with pytest.raises(SystemExit) as error:
        compiler.cuda_decision(torch_with(built_with))
    assert str(error.value).startswith("ROTCELL_CUDA=1 asks for CUDA kernels, but ")
    assert reason in str(error.value)


def test_cuda_kernels_can_be_declined(compiler, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    make_nvcc(tmp_path)
    monkeypatch.setenv("ROTCELL_CUDA", "0")
    assert compiler.cuda_decision(torch_with("13.0")) == (None, "ROTCELL_CUDA=0")


def test_a_mistyped_switch_is_an_error(compiler, monkeypatch):
    monkeypatch.setenv("ROTCELL_CUDA", "yes")
    with pytest.raises(SystemExit, match="must be 0, 1 or unset"):
        compiler.cuda_decision(torch_with(None))


# --- With which compiler


def test_nvcc_is_looked_for_where_it_may_be(compiler, tmp_path, monkeypatch):
    places = ["home", "path", "on_path", "usual", "packages/nvidia/cu13"]
    home, cuda_path, on_path, usual, pip = [make_nvcc(tmp_path / place) for place in places]
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "path"))
    monkeypatch.setenv("PATH", str(Path(on_path).parent))
    monkeypatch.setattr(compiler, "USUAL_PLACE", Path(usual).parent)
    packages = tmp_path / "packages"
    assert compiler.find_nvcc(packages) == home
    monkeypatch.delenv("CUDA_HOME")
    assert compiler.find_nvcc(packages) == cuda_path
    monkeypatch.delenv("CUDA_PATH")
    assert compiler.find_nvcc(packages) == on_path
    monkeypatch.setenv("PATH", "/nonexistent")
    assert compiler.find_nvcc(packages) == usual
    Path(usual).unlink()
    assert compiler.find_nvcc(packages) == pip
    Path(pip).unlink()
    assert compiler.find_nvcc(packages) is None


def test_a_wrong_cuda_home_is_not_passed_over(compiler, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(Path(make_nvcc(tmp_path)).parent))
    monkeypatch.setenv("CUDA_HOME", "/nonexistent")
    assert compiler.find_nvcc() is None


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (["c++"], ["-ccbin", "c++"]),
        (["/usr/bin/ccache", "g++-12", "-m64"], ["-ccbin", "g++-12", "-Xcompiler=-m64"]),
    ],
)
def test_nvcc_uses_the_same_host_compiler(compiler, host, expected):
    toolkit = compiler.Toolkit("nvcc", "13.0", "13.0.88")
    assert set(expected) <= set(compiler.nvcc_command(toolkit, host))
    assert not any("ccache" in word for word in compiler.nvcc_command(toolkit, host))


def test_the_runtime_is_linked_in(compiler, monkeypatch):
    folders = (["/cuda/include"], ["/cuda/lib"])
    monkeypatch.setattr(compiler.Toolkit, "folders", lambda self: folders)
    found = compiler.runtime_library(compiler.Toolkit("nvcc", "13.0", "13.0.88"))
    assert found[:2] == ["-L/cuda/lib", "-lcudart_static"]


# --- For which GPUs


@pytest.mark.parametrize(
    "text",
    [
        *["7.5", "8.0;9.0+PTX", "8.0 8.6 9.0a", "9.0;8.0+PTX;8.0"],
        *["Turing", "Ampere", "Ada", "Hopper", "Ampere Hopper", "Ampere+Tegra;8.6"],
    ],
)
def test_architecture_lists_mean_the_same_as_to_torch(architectures, monkeypatch, text):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", text)
    expected = cpp_extension._get_cuda_arch_flags()
    found = []
    for architecture in architectures.parse_list(text):
        virtual, codes = architecture.gencode.split(",", 1)
        names = codes.removeprefix("code=").strip("[]").split(",")
        found += [f"{virtual},code={name}" for name in names]
    assert sorted(found) == expected


def test_lists_are_sorted_and_separators_do_not_matter(architectures):
    for text in ("12.0+PTX;8.0;7.5;8.0", " 7.5, 8.0 12.0+PTX ; 12.0;"):
        assert [str(a) for a in architectures.parse_list(text)] == ["7.5", "8.0", "12.0+PTX"]


@pytest.mark.parametrize("text", ["sm_80", "8", "80", "8.0+ptx", "ampere", "8.0;x", "8.0b", "all"])
def test_what_is_no_architecture_is_refused(architectures, text):
    with pytest.raises(SystemExit, match=r"TORCH_CUDA_ARCH_LIST: '.*' is no architecture"):
        architectures.parse_list(text)


@pytest.mark.parametrize("text", ["7.0", "8.0;6.1+PTX", "Volta", "Kepler+Tesla"])
def test_older_gpus_than_the_kernels_need_are_refused(architectures, text):
    with pytest.raises(SystemExit, match=r"need compute capability 7\.5 \(Turing\) or newer"):
        architectures.parse_list(text)


TOOLKIT_NUMBERS = ("70", "75", "80", "86", "90", "100", "120")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("sm_75 sm_80 sm_86 sm_90 sm_100 sm_120", "7.5 8.0 8.6 9.0 10.0 12.0+PTX"),
        ("sm_50 sm_70 sm_75 compute_75", "7.5+PTX"),
        ("sm_120 sm_90a sm_150", "9.0a 12.0+PTX"),
    ],
)
def test_without_a_list_those_of_torch_are_taken(architectures, flags, expected):
    found = architectures.of_torch(flags, TOOLKIT_NUMBERS)
    assert " ".join(map(str, found)) == expected


@pytest.mark.parametrize("flags", ["", "sm_70", "sm_150"])
def test_nothing_in_common_with_torch_is_an_error(architectures, flags):
    with pytest.raises(SystemExit, match="set TORCH_CUDA_ARCH_LIST"):
        architectures.of_torch(flags, TOOLKIT_NUMBERS)


def test_the_list_of_the_environment_wins(compiler, tmp_path, monkeypatch):
    toolkit = compiler.toolkit_of(make_nvcc(tmp_path))
    built_for = torch_with("13.0", "sm_75 sm_90")
    assert [str(a) for a in compiler.chosen_architectures(built_for, toolkit)] == ["7.5", "9.0+PTX"]
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0")
    assert [str(a) for a in compiler.chosen_architectures(built_for, toolkit)] == ["8.0"]


def test_what_nvcc_cannot_compile_for_is_refused(compiler, tmp_path, monkeypatch):
    toolkit = compiler.toolkit_of(make_nvcc(tmp_path))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0;15.0+PTX")
    expected = (
        r"nvcc 13\.0 cannot compile for 15\.0\+PTX; it knows 7\.5, 8\.0, 9\.0, 10\.0, 12\.0\."
    )
    with pytest.raises(SystemExit, match=expected):
        compiler.chosen_architectures(torch_with("13.0"), toolkit)


def test_native_needs_a_gpu(compiler, tmp_path, monkeypatch):
    toolkit = compiler.toolkit_of(make_nvcc(tmp_path))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "native")
    with pytest.raises(SystemExit, match="torch sees no GPU"):
        compiler.chosen_architectures(torch_with("13.0"), toolkit)


@pytest.mark.skipif(torch.version.cuda is None, reason="torch is a CPU build")
def test_this_torch_reports_its_architectures(architectures):
    assert architectures.of_torch(torch._C._cuda_getArchFlags(), TOOLKIT_NUMBERS)
