"""What is checked on a GPU, one thing at a time, by name.

A check is a function of the machine and the seconds it may take. It returns what it found as JSON.
Its "ok" is True, False, or None if the machine cannot run the check.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from rotcell import _libraries
from rotcell.cuda.paths import fits, has_cell
from rotcell.cuda.self_check import check_path
from rotcell.cuda.short_sequence import (
    LEAST_SCALE,
    SequenceKind,
    ShortSequence,
    kinds_of_sequences,
    or_infinite,
    tolerance,
)
from rotcell.ops import use_reference
from rotcell.ops.private_torch import keep_stream_busy
from rotcell.reference import CELLS, Cell

from . import timings
from .machine import Gpu

Check = Callable[[Gpu, float], dict[str, Any]]

PATHS = ("resident", "cluster", "cooperative", "stepwise")
TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
STEPS = 5


def type_name(dtype: torch.dtype) -> str:
    """The dtype's name without torch's prefix."""
    return str(dtype).removeprefix("torch.")


def usual_type(path: str) -> torch.dtype:
    """The dtype of checks that use only one; clusters have no float32."""
    return torch.float16 if path == "cluster" else torch.float32


def _facts(machine: Gpu, seconds: float) -> dict[str, Any]:
    return {"ok": True, **machine.facts()}


# Results


def _results_check(path: str, cell: Cell, dtype: torch.dtype) -> Check:
    """Forward and gradients against the reference in float64; the same bits twice."""

    def check(machine: Gpu, seconds: float) -> dict[str, Any]:
        allowed = tolerance(dtype)
        sizes = []
        for batch, hidden in machine.sizes:
            fitting = [
                pass_name
                for pass_name in _libraries.CUDA_PASSES
                if fits(
                    path, cell.name, pass_name, hidden, batch, STEPS, dtype, machine.properties()
                )
            ]
            if fitting:
                sizes.append(_compare(machine, path, cell, dtype, batch, hidden, fitting))
        if not sizes:
            return {"ok": None, "reason": "no size fits"}
        worst = max(sizes, key=lambda size: or_infinite(size["largest_error"]))
        right = or_infinite(worst["largest_error"]) <= allowed
        same = all(size["same_bits_twice"] for size in sizes)
        return {
            "ok": right and same,
            "largest_error": worst["largest_error"],
            "what": worst["what"],
            "tolerance": allowed,
            "same_bits_twice": same,
            "sizes": sizes,
        }

    return check


def _kinds(path: str, cell: Cell, batch: int) -> list[SequenceKind]:
    options = _libraries.CUDA_OPTIONS if path == "stepwise" else ("",)
    return [
        kind
        for option in options
        if cell.can_project or option != "projection"
        for kind in kinds_of_sequences(batch, option)
    ]


def _compare(
    machine: Gpu,
    path: str,
    cell: Cell,
    dtype: torch.dtype,
    batch: int,
    hidden: int,
    passes: Sequence[str],
) -> dict[str, Any]:
    errors: dict[str, float] = {}
    same = True
    for pass_name, kind in itertools.product(passes, _kinds(path, cell, batch)):
        sequence = ShortSequence.random(cell, hidden, kind, machine.device, dtype)
        with machine.forced(path):
            found = sequence.compare(pass_name)
            errors |= {f"{name}{kind.name}": float(error) for name, error in found.items()}
            first, second = (sequence.by_kernel(pass_name) for _ in range(2))
        same = same and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    what = max(errors, key=lambda name: or_infinite(errors[name]))
    return {
        "batch": batch, "hidden_size": hidden, "passes": list(passes),
        "largest_error": errors[what], "what": what, "same_bits_twice": same,
    }  # fmt: skip


# Layers, as they are used


def _run_layer(layer: Any, x: Any) -> list[Tensor]:
    out, _ = layer(x)
    out = out.data if isinstance(out, PackedSequence) else out
    grads = torch.autograd.grad((out * out.detach().cos()).sum(), list(layer.parameters()))
    return [out.detach(), *grads]


def _layer(machine: Gpu, cell: str, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    torch.manual_seed(3)
    return timings.LAYERS[cell](6, 20, **options).to(machine.device, dtype)


def _packed_check(cell: str) -> Check:
    """A deep layer in both directions on packed input, on the path that the plan takes."""

    def check(machine: Gpu, seconds: float) -> dict[str, Any]:
        layer = _layer(machine, cell, num_layers=2, bidirectional=True)
        torch.manual_seed(4)
        x = pack_sequence(
            [torch.randn(n, 6).to(machine.device) for n in (4, 7, 2)], enforce_sorted=False
        )
        found = _run_layer(layer, x)
        with use_reference():
            expected = _run_layer(layer, x)
        return _near(found, expected, torch.float32)

    return check


def _near(found: list[Tensor], expected: list[Tensor], dtype: torch.dtype) -> dict[str, Any]:
    error = max(
        float((a - b).abs().max() / b.abs().max().clamp(min=LEAST_SCALE))
        for a, b in zip(found, expected, strict=True)
    )
    allowed = 4 * tolerance(dtype)  # the reference rounds too, and errors of layers add up
    return {"ok": error <= allowed, "largest_error": error, "tolerance": allowed}


# What only a GPU has


def _on_path(path: str, cell: str, body: Callable[[Gpu, Any, Tensor], dict[str, Any]]) -> Check:
    """A check of a small layer on a path."""

    def check(machine: Gpu, seconds: float) -> dict[str, Any]:
        if not machine.has_streams:
            return {"ok": None, "reason": "this device has no streams"}
        dtype, properties = usual_type(path), machine.properties()
        for pass_name in _libraries.CUDA_PASSES:
            if not fits(path, cell, pass_name, 20, 6, STEPS, dtype, properties):
                return {"ok": None, "reason": "does not fit"}
        layer = _layer(machine, cell).to(dtype)
        x = torch.randn(STEPS, 6, 6, generator=torch.Generator().manual_seed(5))
        x = x.to(machine.device, dtype)
        with machine.forced(path):
            return body(machine, layer, x)

    return check


def _streams(machine: Gpu, layer: Any, x: Tensor) -> dict[str, Any]:
    """A side stream gives the same bits, although its input comes late."""
    expected = _run_layer(layer, x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        keep_stream_busy(10**7)
        late = x.clone()
        found = _run_layer(layer, late)
    side.synchronize()
    return {"ok": all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))}


def _graphs(machine: Gpu, layer: Any, x: Tensor) -> dict[str, Any]:
    """A captured graph repeats forward and backward, with other numbers."""
    static = x.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        _run_layer(layer, static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = _run_layer(layer, static)
    static.mul_(-0.5)
    graph.replay()
    machine.synchronize()
    found = [t.clone() for t in captured]
    expected = _run_layer(layer, static)
    return {"ok": all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))}


def _no_waiting(machine: Gpu, layer: Any, x: Tensor) -> dict[str, Any]:
    """The host never waits for the device."""
    _run_layer(layer, x)
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        _run_layer(layer, x)
    finally:
        torch.cuda.set_sync_debug_mode(before)
    return {"ok": True}


def _cells() -> dict[str, Cell]:
    """The cells that GPUs run."""
    return {name: cell for name, cell in CELLS.items() if has_cell(name)}


def _self_check(machine: Gpu, seconds: float) -> dict[str, Any]:
    """What the self-check finds, and what it costs at the first use of a path."""
    found = []
    for path in PATHS:
        usual = (32, 50 if path == "resident" else 256)
        batch, size = usual if machine.has_streams else machine.sizes[0]
        for cell in _cells().values():
            dtype, properties = usual_type(path), machine.properties()
            if all(
                fits(path, cell.name, pass_name, size, batch, STEPS, dtype, properties)
                for pass_name in _libraries.CUDA_PASSES
            ):
                found.append(asdict(check_path(machine.device, path, cell, dtype, size, batch)))
    return {
        "ok": all(result["outcome"] == "right" for result in found),
        "milliseconds": [round(result["milliseconds"], 2) for result in found],
        "results": found,
    }


def all_checks() -> dict[str, Check]:
    """All checks by name, in order: first what must be right, then how fast it is."""
    found: dict[str, Check] = {"facts": _facts}
    for dtype, path, cell in itertools.product(TYPES, PATHS, _cells().values()):
        found[f"results, {path}, {cell.name}, {type_name(dtype)}"] = _results_check(
            path, cell, dtype
        )
    for cell_name in _cells():
        found[f"packed, {cell_name}"] = _packed_check(cell_name)
    for name, body in (("streams", _streams), ("graphs", _graphs), ("no waiting", _no_waiting)):
        for path, cell_name in itertools.product(PATHS, _cells()):
            found[f"{name}, {path}, {cell_name}"] = _on_path(path, cell_name, body)
    found["self-check"] = _self_check
    for row in timings.ROWS:
        found[str(row)] = row.measure
    return found
