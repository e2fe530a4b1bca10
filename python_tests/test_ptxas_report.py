"""What is read from ptxas, and the table made of it."""

import importlib
import shutil
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
ANONYMOUS = "41_GLOBAL__N__7f15ac0b_9_kernel_cu_8f4eaa39"
FORWARD = f"_ZN7rotcell4cuda{ANONYMOUS}7forwardI13__nv_bfloat16Li4EEEvPT_"
BACKWARD = "_ZN7rotcell4cuda8backwardIdEEvPT_"
HELPER = "_ZN7rotcell4cuda6helperEv"

# In the form of nvcc 13.0.
LOG = f"""\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '{FORWARD}' for 'sm_80'
ptxas info    : Function properties for {FORWARD}
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 78 registers, used 1 barriers, 256 bytes smem, 552 bytes cmem[0]
ptxas info    : Compile time = 208.752 ms
ptxas info    : Compiling entry function '{FORWARD}' for 'sm_120'
ptxas info    : Function properties for {FORWARD}
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 80 registers, used 1 barriers, 256 bytes smem, 1096 bytes cmem[0]
ptxas info    : Compiling entry function '{BACKWARD}' for 'sm_80'
ptxas info    : Function properties for {BACKWARD}
    40 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Function properties for {HELPER}
    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 128 registers, used 0 barriers, 40 bytes cumulative stack size
"""


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "verify/reports")
    return importlib.import_module("ptxas_report")


@pytest.fixture
def usages(report):
    if shutil.which("c++filt") is None:
        pytest.skip("no c++filt here")
    return report.named(report.read(LOG))


def test_every_function_is_read_with_what_it_uses(report):
    assert report.read(LOG) == {
        (FORWARD, "sm_80"): (78, 256, 0, 0),
        (FORWARD, "sm_120"): (80, 256, 0, 0),
        (BACKWARD, "sm_80"): (128, 0, 40, 20),
        (HELPER, "sm_80"): (0, 0, 16, 0),
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void rotcell::cuda::(anonymous namespace)::step<float, 4>(float*)", "step<float32, 4>"),
        ("void rotcell::cuda::run<__half, (rotcell::cuda::Cell)1>(int)", "run<float16, 1>"),
        ("void rotcell::cuda::run<double, (bool)1, -1>(void (*)(int))", "run<float64, 1, -1>"),
        ("void run<__nv_bfloat16, std::tuple<double> >(int)", "run<bfloat16, tuple<float64>>"),
        ("plain", "plain"),
    ],
)
def test_names_are_short_but_distinguish_kernels(report, name, expected):
    assert report.readable(name) == expected


def test_local_memory_is_reported(report, usages):
    assert report.complaints(usages) == [
        "backward<float64> for sm_80: 40 bytes of stack, 20 bytes spilled",
        "helper for sm_80: 16 bytes of stack, 0 bytes spilled",
    ]


def test_the_table_has_a_row_for_each_kernel_and_a_column_for_each_architecture(report, usages):
    lines = report.table(usages, "13.0.88").splitlines()
    assert lines[-5:] == [
        "| kernel | shared | stack | spills | sm_80 | sm_120 |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| `backward<float64>` | 0 | 40 | 20 | 128 |  |",
        "| `forward<bfloat16, 4>` | 256 | 0 | 0 | 78 | 80 |",
        "| `helper` | 0 | 16 | 0 | 0 |  |",
    ]


def test_kernels_of_the_same_name_are_not_mixed_up(report, monkeypatch):
    monkeypatch.setattr(report, "demangled", lambda symbols: dict.fromkeys(symbols, "void a(int)"))
    with pytest.raises(SystemExit, match="same readable name"):
        report.named(report.read(LOG))
