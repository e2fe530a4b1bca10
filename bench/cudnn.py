"""Which algorithm PyTorch has cuDNN run for an nn.LSTM or nn.GRU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from work import Work

STANDARD = "STANDARD"
PERSIST_STATIC = "PERSIST_STATIC"
PERSIST_STATIC_SMALL_H = "PERSIST_STATIC_SMALL_H"


@dataclass(frozen=True)
class Gpu:
    """What the choice depends on: compute capability and number of multiprocessors."""

    major: int
    minor: int
    multiprocessors: int

    @classmethod
    def of(cls, device: torch.device) -> Gpu:
        """Look up the properties of a CUDA device."""
        found = torch.cuda.get_device_properties(device)
        return cls(found.major, found.minor, found.multi_processor_count)


def algorithm(cell: str, work: Work, dtype: torch.dtype, gpu: Gpu, forward: bool) -> str:
    """Name the algorithm for an nn.LSTM or nn.GRU (cell: "LSTM", "GRU"), forward or backward."""
    if work.form == "packed":
        return STANDARD
    small = 192 if forward else 128
    if dtype != torch.float64 and gpu.major >= 6 and work.hidden_size <= small:
        return PERSIST_STATIC_SMALL_H
    if dtype == torch.float16 and _sizes_persist(work) and _gpu_persists(cell, work, gpu):
        return PERSIST_STATIC
    return STANDARD


def _sizes_persist(work: Work) -> bool:
    fits = work.hidden_size <= 1024 and work.hidden_size % 128 == 0 and work.input_size % 128 == 0
    return fits and work.layers == 1 and work.directions == 1


def _gpu_persists(cell: str, work: Work, gpu: Gpu) -> bool:
    batch, steps = work.batch, work.steps
    if gpu.major == 7 and gpu.minor != 5:
        fits = (batch % 16 == 0 and batch not in (80, 112)) or batch == 8
        most = 128 if steps >= 40 else 96 if steps >= 20 else 32 if steps >= 10 else 0
        return fits and batch <= most
    if gpu.major >= 8 and gpu.minor != 6 and gpu.multiprocessors >= 98:
        return cell == "LSTM" and batch % 8 == 0 and batch <= 128
    return False


def algorithms(cell: str, work: Work, dtype: torch.dtype, gpu: Gpu, passes: str) -> str:
    """Name what a row runs: for training, forward and backward if they differ."""
    forward = algorithm(cell, work, dtype, gpu, forward=True)
    backward = algorithm(cell, work, dtype, gpu, forward=False)
    if passes == "infer" or forward == backward:
        return forward
    return f"{forward}, backward {backward}"
