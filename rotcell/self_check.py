"""The self-check of the GPU kernels: nothing runs on a path that has not been seen to be right.

Before a path (resident, cluster, cooperative, stepwise) is used for the first time in a process,
for a cell, a pass and a number type on a device, it computes two short sequences of the size that
is asked for, and so does the reference in float64 on the same device. A path that is wrong, or
fails to launch, is switched off for the process with a warning that says what to report; stepwise
takes over (the cooperative path for a cluster), and if that is wrong too, the reference.

It costs some milliseconds, once: `results` tells how many. While a CUDA graph is captured nothing
is checked, as the host would have to wait; whoever warms up before, as torch advises, has checked.

``ROTCELL_SELF_CHECK=0``, or `enable`, turns it off. ``ROTCELL_CUDA_PATHS`` says which paths may be
taken at all: ``stepwise``, or ``stepwise,resident``; ``reference`` means none.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from . import _libraries, ops
from .info import build_info
from .reference import CELLS, Cell, Gates, Weights

__all__ = ["PathCheck", "enable", "enabled", "results"]

SWITCH = "ROTCELL_SELF_CHECK"
PATHS = "ROTCELL_CUDA_PATHS"
REFERENCE = "reference"

#: How long a path may take for its check. A kernel that has to be compiled for a new device first
#: may need a good part of it.
TIME_LIMIT = 60.0
STEPS, INPUTS = 4, 5
#: Rows beyond these add nothing but time: a resident block carries more than one where there are
#: more rows than multiprocessors, and the others have tiles of 16.
ROWS = {"stepwise": 8, "cooperative": 40, "cluster": 40}
STEPWISE_UNITS = 64
#: Largest error relative to the largest value, in units of the type's rounding. A mistake in a
#: kernel is as large as the values themselves.
ROUNDINGS = {torch.float64: 8192, torch.float32: 256, torch.float16: 8, torch.bfloat16: 8}
TF32_ROUNDING = 2.0**-10
#: Values below this are compared as if they were that large: sums may cancel.
LEAST_SCALE = 0.25


@dataclass(frozen=True)
class PathCheck:
    """What a check found."""

    device: str
    path: str
    cell: str
    pass_name: str
    dtype: str
    hidden_size: int
    batch: int
    #: "right", "wrong", "failed" (to launch, for example), "hangs", or "no memory" to check it.
    outcome: str
    #: Relative to the largest value of the tensor, and what is allowed.
    largest_error: float | None
    tolerance: float
    #: The tensor with that error, or the text of the error.
    what: str
    milliseconds: float


_results: list[PathCheck] = []
#: One check at a time: two threads may come to a path together.
_lock = threading.Lock()
_errors = threading.local()


def results() -> list[dict[str, Any]]:
    """What has been checked in this process, and what that took."""
    return [asdict(result) for result in _results]


def tolerance(dtype: torch.dtype) -> float:
    """The largest error allowed, relative to the largest value of a tensor."""
    rounding = torch.finfo(dtype).eps
    if dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32:
        return ROUNDINGS[torch.float16] * TF32_ROUNDING
    return ROUNDINGS[dtype] * rounding


# What is computed


class _RecordingGates(Gates):
    """Gates that keep their preactivations."""

    @classmethod
    def of(cls, gates: Gates) -> _RecordingGates:
        return cls(**{field.name: getattr(gates, field.name) for field in fields(gates)})

    @functools.cached_property
    def preactivations(self) -> dict[str, Tensor]:
        return {}

    def affine(self, memory: Tensor, *gates: str) -> tuple[Tensor, ...]:
        found = super().affine(memory, *gates)
        self.preactivations.update(zip(gates, found, strict=True))
        return found


class _RecordingCell(Cell):
    """A cell whose reference keeps what the kernels save for backward."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell.name, replace(cell.recurrence, step=self._record), cell.rotation)
        self._step = cell.recurrence.step
        self._steps: list[tuple[Tensor, ...]] = []

    def _record(
        self, gates: Gates, states: Sequence[Tensor], w_hr: Tensor | None
    ) -> tuple[Tensor, ...]:
        recording = _RecordingGates.of(gates)
        new = self._step(recording, states, w_hr)
        functions = {
            gate: torch.tanh if meaning == "candidate" else gates.squash
            for gate, meaning in self.recurrence.gates.items()
        } | dict.fromkeys(self.rotation.gates, gates.squash_angles)
        activations = [functions[gate](recording.preactivations[gate]) for gate in self.gates]
        self._steps.append((torch.cat(activations, dim=-1), *new[1:]))
        return new

    def saved(self, reverse: bool) -> list[Tensor]:
        """Gates, and each state but the output, of all tokens."""
        steps = self._steps[::-1] if reverse else self._steps
        return [torch.cat(parts).detach() for parts in zip(*steps, strict=True)]


@dataclass
class ShortSequence:
    """A sequence with random values, as the kernel and as the reference see it."""

    cell: Cell
    tensors: list[Tensor]  # x, states and weights
    batch_sizes: Tensor | None
    options: tuple[bool, str, str]  # reverse, gates, angle_gates

    @classmethod
    def random(
        cls,
        cell: Cell,
        hidden_size: int,
        lengths: Sequence[int],
        options: tuple[bool, str, str],
        device: torch.device,
        dtype: torch.dtype,
    ) -> ShortSequence:
        generator = torch.Generator(device).manual_seed(1)

        def uniform(bound: float, *shape: int) -> Tensor:
            values = torch.rand(shape, generator=generator, device=device, dtype=torch.float64)
            return (2 * bound * values - bound).to(dtype)

        rows, scale = cell.rows(hidden_size), hidden_size**-0.5
        states = [uniform(1, len(lengths), s) for s in cell.state_sizes(hidden_size, hidden_size)]
        weights = [uniform(scale, rows, INPUTS), uniform(scale, rows, hidden_size)]
        biases = [uniform(scale, rows), uniform(scale, rows)]
        x = uniform(1, sum(lengths), INPUTS)
        sizes = [sum(length > t for length in lengths) for t in range(max(lengths))]
        same = min(lengths) == max(lengths)
        batch_sizes = None if same else torch.tensor(sizes, device="cpu")
        return cls(cell, [x, *states, *weights, *biases], batch_sizes, options)

    def split(self, tensors: Sequence[Tensor]) -> tuple[Tensor, Sequence[Tensor], Weights]:
        first = 1 + len(self.cell.states)
        return tensors[0], tensors[1:first], Weights(*tensors[first:])

    def grads(self, results: Sequence[Tensor]) -> list[Tensor]:
        """Of the results, in the type of the kernel: any numbers of order 1 will do."""
        dtype = self.tensors[0].dtype
        numbers = [torch.arange(r.numel(), device=r.device, dtype=r.dtype) for r in results]
        return [torch.cos(n).view(r.shape).to(dtype) for n, r in zip(numbers, results, strict=True)]

    def by_reference(self, with_gradients: bool) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Results, what is saved, and gradients, in float64."""
        recorder = _RecordingCell(self.cell)
        leaves = [t.double().requires_grad_(with_gradients) for t in self.tensors]
        found = recorder.sequence(*self.split(leaves), self.batch_sizes, *self.options)
        saved = recorder.saved(self.options[0])
        if not with_gradients:
            return list(found), saved, []
        grads = torch.autograd.grad(found, leaves, [g.double() for g in self.grads(found)])
        return [r.detach() for r in found], saved, list(grads)

    def by_kernel(self, pass_name: str) -> list[Tensor]:
        """What the kernel makes of the reference's numbers: results and saved, or gradients."""
        split = self.split(self.tensors)
        if pass_name == "forward":
            made = ops.sequence_with_saved(self.cell, *split, self.batch_sizes, *self.options)
            assert made is not None  # in no mode that asks for the reference
            return [*made[0], *made[1]]
        results, saved, _ = self.by_reference(with_gradients=False)
        dtype = self.tensors[0].dtype
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        grads = ops.gradients_from_saved(
            self.cell,
            self.grads(results),
            *split,
            self.batch_sizes,
            *self.options,
            results[0].to(dtype),
            [s.to(wide) for s in saved],
        )
        return [g for g in grads if g is not None]

    def compare(self, pass_name: str) -> dict[str, Tensor]:
        """By tensor, its largest error relative to its largest value; still on the device."""
        states = self.cell.states
        results, saved, grads = self.by_reference(with_gradients=pass_name == "backward")
        if pass_name == "forward":
            kept = ["gates", *(f"{state} kept" for state in states[1:])]
            names, expected = ["output", *(f"{s}_n" for s in states), *kept], [*results, *saved]
        else:
            tensors = ["x", *(f"{state}_0" for state in states), *Weights._fields[:4]]
            names, expected = [f"gradient of {name}" for name in tensors], grads
        return {
            name: (a.double() - b).abs().max() / b.abs().max().clamp(min=LEAST_SCALE)
            for name, a, b in zip(names, self.by_kernel(pass_name), expected, strict=True)
            if b.numel()
        }


def kinds_of_sequences(batch: int) -> list[tuple[str, list[int], tuple[bool, str, str]]]:
    """A name, the lengths of the rows, and reverse and gate functions of what is compared."""
    different = sorted((1 + row % STEPS for row in range(batch)), reverse=True)
    return [
        ("", [STEPS] * batch, (False, "sigmoid", "sigmoid")),
        (" (packed, reverse)", different, (True, "hard_sigmoid", "hard_sigmoid")),
    ]


class _Abandoned(Exception):
    """Nobody waits for the check any more."""


class _Attempt:
    """One check, on a thread of its own.

    There torch has no modes, such as autocast or inference mode, of the thread that waits for it;
    and that thread can stop waiting.
    """

    def __init__(self, check: Callable[[_Attempt], dict[str, float]]) -> None:
        self.errors: dict[str, float] = {}
        self.exception: Exception | None = None
        self.abandoned = False

        def run() -> None:
            try:
                self.errors = check(self)
            except Exception as error:  # whatever it is, the path cannot be used
                self.exception = error

        self._thread = threading.Thread(target=run, name="rotcell self-check", daemon=True)
        self._thread.start()

    def ends_within(self, seconds: float) -> bool:
        self._thread.join(seconds)
        self.abandoned = self._thread.is_alive()
        return not self.abandoned

    def wait_for(self, event: torch.cuda.Event) -> None:
        """Without blocking in the driver, which could not be left again."""
        while not event.query():
            if self.abandoned:
                raise _Abandoned
            time.sleep(1e-4)


def _as_numbers(errors: dict[str, Tensor], attempt: _Attempt) -> dict[str, float]:
    values = torch.stack(list(errors.values()))
    if values.is_cuda:
        copy = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        copy.copy_(values, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        attempt.wait_for(event)
        values = copy
    return dict(zip(errors, values.tolist(), strict=True))


def check_path(
    device: torch.device,
    path: str,
    cell: Cell,
    pass_name: str,
    dtype: torch.dtype,
    hidden_size: int,
    batch: int,
) -> PathCheck:
    """Compare a path with the reference. It must be able to run that size."""
    if path == "stepwise":  # its products are torch's; what is left treats all units alike
        hidden_size = min(hidden_size, STEPWISE_UNITS + hidden_size % 2)
    if path in ROWS:
        batch = min(batch, ROWS[path])
    elif device.type == "cuda":
        multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count
        batch = min(batch, 2 * multiprocessors + 3)
    streams = [torch.cuda.current_stream(device)] if device.type == "cuda" else []

    def compare(attempt: _Attempt) -> dict[str, float]:
        # The stream of the call, so that the memory of the check is there for the call.
        for stream in streams:
            torch.cuda.set_stream(stream)
        _libraries.force_cuda_path_of_thread(path)
        errors: dict[str, float] = {}
        for kind, lengths, options in kinds_of_sequences(batch):
            sequence = ShortSequence.random(cell, hidden_size, lengths, options, device, dtype)
            found = _as_numbers(sequence.compare(pass_name), attempt)
            errors |= {name + kind: error for name, error in found.items()}
        return errors

    start = time.perf_counter()
    attempt = _Attempt(compare)
    allowed = tolerance(dtype)
    largest: float | None = None
    if not attempt.ends_within(TIME_LIMIT):
        outcome, what = "hangs", f"no answer within {TIME_LIMIT:g} s"
    elif "out of memory" in str(attempt.exception):
        outcome, what = "no memory", str(attempt.exception)
    elif attempt.exception is not None:
        outcome, what = "failed", str(attempt.exception)
    else:
        what = max(attempt.errors, key=lambda name: or_infinite(attempt.errors[name]))
        largest = attempt.errors[what]
        outcome = "right" if largest <= allowed else "wrong"
    milliseconds = 1e3 * (time.perf_counter() - start)
    return PathCheck(
        str(device), path, cell.name, pass_name, str(dtype).removeprefix("torch."), hidden_size,
        batch, outcome, largest, allowed, what, milliseconds,
    )  # fmt: skip


def or_infinite(value: float) -> float:
    """NaN is an error larger than all others."""
    return value if value == value else math.inf


# What follows from it


def _describe(result: PathCheck) -> str:
    found = (
        f"its {result.what} is wrong by {result.largest_error:.3g} of the largest value "
        f"({result.tolerance:.3g} allowed)"
        if result.outcome == "wrong"
        else result.what
    )
    return (
        f"rotcell's {result.path} path does not work here ({result.cell} {result.pass_name}, "
        f"{result.dtype}, hidden size {result.hidden_size}, batch {result.batch}): {found}."
    )


def _report(device: torch.device) -> str:
    build = _libraries_facts()
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else "the executor"
    return (
        "Please report this message as an issue of rotcell, with the file that `python -m rotcell "
        f"--check-gpu` writes: {gpu}, {build}."
    )


def _libraries_facts() -> str:
    info = build_info()
    driver = driver_version()
    return (
        f"driver {driver}, torch {info['torch_running']}, rotcell {info['version']} "
        f"({info['commit']}), CUDA {info['cuda_version']}"
    )


def driver_version() -> str:
    """Of NVIDIA's driver, or "unknown"."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            return next(word for word in file.readline().split() if word[0].isdigit())
    except (OSError, StopIteration):
        return "unknown"


def _handle(result: PathCheck, use: _libraries.CudaPathUse, device: torch.device) -> str | None:
    """Switch a path off if need be; the text of an error if the call cannot go on."""
    if result.outcome in ("right", "no memory"):
        return None
    _libraries.switch_off_cuda_path(use)
    cell, dtype = CELLS[result.cell], getattr(torch, result.dtype)
    instead = "The stepwise path does its work"
    if result.path == "cluster":
        instead = "The cooperative path, or else the stepwise one, does its work"
    if result.path == "stepwise":
        ops.give_up(cell, device, dtype)
        instead = "The reference code does its work, slowly"
    if result.outcome == "hangs":
        return (
            f"{_describe(result)} A kernel that hangs cannot be ended from inside the process: "
            f"the device may stay busy until the process ends. Start it again with {PATHS}="
            f"{'reference' if result.path == 'stepwise' else 'stepwise'}. {_report(device)}"
        )
    warnings.warn(
        f"{_describe(result)} {instead} for the rest of this process. {_report(device)}",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def _check_use(use: _libraries.CudaPathUse, device: torch.device) -> str | None:
    cell = list(CELLS.values())[use.cell]
    path = _libraries.CUDA_PATHS[use.path]
    pass_name = _libraries.CUDA_PASSES[use.pass_number]
    dtype = _libraries.CUDA_TYPES[use.number]
    with _lock:
        result = check_path(device, path, cell, pass_name, dtype, use.hidden, use.batch)
        _results.append(result)
        return _handle(result, use, device)


def _make_callback(device_of: Callable[[int], torch.device]) -> Any:
    def check(pointer: Any) -> int | None:
        use = _libraries.CudaPathUse.from_buffer_copy(pointer.contents)
        try:
            error = _check_use(use, device_of(use.device))
        except BaseException as unexpected:  # a warning that is an error, or Ctrl-C
            error = str(unexpected) or repr(unexpected)
        if error is None:
            return None
        _errors.text = ctypes.create_string_buffer(error.encode())  # lives until the next one
        return ctypes.addressof(_errors.text)

    return _libraries.CudaCheck(check)


def _gpu(index: int) -> torch.device:
    return torch.device("cuda", index)


_callback = _make_callback(_gpu)
_enabled = False


def enable(on: bool = True) -> None:
    """Check GPU paths before their first use, or do not. The environment decides at first."""
    global _enabled
    _enabled = on
    if _libraries.has_cuda():
        _libraries.set_cuda_check(_callback if on else None)


def enabled() -> bool:
    """Whether GPU paths are checked before their first use."""
    return _enabled


def allowed_paths(text: str) -> tuple[str, ...]:
    """The paths that `PATHS` names; stepwise, which runs what no other can, is always there."""
    if text == REFERENCE:
        return ()
    names = [name.strip() for name in text.split(",")] if text else list(_libraries.CUDA_PATHS)
    if unknown := [name for name in names if name not in _libraries.CUDA_PATHS]:
        known = ", ".join(_libraries.CUDA_PATHS)
        raise ValueError(f"{PATHS} must be {REFERENCE} or of {known}; got {unknown[0]!r}")
    return tuple(path for path in _libraries.CUDA_PATHS if path in ("stepwise", *names))


def set_up() -> None:
    """As the environment says; done when rotcell is imported."""
    switch = os.environ.get(SWITCH, "1")
    if switch not in ("0", "1"):
        raise ValueError(f"{SWITCH} must be 0 or 1, got {switch!r}")
    allowed = allowed_paths(os.environ.get(PATHS, ""))
    if _libraries.has_cuda():
        for path in _libraries.CUDA_PATHS:
            _libraries.allow_cuda_path(path, path in allowed)
    ops.want_gpu_kernels(bool(allowed))
    enable(switch == "1")
