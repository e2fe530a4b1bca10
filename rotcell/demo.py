"""``rotcell-demo``: a RotLSTM and an nn.LSTM learn to keep track of a compass heading."""

import argparse
import sys
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers import RotLSTM

HEADINGS = 8
# What each token does to the heading, in eighths of a full turn. The zeros are words to ignore.
TURNS = torch.tensor([+1, -1, +4, 0, 0, 0, 0, 0])
LENGTH = 32
BATCH_SIZE = 64
STEPS_PER_EPOCH = 100
TEST_SIZE = 2000
LEARNING_RATE = 5e-3

EXPLANATION = f"""\
Task: a walker faces north and hears {LENGTH} words: turn right, turn left (45 degrees each), turn
about (180 degrees), or words that mean nothing. Which way does it face in the end?
While they learn, both models are told the right heading after every word; they are scored on the
last heading of walks they have never seen. Guessing scores {1 / HEADINGS:.1%}."""


def make_walks(count: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random words and the heading after each of them; both have shape (length, count)."""
    words = torch.randint(len(TURNS), (length, count), generator=generator)
    return words, TURNS[words].cumsum(0) % HEADINGS


class Tracker(nn.Module):
    """Word -> embedding -> recurrent layer -> scores of the headings."""

    def __init__(self, layer: type[nn.Module], hidden_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(TURNS), 16)
        self.layer = layer(16, hidden_size)
        self.scores = nn.Linear(hidden_size, HEADINGS)

    def forward(self, words: Tensor) -> Tensor:
        """(length, batch) -> (length, batch, HEADINGS)."""
        output, _ = self.layer(self.embedding(words))
        scores: Tensor = self.scores(output)
        return scores


class ProgressBar:
    """Redraws one line on a terminal; elsewhere prints a line each tenth of the way."""

    def __init__(self, name: str, total: int) -> None:
        self.name = name
        self.total = total
        self.live = sys.stdout.isatty()

    def show(self, done: int, note: str) -> None:
        tenth = done * 10 // self.total
        if not self.live and tenth == (done - 1) * 10 // self.total:
            return
        filled = done * 30 // self.total
        bar = "#" * filled + "." * (30 - filled)
        line = f"{self.name:8} [{bar}] {done * 100 // self.total:3}%  {note}"
        if self.live:
            print(f"\r{line}\033[K", end="\n" if done == self.total else "", flush=True)
        else:
            print(line, flush=True)


@dataclass
class Result:
    """How one model did."""

    name: str
    parameters: int
    accuracy: float
    accuracy_on_longer: float
    seconds: float


@torch.no_grad()
def final_accuracy(model: Tracker, words: Tensor, headings: Tensor) -> float:
    guess = model(words)[-1].argmax(dim=-1)
    return float((guess == headings[-1]).float().mean())


def train(name: str, layer: type[nn.Module], hidden: int, epochs: int, seed: int) -> Result:
    """Train one model; every model sees the same walks in the same order."""
    torch.manual_seed(seed)
    model = Tracker(layer, hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    steps = epochs * STEPS_PER_EPOCH
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    walks = torch.Generator().manual_seed(seed)
    progress = ProgressBar(name, steps)

    start = time.perf_counter()
    for step in range(1, steps + 1):
        words, headings = make_walks(BATCH_SIZE, LENGTH, walks)
        scores = model(words)
        loss = F.cross_entropy(scores.flatten(0, 1), headings.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step == steps or step % 10 == 0:
            right = (scores[-1].argmax(dim=-1) == headings[-1]).float().mean().item()
            progress.show(step, f"loss {loss.item():.3f}  last batch {right:4.0%} right")
    seconds = time.perf_counter() - start

    unseen = torch.Generator().manual_seed(seed + 1)
    return Result(
        name=name,
        parameters=sum(parameter.numel() for parameter in model.layer.parameters()),
        accuracy=final_accuracy(model, *make_walks(TEST_SIZE, LENGTH, unseen)),
        accuracy_on_longer=final_accuracy(model, *make_walks(TEST_SIZE, 2 * LENGTH, unseen)),
        seconds=seconds,
    )


def table(results: list[Result]) -> str:
    rows = [("", "weights", "right", f"right, {2 * LENGTH} words", "training time")]
    rows += [
        (
            result.name,
            str(result.parameters),
            f"{result.accuracy:.1%}",
            f"{result.accuracy_on_longer:.1%}",
            f"{result.seconds:.1f} s",
        )
        for result in results
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="rotcell-demo",
        description="Train a small RotLSTM and an nn.LSTM with as many hidden units to keep track "
        "of a compass heading, on made-up data, and print how well each does.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--epochs", type=positive, default=30, help=f"epochs of {STEPS_PER_EPOCH} batches"
    )
    parser.add_argument("--hidden", type=positive, default=32, help="hidden units")
    parser.add_argument("--seed", type=int, default=0, help="seed of data and weights")
    parser.add_argument(
        "--threads", type=positive, default=1, help="CPU threads; models this small need one"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)

    print(EXPLANATION, end="\n\n", flush=True)
    layers: list[tuple[str, type[nn.Module]]] = [("RotLSTM", RotLSTM), ("nn.LSTM", nn.LSTM)]
    try:
        results = [
            train(name, layer, options.hidden, options.epochs, options.seed)
            for name, layer in layers
        ]
    except KeyboardInterrupt:
        print("\nStopped.")
        return 130
    print(f"\n{table(results)}\n")
    print(
        f"One run, seed {options.seed}, CPU threads: {options.threads}. Other seeds give other "
        "numbers.\nThe task was chosen to suit rotation: this shows that the layer trains, not "
        "that it is better elsewhere."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
