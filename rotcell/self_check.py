"""The self-check of the GPU kernels: nothing runs on a path that has not been seen to be right.

Before a path (resident, cluster, cooperative, stepwise) is used for the first time in a process,
for a cell, a pass and a number type on a device, it computes two short sequences of the size that
is asked for, and so does the reference in float64 on the same device. A path that is wrong, or
fails to launch, is switched off for the process with a warning that says what to report; stepwise
takes over (the cooperative path for a cluster), and if that is wrong too, the reference.
Projections, and changes of the state (resets, recurrent dropout, zoneout), which only stepwise
does, are checked when a call first has them, and CUDA graphs of that path (`rotcell.cuda_graphs`)
when the first is made.

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
from .reference import CELLS, UNCHANGED, Cell, Gates, StateChanges, Weights

__all__ = ["PathCheck", "enable", "enabled", "results"]

GRAPH = "stepwise graph"

SWITCH = "ROTCELL_SELF_CHECK"
GRAPHS = "ROTCELL_CUDA_GRAPHS"
PATHS = "ROTCELL_CUDA_PATHS"
REFERENCE = "reference"

#: How long a path may take for its check. A kernel that has to be compiled for a new device first
#: may need a good part of it.
TIME_LIMIT = 60.0
STEPS, INPUTS = 4, 5
#: A graph has 16 steps; so it runs twice, and some steps are left.
GRAPH_STEPS = 35
#: The first two sequences run without a graph.
GRAPH_RUNS = 3
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
    """A cell whose reference keeps the gates, which the kernels save for backward."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell.name, replace(cell.recurrence, step=self._record), cell.rotation)
        self._step = cell.recurrence.step
        self._steps: list[Tensor] = []

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
        self._steps.append(torch.cat(activations, dim=-1))
        return new

    def saved(self, reverse: bool) -> Tensor:
        """The gates of all tokens."""
        return torch.cat(self._steps[::-1] if reverse else self._steps).detach()


@dataclass(frozen=True)
class SequenceKind:
    """What a sequence is like that is compared."""

    name: str
    lengths: Sequence[int]
    options: tuple[bool, str, str]  # reverse, gates, angle_gates
    runs: int = 1  # the last of them is compared
    option: str = ""  # of `_libraries.CUDA_OPTIONS`


@dataclass
class ShortSequence:
    """A sequence with random values, as the kernel and as the reference see it."""

    cell: Cell
    tensors: list[Tensor]  # x, states and weights
    batch_sizes: Tensor | None
    options: tuple[bool, str, str]  # reverse, gates, angle_gates
    runs: int
    changes: StateChanges

    @classmethod
    def random(
        cls,
        cell: Cell,
        hidden_size: int,
        kind: SequenceKind,
        device: torch.device,
        dtype: torch.dtype,
    ) -> ShortSequence:
        """Values of a kind of sequence."""
        lengths = kind.lengths
        generator = torch.Generator(device).manual_seed(1)

        def uniform(bound: float, *shape: int) -> Tensor:
            values = torch.rand(shape, generator=generator, device=device, dtype=torch.float64)
            return (2 * bound * values - bound).to(dtype)

        _, projection, state_changes = _libraries.CUDA_OPTIONS
        rows, scale = cell.rows(hidden_size), hidden_size**-0.5
        batch, tokens = len(lengths), sum(lengths)
        outputs = (hidden_size + 1) // 2 if kind.option == projection else hidden_size
        states = [uniform(1, batch, s) for s in cell.state_sizes(hidden_size, outputs)]
        weights = [uniform(scale, rows, INPUTS), uniform(scale, rows, outputs)]
        biases = [uniform(scale, rows), uniform(scale, rows)]
        projections = [uniform(scale, outputs, hidden_size)] if kind.option == projection else []
        x = uniform(1, tokens, INPUTS)
        changes = UNCHANGED
        if kind.option == state_changes:
            has_memory = len(cell.states) > 1
            changes = StateChanges(
                resets=uniform(1, tokens) > 0.4,
                recurrent_dropout=1 + uniform(1, batch, outputs),
                zoneout_h=uniform(1, tokens, hidden_size).abs(),
                zoneout_c=uniform(1, tokens, hidden_size).abs() if has_memory else None,
            )
        sizes = [sum(length > t for length in lengths) for t in range(max(lengths))]
        same = min(lengths) == max(lengths)
        batch_sizes = None if same else torch.tensor(sizes, device="cpu")
        tensors = [x, *states, *weights, *biases, *projections]
        return cls(cell, tensors, batch_sizes, kind.options, kind.runs, changes)

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
        changes = StateChanges(
            *(t if t is None or t.dtype == torch.bool else t.double() for t in self.changes)
        )
        has_memory = len(self.cell.states) > 1
        found = recorder.sequence(
            *self.split(leaves), self.batch_sizes, *self.options, changes, has_memory
        )
        saved = [recorder.saved(self.options[0])]
        if has_memory:  # as the steps left it
            saved.append(found[-1].detach())
            found = found[:-1]
        if not with_gradients:
            return list(found), saved, []
        grads = torch.autograd.grad(found, leaves, [g.double() for g in self.grads(found)])
        return [r.detach() for r in found], saved, list(grads)

    def by_kernel(self, pass_name: str) -> list[Tensor]:
        """What the kernel makes of the reference's numbers: results and saved, or gradients."""
        return [self._by_kernel(pass_name) for _ in range(self.runs)][-1]

    def _by_kernel(self, pass_name: str) -> list[Tensor]:
        split = self.split(self.tensors)
        if pass_name == "forward":
            made = ops.sequence_with_saved(
                self.cell, *split, self.batch_sizes, *self.options, self.changes
            )
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
            self.changes,
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
            weights = Weights._fields[: len(self.tensors) - 1 - len(states)]
            tensors = ["x", *(f"{state}_0" for state in states), *weights]
            names, expected = [f"gradient of {name}" for name in tensors], grads
        return {
            name: (a.double() - b).abs().max() / b.abs().max().clamp(min=LEAST_SCALE)
            for name, a, b in zip(names, self.by_kernel(pass_name), expected, strict=True)
            if b.numel()
        }


def kinds_of_sequences(batch: int, option: str = "") -> list[SequenceKind]:
    """What is compared of every path, or of an option of the stepwise one."""
    different = sorted((1 + row % STEPS for row in range(batch)), reverse=True)
    if option:
        functions = (True, "sigmoid", "hard_sigmoid")
        return [SequenceKind(f" ({option})", different, functions, option=option)]
    return [
        SequenceKind("", [STEPS] * batch, (False, "sigmoid", "sigmoid")),
        SequenceKind(" (packed, reverse)", different, (True, "hard_sigmoid", "hard_sigmoid")),
    ]


def kinds_by_graph(batch: int) -> list[SequenceKind]:
    """What is compared of the stepwise path by CUDA graphs."""
    lengths = [GRAPH_STEPS] * batch
    return [SequenceKind("", lengths, (True, "sigmoid", "sigmoid"), runs=GRAPH_RUNS)]


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
    option: str = "",
) -> PathCheck:
    """Compare a path, or an option of it, with the reference. It must be able to run that size."""
    name, path = path, "stepwise" if path == GRAPH else path
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
        _checking.graph = True
        errors: dict[str, float] = {}
        kinds = kinds_by_graph(batch) if name == GRAPH else kinds_of_sequences(batch, option)
        for kind in kinds:
            sequence = ShortSequence.random(cell, hidden_size, kind, device, dtype)
            found = _as_numbers(sequence.compare(pass_name), attempt)
            errors |= {tensor + kind.name: error for tensor, error in found.items()}
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
        str(device), name, cell.name, pass_name, str(dtype).removeprefix("torch."), hidden_size,
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


def _hangs(result: PathCheck, device: torch.device, variable: str) -> str:
    return (
        f"{_describe(result)} A kernel that hangs cannot be ended from inside the process: the "
        f"device may stay busy until the process ends. Start it again with {variable}. "
        f"{_report(device)}"
    )


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
        option = _libraries.CUDA_OPTIONS[use.option]
        ops.give_up(cell, device, dtype, partly=bool(option))
        work = f"the work of calls with a {option}" if option else "its work"
        instead = f"The reference code does {work}, slowly"
    if result.outcome == "hangs":
        paths = "reference" if result.path == "stepwise" else "stepwise"
        return _hangs(result, device, f"{PATHS}={paths}")
    warnings.warn(
        f"{_describe(result)} {instead} for the rest of this process. {_report(device)}",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def _check_of(use: _libraries.CudaPathUse, device: torch.device, path: str) -> PathCheck:
    cell = list(CELLS.values())[use.cell]
    pass_name = _libraries.CUDA_PASSES[use.pass_number]
    dtype = _libraries.CUDA_TYPES[use.number]
    option = _libraries.CUDA_OPTIONS[use.option]
    return check_path(device, path, cell, pass_name, dtype, use.hidden, use.batch, option)


def _check_use(use: _libraries.CudaPathUse, device: torch.device) -> str | None:
    with _lock:
        result = _check_of(use, device, _libraries.CUDA_PATHS[use.path])
        _results.append(result)
        return _handle(result, use, device)


_graphs_checked: dict[tuple[int, int, int, int], str | None] = {}
_graph_lock = threading.Lock()
#: Of a thread that checks: what it captures is what is checked.
_checking = threading.local()


def check_graph(use: _libraries.CudaPathUse, device: torch.device) -> str | None:
    """What is wrong with CUDA graphs for this cell, pass and type, if anything is.

    Compared with the reference the first time, if the self-check is on.
    """
    if not _enabled or getattr(_checking, "graph", False):
        return None
    key = (use.device, use.cell, use.pass_number, use.number)
    with _graph_lock:
        if key not in _graphs_checked:
            result = _check_of(use, device, GRAPH)
            _results.append(result)
            if result.outcome == "hangs":
                raise RuntimeError(_hangs(result, device, f"{GRAPHS}=0"))
            fine = result.outcome in ("right", "no memory")
            _graphs_checked[key] = None if fine else f"{_describe(result)} {_report(device)}"
        return _graphs_checked[key]


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
