"""A cell that the kernels cannot run does not compile, with a message that says why."""

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parent.parent / "csrc"
COMPILER = next((name for name in ("c++", "g++", "clang++") if shutil.which(name)), None)

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")

# The wrong members hide those of a cell that fits.
WRONG = {
    "three_stages": (
        "Gru<PairRotation>",
        "static constexpr int kStages = 3;",
        "a cell has one or two stages",
    ),
    "rows_apart": (
        "Gru<NoRotation>",
        "static constexpr int matmul(int gate) { return gate == 1 ? 0 : 1; }"
        "static constexpr int stage(int) { return 1; }",
        "the rows of a matmul after the first are contiguous: its gates are neighbors",
    ),
    "projected_gru": (
        "Gru<PairRotation>",
        "static constexpr bool kCanProject = true;",
        "only a cell of one stage whose math does not read the old output can be projected",
    ),
    "rotation_after_the_last_stage": (
        "Lstm<PairRotation>",
        "static constexpr int kRotationStage = 1;",
        "kRotationStage is one of the stages",
    ),
    "unknown_activation": (
        "Lstm<NoRotation>",
        "static constexpr Activation activation(int) { return static_cast<Activation>(7); }",
        "activation(gate) is Activation::kGate, kTanh or kIdentity",
    ),
    "names_missing": (
        "Lstm<NoRotation>",
        'static constexpr const char* kGateNames[] = {"i", "f", "g"};',
        "kGateNames has one name per gate, in the order of the weights' rows",
    ),
    "cell_state_without_its_function": (
        "Gru<NoRotation>",
        "static constexpr bool kHasCellState = true;",
        "a cell with kHasCellState has memory<Math>(gates, c_before), which returns a pair",
    ),
    "gate_used_before_its_matmul": (
        "Gru<NoRotation>",
        "static constexpr int stage(int) { return 0; }",
        "a gate is used by the stage of its matmul or a later one",
    ),
}


def compile_cell(tmp_path, base, members):
    source = tmp_path / "cell.cpp"
    source.write_text(
        '#include "cells/list.h"\n'
        "namespace rotcell {\n"
        f"struct Candidate : {base} {{ {members} }};\n"
        "static_assert(check_cell<Candidate>());\n"
        "}\n"
    )
    command = [COMPILER, "-std=c++20", "-fsyntax-only", "-I", str(SOURCES), str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("base", ["Lstm<PairRotation>", "Gru<NoRotation>"])
def test_a_cell_that_fits_compiles(tmp_path, base):
    compiled = compile_cell(tmp_path, base, "")
    assert compiled.returncode == 0, compiled.stderr


@pytest.mark.parametrize(("base", "members", "message"), WRONG.values(), ids=WRONG)
def test_a_cell_that_does_not_fit_is_refused_with_the_reason(tmp_path, base, members, message):
    compiled = compile_cell(tmp_path, base, members)
    assert compiled.returncode != 0
    assert message in compiled.stderr


def test_a_missing_member_is_named(tmp_path):
    source = tmp_path / "cell.cpp"
    source.write_text(
        '#include "cells/cell.h"\nstruct Empty {};\nstatic_assert(rotcell::check_cell<Empty>());\n'
    )
    command = [COMPILER, "-std=c++20", "-fsyntax-only", "-I", str(SOURCES), str(source)]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert "a cell has all the members that the top of cells/cell.h lists" in compiled.stderr
    assert "Rotation" in compiled.stderr
