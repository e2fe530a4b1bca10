"""bench/predict_cuda.py: what docs/cuda.md shows is what it prints."""

import sys
from pathlib import Path

import pytest
import torch

from rotcell import _C

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bench"))

import predict_cuda

PAGE = Path(__file__).resolve().parents[1].joinpath("docs/cuda.md").read_text(encoding="utf-8")
AGAIN = "docs/cuda.md is out of date: put in what python bench/predict_cuda.py prints"


@pytest.mark.parametrize("pass_name", predict_cuda.PASSES)
def test_the_times_in_the_docs_are_what_the_script_prints(pass_name):
    assert predict_cuda.times(pass_name) in PAGE, AGAIN


@pytest.mark.parametrize("pass_name", predict_cuda.PASSES)
def test_the_details_in_the_docs_are_what_the_script_prints(pass_name):
    assert predict_cuda.details("H100", pass_name) in PAGE, AGAIN + " with --details H100"


@pytest.mark.parametrize("gpu", predict_cuda.RATES)
@pytest.mark.parametrize("dtype", predict_cuda.TYPES, ids=str)
@pytest.mark.parametrize("path", ["resident", "cooperative"])
@pytest.mark.parametrize("pass_name", predict_cuda.PASSES)
def test_its_arithmetic_of_shared_memory_is_that_of_the_kernels(pass_name, path, dtype, gpu):
    found = 0
    for hidden in (1, 2, 7, 50, 63, 100, 131, 160, 255, 300, 512, 1000):
        for batch in (1, 32, 500):
            name = str(dtype).removeprefix("torch.")
            if _C.cuda_plan("rot_lstm", pass_name, hidden, batch, 100, name, gpu, path=path):
                predict_cuda.Case(batch, hidden, dtype, gpu, path, pass_name).step()  # compares
                found += 1
    assert found >= 6


@pytest.mark.parametrize("pass_name", predict_cuda.PASSES)
def test_its_arithmetic_of_clusters_is_that_of_the_kernels(pass_name):
    for hidden in (7, 66, 160, 255, 300, 512):
        predict_cuda.Case(
            32, hidden, torch.float16, "H100", "cluster", pass_name
        ).step()  # compares
