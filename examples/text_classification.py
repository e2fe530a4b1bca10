"""Classify texts of different lengths: packed sequences, nn.LSTM and RotLSTM side by side.

    python examples/text_classification.py           # about two minutes on two cores
    python examples/text_classification.py --tsv FILE   # your data: lines of label, tab, text

Without a file the texts are the docstrings of torch, and the label is the package they are from.
"""

import argparse
import ast
import random
import re
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from rotcell import RotLSTM

PACKAGES = ("nn", "optim", "distributed", "fx", "utils", "onnx")
UNKNOWN = 0

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--tsv", type=Path, help="file of lines: label, tab, text")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--hidden-size", type=int, default=64)
parser.add_argument("--seeds", type=int, default=2, help="runs per layer")
parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")


def docstrings(most_files: int | None) -> list[tuple[str, str]]:
    """(package, docstring) of everything in some packages of torch."""
    found = {}
    for package in PACKAGES:
        files = sorted((Path(torch.__file__).parent / package).rglob("*.py"))
        for file in files[:most_files]:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef | ast.FunctionDef):
                    text = ast.get_docstring(node)
                    if text:
                        found[text] = package  # each text once
    return [(package, text) for text, package in found.items()]


class Classifier(nn.Module):
    def __init__(self, layer: type[nn.RNNBase], words: int, classes: int, hidden_size: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, 64)
        self.layer = layer(64, hidden_size)
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(hidden_size, classes)

    def forward(self, texts: list[Tensor]) -> Tensor:
        # Packed: no step is spent on padding, and h_n is the state after each text's last word.
        packed = pack_sequence(
            [self.dropout(self.embed(text)) for text in texts], enforce_sorted=False
        )
        _, (h_n, _) = self.layer(packed)
        return self.head(self.dropout(h_n[-1]))


def train(model: nn.Module, texts: list[Tensor], labels: Tensor, epochs: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(texts)).split(32):
            loss = nn.functional.cross_entropy(model([texts[i] for i in batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, texts: list[Tensor], labels: Tensor) -> float:
    model.eval()
    batches = torch.arange(len(texts)).split(256)
    right = [model([texts[i] for i in b]).argmax(1) == labels[b] for b in batches]
    return 100 * torch.cat(right).float().mean().item()


def main() -> None:
    options = parser.parse_args()
    if options.tsv:
        lines = options.tsv.read_text(encoding="utf-8").splitlines()
        data = [(line.split("\t", 1)[0], line.split("\t", 1)[1]) for line in lines if line]
    else:
        data = docstrings(20 if options.quick else None)
    random.Random(0).shuffle(data)
    if options.quick:
        data, options.epochs, options.seeds = data[:300], 1, 1
    words = [re.findall(r"\w+|[^\w\s]", text.lower())[:200] or ["."] for _, text in data]
    split = len(data) * 4 // 5
    common = Counter(word for text in words[:split] for word in text).most_common(5000)
    numbers = {word: k for k, (word, _) in enumerate(common, start=1)}
    texts = [torch.tensor([numbers.get(word, UNKNOWN) for word in text]) for text in words]
    names = sorted({label for label, _ in data})
    labels = torch.tensor([names.index(label) for label, _ in data])

    constant = 100 * (labels[split:] == labels[:split].mode().values).float().mean().item()
    print(f"{split} texts to train on, {len(data) - split} to test on, {len(names)} classes.")
    print(f"{'always ' + names[int(labels[:split].mode().values)]:20} {constant:5.1f} %")
    for layer in (nn.LSTM, RotLSTM):
        found = []
        for seed in range(options.seeds):
            torch.manual_seed(seed)
            model = Classifier(layer, len(numbers) + 1, len(names), options.hidden_size)
            train(model, texts[:split], labels[:split], options.epochs)
            found.append(accuracy(model, texts[split:], labels[split:]))
        kind = f"{layer.__module__.split('.')[0]}.{layer.__name__}"
        print(f"{kind:20} {sum(found) / len(found):5.1f} %   seeds: "
              + ", ".join(f"{value:.1f}" for value in found))  # fmt: skip


if __name__ == "__main__":
    main()
