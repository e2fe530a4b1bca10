"""The processes that train one model together; usually there is one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn


class Share(NamedTuple):
    """Which rows of a batch that several processes split are in this part of it."""

    start: int
    stop: int
    joint: int


@dataclass(frozen=True)
class ProcessGroup:
    """This process's place among them."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that prints and writes files."""
        return self.rank == 0

    def share(self, joint: int) -> Share:
        """The rows of a joint batch that fall to this process."""
        return Share(self.rank * joint // self.size, (self.rank + 1) * joint // self.size, joint)

    def total(self, tensor: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model, or one that averages its gradients over all processes."""
        return nn.parallel.DistributedDataParallel(model) if self.size > 1 else model


def own_device(device: torch.device) -> torch.device:
    """`device`, and of several GPUs the one that torchrun meant for this process."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return device


@contextmanager
def torchrun_group(device: torch.device) -> Iterator[ProcessGroup]:
    """The group that torchrun started this process in, or this process alone."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ProcessGroup()
        return
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield ProcessGroup(dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
