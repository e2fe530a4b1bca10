"""MNIST pixel by pixel, in reading order or in one random order: the digit after 784 steps."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rotcell.lab.cells import make_layer
from rotcell.lab.errors import DataError
from rotcell.lab.judged import Measure
from rotcell.lab.task import DataFile, LabTask, read_checked
from rotcell.lab.training.loop import Budget, Problem
from rotcell.lab.training.settings import LabSettings, seed_of

DATASETS: Final = ("permuted", "sequential")
_STEMS: Final = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
#: Checksums of the unpacked files.
_KNOWN: Final = (
    "6bbc9ace898e44ae57da46a324031adb",
    "a25bea736e30d166cdddb491f175f624",
    "2646ac647ad5339dbf082846283269ea",
    "27ae3e4e09519cfbb04c329615203637",
)
CLASSES: Final = 10
_IDX_BYTES: Final = 0x08  # the type of the elements in an idx file's header
_EVALUATED: Final = 500  # images at a time

Images = tuple[Tensor, Tensor]  # [n, 784] from 0 to 1, and labels [n]


@lru_cache(maxsize=2)
def load(folder: Path) -> tuple[Images, Images, DataFile]:
    """Training and test images from the four idx files, packed with gzip."""
    unpacked = []
    for stem in _STEMS:
        path = folder / f"{stem}-ubyte.gz"
        content, _ = read_checked(path, {})
        try:
            unpacked.append(gzip.decompress(content))
        except (OSError, EOFError) as error:
            raise DataError(f"{path} is not a gzip file: {error}") from None
    named = [_named(content) for content in unpacked]
    unknown = [each for each in named if each.md5 not in _KNOWN]
    images, labels, test_images, test_labels = map(_tensor, unpacked)
    train, test = (images.flatten(1) / 255, labels), (test_images.flatten(1) / 255, test_labels)
    return train, test, unknown[0] if unknown else DataFile("MNIST", named[0].md5)


def _named(content: bytes) -> DataFile:
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return DataFile("MNIST" if md5 in _KNOWN else "unverified MNIST", md5)


def _tensor(content: bytes) -> Tensor:
    """An idx file: two zeros, the type, the number of dimensions, sizes, then the elements."""
    if len(content) < 4 or content[:3] != bytes([0, 0, _IDX_BYTES]):
        raise DataError("an MNIST file is not an idx file of bytes")
    dimensions = content[3]
    start = 4 + 4 * dimensions
    shape = [int.from_bytes(content[4 * k : 4 * k + 4], "big") for k in range(1, dimensions + 1)]
    elements = torch.frombuffer(bytearray(content[start:]), dtype=torch.uint8)
    if elements.numel() != int(torch.tensor(shape).prod()):
        raise DataError(f"an MNIST file has {elements.numel()} elements, its header says {shape}")
    return elements.view(shape).long() if dimensions == 1 else elements.view(shape).float()


class Classifier(nn.Module):
    """One pixel per step, a recurrent layer, a linear layer on its last output."""

    def __init__(self, settings: LabSettings) -> None:
        super().__init__()
        self.rnn = make_layer(settings.cell, settings.start, 1, settings.size)
        self.linear = nn.Linear(settings.size, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Scores [n, 10] of images [n, pixels]."""
        scores: Tensor = self.linear(self.rnn(images.t().unsqueeze(-1))[0][-1])
        return scores


class _Pixels(Problem):
    def __init__(self, task: Pixels, settings: LabSettings, train: Images, test: Images) -> None:
        self.budget, self._batch, self._seed = task.budget, task.batch, settings.seed
        order = torch.arange(train[0].shape[1])
        if settings.dataset == "permuted":  # the same for every run
            generator = torch.Generator().manual_seed(seed_of("pixels"))
            order = torch.randperm(len(order), generator=generator)
        kept = len(train[0]) - task.validation
        if kept < 1:
            raise DataError(f"{len(train[0])} images are too few to validate on {task.validation}")
        self._train = train[0][:kept, order], train[1][:kept]
        self._validation = train[0][kept:, order], train[1][kept:]
        self._test = test[0][:, order], test[1]
        torch.manual_seed(seed_of(settings.seed, "weights"))
        self.model = Classifier(settings)

    def batches(self, epoch: int) -> Iterator[Images]:
        generator = torch.Generator().manual_seed(seed_of(self._seed, "order", epoch))
        images, labels = self._train
        for rows in torch.randperm(len(images), generator=generator).split(self._batch):
            yield images[rows], labels[rows]

    def loss(self, batch: Images) -> Tensor:
        return F.cross_entropy(self.model(batch[0]), batch[1])

    def validate(self) -> float:
        return 1 - self._accuracy(self._validation)

    def test(self) -> dict[str, float]:
        return {"accuracy": self._accuracy(self._test)}

    def _accuracy(self, images: Images) -> float:
        parts = zip(*(each.split(_EVALUATED) for each in images), strict=True)
        right = sum(int((self.model(x).argmax(-1) == y).sum()) for x, y in parts)
        return right / len(images[1])


BUDGET: Final = Budget(100, "halve", halve_after=5, patience=15, clip=1.0)


@dataclass(frozen=True)
class Pixels(LabTask):
    """The task; tests make smaller ones."""

    name: str = "pixels"
    about: str = "MNIST pixel by pixel: the digit"
    datasets: tuple[str, ...] = DATASETS
    needs_data: bool = True
    batch: int = 100
    validation: int = 5000  # of the training images, the last
    budget: Budget = BUDGET
    expected_epochs: int = 40

    measure = Measure("accuracy", "accuracy in %", 0.003, 1, 100)

    def problem(self, settings: LabSettings, data: Path | None) -> tuple[Problem, DataFile]:
        """Loaded from `data`, the folder of the four idx files."""
        if data is None:
            raise DataError("pixels needs --data, the folder of MNIST's idx files")
        train, test, named = load(data)
        return _Pixels(self, settings, train, test), named

    def protocol(self) -> dict[str, Any]:
        """Everything fixed but the budget."""
        return {
            "model": "one pixel per step, layer, linear on the last output; cross entropy",
            "batch": self.batch,
            "validation": f"the last {self.validation} training images",
        }


TASK: Final = Pixels()
