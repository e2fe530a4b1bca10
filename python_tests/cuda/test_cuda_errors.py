"""bench/cuda_errors.py: the command that makes docs/internals/cuda-errors.md."""

import sys
from pathlib import Path

import torch

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))

import cuda_errors


def test_every_path_and_type_is_measured(emulator_module):
    short = cuda_errors.Situation("2 steps", 2, {})
    with torch.backends.mkldnn.flags(enabled=False):
        rows = list(cuda_errors.measured(emulator_module, short))
    for _, dtype, _, found in rows:
        assert all(error < 8 * torch.finfo(dtype).eps for error in found)
    committed = cuda_errors.PAGE.read_text(encoding="utf-8")
    for kind, dtype, path, found in rows:
        names = f"| {kind} | {str(dtype).removeprefix('torch.')} | {path} | "
        lines = [line for line in committed.splitlines() if line.startswith(names)]
        assert [line.count("|") for line in lines] == [4 + len(found)] * 2
