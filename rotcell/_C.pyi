"""The compiled module. Its operators are reached through torch.ops.rotcell."""

from typing import Any

def instruction_set() -> str:
    """The name of the instruction set in use: "generic", "avx2" or "avx512"."""

def instruction_sets() -> list[str]:
    """The instruction sets that were built and run on this machine."""

has_cuda: bool
"""Whether the kernels for GPUs were built."""

def cuda_plan(
    cell: str,
    pass_name: str,
    hidden: int,
    batch: int,
    steps: int,
    dtype: str,
    device: str | dict[str, int],
    projection: bool = False,
    path: str | None = None,
) -> dict[str, Any] | None:
    """The path a sequence takes on a GPU, and its launch. A pure function: it needs no GPU.

    Args:
        cell: "lstm" or "gru".
        pass_name: "forward" or "backward".
        hidden: number of units.
        batch: rows of the batch.
        steps: length of the longest sequence.
        dtype: "float32", "float64", "float16" or "bfloat16".
        device: a name from `known_cuda_devices` or a dict like its values.
        projection: whether the output is projected.
        path: how this path would run, instead of the one expected to be the fastest.

    Returns:
        None if the given path cannot run there.
    """

def known_cuda_devices() -> dict[str, dict[str, int]]:
    """Properties of some GPUs, by name."""

def cuda_device(index: int) -> dict[str, int]:
    """Properties of a GPU of this machine. Only if `has_cuda`."""

def force_cuda_path(path: str | None) -> None:
    """For tests: take this path always, or with None the fastest again. Only if `has_cuda`."""
