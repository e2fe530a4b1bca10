"""How the tokens of a sequence lie: flattened for the kernels, and in the caller's own layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence


@dataclass(frozen=True)
class Layout:
    """How to get from a flat ``[N, ...]``, one step after the other, to the caller's layout."""

    batch_sizes: Sequence[int]  # rows alive at each step
    batched: bool = True
    batch_first: bool = False
    packed: PackedSequence | None = None  # whose order of rows counts; its data does not

    @classmethod
    def of(cls, x: Tensor | PackedSequence, batch_first: bool) -> Layout:
        """The layout of a layer's input."""
        if isinstance(x, PackedSequence):
            return cls(x.batch_sizes.tolist(), packed=x._replace(data=x.data.new_empty(0)))
        if x.dim() == 2:
            return cls([1] * x.shape[0], batched=False)
        steps, batch = (x.shape[1], x.shape[0]) if batch_first else x.shape[:2]
        return cls([batch] * steps, batch_first=batch_first)

    @property
    def steps(self) -> int:
        return len(self.batch_sizes)

    @property
    def rows(self) -> int:
        return self.batch_sizes[0]

    @cached_property
    def _offsets(self) -> list[int]:
        offsets = [0]
        for size in self.batch_sizes:
            offsets.append(offsets[-1] + size)
        return offsets

    def length(self, row: int) -> int:
        """How many steps a row of the caller's has."""
        place = self._place(row)
        return sum(size > place for size in self.batch_sizes)

    def arrange(self, flat: Tensor) -> Tensor | PackedSequence:
        """As the layer gives its output: ``[T, B, ...]``, batch first, ``[T, ...]`` or packed."""
        if self.packed is not None:
            return self.packed._replace(data=flat)
        if not self.batched:
            return flat
        stepped = flat.view(self.steps, self.rows, *flat.shape[1:])
        return stepped.transpose(0, 1) if self.batch_first else stepped

    def padded(self, flat: Tensor) -> Tensor:
        """As `arrange`, but packed rows as ``[T, B, ...]`` in the caller's order, NaN behind."""
        if self.packed is None:
            arranged = self.arrange(flat)
            assert isinstance(arranged, Tensor)
            return arranged
        full = flat.new_full((self.steps, self.rows, *flat.shape[1:]), float("nan"))
        for step, size in enumerate(self.batch_sizes):
            full[step, :size] = flat[self._offsets[step] : self._offsets[step + 1]]
        order = self.packed.unsorted_indices
        return full if order is None else full.index_select(1, order)

    def row(self, flat: Tensor, row: int) -> Tensor:
        """The steps of one row of the caller's, ``[T, ...]``."""
        place = self._place(row)
        tokens = [self._offsets[step] + place for step in range(self.length(row))]
        return flat[torch.tensor(tokens, device=flat.device)]

    def previous(self, flat: Tensor, initial: Tensor, reverse: bool) -> Tensor:
        """What each token starts from: the values one step earlier, or the initial ones.

        `initial` is ``[B, ...]``, its rows in the order of the flat tokens.
        """
        before = []
        for step, size in enumerate(self.batch_sizes):
            other = step + 1 if reverse else step - 1
            carried = min(size, self.batch_sizes[other]) if 0 <= other < self.steps else 0
            start = self._offsets[other] if carried else 0
            before += [flat[start : start + carried], initial[carried:size].to(flat.dtype)]
        return torch.cat(before)

    def initial_row(self, initial: Tensor, row: int) -> Tensor:
        """The initial values of one row of the caller's."""
        return initial[self._place(row)]

    def _place(self, row: int) -> int:
        """The place of a caller's row among the flat ones."""
        if not 0 <= row < self.rows:
            raise IndexError(f"row must be between 0 and {self.rows - 1}, got {row}")
        order = self.packed.unsorted_indices if self.packed is not None else None
        return row if order is None else int(order[row])
