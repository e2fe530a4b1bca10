"""Checkpoints: what is needed to continue a run after its last whole epoch."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from rotcell.lab.errors import CheckpointError
from rotcell.lab.files import write_atomically

FORMAT: Final = "rotcell lab checkpoint 1"


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write what torch.save takes, atomically."""
    buffer = io.BytesIO()
    torch.save(dict(content), buffer)
    write_atomically(path, buffer.getvalue())


def read(path: Path, kind: str) -> dict[str, Any]:
    """The content of a file with this `format`, on the CPU; CheckpointError if it is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise CheckpointError(f"{path} is damaged: the checksum of {damaged} is wrong")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (CheckpointError, OSError):
        raise
    except Exception as error:  # damaged pickles fail in too many ways to name
        raise CheckpointError(f"{path} is not a checkpoint, or is damaged: {error}") from error
    if not isinstance(content, dict) or content.pop("format", None) != kind:
        raise CheckpointError(f"{path} is not a checkpoint of rotcell-lab")
    return content


@dataclass(frozen=True)
class Checkpoint:
    """The file of a run of the common training loop."""

    path: Path
    run: Mapping[str, Any]  # settings, data and protocol, by which a file is known to fit

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace the file."""
        write(self.path, {"format": FORMAT, "run": dict(self.run), "state": dict(state)})

    def load(self) -> dict[str, Any] | None:
        """The state to continue from; None without a file."""
        if not self.path.exists():
            return None
        content = read(self.path, FORMAT)
        for name, expected in self.run.items():
            if content["run"].get(name) != expected:
                raise CheckpointError(
                    f"{self.path} belongs to a run with another {name}: expected {expected}, got "
                    f"{content['run'].get(name)}"
                )
        state: dict[str, Any] = content["state"]
        return state
