"""The kernels of every instruction set that this machine can run, each in a separate process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rotcell import _libraries, build_info

IN_USE = _libraries.instruction_set()
OTHER_SETS = [name for name in _libraries.instruction_sets() if name != IN_USE]
PRINT = "import rotcell; print(rotcell._libraries.instruction_set())"


def python(instruction_set: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ROTCELL_ISA": instruction_set}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.skipif("generic_bf16" not in OTHER_SETS, reason="every test runs with it")
def test_bfloat16_with_the_set_that_emulates_its_instructions():
    finished = python(
        "generic_bf16",
        "-m",
        "pytest",
        "-q",
        "-x",
        str(Path(__file__).with_name("test_bfloat16.py")),
    )
    assert finished.returncode == 0, finished.stdout[-5000:]
    assert " passed" in finished.stdout


# "generic_bf16" and "avx512_bf16" differ from "generic" and "avx512" in bfloat16 only.
@pytest.mark.parametrize("name", [name for name in OTHER_SETS if not name.endswith("_bf16")])
def test_kernels_match_the_reference_on_the_other_sets(name):
    files = [
        str(Path(__file__).with_name(f"test_{n}.py"))
        for n in ("kernels", "special_values", "quantized", "row_cells")
    ]
    chosen = "reference or nan or saturate or special"
    finished = python(name, "-m", "pytest", "-q", "-x", *files, "-k", chosen)
    assert finished.returncode == 0, finished.stdout[-5000:]
    assert " passed" in finished.stdout


@pytest.mark.parametrize("name", _libraries.instruction_sets())
def test_the_environment_chooses_the_set(name):
    finished = python(name, "-c", PRINT)
    assert finished.stdout.strip() == name


def test_a_set_that_cannot_run_is_an_error_that_lists_those_that_can():
    finished = python("mmx", "-c", PRINT)
    assert finished.returncode != 0
    assert "ROTCELL_ISA" in finished.stderr
    assert "generic" in finished.stderr


def test_build_info_names_the_set():
    assert build_info()["instruction_set"] == IN_USE
