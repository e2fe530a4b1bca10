"""Polyphonic music: the next frame of a piano roll of 88 keys, from the frames before it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from rotcell.lab.cells import make_layer
from rotcell.lab.errors import DataError, NotInstalledError
from rotcell.lab.judged import Anchor, Measure, Picture
from rotcell.lab.task import DataFile, LabTask, read_checked
from rotcell.lab.training.loop import Budget, Problem
from rotcell.lab.training.settings import LabSettings, seed_of

KEYS: Final = 88
FILES: Final = {
    "jsb": "JSB_Chorales.mat",
    "nottingham": "Nottingham.mat",
    "musedata": "MuseData.mat",
    "piano": "Piano_midi.mat",
}
_KNOWN: Final = {
    "dc87109f2b96bd44f9ce21d117766594": "JSB chorales",
    "7cc53d4cad543cf589d8769ae59c556a": "Nottingham",
    "f6ed2469c13ff7e61d8c06dc1e75840c": "MuseData",
    "06b11f106c71c0accaa82c3087dfbad0": "Piano-midi",
}
_PARTS: Final = ("traindata", "validdata", "testdata")
_EVALUATED: Final = 16  # pieces at a time

Pieces = tuple[Tensor, ...]  # each [T, 88] of zeros and ones


@lru_cache(maxsize=4)
def load(path: Path) -> tuple[tuple[Pieces, Pieces, Pieces], DataFile]:
    """Training, validation and test pieces of a .mat file; pieces of one frame are left out."""
    try:
        from scipy.io import loadmat
    except ImportError as error:
        raise NotInstalledError(
            "music needs SciPy to read .mat files: pip install scipy"
        ) from error
    content, named = read_checked(path, _KNOWN)
    try:
        found = loadmat(io.BytesIO(content))
        train, validation, test = (_pieces(found[part]) for part in _PARTS)
    except Exception as error:  # SciPy's readers fail in too many ways to name
        raise DataError(f"{path} has no piano rolls {', '.join(_PARTS)}: {error}") from error
    return (train, validation, test), named


def _pieces(cells: Any) -> Pieces:
    rolls = (torch.from_numpy(roll.astype("float32")) for roll in cells.flatten())
    kept = tuple(roll for roll in rolls if len(roll) > 1)
    for roll in kept:
        if roll.dim() != 2 or roll.shape[1] != KEYS:
            raise ValueError(f"a piece of shape {tuple(roll.shape)}, expected [T, {KEYS}]")
    return kept


class Composer(nn.Module):
    """Frames, a recurrent layer, dropout, a linear layer that scores every key."""

    def __init__(self, settings: LabSettings) -> None:
        super().__init__()
        self.rnn = make_layer(settings.cell, settings.start, KEYS, settings.size)
        self.dropout = nn.Dropout(settings.dropout)
        self.linear = nn.Linear(settings.size, KEYS)

    def forward(self, frames: PackedSequence) -> Tensor:
        """Scores of the next frames, in packed order."""
        scores: Tensor = self.linear(self.dropout(self.rnn(frames)[0].data))
        return scores


class _Music(Problem):
    def __init__(self, task: Music, settings: LabSettings, data: tuple[Pieces, ...]) -> None:
        self.budget = task.budget
        self._batch, self._seed = task.batch, settings.seed
        self._train, self._validation, self._test = data
        torch.manual_seed(seed_of(settings.seed, "weights"))
        self.model = Composer(settings)

    def batches(self, epoch: int) -> Iterator[list[Tensor]]:
        generator = torch.Generator().manual_seed(seed_of(self._seed, "order", epoch))
        order = torch.randperm(len(self._train), generator=generator)
        for rows in order.split(self._batch):
            yield [self._train[row] for row in rows]

    def loss(self, batch: Sequence[Tensor]) -> Tensor:
        """Negative log likelihood per step."""
        ordered = sorted(batch, key=len, reverse=True)
        frames = pack_sequence([piece[:-1] for piece in ordered])
        following = pack_sequence([piece[1:] for piece in ordered]).data
        total = F.binary_cross_entropy_with_logits(self.model(frames), following, reduction="sum")
        return total / len(following)

    def validate(self) -> float:
        return self._likelihood(self._validation)

    def test(self) -> dict[str, float]:
        return {"nll": self._likelihood(self._test)}

    def _likelihood(self, pieces: Pieces) -> float:
        """Per step, over all steps of all pieces."""
        ordered = sorted(pieces, key=len, reverse=True)
        total, steps = 0.0, 0
        for first in range(0, len(ordered), _EVALUATED):
            some = ordered[first : first + _EVALUATED]
            count = sum(len(piece) - 1 for piece in some)
            total += float(self.loss(some)) * count
            steps += count
        return total / steps


BUDGET: Final = Budget(1000, "halve", halve_after=10, patience=30, clip=1.0)


@dataclass(frozen=True)
class Music(LabTask):
    """The task; tests make smaller ones."""

    name: str = "music"
    about: str = "polyphonic music: the next frame of a piano roll"
    datasets: tuple[str, ...] = tuple(FILES)
    needs_data: bool = True
    batch: int = 8
    budget: Budget = BUDGET
    expected_epochs: int = 120

    measure = Measure("nll", "nats per step", 0.05, -1)
    picture = Picture("curves")
    anchors = (
        Anchor(
            "jsb",
            "lstm",
            "8.45",
            8.40,
            8.50,
            "Bai, Kolter and Koltun 2018 (arXiv 1803.01271), an LSTM with about 300,000 weights",
        ),
    )

    def item(self, settings: Mapping[str, Any]) -> str:
        """Music and text are one item."""
        return "real data"

    def problem(self, settings: LabSettings, data: Path | None) -> tuple[Problem, DataFile]:
        """Loaded from `data`, the folder of the .mat files."""
        if data is None:
            raise DataError("music needs --data, the folder of the .mat files")
        pieces, named = load(data / FILES[settings.dataset])
        return _Music(self, settings, pieces), named

    def protocol(self) -> dict[str, Any]:
        """Everything fixed but the budget."""
        return {
            "model": "88 keys, layer, dropout, linear; sum of 88 binary cross entropies per step",
            "batch": self.batch,
            "predicted": "frames 2 to T of every piece, packed",
        }


TASK: Final = Music()
