"""Trains the models of the study and measures them: one JSON file per run, none computed twice.

    python results/angles/run.py --data PATH --out DIR [--kept DIR/models ...]

Interrupt it at any time; the same command continues. Several processes may share one DIR. Models
kept by a sweep with the same protocol (`rotcell-lab sweep lstm-sigmoid --keep-models`) are measured
without training them again.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from measure import measure
from variants import TRAINING_VARIANTS

from rotcell.lab.cli.options import positive, tasks
from rotcell.lab.files import Claims, write_atomically
from rotcell.lab.memory import keep_freed_memory
from rotcell.lab.tasks.babi.cells import GATES
from rotcell.lab.tasks.babi.checkpoint import Checkpoint
from rotcell.lab.tasks.babi.data.source import Source, TaskQuestions
from rotcell.lab.tasks.babi.model import QuestionAnswerer
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.tensors import vectorize
from rotcell.lab.tasks.babi.train import Place, Trainer
from rotcell.lab.training.environment import environment

FORMAT = "rotcell angle study run 1"
TASKS = (18, 20, 15, 1, 5)
#: "packed": without the padding in front of a story, which the layers read in the protocol.
MODELS = (
    "rotlstm",
    "lstm",
    *(f"rotlstm {variant}" for variant in TRAINING_VARIANTS),
    "lstm packed",
    "rotlstm packed",
)


class Run(NamedTuple):
    """One model to train."""

    task: int
    model: str
    seed: int
    gates: str = "sigmoid"

    @property
    def name(self) -> str:
        gates = "" if self.gates == "sigmoid" else f"-{self.gates}"
        return f"task{self.task}-{self.model.replace(' ', '-')}{gates}-seed{self.seed}"

    def settings(self, epochs: int) -> RunSettings:
        cell, *how = self.model.split()
        return RunSettings(
            task=self.task,
            cell=cell,
            seed=self.seed,
            epochs=epochs,
            packed="packed" in how,
            gates=self.gates,
        )

    @property
    def variant(self) -> str | None:
        """The rule of its angles if it is not the paper's."""
        name = self.model.partition(" ")[2]
        return name if name in TRAINING_VARIANTS else None

    def restrict(self, model: QuestionAnswerer) -> None:
        """Apply the variant's rule to both layers."""
        restriction = TRAINING_VARIANTS.get(self.variant or "")
        if restriction is not None:
            for layer in (model.question_rnn, model.story_rnn):
                restriction(layer)


def kept_model(run: Run, settings: RunSettings, folders: Sequence[Path]) -> Checkpoint | None:
    """The model of this run that a sweep has kept, if there is one."""
    if run.variant:
        return None
    for path in (folder / f"{settings.name}.pt" for folder in folders):
        if path.exists():
            kept = Checkpoint.load(path)
            if not kept.settings.difference(settings):
                return kept
    return None


def run_one(
    run: Run, questions: TaskQuestions, folder: Path, epochs: int, kept: Sequence[Path]
) -> None:
    """Train and measure; interrupted training continues from its last epoch."""
    settings = run.settings(epochs)
    tensors = vectorize(questions, padding="behind" if settings.packed else "front")
    checkpoint = folder / f"{run.name}.pt"
    trainer = Trainer(tensors, settings, Place())
    untrained = copy.deepcopy(trainer.model).eval()
    run.restrict(trainer.model)
    before = kept_model(run, settings, kept)
    if before is None and checkpoint.exists():
        before = Checkpoint.load(checkpoint)
    if before is not None:
        trainer.restore(before, questions.data, checkpoint)
    while trainer.history.epochs < epochs:
        trainer.epoch()
        trainer.snapshot(questions.data).save(checkpoint)
    trainer.model.load_state_dict(trainer.snapshot(questions.data).best)
    model = trainer.model.eval()
    result = {
        "format": FORMAT,
        "model": run.model,
        "settings": settings.plain(),
        "gates": run.gates,
        "data": questions.data.plain(),
        "outcome": trainer.history.outcome._asdict(),
        "train": trainer.history.train[trainer.history.outcome.epoch - 1],
        "environment": environment(),
    }
    # Variants report their accuracy only.
    if " " not in run.model:
        result |= measure(untrained, model, tensors.train, tensors.test)
    write_atomically(folder / f"{run.name}.json", (json.dumps(result) + "\n").encode())


def main() -> None:
    parser = argparse.ArgumentParser(description="Train and measure the models of the study.")
    parser.add_argument("--data", required=True, help="folder or .tar.gz of the official files")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    parser.add_argument("--tasks", type=tasks, default=TASKS, help="default 1,5,15,18,20")
    parser.add_argument("--gates", choices=GATES, default="sigmoid", help="default sigmoid")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--seeds", type=positive, default=5, help="default 5")
    parser.add_argument("--epochs", type=positive, default=40, help="default 40")
    parser.add_argument(
        "--kept",
        type=Path,
        nargs="+",
        default=(),
        metavar="DIR",
        help="folders of models that sweeps kept",
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    options.out.mkdir(parents=True, exist_ok=True)
    source = Source.at(options.data)
    runs = [
        Run(task, model, seed, options.gates)
        for model in options.models
        for seed in range(options.seeds)
        for task in options.tasks
    ]
    with Claims(options.out / ".claims") as claims:
        for number, run in enumerate(runs, start=1):
            # Claim first: another process may have finished the run in the meantime.
            if not claims.take(run.name) or (options.out / f"{run.name}.json").exists():
                continue
            began = time.perf_counter()
            run_one(run, source.load(run.task), options.out, options.epochs, options.kept)
            took = time.perf_counter() - began
            print(f"{number}/{len(runs)}  {run.name}  {took:.0f} s", flush=True)
            claims.release(run.name)


if __name__ == "__main__":
    main()
