"""A run on disk: all that is needed to continue it, or to ask the model."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from rotcell.lab.errors import CheckpointError
from rotcell.lab.files import write_atomically
from rotcell.lab.tasks.babi.data.source import DataName
from rotcell.lab.tasks.babi.history import History
from rotcell.lab.tasks.babi.settings import RunSettings

FORMAT: Final = "rotcell bAbI checkpoint 2"


@dataclass(frozen=True)
class Checkpoint:
    """The state after a whole number of epochs.

    Random numbers need no room here: those of an epoch follow from the seed and its number.
    """

    settings: RunSettings
    words: tuple[str, ...]
    story_length: int
    question_length: int
    data: DataName
    history: History
    model: dict[str, Any]  # the weights after the last epoch, to continue from
    best: dict[str, Any]  # those of the reported epoch, `history.outcome.epoch`
    optimizer: dict[str, Any]

    def save(self, path: Path) -> None:
        """Write to `path`, atomically."""
        content = io.BytesIO()
        torch.save(
            {
                "format": FORMAT,
                "settings": self.settings.plain(),
                "words": list(self.words),
                "story_length": self.story_length,
                "question_length": self.question_length,
                "data": self.data.plain(),
                "history": self.history.plain(),
                "model": self.model,
                "best": self.best,
                "optimizer": self.optimizer,
            },
            content,
        )
        write_atomically(path, content.getvalue())

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read a checkpoint onto the CPU; CheckpointError when it is not one."""
        try:
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
            if damaged is not None:
                raise CheckpointError(f"{path} is damaged: the checksum of {damaged} is wrong")
            content = torch.load(path, map_location="cpu", weights_only=True)
            if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
                raise CheckpointError(f"{path} is not a checkpoint of rotcell-lab")
            settings = RunSettings.from_plain(content.pop("settings"))
            history = History.from_plain(content.pop("history"))
            words = tuple(content.pop("words"))
            data = DataName.from_plain(content.pop("data"))
            return cls(settings=settings, history=history, words=words, data=data, **content)
        except (CheckpointError, OSError):
            raise
        except Exception as error:  # damaged pickles fail in too many ways to name
            raise CheckpointError(f"{path} is not a checkpoint, or is damaged: {error}") from error
