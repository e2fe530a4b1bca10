"""Which path runs where: a pure function, so it can be asked about any GPU."""

from __future__ import annotations

from typing import Any

import pytest
from machines import KNOWN

from rotcell import reference
from rotcell.cuda import paths

CELLS = [cell.name for cell in reference.CELLS.values()]
PASSES = ["forward", "backward"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]


def plan(
    cell: str, pass_name: str, hidden: int, dtype: str, device: Any, batch: int = 32, **more: Any
) -> dict[str, Any] | None:
    return paths.plan(cell, pass_name, hidden, batch, 100, dtype, device, **more)


def largest(path: str, *arguments: str, device: str | dict[str, int]) -> int:
    """The largest hidden size up to which all fit."""
    hidden = 1
    cell, pass_name, dtype = arguments
    while plan(cell, pass_name, hidden, dtype, device, path=path):
        hidden += 1
    return hidden - 1


@pytest.mark.parametrize("device", KNOWN)
@pytest.mark.parametrize("pass_name", PASSES)
@pytest.mark.parametrize("cell", CELLS)
def test_the_papers_size_is_resident_on_every_gpu(cell, pass_name, device):
    for dtype in ("float32", "float16", "bfloat16"):
        assert plan(cell, pass_name, 50, dtype, device)["path"] == "resident"


@pytest.mark.parametrize(("dtype", "hidden"), [("float32", 112), ("float16", 160)])
@pytest.mark.parametrize("pass_name", PASSES)
@pytest.mark.parametrize("cell", CELLS)
def test_an_h100_keeps_these_sizes_resident(cell, pass_name, dtype, hidden):
    assert plan(cell, pass_name, hidden, dtype, "H100")["path"] == "resident"


@pytest.mark.parametrize("device", KNOWN)
@pytest.mark.parametrize("pass_name", PASSES)
@pytest.mark.parametrize("cell", CELLS)
def test_larger_sizes_are_cooperative_and_the_largest_stepwise(cell, pass_name, device):
    for dtype, middle in (("float32", 180), ("float16", 250)):
        paths = [
            plan(cell, pass_name, hidden, dtype, device, 16)["path"]
            for hidden in (50, middle, 4000)
        ]
        clusters = device == "H100" and dtype == "float16" and pass_name == "forward"
        assert paths == ["resident", "cluster" if clusters else "cooperative", "stepwise"]


@pytest.mark.parametrize("pass_name", PASSES)
@pytest.mark.parametrize("cell", CELLS)
def test_tiles_of_the_batch_have_separate_blocks_while_the_weights_fit(cell, pass_name):
    def groups(batch: int, hidden: int) -> int:
        found = plan(cell, pass_name, hidden, "float16", "A100", batch, path="cooperative")
        return found["tile_groups"]

    assert [groups(batch, 256) for batch in (1, 16, 17, 64)] == [1, 1, 2, 4]
    # Four groups would be a quarter of the blocks for all units.
    assert groups(64, 900) < 4


@pytest.mark.parametrize("device", KNOWN)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pass_name", PASSES)
@pytest.mark.parametrize("cell", CELLS)
def test_no_launch_is_more_than_the_gpu_allows(cell, pass_name, dtype, device):
    limits = KNOWN[device]
    for hidden in [*range(1, 200), *range(200, 2000, 37)]:
        for batch in (1, 7, 300):
            for path in ("resident", "cooperative", "cluster"):
                found = plan(cell, pass_name, hidden, dtype, device, batch, path=path)
                if found is None:
                    continue
                assert found["path"] == path
                if path == "cluster":
                    cluster, units = found["cluster"], found["units_per_block"]
                    assert 2 <= cluster <= limits["largest_cluster"]
                    assert cluster * units >= hidden
                    # A tile of the batch each, and all at once.
                    assert found["tile_groups"] == -(-batch // 16)
                    assert found["blocks"] == cluster * found["tile_groups"]
                    assert found["blocks"] <= limits["multiprocessors"]
                    assert units % 8 == 0  # 16 bytes
                    continue
                assert found["cluster"] == 1
                assert 0 < found["shared_bytes"] <= limits["shared_bytes_per_block"]
                assert 0 < found["threads"] <= 1024
                assert found["threads"] % 32 == 0
                if path == "resident":
                    rows = found["rows_per_block"]
                    assert (found["blocks"] - 1) * rows < batch <= found["blocks"] * rows
                else:
                    units, groups = found["units_per_block"], found["tile_groups"]
                    assert found["blocks"] == -(-hidden // units) * groups
                    assert 0 < groups <= -(-batch // 16)
                    # All blocks are there at once: one on each multiprocessor at most.
                    assert found["blocks"] <= limits["multiprocessors"]
                    assert units % 2 == 0


@pytest.mark.parametrize("path", ["resident", "cooperative"])
@pytest.mark.parametrize("pass_name", PASSES)
@pytest.mark.parametrize("cell", CELLS)
def test_more_shared_memory_and_narrower_types_fit_more_units(cell, pass_name, path):
    memories = sorted(device["shared_bytes_per_block"] for device in KNOWN.values())
    for dtype in ("float32", "float16"):
        # On as many multiprocessors: weights may be in registers, too.
        devices = [KNOWN["A100"] | {"shared_bytes_per_block": memory} for memory in memories]
        by_memory = [largest(path, cell, pass_name, dtype, device=device) for device in devices]
        assert by_memory == sorted(by_memory)
        assert by_memory[0] < by_memory[-1]
    by_type = [
        largest(path, cell, pass_name, dtype, device="A100")
        for dtype in ("float64", "float32", "float16")
    ]
    assert by_type == sorted(by_type)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("cell", CELLS)
def test_clusters_are_as_small_as_their_blocks_allow(cell, dtype):
    def cluster(hidden: int, batch: int = 16, pass_name: str = "forward") -> int | None:
        found = plan(cell, pass_name, hidden, dtype, "H100", batch, path="cluster")
        return found and found["cluster"]

    for pass_name in PASSES:
        sizes = [cluster(hidden, 16, pass_name) for hidden in (64, 65, 256, 257, 512, 513)]
        assert sizes == [2, 4, 8, 16, 16, None]
    # No more clusters than there is room for at once.
    assert (cluster(256, 256), cluster(256, 257)) == (8, None)
    assert (cluster(512, 128), cluster(512, 129)) == (16, None)


def test_clusters_are_chosen_for_half_precision_forward_where_the_gpu_has_them():
    def path(pass_name: str, dtype: str, device: Any) -> str:
        return plan("rot_lstm", pass_name, 512, dtype, device)["path"]

    for dtype in ("float16", "bfloat16"):
        assert path("forward", dtype, "H100") == "cluster"
        assert path("backward", dtype, "H100") == "cooperative"
        # Those of 8 blocks are not enough for 512 units.
        for most in (1, 8):
            device = KNOWN["H100"] | {"largest_cluster": most}
            assert path("forward", dtype, device) == "cooperative"
            assert plan("rot_lstm", "forward", 512, dtype, device, path="cluster") is None
    assert path("forward", "float32", "H100") == "cooperative"
    for device in ("T4", "A100", "RTX 4090"):
        assert plan("rot_lstm", "forward", 256, "float16", device, path="cluster") is None


def test_projections_run_stepwise():
    for device in KNOWN:
        found = plan("rot_lstm", "forward", 50, "float32", device, projection=True)
        assert found["path"] == "stepwise"
        for path in ("resident", "cooperative", "cluster"):
            assert (
                plan("rot_lstm", "forward", 50, "float32", device, projection=True, path=path)
                is None
            )


def test_stepwise_can_always_run():
    for hidden in (0, 1, 10**5):
        assert plan("rot_gru", "backward", hidden, "float64", "T4", path="stepwise")


def test_without_cooperative_launch_large_sizes_run_stepwise():
    device = KNOWN["A100"] | {"cooperative_launch": False}
    assert plan("rot_lstm", "forward", 512, "float16", "A100")["path"] == "cooperative"
    assert plan("rot_lstm", "forward", 512, "float16", device)["path"] == "stepwise"
    assert plan("rot_lstm", "forward", 50, "float32", device)["path"] == "resident"


@pytest.mark.parametrize(
    ("pass_name", "dtype", "largest_batch"),
    [
        ("forward", "float32", 96),
        ("backward", "float32", 48),
        ("forward", "float16", 256),
        ("backward", "float16", 256),
    ],
)
def test_large_batches_are_left_to_torchs_matmuls(pass_name, dtype, largest_batch):
    def path(batch: int) -> str:
        return plan("rot_lstm", pass_name, 256, dtype, "A100", batch)["path"]

    assert path(1) == path(largest_batch) == "cooperative"
    assert path(largest_batch + 1) == "stepwise"


def test_tensor_cores_are_used_for_the_types_they_know():
    def has(dtype: str, device: str) -> bool:
        return plan("rot_lstm", "forward", 256, dtype, device, path="cooperative")["tensor_cores"]

    assert has("float16", "T4")
    assert has("bfloat16", "A100")
    assert not has("bfloat16", "T4")
    assert not has("float32", "H100")


def test_blocks_carry_more_rows_when_the_batch_is_larger_than_the_gpu():
    rows = [
        plan("rot_lstm", "forward", 50, "float32", "T4", batch)["rows_per_block"]
        for batch in (1, 40, 41, 160)
    ]
    assert rows == [1, 1, 4, 4]


BAD = {
    "cell": (
        {"cell": "rnn"},
        f"cell must be one of {', '.join(CELLS)}, got 'rnn'",
    ),
    "pass": ({"pass_name": "sideways"}, "pass_name must be one of forward, backward"),
    "dtype": ({"dtype": "int8"}, "dtype must be one of float32, float64, float16, bfloat16"),
    "hidden": ({"hidden": -1}, "hidden must not be negative"),
    "device": ({"device": "GTX 285"}, "device must be .* got 'GTX 285'"),
    "properties": ({"device": {"multiprocessors": 3}}, "compute_capability is missing"),
    "path": ({"path": "fastest"}, "path must be one of stepwise, resident, cooperative, cluster"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_are_refused(name):
    good = {
        "cell": "rot_lstm", "pass_name": "forward", "hidden": 5, "batch": 3, "steps": 2,
        "dtype": "float32", "device": "T4",
    }  # fmt: skip
    change, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        paths.plan(**{**good, **change})
