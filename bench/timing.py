"""Timing several functions side by side, so that a change of the machine's pace meets all."""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

#: Shorter calls are timed several at once.
SHORTEST_SAMPLE_S = 1e-3
#: Longer calls are warm after the second one, shorter ones after the third.
LONG_CALL_S = 0.1
#: Level of the confidence intervals that are reported.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Effort:
    """How long a row may take, warm-up not included, and how often each function runs at least.

    Half of the time goes to the functions that are compared, the other half to the rest. A row that
    turns out slower than its warm-up ends early, with no less than the least samples compared.
    """

    seconds: float
    least_samples: int
    least_samples_of_rest: int = 3
    most_samples: int = 100


@dataclass
class Timing:
    """Seconds per call; one number per sample, each the mean over `calls_per_sample` calls."""

    samples: list[float] = field(default_factory=list)
    calls_per_sample: int = 1
    first_call_s: float | None = None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Give all samples and what they come to."""
        values: dict[str, Any] = {
            "samples_s": [float(f"{sample:.5g}") for sample in self.samples],
            "calls_per_sample": self.calls_per_sample,
            "first_call_s": self.first_call_s,
        }
        if self.error is not None:
            values["error"] = self.error
        if self.samples:
            found = quartiles(values["samples_s"])
            values |= dict(zip(("q1_s", "median_s", "q3_s"), found, strict=True))
        return values


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
    return q1, median, q3


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Give a confidence interval of the median, of CONFIDENCE, whatever the distribution.

    From the k-th smallest value to the k-th largest: the median lies outside only if fewer than k
    of the values fell on one side of it, which is as likely as so few heads in tosses of a coin.
    Too few values for the confidence (five or less) give their whole range.
    """
    count = len(values)
    outside, k = 0.0, 0
    while 2 * (outside := outside + math.comb(count, k) * 0.5**count) <= 1 - CONFIDENCE:
        k += 1
    ordered = sorted(values)
    k = max(k, 1)
    return ordered[k - 1], ordered[-k]


def plan_counts(
    seconds: Mapping[str, float], compared: Sequence[str], effort: Effort
) -> dict[str, int]:
    """Decide how many samples each function gives, from what one sample takes."""
    rest = [name for name in seconds if name not in compared]
    share = effort.seconds / 2 if rest else effort.seconds
    together = sum(seconds[name] for name in compared)
    rounds = min(max(int(share / together), effort.least_samples), effort.most_samples)
    counts = dict.fromkeys(compared, rounds)
    for name in rest:
        fitting = int(share / len(rest) / seconds[name])
        counts[name] = min(max(fitting, effort.least_samples_of_rest), rounds)
    return counts


def plan_rounds(counts: Mapping[str, int], seed: int = 0) -> list[list[str]]:
    """Spread each function evenly from the first round on, in a new random order each round."""
    rounds = max(counts.values())
    shuffler = random.Random(seed)
    plan = []
    for index in range(rounds):
        turn = [name for name, count in counts.items() if index * count % rounds < count]
        shuffler.shuffle(turn)
        plan.append(turn)
    return plan


def seconds_per_call(function: Callable[[], object], calls: int, device: torch.device) -> float:
    """Run a function some times and give the mean; on a GPU, the time between two events."""
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(device)
        start.record()
        for _ in range(calls):
            function()
        end.record()
        torch.cuda.synchronize(device)
        return start.elapsed_time(end) * 1e-3 / calls
    begin = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - begin) / calls


def settle_allocator() -> None:
    """Make what the process did before not count.

    Until a block of this size has been freed once, glibc may give the memory of a call back to the
    system and take it again at the next, page by page. By chance that lengthens a training step at
    batch 1 by up to a half, torch's as well as ours.
    """
    torch.empty(16 << 20, dtype=torch.uint8)


def measure(
    functions: Mapping[str, Callable[[], object]],
    compared: Sequence[str],
    effort: Effort,
    device: torch.device,
) -> dict[str, Timing]:
    """Warm up all functions, then time them in turns. Those that fail are left out, with why."""
    settle_allocator()
    timings = {name: Timing() for name in functions}
    seconds = {}
    for name, function in functions.items():
        timing = timings[name]
        try:
            timing.first_call_s = seconds_per_call(function, 1, device)
            warm = seconds_per_call(function, 1, device)
            if warm < LONG_CALL_S:
                warm = min(warm, seconds_per_call(function, 1, device))
        except Exception as error:  # whatever a contestant raises belongs into its row
            timing.error = describe(error)
            continue
        timing.calls_per_sample = max(1, math.ceil(SHORTEST_SAMPLE_S / max(warm, 1e-9)))
        seconds[name] = max(warm, 1e-9) * timing.calls_per_sample
    present = [name for name in compared if name in seconds] or list(seconds)[:1]
    if not present:
        return timings

    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    latest_end = time.perf_counter() + 1.5 * effort.seconds
    try:
        for index, turn in enumerate(plan_rounds(plan_counts(seconds, present, effort))):
            if index >= effort.least_samples and time.perf_counter() > latest_end:
                break
            for name in turn:
                calls = timings[name].calls_per_sample
                timings[name].samples.append(seconds_per_call(functions[name], calls, device))
    finally:
        if collecting:
            gc.enable()
    return timings


def describe(error: Exception) -> str:
    """Put an exception into one short line."""
    first_line = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first_line}"[:200]
