"""How long runs will take, from a few steps measured on this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import torch

from rotcell.lab.tasks.babi.data.source import Source
from rotcell.lab.tasks.babi.scoring import MOST_ROWS
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.tensors import VALIDATION_SHARE, Dictionary, Examples, TaskTensors
from rotcell.lab.tasks.babi.train import Place, Trainer

_LENGTHS = (24, 96)  # words of the stories measured
_QUESTION = 5
_WORDS = 30
_REPEATS = 3


class Cost(NamedTuple):
    """Seconds as a straight line over the words of a story."""

    fixed: float
    per_word: float

    def at(self, words: float) -> float:
        return self.fixed + self.per_word * words


def estimate(runs: Sequence[RunSettings], source: Source) -> float:
    """Seconds of one worker with as many threads as torch has here now."""
    return sum(_seconds(run, source) for run in runs)


def _seconds(run: RunSettings, source: Source) -> float:
    questions = source.load(run.task)
    lengths = questions.story_words
    mean = sum(lengths) / len(lengths)
    words = mean if run.packed else max(lengths)
    step, evaluate = _costs(replace(run, task=1, seed=0, epochs=1))
    batches = math.ceil(len(questions.train) * (1 - VALIDATION_SHARE) / run.batch)
    looked_at = run.epochs * len(questions.train) + len(run.test_epochs) * len(questions.test)
    return run.epochs * batches * step.at(words) + looked_at * evaluate.at(mean)


@cache
def _costs(run: RunSettings) -> tuple[Cost, Cost]:
    """The costs of a training step, and of looking at one question."""
    step, evaluate = [], []
    with torch.random.fork_rng(devices=[]):
        for words in _LENGTHS:
            batch, many = _examples(run.batch, words), _examples(MOST_ROWS, words)
            dictionary = Dictionary([str(number) for number in range(1, _WORDS)])
            trainer = Trainer(TaskTensors(dictionary, batch, batch, many), run, Place())
            step.append(_best(partial(trainer.step, batch)))
            evaluate.append(_best(partial(trainer.accuracy, many)))
    return _line(step), _line([seconds / MOST_ROWS for seconds in evaluate])


def _examples(rows: int, words: int) -> Examples:
    return Examples(
        torch.randint(1, _WORDS, (rows, words)),
        torch.randint(1, _WORDS, (rows, _QUESTION)),
        torch.randint(1, _WORDS, (rows,)),
        torch.full((rows,), words),
        torch.full((rows,), _QUESTION),
    )


def _best(action: Callable[[], object]) -> float:
    # Processor time does not count what other programs take; but it adds up over threads.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    action()
    times = []
    for _ in range(_REPEATS):
        began = clock()
        action()
        times.append(clock() - began)
    return min(times)


def _line(seconds: Sequence[float]) -> Cost:
    (short, long), (few, many) = seconds, _LENGTHS
    per_word = max(long - short, 0.0) / (many - few)
    return Cost(max(short - per_word * few, 0.0), per_word)
