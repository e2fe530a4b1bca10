"""python -m rotcell and build_info()."""

import ast
import json
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import rotcell
from rotcell.__main__ import main
from rotcell._torch_check import build_record
from rotcell.cuda import paths
from rotcell.reference import CELLS


def test_build_info_names_what_is_running():
    info = rotcell.build_info()
    assert info["torch_running"] == torch.__version__
    assert info["python_running"] == platform.python_version()
    assert info["threads"] == torch.get_num_threads()


def test_instruction_set_in_use_is_one_of_those_usable_here():
    info = rotcell.build_info()
    assert info["instruction_set"] in info["instruction_sets"]
    baseline = "neon" if platform.machine() in ("aarch64", "arm64") else "generic"
    assert baseline in info["instruction_sets"]
    known = {"generic", "generic_bf16", "avx2", "avx512", "avx512_bf16", "neon"}
    assert set(info["instruction_sets"]) <= known


def test_the_emulation_is_never_chosen_unasked():
    assert rotcell.build_info()["instruction_sets"][-1] != "generic_bf16"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("avx512_bf16", ["float32, float64  avx512", "bfloat16  avx512_bf16 (vdpbf16ps)"]),
        ("generic_bf16", ["float32, float64  generic", "bfloat16  generic_bf16 (emulated)"]),
        ("avx2", ["float32, float64  avx2", "bfloat16  in float32, by avx2"]),
    ],
)
def test_every_dtype_has_its_instructions_named(monkeypatch, capsys, name, expected):
    monkeypatch.setattr(rotcell._libraries, "instruction_set", lambda: name)
    main([])
    out = re.sub(" {2,}", "  ", capsys.readouterr().out)
    for line in expected:
        assert line in out
    assert f"float16  in float32, by {name.removesuffix('_bf16')}" in out


def test_cuda_kernels_come_with_their_facts_and_their_absence_with_a_reason():
    info = rotcell.build_info()
    assert info["cuda_reason"]
    assert info["cuda"] == bool(info["cuda_architectures"]) == (info["cuda_version"] is not None)
    if torch.version.cuda is None:
        assert info["cuda"] is False


def test_cuda_version_and_architectures_are_shown(monkeypatch, capsys):
    facts = {"cuda": True, "cuda_version": "13.0.88", "cuda_architectures": ["8.0", "9.0+PTX"]}
    build = {**build_record(), **facts}
    monkeypatch.setattr(rotcell.info, "build_record", lambda: build)
    for loaded, expected in [(True, "\n"), (False, "; not loaded with this torch\n")]:
        monkeypatch.setattr(rotcell._libraries, "has_cuda", lambda loaded=loaded: loaded)
        main([])
        assert f"CUDA 13.0.88, for 8.0, 9.0+PTX{expected}" in capsys.readouterr().out


def test_json_output_is_build_info(capsys):
    main(["--json"])
    assert json.loads(capsys.readouterr().out) == rotcell.build_info()


def test_readable_output_is_aligned_and_complete(capsys):
    main([])
    out = capsys.readouterr().out
    info = rotcell.build_info()
    for fact in ("version", "torch_running", "torch_built_against", "compiler"):
        assert info[fact] in out
    assert info["cuda"] or info["cuda_reason"] in out
    starts = {re.match(r".+?\s{2,}", line).end() for line in out.splitlines()}
    assert len(starts) == 1


def test_override_is_shown(monkeypatch, capsys):
    monkeypatch.setenv("ROTCELL_ISA", "generic")
    main([])
    assert "ROTCELL_ISA=generic" in capsys.readouterr().out


def test_the_commit_is_named_or_unknown():
    assert re.fullmatch(r"[0-9a-f]{40}(\+changes)?|unknown", rotcell.build_info()["commit"])


def test_library_and_module_know_of_the_same_instruction_sets():
    _C = pytest.importorskip("rotcell._C")
    info = rotcell.build_info()
    assert info["instruction_sets"] == _C.instruction_sets()
    assert info["instruction_set"] == _C.instruction_set()


def test_cuda_kernels_are_loaded_only_if_torch_has_cuda():
    info = rotcell.build_info()
    assert not info["cuda_loaded"] or (info["cuda"] and torch.version.cuda is not None)


def test_cuda_paths_are_shown_for_well_known_gpus_where_there_is_none(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    main(["--cuda-paths"])
    blocks = capsys.readouterr().out.split("\n\n")[1:]
    assert [block.split("  ")[0] for block in blocks] == ["T4", "A100", "RTX 4090", "H100"]
    for block in blocks:
        sizes, *rows = block.splitlines()
        assert sizes.split()[-5:] == ["50", "128", "256", "512", "1024"]
        assert len(rows) == 4 * len(CELLS)
        for name, *_, at_50_units in (row.split()[:4] for row in rows):
            assert at_50_units == ("resident" if paths.has_cell(name) else "reference")
    on_a_t4 = {tuple(row.split()[:3]): row.split()[3:] for row in blocks[0].splitlines()[1:]}
    assert on_a_t4["rot_lstm", "float32", "forward"][1:] == ["cooperative"] * 2 + ["stepwise"] * 2


@pytest.mark.parametrize(("option", "status"), [("--cuda-paths", 0), ("--check-gpu", 2)])
def test_commands_for_gpus_need_no_module_for_this_python(option, status, tmp_path):
    """The wheel has the pybind11 module for one Python only."""
    if option == "--check-gpu" and torch.cuda.is_available():
        pytest.skip("a GPU would be checked")
    script = (
        "import sys; sys.modules['rotcell._C'] = None; import rotcell.__main__;"
        f"sys.exit(rotcell.__main__.main([{option!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr


def test_no_python_file_of_the_package_imports_the_module_for_tests():
    package = Path(rotcell.__file__).parent
    for source in package.rglob("*.py"):
        names = [
            alias.name
            for node in ast.walk(ast.parse(source.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        ]
        assert "_C" not in names, source


def test_unknown_option_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--yaml"])
    assert "--yaml" in capsys.readouterr().err
