"""The training loop of every task: epochs, learning rate, stopping, the best weights."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from rotcell.lab.cells import implementation, parameters
from rotcell.lab.training.checkpoint import Checkpoint
from rotcell.lab.training.settings import LabSettings, seed_of


@dataclass(frozen=True)
class Budget:
    """How long a run trains and how its learning rate falls."""

    epochs: int  # at most
    #: To 0 at the last epoch; by half without progress; or by half per epoch after `halve_after`.
    schedule: Literal["linear", "halve", "decay"]
    halve_after: int = 0  # "halve": epochs without a new best; "decay": epochs at the full rate
    patience: int = 0  # epochs without a new best until the run stops; 0: never
    target: float | None = None  # a validation error that counts as solved ...
    target_epochs: int = 0  # ... and once so many epochs in a row have it ...
    cooldown: int = 0  # ... the rate falls to 0 within so many epochs, which end the run
    clip: float | None = None  # norm of the gradient
    sgd: bool = False  # plain SGD instead of Adam


class Problem(ABC):
    """One run of a task: its data, its model, its measures."""

    model: nn.Module
    budget: Budget

    @abstractmethod
    def batches(self, epoch: int) -> Iterator[Any]:
        """The batches of an epoch; the same ones for every cell with the same seed."""

    @abstractmethod
    def loss(self, batch: Any) -> Tensor:
        """The mean loss of a batch."""

    @abstractmethod
    def validate(self) -> float:
        """The error on the validation set; less is better."""

    @abstractmethod
    def test(self) -> dict[str, float]:
        """The measures on the test set."""


@dataclass
class Curve:
    """Mean training loss, validation error and learning rate of every epoch."""

    loss: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    lr: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class LabOutcome:
    """A run that ended."""

    validation: float | None  # the best error; None when the run diverged in its first epoch
    epoch: int  # that had it, whose weights were tested; the latest on a tie
    epochs: int
    steps: int
    steps_to_target: int | None
    capped: bool  # whether the cap of epochs ended the run, and not its own stopping rule
    diverged: bool
    parameters: int
    layer: str
    test: dict[str, float]


class Spent(NamedTuple):
    """Seconds of a run: those of a clock on the wall, and those of the processor."""

    wall: float
    processor: float


def run_problem(
    problem: Problem,
    settings: LabSettings,
    on_epoch: Callable[[int, Curve], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> tuple[LabOutcome, Curve, Spent]:
    """Train and test; the outcome, the curve and the time.

    With a checkpoint, the run continues from its file if there is one, and writes it after every
    epoch. An interrupted run ends with the same bits as one without interruption.
    """
    run = _Run(problem, settings)
    if checkpoint is not None and (state := checkpoint.load()) is not None:
        run.restore(state)
    while run.progress.goes_on and run.train_epoch():
        if checkpoint is not None:
            checkpoint.save(run.state())
        if on_epoch is not None:
            on_epoch(run.progress.epoch, run.curve)
    return run.outcome(), run.curve, run.spent


class _Run:
    """A run between two epochs. Random numbers of an epoch follow from the seed and its number."""

    def __init__(self, problem: Problem, settings: LabSettings) -> None:
        self.problem, self.settings = problem, settings
        self.curve, self.progress = Curve(), _Progress(problem.budget, settings.lr)
        weights = [weight for weight in problem.model.parameters() if weight.requires_grad]
        self.optimizer = make_optimizer(problem.budget, weights, settings.lr)
        self.best_weights = _copy(problem.model)
        self.steps, self.diverged = 0, False
        self.steps_to_target: int | None = None
        self._before = Spent(0.0, 0.0)
        self._began = Spent(time.perf_counter(), time.process_time())

    @property
    def spent(self) -> Spent:
        """Time so far, also before an interruption."""
        wall, processor = time.perf_counter(), time.process_time()
        return Spent(
            self._before.wall + wall - self._began.wall,
            self._before.processor + processor - self._began.processor,
        )

    def train_epoch(self) -> bool:
        """Train and validate; False if the loss is no longer finite."""
        model, epoch = self.problem.model, self.progress.epoch + 1
        torch.manual_seed(seed_of(self.settings.seed, "dropout", epoch))
        model.train()
        total = torch.zeros(())
        batches = list(self.problem.batches(epoch))
        for number, batch in enumerate(batches):
            self.optimizer.param_groups[0]["lr"] = self.progress.rate(number / len(batches))
            total += train_step(self.problem, batch, self.optimizer)
        self.steps += len(batches)
        loss = float(total) / len(batches)
        model.eval()
        with torch.no_grad():
            error = self.problem.validate()
        if not math.isfinite(loss + error):
            self.diverged = True
            return False
        self.curve.loss.append(loss)
        self.curve.validation.append(error)
        self.curve.lr.append(self.optimizer.param_groups[0]["lr"])
        if self.progress.end_epoch(error):
            self.best_weights = _copy(model)
        if self.progress.in_a_row and self.steps_to_target is None:
            self.steps_to_target = self.steps
        return True

    def outcome(self) -> LabOutcome:
        """Test the weights of the best epoch, which stay in the model."""
        model, progress = self.problem.model, self.progress
        model.load_state_dict(self.best_weights)
        model.eval()
        with torch.no_grad():
            measures = self.problem.test()
        return LabOutcome(
            progress.best if progress.best_epoch else None,
            progress.best_epoch,
            progress.epoch,
            self.steps,
            self.steps_to_target,
            progress.capped and not self.diverged,
            self.diverged,
            parameters(model),
            implementation(self.settings.cell),
            measures,
        )

    def state(self) -> dict[str, Any]:
        """All that `restore` needs."""
        return {
            "model": self.problem.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "best_weights": self.best_weights,
            "curve": asdict(self.curve),
            "progress": self.progress.state(),
            "steps": self.steps,
            "steps_to_target": self.steps_to_target,
            "spent": tuple(self.spent),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from another run's state."""
        self.problem.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.best_weights = state["best_weights"]
        self.curve = Curve(**state["curve"])
        self.progress.restore(state["progress"])
        self.steps, self.steps_to_target = state["steps"], state["steps_to_target"]
        self._before = Spent(*state["spent"])


class _Progress:
    """How far a run is: its learning rate, its best epoch, whether it continues."""

    def __init__(self, budget: Budget, lr: float) -> None:
        self.budget = budget
        self.epoch = 0
        self.best, self.best_epoch = math.inf, 0
        self.in_a_row = 0  # epochs at the target
        self._lr, self._halved_at = lr, 0
        self._cooling: tuple[int, float] | None = None  # since which epoch, from which rate

    def state(self) -> dict[str, Any]:
        """All that `restore` needs: everything but the budget."""
        return {name: value for name, value in vars(self).items() if name != "budget"}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from another run's state."""
        vars(self).update(state)

    @property
    def goes_on(self) -> bool:
        return not self.capped and not self._stopped

    @property
    def capped(self) -> bool:
        """Whether the cap of epochs ended the run, and not its own stopping rule."""
        return self.epoch >= self.budget.epochs and not self._stopped

    @property
    def _stopped(self) -> bool:
        if self._cooling is not None:
            return self.epoch - self._cooling[0] >= self.budget.cooldown
        return 0 < self.budget.patience <= self.epoch - self.best_epoch

    def rate(self, part: float) -> float:
        """The learning rate when this part of the current epoch is done."""
        done = self.epoch + part
        if self._cooling is not None:
            since, rate = self._cooling
            return rate * (1 - (done - since) / self.budget.cooldown)
        if self.budget.schedule == "linear":
            return self._lr * (1 - done / self.budget.epochs)
        if self.budget.schedule == "decay":
            return self._lr / 2.0 ** max(self.epoch + 1 - self.budget.halve_after, 0)
        return self._lr

    def end_epoch(self, error: float) -> bool:
        """Count an epoch; whether it is the best so far, as good as the best included."""
        self.epoch += 1
        budget, is_best = self.budget, error <= self.best
        if is_best:
            self.best, self.best_epoch = error, self.epoch
        if budget.target is not None:
            self.in_a_row = self.in_a_row + 1 if error <= budget.target else 0
            if self._cooling is None and 0 < budget.target_epochs <= self.in_a_row:
                self._cooling = self.epoch, self.rate(0.0)
        waited = self.epoch - max(self.best_epoch, self._halved_at)
        if budget.schedule == "halve" and waited >= budget.halve_after:
            self._lr, self._halved_at = self._lr / 2, self.epoch
        return is_best


def make_optimizer(budget: Budget, weights: list[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """The optimizer that a budget names."""
    return (torch.optim.SGD if budget.sgd else torch.optim.Adam)(weights, lr, fused=True)


def train_step(problem: Problem, batch: Any, optimizer: torch.optim.Optimizer) -> Tensor:
    """One step of the optimizer; the loss before it."""
    weights = optimizer.param_groups[0]["params"]
    loss = problem.loss(batch)
    for weight in weights:  # as zero_grad() does, with less overhead
        weight.grad = None
    loss.backward()
    if problem.budget.clip is not None:
        nn.utils.clip_grad_norm_(weights, problem.budget.clip)
    optimizer.step()
    return loss.detach()


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}


def budget_protocol(budget: Budget) -> dict[str, Any]:
    """The budget as it is kept in a run's record."""
    plain = asdict(budget)
    used = "SGD" if plain.pop("sgd") else "Adam, betas 0.9 and 0.999, epsilon 1e-8"
    return {"optimizer": used, **plain}
