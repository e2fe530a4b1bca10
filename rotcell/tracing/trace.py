"""`trace` and the `Trace` it returns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from . import page
from .capture import Captured, capture
from .layout import Layout
from .page import Reading, Selection
from .planes import Plane, planes_of
from .summary import Summary, summarize

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.floating[Any]]


def trace(
    layer: nn.Module,
    x: Tensor | PackedSequence,
    state: Any = None,
    *,
    resets: Tensor | PackedSequence | None = None,
    context: Tensor | None = None,
) -> Trace:
    """Run a layer and record what happens inside it at every step.

    The numbers are those that the layer's kernels save for the backward pass, so time and memory
    are about those of a forward pass in training. Nothing of it is differentiable.

    Args:
        layer: a RotLSTM, RotGRU or LinearRotLSTM; or an LSTM, GRU, ClassicGRU or nn.LSTM, which
            have no angles. Any number of layers, directions, projections. Dropout, between layers
            and recurrent, and zoneout depend on the mode of the layer (training or eval).
        x: what the layer takes: padded, packed or unbatched.
        state: the initial state, as the layer takes it; zeros if None.
        resets: where episodes begin inside the sequences, as the layer takes it.
        context: what is the same at every step, as the layer takes it.

    Returns:
        A `Trace`: one `Direction` for each layer and direction, in the order of h_n.

    Raises:
        TypeError: if `layer` is of another kind, or `x` is not an input.
        RuntimeError: if the layer would not run on its kernels.

    Example:
        >>> import rotcell, torch
        >>> layer = rotcell.RotLSTM(3, 4, num_layers=2)
        >>> x = torch.randn(7, 5, 3)
        >>> found = rotcell.trace(layer, x)
        >>> found[0].angles.shape, found[1].gates["f"].shape
        (torch.Size([7, 5, 2]), torch.Size([7, 5, 4]))
        >>> torch.equal(found[1].output, layer(x)[0])
        True
    """
    run = capture(layer, x, state, resets, context)
    names = _direction_names(run.directions)
    directions = [Direction(n, c) for n, c in zip(names, run.directions, strict=True)]
    return Trace(run.cell, run.layout, run.output, run.state, directions)


class Direction:
    """What happened in one direction of one layer.

    Every array has the layout of the layer's output, with its own features last: ``[T, B, ...]``,
    ``[B, T, ...]`` with batch_first, ``[T, ...]`` unbatched, a PackedSequence for packed input.
    """

    def __init__(self, name: str, captured: Captured) -> None:
        self.name = name  #: ``l0``, ``l0_reverse``, ``l1``, ... as in the names of the parameters
        self.reverse = captured.reverse
        self._captured = captured

    def __repr__(self) -> str:
        return f"Direction({self.name}: {', '.join(self.names)})"

    def __getitem__(self, name: str) -> Tensor | PackedSequence:
        """An array by one of `names`."""
        return self._captured.layout.arrange(self.flat(name))

    @property
    def names(self) -> tuple[str, ...]:
        """What there is: angles (if the cell rotates), gates, the rotated state, output."""
        angles = () if self._captured.angles is None else ("angles",)
        return (*angles, *self._captured.gates, "before_rotation", "after_rotation", "output")

    @property
    def rotates(self) -> bool:
        """Whether there are angles."""
        return self._captured.angles is not None

    @property
    def rotation_size(self) -> int:
        """Units of each group that is rotated; 2 if the cell does not rotate."""
        return self._captured.rotation.size

    @property
    def planes(self) -> list[Plane]:
        """What each angle turns, in the order of `angles`: by group, then layer, then units."""
        return planes_of(self.rotation_size, self.groups) if self.rotates else []

    @property
    def groups(self) -> int:
        """How many groups of `rotation_size` units there are; units left over are in none."""
        return self.hidden_size // self.rotation_size

    @property
    def state_is_output(self) -> bool:
        """Whether the output is what the next step starts from, as in a GRU."""
        return self._captured.state is self._captured.output

    @property
    def hidden_size(self) -> int:
        """Units of the state."""
        return self._captured.state.shape[-1]

    @property
    def angles(self) -> Tensor | PackedSequence | None:
        """One angle per plane, in radians between 0 and 2 pi; None if the cell does not rotate.

        There are ``H // 2``, one per pair of units. With another `rotation_size` k there are
        ``(H // k) k (k - 1) / 2``; `planes` lists group, layer and units of each.
        """
        return self["angles"] if self.rotates else None

    @property
    def gates(self) -> Mapping[str, Tensor | PackedSequence]:
        """By name, after the activation: i, f, g, o of an LSTM, r, z, n of a GRU; ``H`` each."""
        return {name: self[name] for name in self._captured.gates}

    @property
    def before_rotation(self) -> Tensor | PackedSequence:
        """``H``: what is rotated. LSTM: f c + i g. GRU: r h."""
        return self["before_rotation"]

    @property
    def after_rotation(self) -> Tensor | PackedSequence:
        """``H``: what came of it. LSTM: the cell state c. GRU: what the candidate sees of h."""
        return self["after_rotation"]

    @property
    def state(self) -> Tensor | PackedSequence:
        """``H``: what the next step starts from. LSTM: c. GRU: h."""
        return self["state"]

    @property
    def output(self) -> Tensor | PackedSequence:
        """``P``: the output of this direction; P is H without a projection."""
        return self["output"]

    def flat(self, name: str) -> Tensor:
        """An array as ``[N, ...]``: the tokens of all steps, one step after the other.

        In addition to `names` there are ``state`` (what the next step starts from),
        ``previous_state`` (what the step started from) and ``kept`` (what the forget or reset
        gate left of it).
        """
        if name == "angles" and self._captured.angles is not None:
            return self._captured.angles
        if name in self._captured.gates:
            return self._captured.gates[name]
        if name in _COMPUTED:
            found: Tensor = getattr(self._captured, name)
            return found
        raise KeyError(f"name must be one of {', '.join(self.names)}, got {name!r}")

    def row(self, name: str, row: int) -> Tensor:
        """An array of one row of the batch, ``[T, ...]`` with T its own length."""
        return self._captured.layout.row(self.flat(name), row)

    def initial_state(self, row: int) -> Tensor:
        """``[H]``: what `state` of one row is before the first step."""
        return self._captured.layout.initial_row(self._captured.initial_state, row)


_COMPUTED = (
    "before_rotation",
    "after_rotation",
    "output",
    "state",
    "kept",
    "previous_state",
)


class Trace(Sequence[Direction]):
    """One run of a layer, seen from inside: a sequence of `Direction`, in the order of h_n."""

    def __init__(
        self,
        cell: str,
        layout: Layout,
        output: Tensor | PackedSequence,
        state: Any,
        directions: Sequence[Direction],
    ) -> None:
        self.cell = cell  #: the name of the layer's class
        self.layout = layout
        self.output = output  #: what the layer returned
        self.state = state  #: its last state
        self._directions = tuple(directions)

    def __getitem__(self, index: Any) -> Any:
        """A direction by number, or by name such as ``"l1_reverse"``."""
        if isinstance(index, str):
            for direction in self._directions:
                if direction.name == index:
                    return direction
            known = ", ".join(d.name for d in self._directions)
            raise KeyError(f"direction must be one of {known}, got {index!r}")
        return self._directions[index]

    def __len__(self) -> int:
        return len(self._directions)

    def __iter__(self) -> Iterator[Direction]:
        return iter(self._directions)

    def __repr__(self) -> str:
        sizes = f"{self.layout.steps} steps, {self.layout.rows} rows"
        return f"Trace of {self.cell}: {sizes}, {', '.join(d.name for d in self)}"

    def summary(self) -> Summary:
        """Every pair (or plane of a larger group) in numbers: mean angle, spread, norm kept."""
        return summarize(self)

    def to_numpy(self) -> dict[str, Array]:
        """All arrays by name and direction, such as ``angles_l0`` or ``f_l1_reverse``.

        In the layer's layout; packed rows come as ``[T, B, ...]`` with NaN after the end of each.
        """
        return {
            f"{name}_{direction.name}": _numpy(self.layout.padded(direction.flat(name)))
            for direction in self
            for name in direction.names
        }

    def save(
        self,
        path: str | os.PathLike[str],
        tokens: Sequence[str] | Sequence[Sequence[str]] | None = None,
        select: int | Sequence[int] | Selection | None = None,
        *,
        readings: Reading | Sequence[Reading] | None = None,
        title: str | None = None,
    ) -> Path:
        """Write a page for a browser: one file, which needs no network.

        Args:
            path: the file to write, ``"trace.html"`` for example.
            tokens: the words of the one row that is shown, or a list of words for each row that is
                shown. Numbers if None.
            select: a row of the batch, several, or a `Selection`, which can also choose layers,
                groups of units and steps. None: from the first row on what fits.
            readings: what a question answering model made of each row that is shown.
            title: the heading of the page.

        Returns:
            The path.

        Raises:
            PageError: if arguments do not fit the trace, or a chosen part does not fit into 5 MB.
        """
        where = Path(path)
        where.write_text(
            self.html(tokens, select, readings=readings, title=title), encoding="utf-8"
        )
        return where

    def html(
        self,
        tokens: Sequence[str] | Sequence[Sequence[str]] | None = None,
        select: int | Sequence[int] | Selection | None = None,
        *,
        readings: Reading | Sequence[Reading] | None = None,
        title: str | None = None,
    ) -> str:
        """The page that `save` writes, as a string; arguments as there."""
        return page.render(self, tokens, select, readings, title)

    def _repr_html_(self) -> str:
        return page.in_frame(page.render(self, None, None, None, None))


def save_side_by_side(
    path: str | os.PathLike[str], pages: Sequence[str], title: str = "Side by side"
) -> Path:
    """Write one page that shows several, of two models on the same input for example.

    A token that is chosen in one is chosen in all, counted from the last.

    Args:
        path: the file to write.
        pages: what `Trace.html` returns, from left to right.
        title: the title of the page.

    Returns:
        The path.

    Example:
        >>> import rotcell, tempfile, torch
        >>> from rotcell.tracing import save_side_by_side
        >>> x, layers = torch.randn(5, 1, 3), (rotcell.LSTM(3, 4), rotcell.RotLSTM(3, 4))
        >>> pages = [rotcell.trace(layer, x).html(list("story")) for layer in layers]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_side_by_side(folder + "/both.html", pages).name
        'both.html'
    """
    where = Path(path)
    where.write_text(page.side_by_side(pages, title), encoding="utf-8")
    return where


def _direction_names(directions: Sequence[Captured]) -> list[str]:
    bidirectional = any(captured.reverse for captured in directions)
    per_layer = 2 if bidirectional else 1
    return [
        f"l{number // per_layer}{'_reverse' if captured.reverse else ''}"
        for number, captured in enumerate(directions)
    ]


def _numpy(tensor: Tensor) -> Array:
    """NumPy has no bfloat16: it becomes float32."""
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    found: Array = tensor.cpu().numpy()
    return found
