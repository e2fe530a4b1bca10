"""What is counted in compiled kernels, on code written for the purpose."""

import importlib
import shutil
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

# In the form of nvdisasm 13: a loop that brings weights on chip; the loop over the steps, in which
# one loop loads four numbers at once and one multiplies; a wait for the grid; code after the end.
CODE = """
//--------------------- .text.walk --------------------------
	.section	.text.walk,"ax",@progbits
.text.walk:
        .type           walk,@function
walk:
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_1:
        /*0010*/                   LDG.E.U16 R4, [R2.64] ;
        /*0020*/                   STS.U16 [R5], R4 ;
        /*0030*/              @!P0 BRA `(.L_x_1) ;
        /*0040*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
.L_x_2:
        /*0050*/                   LDG.E.64 R10, [R2.64] ;
        /*0060*/                   ULDC UR4, c[0x0][0x160] ;
.L_x_3:
        /*0070*/                   LDG.E R20, [R2.64] ;
        /*0080*/                   LDG.E R21, [R2.64+0x4] ;
        /*0090*/                   LDG.E.128 R24, [R2.64+0x8] ;
        /*00a0*/                   IADD3 R2, R2, 0x10, RZ ;
        /*00b0*/                   LDG.E R28, [R6.64] ;
        /*00c0*/                   STS [R5], R20 ;
        /*00d0*/                   STS [R5+0x4], R27 ;
        /*00e0*/               @P1 BRA `(.L_x_3) ;
        /*00f0*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
.L_x_4:
.L_x_5:
        /*0100*/                   LDS.128 R32, [R5] ;
        /*0110*/                   FFMA R40, R32, R33, R40 ;
        /*0120*/                   FFMA R41, R32, R34, R41 ;
        /*0130*/                   HADD2.F32 R42, -RZ, R35.H0_H0 ;
        /*0140*/                   ISETP.GE.AND P0, PT, R5, R9, PT ;
        /*0150*/              @!P0 BRA `(.L_x_4) ;
        /*0160*/                   MUFU.EX2 R40, R40 ;
        /*0170*/                   FADD R10, R10, R40 ;
        /*0180*/                   STG.E [R2.64], R10 ;
.L_x_6:
        /*0190*/                   LD.E.STRONG.GPU R50, [R2.64] ;
        /*01a0*/                   ISETP.NE.AND P0, PT, R50, RZ, PT ;
        /*01b0*/               @P0 BRA `(.L_x_6) ;
        /*01c0*/              @!P2 BRA `(.L_x_2) ;
        /*01d0*/                   EXIT ;
.L_x_7:
        /*01e0*/                   BRA `(.L_x_7);
//--------------------- .text.straight --------------------------
.text.straight:
        /*0000*/                   HMMA.16816.F32 R4, R8, R12, R4 ;
        /*0010*/                   EXIT ;
"""


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.syspath_prepend(REPOSITORY / "verify/reports")
    return importlib.import_module("sass"), importlib.import_module("count_instructions")


def test_kernels_and_their_instructions_are_read(tools):
    sass, _ = tools
    walk, straight = sass.read(CODE)
    assert (walk.symbol, len(walk.instructions)) == ("walk", 31)
    assert [i.kind for i in straight.instructions] == ["mma", "branch"]


def test_loops_are_found_but_not_the_padding_at_the_end(tools):
    sass, _ = tools
    walk = sass.read(CODE)[0]
    assert [(loop.first, loop.last) for loop in walk.loops()] == [
        (0x10, 0x30), (0x50, 0x1C0), (0x70, 0xE0), (0x100, 0x150), (0x190, 0x1B0),
    ]  # fmt: skip
    steps = walk.steps()
    assert (steps.first, steps.last) == (0x50, 0x1C0)
    assert [loop.first for loop in walk.innermost(steps)] == [0x70, 0x100, 0x190]


def test_a_kernel_without_a_barrier_in_a_loop_has_no_steps(tools):
    sass, _ = tools
    assert sass.read(CODE)[1].steps() is None


def test_instructions_are_counted_by_kind(tools):
    _, counting = tools
    (walk,) = counting.count(CODE).values()
    assert walk.steps.kinds == {
        "global": 7, "shared": 3, "fma": 2, "float": 2, "special": 1, "integer": 4, "barrier": 1,
        "branch": 4,
    }  # fmt: skip
    assert walk.steps.all == 24
    assert str(walk.innermost[1]) == "6: 1 shared, 2 fma, 1 float, 1 branch, 1 integer"


def test_loads_in_flight_are_those_issued_before_one_is_needed(tools):
    sass, counting = tools
    (walk,) = counting.count(CODE).values()
    assert [loop.in_flight for loop in walk.innermost] == [4, 0, 1]
    assert walk.steps.in_flight == 5  # that of the step before is still on its way

    def in_flight(*lines):
        code = [f"        /*{16 * k:04x}*/  {line} ;" for k, line in enumerate(lines)]
        return sass.loads_in_flight(sass.read("\n".join([".text.k:", *code]))[0].instructions)

    one_by_one = ("LDG.E R1, [R8.64]", "FADD R2, R1, R1", "LDG.E R3, [R8.64]", "FADD R2, R3, R3")
    assert in_flight(*one_by_one) == 1
    assert in_flight(*one_by_one[::2], *one_by_one[1::2]) == 2
    wide = ("LDG.E.128 R4, [R8.64]", "LDG.E R1, [R10.64]", "MOV R3, R7", "LDG.E R2, [R12.64]")
    assert in_flight(*wide) == 2  # R7 is of the first
    copies = (
        "LDGSTS.E [R1], [R2.64]",
        "LDGSTS.E [R1+0x10], [R2.64+0x10]",
        "LDGDEPBAR",
        "DEPBAR.LE SB0, 0x0",
    )
    assert in_flight(*copies, *copies) == 2


def test_nvdisasm_is_found_next_to_nvcc_or_as_a_package(tools, tmp_path, monkeypatch):
    sass, _ = tools
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sass.sysconfig, "get_path", lambda name: str(tmp_path / "none"))
    assert sass.find_nvdisasm() is None
    for folder in (tmp_path / "toolkit", tmp_path / "packages/nvidia/cu13/bin"):
        folder.mkdir(parents=True)
        shutil.copy("/bin/true", folder / "nvdisasm")
    assert sass.find_nvdisasm(tmp_path / "toolkit/nvcc") == str(tmp_path / "toolkit/nvdisasm")
    packaged = sass.find_nvdisasm(packages=tmp_path / "packages")
    assert packaged == str(tmp_path / "packages/nvidia/cu13/bin/nvdisasm")
