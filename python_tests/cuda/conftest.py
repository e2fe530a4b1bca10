"""The machines on which the CUDA tests run."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from machines import Executor, Gpu, Machine

from rotcell import _libraries, ops

sys.path.append(str(Path(__file__).resolve().parents[2] / "build_tools"))

import simt_build


@functools.cache
def executor_build() -> Future[Path]:
    pool = ThreadPoolExecutor(1)
    building = pool.submit(simt_build.build)
    pool.shutdown(wait=False)
    return building


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compiling the executor takes most of a minute: let it begin beside the tests before ours."""
    names = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    is_needed = {"simt_module", "machine"} & names and not session.config.option.collectonly
    if is_needed and simt_build.compiler() is not None:
        executor_build()


@pytest.fixture(scope="session")
def simt_module() -> Any:
    if simt_build.compiler() is None:
        pytest.skip("there is no C++ compiler to build the executor with")
    spec = importlib.util.spec_from_file_location("_simt", executor_build().result())
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def executor(simt_module: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    monkeypatch.setattr(ops, "_SAVES_HALVES", {"cuda", "cpu"})
    simt_module.pose_as("H100")
    simt_module.set_order("forward")
    simt_module.reset_launches()
    simt_module.install()
    # Products are small: a second thread gains nothing, and where others run costs milliseconds.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        # oneDNN's products of half types need instructions that some virtual machines do not have.
        with torch.backends.mkldnn.flags(enabled=False):
            yield Executor(simt_module)
    finally:
        torch.set_num_threads(threads)
        simt_module.force_path(None)
        simt_module.remove()


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    reason = None
    if not torch.cuda.is_available():
        reason = "torch sees no GPU here"
    elif not _libraries.has_cuda():
        reason = "rotcell was built without CUDA kernels"
    if reason and os.environ.get("ROTCELL_REQUIRE_CUDA") == "1":
        pytest.fail(f"ROTCELL_REQUIRE_CUDA=1, but {reason}")
    if reason:
        pytest.skip(reason)
    yield Gpu()
    _libraries.force_cuda_path(None)


# Where there is no GPU and none is required, test_cuda_gpu_only.py alone says so: a line for each
# test of the battery would hide what else is skipped.
MACHINES = ["executor"]
if torch.cuda.is_available() or os.environ.get("ROTCELL_REQUIRE_CUDA") == "1":
    MACHINES.append(pytest.param("gpu", marks=pytest.mark.needs_cuda))


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Machine:
    return request.getfixturevalue(request.param)
