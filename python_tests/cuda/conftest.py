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
from helpers import Kind
from machines import Emulator, Gpu, Machine

from rotcell import _libraries, ops, reference
from rotcell.cuda.paths import has_cell

sys.path.append(str(Path(__file__).resolve().parents[2] / "verify"))

import build_emulator


@functools.cache
def emulator_build() -> Future[Path]:
    pool = ThreadPoolExecutor(1)
    building = pool.submit(build_emulator.build)
    pool.shutdown(wait=False)
    return building


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the cells that no path runs, as their descriptions say."""
    missing = {name for name in reference.CELLS if not has_cell(name)}

    def is_missing(value: object) -> bool:
        if isinstance(value, (tuple, list)):
            return any(map(is_missing, value))
        value = getattr(value, "kind", value)
        return (value.name if isinstance(value, Kind) else value) in missing

    def parameters(item: pytest.Item) -> dict[str, Any]:
        return item.callspec.params if hasattr(item, "callspec") else {}

    here = Path(__file__).parent
    items[:] = [
        item
        for item in items
        if here not in item.path.parents or not any(map(is_missing, parameters(item).values()))
    ]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compiling the emulator takes most of a minute: start while other tests run."""
    names = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    is_needed = {"emulator_module", "machine"} & names and not session.config.option.collectonly
    if is_needed and build_emulator.compiler() is not None:
        emulator_build()


@pytest.fixture(scope="session")
def emulator_module() -> Any:
    if build_emulator.compiler() is None:
        pytest.skip("there is no C++ compiler to build the emulator with")
    spec = importlib.util.spec_from_file_location("_emulator", emulator_build().result())
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def emulator(emulator_module: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    monkeypatch.setattr(ops.saved_format, "_SAVES_HALVES", {"cuda", "cpu"})
    emulator_module.pose_as(_libraries.known_cuda_devices()["H100"])
    emulator_module.set_order("forward")
    emulator_module.reset_launches()
    emulator_module.install()
    # Matmuls are small: a second thread gains nothing, and costs milliseconds on a busy machine.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        # oneDNN's fp16 and bf16 matmuls need instructions that some virtual machines do not have.
        with torch.backends.mkldnn.flags(enabled=False):
            yield Emulator(emulator_module)
    finally:
        torch.set_num_threads(threads)
        emulator_module.force_path(None)
        emulator_module.remove()


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
MACHINES = ["emulator"]
if torch.cuda.is_available() or os.environ.get("ROTCELL_REQUIRE_CUDA") == "1":
    MACHINES.append(pytest.param("gpu", marks=pytest.mark.needs_cuda))


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Machine:
    return request.getfixturevalue(request.param)
