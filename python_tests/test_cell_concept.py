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
        "a cell with kHasCellState has cell_state<Math>(gates, c_before), which returns a group",
    ),
    "gate_used_before_its_matmul": (
        "Gru<NoRotation>",
        "static constexpr int stage(int) { return 0; }",
        "a gate is used by the stage of its matmul or a later one",
    ),
}


WRONG_ROW_CELLS = {
    "input_after_hidden": (
        "LayerNormLstmMath<PairRotation>",
        "static constexpr ColumnBlock block(int number, int64_t hidden) {"
        "return {number == 0 ? FedBy::kHidden : FedBy::kInput, hidden}; }",
        "blocks that x does not feed come last",
    ),
    "projected_rum": (
        "RumMath",
        "static constexpr bool kCanProject = true;",
        "a row cell whose math reads the old output cannot be projected",
    ),
    "two_stages": ("GoruMath", "static constexpr int kStages = 2;", "a row cell has one stage"),
    "biases_of_columns_that_do_not_exist": (
        "EurnnMath",
        "static constexpr int64_t bias_columns(int64_t hidden) { return 2 * hidden; }",
        "only columns that x feeds have a bias in b_ih",
    ),
    "too_many_parameters": (
        "EurnnMath",
        "static constexpr int kParameterCount = 5;",
        "a row cell has at most kMostRowParameters further parameters",
    ),
    "member_of_another_type": (
        "EurnnMath",
        "static constexpr int scratch(int64_t hidden) { return 1; }",
        "a row cell has all the members that the top of cells/row_cell.h lists",
    ),
}


def compile_cell(tmp_path, base, members, check="check_cell"):
    source = tmp_path / "cell.cpp"
    source.write_text(
        '#include "cells/list.h"\n'
        "namespace rotcell {\n"
        f"struct Candidate : {base} {{ {members} }};\n"
        f"static_assert({check}<Candidate>());\n"
        "}\n"
    )
    command = [COMPILER, "-std=c++20", "-fsyntax-only", "-I", str(SOURCES), str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("base", ["Lstm<PairRotation>", "Gru<NoRotation>"])
def test_a_cell_that_fits_compiles(tmp_path, base):
    compiled = compile_cell(tmp_path, base, "")
    assert compiled.returncode == 0, compiled.stderr


@pytest.mark.parametrize("base", ["LayerNormLstmMath<PairRotation>", "RumMath", "EurnnMath"])
def test_a_row_cell_that_fits_compiles(tmp_path, base):
    compiled = compile_cell(tmp_path, base, "", "check_row_cell")
    assert compiled.returncode == 0, compiled.stderr


@pytest.mark.parametrize(
    ("base", "members", "message"), WRONG_ROW_CELLS.values(), ids=WRONG_ROW_CELLS
)
def test_a_row_cell_that_does_not_fit_is_refused_with_the_reason(tmp_path, base, members, message):
    compiled = compile_cell(tmp_path, base, members, "check_row_cell")
    assert compiled.returncode != 0
    assert message in compiled.stderr


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
