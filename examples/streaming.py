"""Streaming inference: a detector that reads a signal one sample at a time.

    python examples/streaming.py     # about a minute on two cores

The model learns from whole sequences to mark where a faint tone is. Then it reads a stream: one
step per call, and the caller carries the state. In float32 the answers are those of the whole
sequence. With int8 weights (`rotcell.quantize_dynamic`) the layer is smaller, and the answers
differ a little. A step of 48 units takes about as long, one of 512 about half as long:
--hidden-size 512 --quick.
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


def kilobytes(module: nn.Module) -> float:
    return sum(t.nbytes for t in module.state_dict().values()) / 1024


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
        print(f"never a tone:  {100 * (1 - there.mean().item()):.1f} % of the samples right")
        streams = [signals(200, 1) for _ in range(3 if options.quick else 50)]
        stream_x, truth = torch.cat([x for x, _ in streams]), torch.cat([y for _, y in streams])
        print(f"one stream of {len(stream_x)} samples, step by step:")
        for name, kind in (("float32", model), ("int8", rotcell.quantize_dynamic(model))):
            answers, microseconds = stream(kind, stream_x)
            difference = (answers - model(stream_x)[0]).abs().max().item()
            right = accuracy(answers, truth), accuracy(kind(x)[0], there)
            print(f"  {name}: {microseconds:.0f} µs per step, {kilobytes(kind.layer):.0f} kB, "
                  f"{right[0]:.1f} % right ({right[1]:.1f} % of new sequences), "
                  f"at most {difference:.0e} from float32 in one call")  # fmt: skip
        with rotcell.use_reference():
            microseconds = stream(model, stream_x[:300])[1]
            print(f"  float32 on the reference code: {microseconds:.0f} µs per step")


if __name__ == "__main__":
    main()
