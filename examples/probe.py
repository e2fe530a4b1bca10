"""Train your own head on a traced model: what do its cell state and its angles know?

    python examples/probe.py     # about a minute on two cores

A RotLSTM learns to continue strings of brackets, such as ([]{()}). Nobody tells it how deeply the
brackets are nested. `rotcell.trace` gives its angles and states of every step, and a linear head
per quantity is trained to read off the depth. The same heads on an untrained layer are the control.
"""

import argparse

import torch
from torch import Tensor, nn

import rotcell

OPEN, CLOSE = "([{", ")]}"
DEPTH = 6

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--steps", type=int, default=300, help="steps of training")
parser.add_argument("--hidden-size", type=int, default=32)
parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")


def brackets(length: int, count: int) -> tuple[Tensor, Tensor]:
    """Strings [length, count] as numbers, and the depth after each bracket."""
    strings, depths = [], []
    for _ in range(count):
        stack, string, depth = [], [], []
        draws = torch.rand(length).tolist()
        kinds = torch.randint(3, (length,)).tolist()
        for draw, kind in zip(draws, kinds, strict=True):
            if stack and (draw < 0.5 or len(stack) == DEPTH):
                string.append(3 + stack.pop())
            else:
                stack.append(kind)
                string.append(kind)
            depth.append(len(stack))
        strings.append(string)
        depths.append(depth)
    return torch.tensor(strings).T, torch.tensor(depths).T


def predict(layer: nn.Module, head: nn.Module, x: Tensor) -> Tensor:
    return head(layer(nn.functional.one_hot(x, 6).float())[0])


def train(layer: nn.Module, head: nn.Module, steps: int) -> float:
    """Learn to predict the next bracket; returns how many closing ones are of the right kind."""
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=5e-3)
    pool, _ = brackets(60, 1000 if steps > 50 else 64)
    for _ in range(steps):
        x = pool[:, torch.randint(pool.shape[1], (64,))]
        loss = nn.functional.cross_entropy(
            predict(layer, head, x[:-1]).flatten(0, 1), x[1:].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([*layer.parameters(), *head.parameters()], 1.0)
        optimizer.step()
    x, _ = brackets(60, 200)
    closing = x[1:] >= 3
    with torch.no_grad():
        guess = 3 + predict(layer, head, x[:-1])[..., 3:].argmax(-1)
    return (guess == x[1:])[closing].float().mean().item()


def features(layer: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """What the trace shows of every step, flat: a row per bracket."""
    direction = rotcell.trace(layer, nn.functional.one_hot(x, 6).float())["l0"]
    angles = direction.angles
    found = {
        "angles": torch.cat([angles.cos(), angles.sin()], -1),  # 0 and 2 pi are the same angle
        "forget gate": direction.gates["f"],
        "cell state": direction.state,
        "output": direction.output,
    }
    return {name: value.flatten(0, 1) for name, value in found.items()}


def probe(training: Tensor, depths: Tensor, test: Tensor, test_depths: Tensor, steps: int) -> float:
    """Train a linear head to name the depth; returns its accuracy on other strings."""
    mean, deviation = training.mean(0), training.std(0) + 1e-6
    head = nn.Linear(training.shape[1], DEPTH + 1)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.02, weight_decay=1e-4)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(head((training - mean) / deviation), depths)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        guess = head((test - mean) / deviation).argmax(1)
    return (guess == test_depths).float().mean().item()


def main() -> None:
    options = parser.parse_args()
    steps, probe_steps = (20, 5) if options.quick else (options.steps, 200)
    torch.manual_seed(0)
    untrained = rotcell.RotLSTM(6, options.hidden_size)
    layer, head = rotcell.RotLSTM(6, options.hidden_size), nn.Linear(options.hidden_size, 6)
    right = train(layer, head, steps)
    print(f"Of the closing brackets, {100 * right:.0f} % are of the predicted kind (chance: 33 %).")
    (x, depths), (test, test_depths) = brackets(60, 100), brackets(60, 100)
    depths, test_depths = depths.flatten(), test_depths.flatten()
    constant = (test_depths == depths.mode().values).float().mean().item()
    print(f"\nAccuracy of a linear head that names the depth (always the same: {constant:.0%})")
    print(f"{'':14} trained  untrained")
    here, there = ([features(each, y) for y in (x, test)] for each in (layer, untrained))
    for name in here[0]:
        a, b = (
            probe(f[0][name], depths, f[1][name], test_depths, probe_steps) for f in (here, there)
        )
        print(f"{name:14} {a:6.0%}  {b:8.0%}")


if __name__ == "__main__":
    main()
