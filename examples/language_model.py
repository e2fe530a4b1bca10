"""A character language model with truncated backpropagation through time.

    python examples/language_model.py                          # a few minutes on two cores
    python examples/language_model.py --text shakespeare.txt   # your text, e.g. Tiny Shakespeare

Without a file the text is the reference of the Python language, which comes with Python.
"""

import argparse
import math
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import rotcell

LAYERS = {"LSTM": rotcell.LSTM, "RotLSTM": rotcell.RotLSTM}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--text", type=Path, help="the file to learn from")
parser.add_argument("--layer", choices=LAYERS, default="RotLSTM")
parser.add_argument("--hidden-size", type=int, default=256)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")


def read_text(path: Path | None) -> str:
    if path is not None:
        return path.read_text(encoding="utf-8")
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


class LanguageModel(nn.Module):
    def __init__(self, layer: type[nn.Module], characters: int, hidden_size: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(characters, 64)
        self.layer = layer(64, hidden_size, recurrent_dropout=0.1)
        self.head = nn.Linear(hidden_size, characters)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None):
        output, state = self.layer(self.embed(x), state)
        return self.head(output), state


def bits_per_character(model: LanguageModel, text: Tensor) -> float:
    """The text as one sequence; the state goes from chunk to chunk."""
    model.eval()
    total, state = 0.0, None
    with torch.no_grad():
        for start in range(0, len(text) - 1, 1000):
            chunk = text[start : start + 1001]
            scores, state = model(chunk[:-1, None], state)
            total += nn.functional.cross_entropy(scores[:, 0], chunk[1:], reduction="sum").item()
    model.train()
    return total / (len(text) - 1) / math.log(2)


def sample(model: LanguageModel, characters: str, start: str, count: int) -> str:
    """Continue a text, one character per call."""
    model.eval()
    said, state = start, None
    x = torch.tensor([characters.index(c) for c in start])[:, None]
    with torch.no_grad():
        for _ in range(count):
            scores, state = model(x, state)
            x = torch.multinomial((scores[-1] / 0.7).softmax(-1), 1)
            said += characters[int(x)]
    model.train()
    return said


def main() -> None:
    options = parser.parse_args()
    torch.manual_seed(0)
    text = read_text(options.text)
    if options.quick:
        text, options.epochs, options.hidden_size = text[:30_000], 1, 32
    characters = "".join(sorted(set(text)))
    numbers = {c: k for k, c in enumerate(characters)}
    data = torch.tensor([numbers[c] for c in text])
    training, held_out = data[: len(data) * 9 // 10], data[len(data) * 9 // 10 :]

    # 32 parts of the text side by side, read 100 characters at a time.
    batch, length = 32, 100
    columns = training[: len(training) // batch * batch].view(batch, -1).T
    model = LanguageModel(LAYERS[options.layer], len(characters), options.hidden_size)
    steps = math.ceil((len(columns) - 1) / length) * options.epochs
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    frequencies = training.bincount(minlength=len(characters)) / len(training)
    entropy = -(frequencies * frequencies.clamp_min(1e-9).log2()).sum().item()
    print(f"{len(training)} characters to train on, {len(characters)} different ones.")
    print(f"letter frequencies alone: {entropy:.2f} bits per character")
    for epoch in range(1, options.epochs + 1):
        began, state = time.perf_counter(), None
        for start in range(0, len(columns) - 1, length):
            x, y = columns[start : start + length + 1][:-1], columns[start + 1 :][:length]
            scores, state = model(x, state)
            state = tuple(s.detach() for s in state)  # gradients end here, the state goes on
            loss = nn.functional.cross_entropy(scores.flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        print(
            f"epoch {epoch}: {bits_per_character(model, held_out):.2f} bits per character "
            f"on held-out text, {time.perf_counter() - began:.0f} s",
            flush=True,
        )
    print(sample(model, characters, text[:20], 60 if options.quick else 400))


if __name__ == "__main__":
    main()
