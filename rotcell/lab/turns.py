"""How far a rotating layer turns its state for each element of a group, and a figure of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rotcell import trace
from rotcell.lab.errors import NotInstalledError
from rotcell.lab.report.palette import color_of
from rotcell.lab.report.pictures import png
from rotcell.lab.tasks.groups import sequences
from rotcell.lab.training.settings import seed_of
from rotcell.lab.training.tagging import Tagger

#: A pair follows a multiple if no element is further from it than this, in turns.
CLOSE = 0.05
_BELOW = 0.1


@dataclass(frozen=True)
class Turns:
    """Angles of a trained layer on random sequences, by the element that it reads."""

    mean: Tensor  # [order, pairs], in turns, from 0 to 1
    steadiness: Tensor  # [order, pairs]: 1 if the angle is always the same, 0 if it is anything

    def multiple(self, pair: int) -> tuple[int, float] | None:
        """(m, offset), if the pair turns by k m / n + offset for every element k; None if not."""
        order = len(self.mean)
        for m in range(1, order):
            off = 2 * math.pi * (self.mean[:, pair] - torch.arange(order) * m / order)
            offset = torch.polar(torch.ones_like(off), off).mean().angle()
            rest = (off - offset) / (2 * math.pi)
            if float((rest - rest.round()).abs().max()) <= CLOSE:
                return m, float(offset) / (2 * math.pi) % 1
        return None

    def rule(self, pair: int) -> str:
        """The multiple in words."""
        found = self.multiple(pair)
        return "no multiple" if found is None else f"{found[0]} k / {len(self.mean)} of a turn"


def turns_by_element(model: Tagger, dataset: str, length: int = 128, rows: int = 64) -> Turns:
    """Trace a model of `groups` with one rotating layer on sequences it has not seen."""
    symbols, _ = sequences(dataset, length, rows, seed_of("turns", dataset))
    one_hot = torch.nn.functional.one_hot(symbols, model.inputs).float()
    (seen,) = trace(model.rnn, one_hot)
    angles = seen.flat("angles").double()  # [tokens, pairs]
    points = torch.polar(torch.ones_like(angles), angles)
    means = torch.stack([points[symbols.flatten() == k].mean(0) for k in range(model.inputs)])
    return Turns(means.angle() / (2 * math.pi) % 1, means.abs())


def _shown(turns: Tensor) -> Tensor:
    """From -0.1 to 0.9, so that turns near 0 are next to each other."""
    return (turns + _BELOW) % 1 - _BELOW


def draw_turns(turns: Turns, title: str) -> bytes:
    """A PNG with a panel per pair: the angle of every element, in turns."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NotInstalledError("figures need matplotlib: pip install matplotlib") from error
    order, pairs = turns.mean.shape
    with matplotlib.rc_context({"font.size": 8.5}):
        figure = Figure(figsize=(2.0 * pairs + 0.6, 2.9), layout="constrained")
        panels = figure.subplots(1, pairs, sharey=True, squeeze=False)[0]
        for pair, panel in enumerate(panels):
            panel.set_title(f"pair {pair}: {turns.rule(pair)}")
            followed = turns.multiple(pair)
            if followed is not None:
                line = torch.arange(order) * followed[0] / order + followed[1]
                panel.plot(
                    range(order), _shown(line), "_", color="#999999", markersize=22, zorder=1
                )
            sizes = (36 * turns.steadiness[:, pair]).clamp(min=2)
            panel.scatter(
                range(order),
                _shown(turns.mean[:, pair]),
                sizes,
                color=color_of("rotlstm"),
                zorder=2,
            )
            panel.set_xticks(range(order))
            panel.set_xlim(-0.5, order - 0.5)
            panel.set_ylim(-_BELOW, 1 - _BELOW)
            panel.set_yticks([k / order for k in range(order)])
            panel.set_yticklabels([f"{k}/{order}" for k in range(order)])
            panel.tick_params(labelsize=8)
            panel.grid(color="#e6e6e6", linewidth=0.6)
            panel.set_axisbelow(True)
        panels[0].set_ylabel("angle, in turns")
        figure.supxlabel("element k that the layer reads")
        figure.suptitle(title, fontsize=9.5)
        return png(figure)
