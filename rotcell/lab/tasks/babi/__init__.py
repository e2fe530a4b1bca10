"""The bAbI question answering tasks: data, the paper's model, its experiments and their reports.

`data` has the questions, `training` the model, `sweep` the experiments, `report` what they add up
to, and `cli` the command line, rotcell-lab. For notebooks:

>>> from rotcell.lab.tasks.babi import RunSettings, evaluate, load_task, train
>>> questions = load_task(1, questions=40)  # generated; data="official" for the downloaded files
>>> trained = train(questions, RunSettings(1, "rotlstm", state_size=6, epochs=1, gates="sigmoid"))
>>> found = evaluate(trained, questions.test)
>>> found.accuracy == trained.history.outcome.test
True
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import torch

from rotcell.lab.errors import DataError
from rotcell.lab.tasks.babi.data.download import downloaded
from rotcell.lab.tasks.babi.data.generate import DEFAULT_QUESTIONS
from rotcell.lab.tasks.babi.data.reader import Question, Size
from rotcell.lab.tasks.babi.data.source import Source, TaskQuestions
from rotcell.lab.tasks.babi.evaluate import Answerer, Evaluation, Weights
from rotcell.lab.tasks.babi.model import QuestionAnswerer
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.task import Babi
from rotcell.lab.tasks.babi.tensors import Dictionary
from rotcell.lab.tasks.babi.train import Trained, starting_model, train

__all__ = ["TASK", "RunSettings", "Trained", "build_model", "evaluate", "load_task", "train"]

#: For the lab's studies.
TASK = Babi()


def load_task(
    task: int,
    data: str | PathLike[str] | None = None,
    *,
    size: Size = "1k",
    questions: int = DEFAULT_QUESTIONS,
    seed: int = 0,
) -> TaskQuestions:
    """The training and test questions of a task.

    Args:
        task: 1 to 20.
        data: folder or .tar.gz of task files, "official" for what `rotcell-lab data --download`
            fetched, None to generate.
        size: of the official files, "1k" or "10k".
        questions: to generate for each split.
        seed: of the generator.
    """
    if data == "official":
        folder = downloaded()
        if folder is None:
            raise DataError("the official files are not here: rotcell-lab data --download")
        data = folder
    path = None if data is None else str(data)
    return Source(path, path, size, questions, seed).load(task)


def build_model(questions: TaskQuestions, settings: RunSettings) -> QuestionAnswerer:
    """The paper's model for a task, untrained: what `train` begins with."""
    words = len(Dictionary.of(questions.train + questions.test))
    with torch.random.fork_rng(devices=[]):
        return starting_model(words, settings)


def evaluate(
    model: Trained | str | PathLike[str],
    questions: Sequence[Question],
    weights: Weights = "reported",
) -> Evaluation:
    """Ask a trained model, or that of a checkpoint file, questions such as ``task.test``.

    Its `accuracy`, `answers` and `csv()` say what came out. `weights` are those of the epoch that
    validation chose ("reported") or of the last one.
    """
    if isinstance(model, Trained):
        return Answerer(model.checkpoint, weights).evaluate(questions)
    return Answerer.load(Path(model), weights).evaluate(questions)
