"""Settings that hold for every test."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

# A thread that waits sleeps. OpenMP would let it spin, for which torch's small matmuls pay
# milliseconds where the other processor is busy. libgomp reads this once, when torch loads it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
import torch
from helpers import KINDS, Kind, kinds_and_options

#: What runs with ROTCELL_NATIVE=0, where rotcell is installed without kernels.
NEED_NO_KERNELS = {
    f"test_{name}.py"
    for name in (
        *("cells", "checkpoints", "drop_in", "layers", "packed", "reference", "rotation_bias"),
        "special_values",
    )
}


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    needs_kernels = collection_path.name not in NEED_NO_KERNELS
    return True if needs_kernels and os.environ.get("ROTCELL_NATIVE") == "0" else None


def pytest_collection_finish() -> None:
    """Exempt the tests and torch, which stay alive, from garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def same_numbers_and_threads_in_every_test() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture(params=kinds_and_options(), ids=lambda p: f"{p[0]}-{p[1]}")
def kind_and_options(request: pytest.FixtureRequest) -> tuple[Kind, str]:
    return request.param


@pytest.fixture(autouse=True, scope="session")
def _away_from_the_clone(tmp_path_factory: pytest.TempPathFactory) -> None:
    """In the clone's root, a Python that a test starts would find the uncompiled package."""
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
