"""One run from settings to result, and what a sweep and that which computes its runs tell it by."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from rotcell.babi.data.source import Source, TaskQuestions
from rotcell.babi.sweep.results import Result
from rotcell.babi.training.environment import environment
from rotcell.babi.training.settings import RunSettings
from rotcell.babi.training.train import train


@dataclass(frozen=True)
class Advanced:
    """A run has come so many epochs far."""

    run: RunSettings
    epoch: int


@dataclass(frozen=True)
class Ended:
    """A run is over, well or not."""

    result: Result


Event = Advanced | Ended

#: Computes runs on the data of a source and tells how they get on, in whatever order. Runs are
#: taken from the iterable one by one, when there is a worker for them: taking one is claiming it.
#: Closing the generator stops whatever is under way.
Engine = Callable[[Iterable[RunSettings], Source], Generator[Event, None, None]]

#: How often a run is started that takes its worker down with it.
ATTEMPTS = 3


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
