"""A run on disk: all that is needed to continue it, or to ask the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rotcell.lab.errors import CheckpointError
from rotcell.lab.tasks.babi.data.source import DataName
from rotcell.lab.tasks.babi.history import History
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.training.checkpoint import read, write

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
        write(
            path,
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
        )

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """Read a checkpoint onto the CPU; CheckpointError when it is not one."""
        content = read(path, FORMAT)
        try:
            settings = RunSettings.from_plain(content.pop("settings"))
            history = History.from_plain(content.pop("history"))
            words = tuple(content.pop("words"))
            data = DataName.from_plain(content.pop("data"))
            return cls(settings=settings, history=history, words=words, data=data, **content)
        except Exception as error:  # a file that was changed fails in too many ways to name
            raise CheckpointError(f"{path} is not a checkpoint, or is damaged: {error}") from error
