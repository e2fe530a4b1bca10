"""Streaming inference: a detector that reads a signal one sample at a time.

    python examples/streaming.py     # about a minute on two cores

The model learns from whole sequences to mark where a faint tone is. Then it reads a stream:
one step per call, the state is carried by the caller, and the answers are those of the whole
sequence. The time of a step is shown, and that of the same model on a slower path.
"""

import argparse
import math
import time

import torch
from torch import Tensor, nn

import rotcell

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
parser.add_argument("--steps", type=int, default=300, help="steps of training")
parser.add_argument("--hidden-size", type=int, default=48)
parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")


def signals(length: int, count: int) -> tuple[Tensor, Tensor]:
    """Noise [length, count, 1] with a tone somewhere, and where it is."""
    t = torch.arange(length)[:, None]
    start = torch.randint(0, length, (count,))
    there = (t >= start) & (t < start + torch.randint(40, 80, (count,)))
    tone = torch.sin(2 * math.pi * (t / 9 + torch.rand(count)))
    return (0.8 * tone * there + torch.randn(length, count)).unsqueeze(-1), there.float()


class Detector(nn.Module):
    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.layer = rotcell.RotLSTM(1, hidden_size)
        self.head = nn.Linear(hidden_size, 1)

    def forward(self, x: Tensor, state=None):
        output, state = self.layer(x, state)
        return self.head(output).squeeze(-1), state


def stream(model: nn.Module, x: Tensor) -> tuple[Tensor, float]:
    """Read [T, 1, 1] step by step; returns the answers and the median microseconds per step."""
    answers, times, state = [], [], None
    for sample in x:  # in an application: as samples arrive
        began = time.perf_counter()
        answer, state = model(sample[None], state)
        times.append(time.perf_counter() - began)
        answers.append(answer[0])
    return torch.stack(answers), 1e6 * sorted(times)[len(times) // 2]


def accuracy(scores: Tensor, truth: Tensor) -> float:
    return 100 * ((scores > 0) == truth.bool()).float().mean().item()


def main() -> None:
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Detector(options.hidden_size)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(10 if options.quick else options.steps):
        x, there = signals(200, 32)
        loss = nn.functional.binary_cross_entropy_with_logits(model(x)[0], there)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    model.eval()
    x, there = signals(200, 500)
    with torch.inference_mode():
        print(f"never a tone:     {100 * (1 - there.mean().item()):.1f} % of the samples right")
        print(f"the model:        {accuracy(model(x)[0], there):.1f} %")
        x = torch.cat([signals(200, 1)[0] for _ in range(3 if options.quick else 50)])
        answers, microseconds = stream(model, x)
        difference = (answers - model(x)[0]).abs().max().item()
        print(f"one stream of {len(x)} samples, step by step: {microseconds:.0f} µs per step, "
              f"at most {difference:.1e} from the whole sequence in one call")  # fmt: skip
        with rotcell.use_reference():
            print(f"the same on the reference code: {stream(model, x[:300])[1]:.0f} µs per step")


if __name__ == "__main__":
    main()
