"""One run from settings to result."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from rotcell.lab.tasks.babi.data.source import TaskQuestions
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.sweep.results import Result
from rotcell.lab.tasks.babi.train import train
from rotcell.lab.training.environment import environment


def run_job(
    settings: RunSettings,
    load: Callable[[], TaskQuestions],
    *,
    threads: int = 1,
    model: Path | None = None,
    on_epoch: Callable[[int], None] | None = None,
) -> Result:
    """Train with so many threads; an error becomes part of the result.

    The trained model is kept at `model`, if that is given.
    """
    began = time.perf_counter()
    data = None
    try:
        torch.set_num_threads(threads)
        questions = load()
        data = questions.data
        trained = train(
            questions,
            settings,
            on_epoch=None if on_epoch is None else lambda history: on_epoch(history.epochs),
        )
        if model is not None:
            model.parent.mkdir(parents=True, exist_ok=True)
            trained.checkpoint.save(model)
    except Exception:
        seconds = time.perf_counter() - began
        return Result(settings, data, None, traceback.format_exc(), seconds, environment())
    return Result(settings, data, trained.history, None, trained.seconds, environment())
