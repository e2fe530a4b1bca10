"""python -m rotcell and build_info()."""

import json
import platform
import re

import pytest
import torch

import rotcell
from rotcell.__main__ import main


def test_build_info_names_what_is_running():
    info = rotcell.build_info()
    assert info["torch_running"] == torch.__version__
    assert info["python_running"] == platform.python_version()
    assert info["threads"] == torch.get_num_threads()


def test_instruction_set_in_use_is_one_of_those_usable_here():
    info = rotcell.build_info()
    assert info["instruction_set"] in info["instruction_sets"]
    assert "generic" in info["instruction_sets"]
    assert set(info["instruction_sets"]) <= {"generic", "avx2", "avx512"}


def test_no_cuda_kernels_comes_with_a_reason():
    info = rotcell.build_info()
    assert info["cuda"] is False
    assert info["cuda_reason"]


def test_json_output_is_build_info(capsys):
    main(["--json"])
    assert json.loads(capsys.readouterr().out) == rotcell.build_info()


def test_readable_output_is_aligned_and_complete(capsys):
    main([])
    out = capsys.readouterr().out
    info = rotcell.build_info()
    for fact in ("version", "torch_running", "torch_built_against", "compiler", "cuda_reason"):
        assert info[fact] in out
    starts = {re.match(r".+?\s{2,}", line).end() for line in out.splitlines()}
    assert len(starts) == 1


def test_override_is_shown(monkeypatch, capsys):
    monkeypatch.setenv("ROTCELL_ISA", "generic")
    main([])
    assert "ROTCELL_ISA=generic" in capsys.readouterr().out


def test_unknown_option_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--yaml"])
    assert "--yaml" in capsys.readouterr().err
