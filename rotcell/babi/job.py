"""One run of a sweep, from settings to result, wherever it is computed."""

from __future__ import annotations

import platform
import time
import traceback
from collections.abc import Callable

import torch

from rotcell import __version__
from rotcell.babi.results import Result
from rotcell.babi.settings import RunSettings
from rotcell.babi.source import TaskQuestions
from rotcell.babi.train import train


def run_job(
    settings: RunSettings,
    load: Callable[[], TaskQuestions],
    *,
    threads: int = 1,
    on_epoch: Callable[[int], None] | None = None,
) -> Result:
    """Train with so many threads; an error becomes part of the result."""
    began = time.perf_counter()
    digest = ""
    try:
        torch.set_num_threads(threads)
        questions = load()
        digest = questions.digest
        trained = train(
            questions,
            settings,
            on_epoch=None if on_epoch is None else lambda history: on_epoch(history.epochs),
        )
    except Exception:
        seconds = time.perf_counter() - began
        return Result(settings, digest, None, traceback.format_exc(), seconds, versions())
    return Result(settings, digest, trained.history, None, trained.seconds, versions())


def versions() -> dict[str, str]:
    """What may explain a result that differs."""
    return {
        "rotcell": str(__version__),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
