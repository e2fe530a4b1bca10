"""The self-check: the paths of a GPU are compared with the reference before their first use.

The first call of a layer for a device, cell and dtype runs a few short sequences on every path
(resident, cluster, cooperative, stepwise), forward and backward, and compares them with the
reference in float64 on the same device. A path that is wrong or fails to launch is switched off for
the rest of the process, with one warning that says what to report. Another path takes over, or, if
the stepwise path itself is off, the reference.

The check runs on the thread that calls the layer, takes a fraction of a second, and starts no
thread. `results` shows what was found. A kernel that hangs, hangs here; ``python -m rotcell
--check-gpu`` checks in separate processes with a time limit.

While a CUDA graph is captured or ``torch.jit.trace`` records, nothing is checked. Calls before
that, such as the warm-up that torch asks for, have checked. ``torch.compile`` checks while it
traces. Ops that are called directly (``torch.ops.rotcell``) are not checked.

``ROTCELL_SELF_CHECK=0``, or `enable`, turns the check off.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from rotcell import _libraries
from rotcell.info import build_info
from rotcell.ops.private_torch import is_tracing, without_modes
from rotcell.reference import CELLS, Cell

from . import paths
from .short_sequence import STEPS, ShortSequence, kinds_of_sequences, or_infinite, tolerance

__all__ = ["PathCheck", "enable", "enabled", "results"]

VARIABLE = "ROTCELL_SELF_CHECK"

#: A batch so much larger than the number of multiprocessors that each resident block carries
#: several rows, in a separate kernel.
MANY_ROWS = -1
#: Hidden sizes and batches to check a path with. From each line, the first that the path can run.
SIZES: dict[str, tuple[tuple[tuple[int, int], ...], ...]] = {
    "resident": (
        ((50, 5), (38, 5), (21, 5), (8, 5)),
        ((38, MANY_ROWS), (21, MANY_ROWS), (8, MANY_ROWS)),
    ),
    "cluster": (((256, 40), (128, 40), (64, 18)),),
    "cooperative": (((256, 40), (129, 40), (64, 18), (21, 18)),),
    "stepwise": (((65, 8),),),
}


@dataclass(frozen=True)
class PathCheck:
    """What a check found."""

    device: str
    path: str
    #: What only the stepwise path does: "projection", "state hooks", or "" for what all paths do.
    option: str
    cell: str
    dtype: str
    hidden_size: int
    batch: int
    #: "right", "wrong" or "failed" (to launch, for example).
    outcome: str
    #: The largest error relative to the tensor's largest value, and what is allowed.
    largest_error: float | None
    tolerance: float
    #: The tensor with that error, or the text of the error.
    what: str
    milliseconds: float


_results: list[PathCheck] = []
_checked: set[tuple[str, torch.device, torch.dtype]] = set()
_enabled = False


def results() -> list[dict[str, Any]]:
    """What was checked in this process, what was found, and how long it took."""
    return [asdict(result) for result in _results]


def enable(on: bool = True) -> None:
    """Turn the check on or off. The environment sets the default."""
    global _enabled
    _enabled = on


def enabled() -> bool:
    """Whether GPU paths are checked before their first use."""
    return _enabled


def set_up() -> None:
    """Turn the check on or off as the environment says. Called when rotcell is imported."""
    switch = os.environ.get(VARIABLE, "1")
    if switch not in ("0", "1"):
        raise ValueError(f"{VARIABLE} must be 0 or 1, got {switch!r}")
    enable(switch == "1")


def check_once(cell: Cell, device: torch.device, dtype: torch.dtype) -> None:
    """Check all paths for this cell, device and dtype, unless that was done.

    There is no lock: two threads that come here together both check. One that waited could be the
    thread that runs the other's backward pass.
    """
    key = (cell.name, device, dtype)
    if not _enabled or key in _checked or _must_not_wait(device):
        return
    with _default_modes(device):
        found = list(_check(cell, device, dtype))
    failed = [result for result in found if result.outcome != "right"]
    for result in failed:
        _switch_off(result, device)
    if key in _checked:  # by another thread, meanwhile
        return
    _checked.add(key)
    _results.extend(found)
    if failed:
        warnings.warn(_describe(failed, device), RuntimeWarning, stacklevel=2)


def _must_not_wait(device: torch.device) -> bool:
    """Whether what runs now is recorded, so that the host may not wait for it."""
    capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    return capturing or is_tracing()


@contextlib.contextmanager
def _default_modes(device: torch.device) -> Iterator[None]:
    """Keep the caller's modes out of the check, and the check out of what they record.

    Those are autocast, inference mode, dispatch modes such as fake tensors, and the hooks of
    activation checkpointing, which count the tensors that are saved.
    """
    with (
        without_modes(),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(device.type, enabled=False),
        torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    ):
        yield


# The comparison


def _check(cell: Cell, device: torch.device, dtype: torch.dtype) -> Iterator[PathCheck]:
    gpu = _libraries.cuda_device(device.index or 0)
    options = [o for o in _libraries.CUDA_OPTIONS if cell.can_project or o != "projection"]
    for path in (path for path in SIZES if path in paths.allowed()):
        for sizes in SIZES[path]:
            if (size := _fitting(path, cell, dtype, gpu, sizes)) is None:
                continue
            for option in options if path == "stepwise" else [""]:
                yield check_path(device, path, cell, dtype, *size, option)


def _fitting(
    path: str,
    cell: Cell,
    dtype: torch.dtype,
    gpu: dict[str, int],
    sizes: tuple[tuple[int, int], ...],
) -> tuple[int, int] | None:
    """The first of the sizes that the path can run, forward and backward."""
    for hidden, batch in sizes:
        rows = 2 * gpu["multiprocessors"] + 3 if batch == MANY_ROWS else batch
        if all(
            paths.fits(path, cell.name, pass_name, hidden, rows, STEPS, dtype, gpu)
            for pass_name in _libraries.CUDA_PASSES
        ):
            return hidden, rows
    return None


def check_path(
    device: torch.device,
    path: str,
    cell: Cell,
    dtype: torch.dtype,
    hidden_size: int,
    batch: int,
    option: str = "",
) -> PathCheck:
    """Compare a path, or an option of it, with the reference. It must be able to run that size."""
    start = time.perf_counter()
    allowed = tolerance(dtype)
    errors: dict[str, float] = {}
    failure = ""
    for kind in kinds_of_sequences(batch, option):
        sequence = ShortSequence.random(cell, hidden_size, kind, device, dtype)
        _ = sequence.reference  # an error here is not the kernel's
        try:
            with _forced(path):
                found = {
                    tensor + kind.name: error
                    for pass_name in _libraries.CUDA_PASSES
                    for tensor, error in sequence.compare(pass_name).items()
                }
                errors |= _as_numbers(found)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            failure = str(error)
            break
    if failure:
        outcome, what, largest = "failed", failure, None
    else:
        what = max(errors, key=lambda name: or_infinite(errors[name]))
        largest = errors[what]
        outcome = "right" if largest <= allowed else "wrong"
    milliseconds = 1e3 * (time.perf_counter() - start)
    return PathCheck(
        str(device), path, option, cell.name, str(dtype).removeprefix("torch."), hidden_size,
        batch, outcome, largest, allowed, what, milliseconds,
    )  # fmt: skip


@contextlib.contextmanager
def _forced(path: str) -> Iterator[None]:
    _libraries.force_cuda_path_of_thread(path)
    try:
        yield
    finally:
        _libraries.force_cuda_path_of_thread(None)


def _as_numbers(errors: dict[str, Tensor]) -> dict[str, float]:
    values = torch.stack(list(errors.values()))
    if values.is_cuda:
        # Polls, so that Ctrl-C works, and so that torch's sync debug mode does not object.
        copy = torch.empty(values.shape, dtype=values.dtype, device="cpu", pin_memory=True)
        with torch.cuda.device(values.device):
            copy.copy_(values, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        while not event.query():
            time.sleep(1e-4)
        values = copy
    return dict(zip(errors, values.tolist(), strict=True))


# What follows from it


def _switch_off(result: PathCheck, device: torch.device) -> None:
    cell = list(CELLS).index(result.cell)
    dtype: torch.dtype = getattr(torch, result.dtype)
    what = result.option or result.path
    _libraries.switch_off_cuda(device.index or 0, cell, dtype, what)


def _describe(failed: list[PathCheck], device: torch.device) -> str:
    """One message for all that failed."""
    found = [f"{_describe_one(result)} {_instead_of(result)}" for result in failed]
    info = build_info()
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else "emulation"
    return (
        "rotcell's GPU kernels do not all work here. " + " ".join(found) + " This applies to "
        "the rest of this process. Please report this message as an issue of rotcell, with the "
        "file that `python -m rotcell --check-gpu` writes: "
        f"{gpu}, driver {driver_version()}, torch {info['torch_running']}, rotcell "
        f"{info['version']} ({info['commit']}), CUDA {info['cuda_version']}."
    )


def _describe_one(result: PathCheck) -> str:
    found = result.what
    if result.outcome == "wrong":
        found = (
            f"{result.what} is wrong by {result.largest_error:.3g} of the largest value "
            f"({result.tolerance:.3g} allowed)"
        )
    option = f" with {result.option}" if result.option else ""
    return (
        f"The {result.path} path{option} failed its check ({result.cell}, {result.dtype}, "
        f"hidden size {result.hidden_size}, batch {result.batch}): {found}."
    )


def _instead_of(result: PathCheck) -> str:
    if result.option:
        return f"Calls with {result.option} run on the slower reference code."
    if result.path == "stepwise":
        return "The slower reference code runs instead."
    if result.path == "cluster":
        return "The cooperative path, or else the stepwise one, runs instead."
    return "The stepwise path runs instead."


def driver_version() -> str:
    """The version of NVIDIA's driver, or "unknown"."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            return next(word for word in file.readline().split() if word[0].isdigit())
    except (OSError, StopIteration):
        return "unknown"
