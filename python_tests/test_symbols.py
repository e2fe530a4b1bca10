"""Code compiled for wide registers stays in its instruction set's namespace."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
CHECK = REPOSITORY / "build_tools" / "check_symbols.py"
FLAGS = ["-std=c++20", "-fPIC", "-DROTCELL_X86", "-DROTCELL_FEW_CELLS", "-mavx2", "-mfma"]
COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]

pytestmark = [
    pytest.mark.skipif(not COMPILERS or not shutil.which("nm"), reason="needs g++ and binutils"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="needs flags of x86"),
]


def check(*objects):
    command = [sys.executable, str(CHECK), "--kernels", *map(str, objects)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def compile_kernels(compiler, source, target, *flags):
    command = [compiler, *FLAGS, *flags, "-I", REPOSITORY / "csrc", "-c", source, "-o", target]
    subprocess.run([*command, "-w"], check=True, timeout=500)


# Without optimization nothing is inlined that need not be: every function of the C++ library shows.
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("name", ["kernels_avx2", "int8_avx2"])
def test_the_kernels_define_no_weak_symbol_outside_their_namespace(compiler, name, tmp_path):
    (source,) = (REPOSITORY / "csrc" / "cpu").rglob(f"{name}.cpp")
    target = tmp_path / f"{name}.o"
    compile_kernels(compiler, source, target, "-O0")
    checked = check(target)
    assert checked.returncode == 0, checked.stderr


def test_a_planted_weak_symbol_is_refused(tmp_path):
    source, target = tmp_path / "kernels_avx2.cpp", tmp_path / "kernels_avx2.o"
    source.write_text(
        """
#include <algorithm>
namespace rotcell::cpu::avx2 {
template <class T> __attribute__((noinline)) void own(T* p, T value) { std::fill(p, p + 8, value); }
void (*kernel)(float*, float) = own<float>;
}
"""
    )
    compile_kernels(COMPILERS[0], source, target, "-O0")
    checked = check(target)
    assert checked.returncode == 1
    assert "outside rotcell::cpu::avx2: void std::fill<float*, float>" in checked.stderr
    assert "avx2::own" not in checked.stderr


def test_a_file_of_another_name_is_refused(tmp_path):
    checked = check(tmp_path / "plan.o")
    assert checked.returncode == 1
    assert "expected an object named kernels_INSTRUCTION_SET.o" in checked.stderr
