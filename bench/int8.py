"""Time of a quantized RotLSTM over that of a quantized nn.LSTM, one thread, in pairs.

Processor time of the thread: other work on the machine changes it less than wall time.
"""

import argparse
import statistics
import time
import warnings

import torch
from torch import nn

import rotcell

#: Batch, steps, inputs and units.
SHAPES = ((1, 100, 256), (1, 50, 1024), (8, 50, 512), (64, 50, 512))


def milliseconds(function, least_seconds: float) -> float:
    start, calls = time.thread_time(), 0
    while time.thread_time() - start < least_seconds:
        function()
        calls += 1
    return (time.thread_time() - start) / calls * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=9, help="pairs of timings per shape")
    parser.add_argument("--seconds", type=float, default=0.03, help="shortest timing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")  # torch calls its function deprecated
    print(f"{rotcell.build_info()['int8_instructions']}, torch {torch.__version__}")
    for batch, steps, size in SHAPES:
        x = torch.rand(steps, batch, size) * 2 - 1
        torchs = nn.Sequential(nn.LSTM(size, size)).eval()
        torchs = torch.ao.quantization.quantize_dynamic(torchs, {nn.LSTM})[0]
        ours = rotcell.quantize_dynamic(rotcell.RotLSTM(size, size).eval())
        with torch.no_grad():
            pairs = [
                tuple(milliseconds(lambda m=m, x=x: m(x), options.seconds) for m in (ours, torchs))
                for _ in range(options.pairs)
            ]
        ratios = sorted(a / b for a, b in pairs)
        mine, theirs = (statistics.median(times) for times in zip(*pairs, strict=True))
        print(
            f"B {batch}, T {steps}, H {size}: {mine:.3f} ms, nn.LSTM {theirs:.3f} ms, ratio "
            f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


if __name__ == "__main__":
    main()
