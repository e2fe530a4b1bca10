"""Training by the paper's protocol."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rotcell.lab.errors import CheckpointError, SettingsError, TrainingError
from rotcell.lab.tasks.babi.checkpoint import Checkpoint
from rotcell.lab.tasks.babi.data.source import DataName, TaskQuestions
from rotcell.lab.tasks.babi.history import History
from rotcell.lab.tasks.babi.model import QuestionAnswerer
from rotcell.lab.tasks.babi.scoring import score_all
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.tensors import Examples, TaskTensors, vectorize
from rotcell.lab.training.processes import ProcessGroup

OnEpoch = Callable[[History], None]


@dataclass(frozen=True)
class Place:
    """Where and how a run is computed."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    compile: bool = False
    group: ProcessGroup = field(default_factory=ProcessGroup)


@dataclass(frozen=True)
class Trained:
    """A finished run."""

    model: QuestionAnswerer  # with the weights of the reported epoch, `history.outcome.epoch`
    history: History
    seconds: float  # of the epochs, without what comes before
    parameters: int  # that were trained
    checkpoint: Checkpoint  # all of it, to save


def train(
    questions: TaskQuestions,
    settings: RunSettings,
    *,
    place: Place | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    on_epoch: OnEpoch | None = None,
) -> Trained:
    """Train a model by the paper's protocol; same settings, data and threads, same bits.

    `checkpoint` is written after every epoch. With `resume` training continues from it, and ends
    with the bits that an uninterrupted run would have had. The caller's random numbers are left
    as they were.
    """
    place = place or Place()
    tensors = vectorize(questions, padding="behind" if settings.packed else "front")
    devices = [place.device] if place.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        trainer = Trainer(tensors, settings, place)
        if resume:
            if checkpoint is None:
                raise CheckpointError("there is no checkpoint to continue from")
            trainer.restore(Checkpoint.load(checkpoint), questions.data, checkpoint)
        began = time.perf_counter()
        while trainer.history.epochs < settings.epochs:
            trainer.epoch()
            if checkpoint is not None and place.group.leads:
                trainer.snapshot(questions.data).save(checkpoint)
            if on_epoch is not None and place.group.leads:
                on_epoch(trainer.history)
    seconds = time.perf_counter() - began
    snapshot = trainer.snapshot(questions.data)
    trainer.model.load_state_dict(snapshot.best)
    trainer.model.eval()
    weights = (weight for weight in trainer.model.parameters() if weight.requires_grad)
    parameters = sum(weight.numel() for weight in weights)
    return Trained(trainer.model, trainer.history, seconds, parameters, snapshot)


class Trainer:
    """A model, its optimizer and how far they have come."""

    def __init__(self, tensors: TaskTensors, settings: RunSettings, place: Place) -> None:
        smallest = tensors.train.rows % settings.batch or min(settings.batch, tensors.train.rows)
        if place.group.size > smallest:
            raise SettingsError(
                f"{place.group.size} processes for a batch of {smallest}: one would have nothing"
            )
        self.settings = settings
        self.place = place
        self.tensors = tensors.to(place.device)
        self.history = History()
        self._best: dict[str, Any] = {}  # the weights of the reported epoch
        self.model = starting_model(len(tensors.dictionary), settings).to(place.device)
        run: nn.Module = place.group.wrap(self.model)
        if place.compile:
            run.compile()
        self._run = run
        self._weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.Adam(
            self._weights, settings.lr, betas=(0.9, 0.999), eps=1e-8, fused=True
        )

    def epoch(self) -> None:
        """Train for an epoch, then look at the accuracies."""
        number = self.history.epochs + 1
        loss = self._train(number)
        if not math.isfinite(loss):
            raise TrainingError(f"the loss is {loss} in epoch {number}")
        test = self.tensors.test if number in self.settings.test_epochs else None
        self.history.add(
            loss,
            self.accuracy(self.tensors.train),
            self.accuracy(self.tensors.validation),
            None if test is None else self.accuracy(test),
        )
        if test is not None and self.history.outcome.epoch == number:
            self._best = _copy(self.model)

    def _train(self, number: int) -> float:
        """One pass over the training questions in a new order; the mean loss."""
        examples = self.tensors.train
        order = torch.Generator().manual_seed(_seed(self.settings.seed, "order", number))
        shuffled = examples.in_order(torch.randperm(examples.rows, generator=order))
        torch.manual_seed(_seed(self.settings.seed, "dropout", number))
        self._run.train()
        total = torch.zeros((), device=self.place.device)
        for batch in shuffled.batches(self.settings.batch):
            total += self.step(batch)
        return float(self.place.group.total(total)) / examples.rows

    def step(self, batch: Examples) -> Tensor:
        """One step of the optimizer on a joint batch; the summed loss of this process's rows."""
        group = self.place.group
        joint = batch.trimmed() if self.settings.packed else batch
        share = group.share(joint.rows) if group.size > 1 else None
        mine = joint if share is None else joint.part(share.start, share.stop)
        with self._autocast():
            scores = self._run(mine, share)
        loss = F.cross_entropy(scores.float(), mine.answer, reduction="sum")
        for weight in self._weights:  # as zero_grad() does, which takes longer to get there
            weight.grad = None
        # Gradients are averaged over the group: this makes them those of the joint batch's mean.
        loss.backward(loss.new_tensor(group.size / joint.rows))
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def accuracy(self, examples: Examples) -> float:
        """The share of right answers, without dropout."""
        self._run.eval()
        group = self.place.group
        right = torch.zeros((), dtype=torch.int64, device=self.place.device)
        mine = group.share(examples.rows)
        with self._autocast():
            for scores, answer in score_all(self.model, examples.part(mine.start, mine.stop)):
                right += (scores.argmax(dim=-1) == answer).sum()
        return int(group.total(right)) / examples.rows

    def _autocast(self) -> AbstractContextManager[object]:
        if not self.settings.amp:
            return nullcontext()
        return torch.autocast(self.place.device.type, torch.bfloat16)

    def snapshot(self, data: DataName) -> Checkpoint:
        """What a later process needs to continue."""
        return Checkpoint(
            settings=self.settings,
            words=self.tensors.dictionary.words,
            story_length=self.tensors.story_length,
            question_length=self.tensors.question_length,
            data=data,
            history=self.history,
            model=_copy(self.model),
            best=self._best,
            optimizer=self.optimizer.state_dict(),
        )

    def restore(self, saved: Checkpoint, data: DataName, path: Path) -> None:
        """Continue from `saved`, which must belong to the same run on the same data."""
        difference = saved.settings.difference(self.settings)
        if difference:
            raise CheckpointError(f"{path} is of another run: {difference}")
        if saved.data != data:
            raise CheckpointError(f"{path} is of a run on other data: {saved.data}")
        try:
            self.model.load_state_dict(saved.model)
            self.optimizer.load_state_dict(saved.optimizer)
        except (RuntimeError, ValueError, KeyError) as error:
            raise CheckpointError(f"the weights in {path} do not fit: {error}") from None
        self.history = saved.history
        self._best = saved.best


def starting_model(words: int, settings: RunSettings) -> QuestionAnswerer:
    """The model that a run begins with."""
    torch.manual_seed(_seed(settings.seed, "weights"))
    return QuestionAnswerer(words, settings)


def _copy(model: nn.Module) -> dict[str, Any]:
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}


def _seed(*of: object) -> int:
    """A seed for one purpose, independent of the seeds for other purposes."""
    digest = hashlib.sha256(repr(of).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
