"""Arguments for the sequence ops themselves, below the layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from helpers import Kind
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """One call of a sequence op: sizes, and everything else that changes what runs."""

    kind: Kind
    batch: int
    steps: int
    inputs: int
    hidden: int
    outputs: int = 0  # 0: no projection
    packed: bool = False
    reverse: bool = False
    bias: bool = True
    gate_activation: str = "sigmoid"
    angle_activation: str = "sigmoid"

    def __str__(self) -> str:
        marks = [
            name
            for name, is_so in [
                (f"P{self.outputs}", self.outputs),
                ("packed", self.packed),
                ("reverse", self.reverse),
                ("no_bias", not self.bias),
                (self.gate_activation, self.gate_activation != "sigmoid"),
                (f"angles_{self.angle_activation}", self.angle_activation != "sigmoid"),
            ]
            if is_so
        ]
        sizes = f"{self.kind}-B{self.batch}-T{self.steps}-I{self.inputs}-H{self.hidden}"
        return "-".join([sizes, *marks])

    def batch_sizes(self) -> Tensor | None:
        if not self.packed:
            return None
        lengths = torch.randint(1, self.steps + 1, (self.batch,))
        lengths[0] = self.steps
        return (lengths[None, :] > torch.arange(self.steps)[:, None]).sum(1)

    @property
    def options(self) -> tuple[bool, str, str]:
        """What comes after batch_sizes."""
        return self.reverse, self.gate_activation, self.angle_activation

    def arguments(
        self, dtype: torch.dtype = torch.float64, seed: int = 0
    ) -> tuple[list[Tensor | None], Tensor | None]:
        """The differentiable arguments in order, and batch_sizes.

        Values are the same for every dtype, but for their rounding.
        """
        torch.manual_seed(seed)
        batch_sizes = self.batch_sizes()
        tokens = self.steps * self.batch if batch_sizes is None else int(batch_sizes.sum())
        outputs = self.outputs or self.hidden
        rows = self.kind.rows(self.hidden)
        bound = self.hidden**-0.5

        def weight(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=torch.float64).uniform_(-bound, bound)

        def data(*shape: int) -> Tensor:
            return torch.randn(shape, dtype=torch.float64)

        states = [data(self.batch, size) for size in self.kind.state_sizes(self.hidden, outputs)]
        biases = [weight(rows), weight(rows)] if self.bias else [None, None]
        tensors = [data(tokens, self.inputs), *states]
        tensors += [weight(rows, self.inputs), weight(rows, outputs), *biases]
        if self.kind.description.can_project:
            tensors.append(weight(outputs, self.hidden) if self.outputs else None)
        return [None if t is None else t.to(dtype) for t in tensors], batch_sizes


def variants(kind: Kind, sizes: Sequence[tuple[int, int, int, int]]) -> list[Case]:
    """Each size padded and packed, forwards and in reverse, and with a projection if it can be."""
    cases = []
    for number, (batch, steps, inputs, hidden) in enumerate(sizes):
        plain = Case(kind, batch, steps, inputs, hidden, bias=number % 3 != 2)
        cases += [
            replace(plain, packed=packed, reverse=reverse)
            for packed in (False, True)
            for reverse in (False, True)
        ]
        if kind.description.can_project and hidden > 2:
            smaller = replace(plain, outputs=max(1, hidden // 3))
            cases += [smaller, replace(smaller, packed=True, reverse=True)]
    return cases


def output_gradients(results: Sequence[Tensor]) -> list[Tensor]:
    """The same random numbers every time, as the gradients of the results."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(r.shape, generator=generator, dtype=torch.float64).to(r) for r in results]


def run(
    function: Callable[..., Sequence[Tensor]],
    tensors: Sequence[Tensor | None],
    batch_sizes: Tensor | None,
    *options: Any,
) -> tuple[list[Tensor], list[Tensor]]:
    """Results, and gradients of a fixed random combination of them for every argument."""
    leaves = [None if t is None else t.detach().clone().requires_grad_() for t in tensors]
    results = function(*leaves, batch_sizes, *options)
    targets = [t for t in leaves if t is not None]
    grads = torch.autograd.grad(results, targets, output_gradients(results))
    return list(results), list(grads)
