"""Characters of Penn Treebank: the next one, from all before it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from rotcell.lab.judged import Anchor
from rotcell.lab.task import DataFile, read_checked
from rotcell.lab.tasks.text import Text

FILES: Final = ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt")
KNOWN: Final = {
    "f26c4b92c5fdc7b3f8c7cdcb991d8420": "Penn Treebank, training",
    "aa0affc06ff7c36e977d7cd49e3839bf": "Penn Treebank, validation",
    "8b80168b89c18661a38ef683c0dc3721": "Penn Treebank, test",
}


def read_parts(folder: Path) -> tuple[list[bytes], DataFile]:
    """Training, validation and test text; the name says if any of them is not the known one."""
    contents, named = zip(*(read_checked(folder / name, KNOWN) for name in FILES), strict=True)
    unknown = [each for each in named if each.md5 not in KNOWN]
    return list(contents), unknown[0] if unknown else DataFile("Penn Treebank", named[0].md5)


@lru_cache(maxsize=2)
def load(folder: Path) -> tuple[tuple[Tensor, ...], int, DataFile]:
    """The bytes of the three parts, numbered by those of the training part."""
    contents, named = read_parts(folder)
    known = sorted(set().union(*contents))
    lookup = torch.zeros(256, dtype=torch.int64)
    lookup[known] = torch.arange(len(known))
    parts = (torch.frombuffer(bytearray(content), dtype=torch.uint8) for content in contents)
    return tuple(lookup[part.long()] for part in parts), len(known), named


@dataclass(frozen=True)
class Characters(Text):
    """As `text`, in the parts that Mikolov made."""

    name: str = "ptb_characters"
    about: str = "Penn Treebank: the next character"
    datasets: tuple[str, ...] = ("ptb",)
    split: str = "as published"
    length: int = 150

    anchors = (
        Anchor(
            "ptb",
            "eurnn",
            "1.61 (1.3 M weights), 1.69 (1,024 units)",
            1.61,
            1.69,
            "README of nnRNN (Kerg et al. 2019), T 150",
        ),
    )

    def load(self, dataset: str, data: Path) -> tuple[tuple[Tensor, ...], int, DataFile]:
        """From the folder of the three files."""
        return load(data)


TASK: Final = Characters()
