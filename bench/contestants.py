"""Who can run a piece of work: rotcell, torch's own layer, and other ways to run the equations."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax_scan
import numpy as np
import onnx_layer
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from work import CELLS, SEED, Cell, Work

import rotcell
from rotcell import reference

#: The two that a row compares; the others are measured next to them.
ROTCELL, TORCH = "rotcell", "torch"
COMPARED = (ROTCELL, TORCH)
REFERENCE, COMPILED, JAX, ONNX = "reference", "compiled", "jax", "onnxruntime"
PEERS = (REFERENCE, COMPILED, JAX, ONNX)
#: A square matmul, as a measure of how fast the machine is.
GEMM = "gemm"
GEMM_SIZE = 1024

Function = Callable[[], object]


@dataclass(frozen=True)
class Task:
    """Work for one cell in one pass, and where it runs."""

    work: Work
    #: One of work.CELLS.
    cell: str
    passes: str
    threads: int
    device: torch.device
    dtype: torch.dtype

    @property
    def train(self) -> bool:
        """Whether gradients are computed."""
        return self.passes == "train"

    @property
    def traits(self) -> Cell:
        """What goes with the cell."""
        return CELLS[self.cell]


@dataclass(frozen=True)
class Limits:
    """Rows that some peers are left out of, because of the time or the settings they need."""

    #: Time to compile the loop grows with its steps.
    compiled_steps: int
    #: JAX cannot change its number of threads while running, and compiling for each takes long:
    #: both run with the most threads only.
    most_threads: int


def missing(peer: str) -> str | None:
    """Say why a peer cannot run here, or None."""
    needs = {JAX: ["jax"], ONNX: ["onnxruntime", "onnx"]}.get(peer, [])
    absent = [name for name in needs if importlib.util.find_spec(name) is None]
    return f"{' and '.join(absent)} not installed" if absent else None


def build(task: Task, peers: Sequence[str], limits: Limits) -> dict[str, Function]:
    """Make a function for everyone who takes part in a row. Building does no timed work."""
    functions = {ROTCELL: _rotcell(task), TORCH: _torch(task)}
    makers = {REFERENCE: _reference, COMPILED: _compiled, JAX: _jax, ONNX: _onnx}
    for peer in peers:
        if _takes_part(peer, task, limits):
            functions[peer] = makers[peer](task)
    if task.train and task.work.hidden_size >= 256:
        functions[GEMM] = _gemm(task)
    return functions


def _takes_part(peer: str, task: Task, limits: Limits) -> bool:
    """Whether a peer can run a row; layers without a rotation meet onnxruntime only."""
    is_simple = task.work.is_simple
    most_threads = task.threads == limits.most_threads
    if peer == ONNX:
        on_cpu = task.device.type == "cpu" and task.dtype == torch.float32
        return is_simple and on_cpu and not task.train
    if not task.traits.rotates:
        return False
    if peer == REFERENCE:
        return True
    if peer == COMPILED:
        return is_simple and most_threads and task.work.steps <= limits.compiled_steps
    can_run = task.device.type == "cpu" or _jax_has_gpu()
    return is_simple and most_threads and task.dtype == torch.float32 and can_run


def _jax_has_gpu() -> bool:
    import jax

    return bool(jax.default_backend() == "gpu")


def make_layer(task: Task, source: str) -> nn.Module:
    """Make the layer or cell of ROTCELL or TORCH, with the same random weights every time."""
    torch.manual_seed(SEED)
    work = task.work
    options: dict[str, Any] = {"device": task.device, "dtype": task.dtype}
    suffix = "Cell"
    if work.form != "cell":
        options |= {"num_layers": work.layers, "bidirectional": work.directions == 2}
        suffix = ""
    module, name = (rotcell, task.cell) if source == ROTCELL else (nn, task.traits.torch)
    layer: nn.Module = getattr(module, name + suffix)(work.input_size, work.hidden_size, **options)
    return layer.train(task.train)


def _rotcell(task: Task) -> Function:
    return _pass_over(task, make_layer(task, ROTCELL))


def _torch(task: Task) -> Function:
    return _pass_over(task, make_layer(task, TORCH))


def _reference(task: Task) -> Function:
    run = _rotcell(task)

    def run_reference() -> None:
        with rotcell.use_reference():
            run()

    return run_reference


def _compiled(task: Task) -> Function:
    layer = make_layer(task, ROTCELL)
    cell = reference.CELLS[task.traits.reference]
    work = task.work
    # Forgets what it compiled for other rows, so that each shows the whole time it takes.
    torch._dynamo.reset()
    torch.compiler.config.force_disable_caches = True
    warnings.filterwarnings("ignore", message="dynamo_pgo force disabled")
    compiled = torch.compile(cell.sequence, dynamic=False)

    def run_layer(x: Tensor) -> Tensor:
        zeros = [x.new_zeros(work.batch, work.hidden_size) for _ in cell.states]
        weights = reference.Weights(*layer.parameters())
        out: Tensor = compiled(x.flatten(0, 1), zeros, weights)[0]
        return out.view(work.steps, work.batch, work.hidden_size)

    return _pass_over(task, layer, run_layer)


def _pass_over(
    task: Task, layer: nn.Module, run_layer: Callable[[Any], Any] | None = None
) -> Function:
    """Make a function that takes a layer forward and, in training, backward."""
    x = task.work.make_input(task.device, task.dtype, requires_grad=task.train)
    arguments: tuple[Any, ...] = (x,)
    if task.work.form == "cell":
        shape = (task.work.batch, task.work.hidden_size)
        zeros = torch.zeros(shape, device=task.device, dtype=task.dtype)
        arguments = (x, (zeros, zeros) if task.traits.torch == "LSTM" else zeros)
    run = run_layer or layer

    def forward() -> Tensor:
        out = run(*arguments)
        out = out[0] if isinstance(out, tuple) and not isinstance(out, PackedSequence) else out
        tensor: Tensor = out.data if isinstance(out, PackedSequence) else out
        return tensor

    if not task.train:

        def infer() -> None:
            with torch.no_grad():
                forward()

        return infer

    leaf = x.data if isinstance(x, PackedSequence) else x
    wanted = [leaf, *layer.parameters()]
    features = task.work.directions * task.work.hidden_size
    grad = torch.randn(*leaf.shape[:-1], features).to(leaf)

    def train() -> None:
        torch.autograd.grad(forward(), wanted, grad)

    return train


def _jax(task: Task) -> Function:
    x, layer = (
        task.work.make_input(torch.device("cpu"), task.dtype, False),
        make_layer(task, ROTCELL),
    )
    assert isinstance(x, Tensor)
    weights = [weight.detach().cpu().numpy() for weight in layer.parameters()]
    grad = np.ones((*x.shape[:-1], task.work.hidden_size), np.float32)
    return jax_scan.make_function(task.traits.torch, task.train, x.numpy(), grad, weights)


def _onnx(task: Task) -> Function:
    x = task.work.make_input(task.device, task.dtype, requires_grad=False)
    assert isinstance(x, Tensor)
    return onnx_layer.make_function(
        task.traits.torch, x.numpy(), task.work.hidden_size, task.threads
    )


def _gemm(task: Task) -> Function:
    a, b = (torch.randn(GEMM_SIZE, GEMM_SIZE).to(task.device, task.dtype) for _ in range(2))
    out = torch.empty_like(a)

    def multiply() -> None:
        torch.mm(a, b, out=out)

    return multiply


def gemm_flops() -> int:
    """Count the operations of the square matmul."""
    return 2 * GEMM_SIZE**3
