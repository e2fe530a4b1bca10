"""Export to ONNX: what `torch.onnx.export` must be told of the ops of this package.

::

    import rotcell.onnx

    program = torch.onnx.export(
        model, args, dynamo=True, custom_translation_table=rotcell.onnx.translations()
    )

Each op becomes a Scan over the timesteps, whose body is one step of the cell's reference code,
exported too: standard ops of any opset that torch exports to (18 and later). Number of steps and
batch may be dynamic. An export needs onnx and onnxscript: ``pip install rotcell[onnx]``.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .ops import OVERLOADS
from .reference import CELLS, GATE_FUNCTIONS, Cell, Gates

__all__ = ["translations"]

_AnyTensor = TypeVar("_AnyTensor")


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """The translations of our ops, to be given to `torch.onnx.export`.

    Packed sequences are refused: ONNX has nothing that they could become.
    """
    ops = [
        (cell, getattr(getattr(torch.ops.rotcell, cell.name), overload))
        for cell in CELLS.values()
        for overload in OVERLOADS
    ]
    return {op: _translation(cell, op) for cell, op in ops}


def _translation(cell: Cell, op: Any) -> Callable[..., Any]:
    arguments = op._schema.arguments

    def translate(*values: Any) -> list[Any]:
        given = dict(zip([a.name for a in arguments], values, strict=True))
        return _scan(cell, [given.pop(f"{state}0") for state in cell.states], **given)

    # The exporter tells constants from tensors by the types of the function's parameters.
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    constants = {"int": int, "bool": bool}
    translate.__name__ = cell.name
    translate.__annotations__ = {a.name: constants.get(str(a.type), _AnyTensor) for a in arguments}
    translate.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(a.name, kind) for a in arguments]
    )
    return translate


def _scan(
    cell: Cell,
    states: list[Any],
    *,
    x: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any,
    b_hh: Any,
    w_hr: Any = None,
    batch_sizes: Any,
    reverse: bool,
    gate_function: int,
    angle_function: int,
    save: bool,
    resets: Any = None,
    recurrent_dropout: Any = None,
    zoneout_h: Any = None,
    zoneout_c: Any = None,
    return_cells: bool = False,
) -> list[Any]:
    """Translate an op: output, last states and returned cells, but not what backward needs."""
    from onnxscript import evaluator, ir

    if batch_sizes is not None:
        raise NotImplementedError(
            "packed sequences cannot be exported to ONNX: give the layer padded input, and cut "
            "its output by the lengths"
        )
    shares = {0: zoneout_h, 1: zoneout_c}
    shares = {state: share for state, share in shares.items() if share is not None}
    if recurrent_dropout is not None or any(share.shape[0] != 1 for share in shares.values()):
        raise NotImplementedError(
            "recurrent dropout and zoneout of training cannot be exported to ONNX: export the "
            "layer in evaluation mode"
        )
    recorder: Any = evaluator.default()
    op = recorder.opset
    rows, output_size = w_hh.shape[0], states[0].shape[-1]

    # The product with the input is one for all steps, and takes both biases along.
    bias = None if b_ih is None else op.Add(b_ih, b_hh)
    from_x = op.Gemm(x, w_ih, bias, transB=1)
    # [N, rows] as [T, B, rows]; the states know B.
    batch = op.Shape(states[0], start=0, end=1)

    def by_step(tokens: Any, width: int) -> Any:
        ends = [op.Constant(value_ints=[size]) for size in (-1, width)]
        return op.Reshape(tokens, op.Concat(ends[0], batch, ends[1], axis=0))

    scanned = [by_step(from_x, rows)]
    if resets is not None:
        marks = by_step(resets, 1)
        if reverse:  # the border is met one step earlier: behind the mark
            first, second, last = (op.Constant(value_ints=[k]) for k in (0, 1, 2**63 - 1))
            one = op.Slice(marks, first, second, first)
            marks = op.Concat(op.Slice(marks, second, last, first), op.Xor(one, one), axis=0)
        scanned.append(marks)

    functions = tuple(GATE_FUNCTIONS)
    body = _body(
        cell,
        states[-1].shape[-1],
        output_size,
        projects=w_hr is not None,
        resets=resets is not None,
        zoneout=tuple(shares),
        return_cells=return_cells,
        gates=functions[gate_function],
        angle_gates=functions[angle_function],
        dtype=getattr(torch, x.dtype.name.lower()),
        opset=op.version,
    ).clone()
    constant = [w_hh, *([] if w_hr is None else [w_hr]), *shares.values()]
    for weight in reversed(constant):
        body.inputs.pop().replace_all_uses_with(weight)
    # What is the same at every step is computed once, before them: above all slices of weights.
    for node in list(body):
        if all(value in constant for value in node.inputs):
            body.remove(node)
            recorder.nodes.append(node)
            for value in node.outputs:
                value.name = None  # another Scan may have one of the same name
                constant.append(value)
    scan = ir.node(
        "Scan",
        [*states, *scanned],
        {
            "body": body,
            "num_scan_inputs": len(scanned),
            "scan_input_directions": [int(reverse)] * len(scanned),
            "scan_output_directions": [int(reverse)] * (1 + return_cells),
        },
        num_outputs=len(states) + 1 + return_cells,
    )
    recorder.nodes.append(scan)  # op.Scan would give one output only
    last, outputs = scan.outputs[: len(states)], scan.outputs[len(states) :]

    def as_tokens(value: Any, width: int) -> Any:
        return op.Reshape(value, op.Constant(value_ints=[-1, width]))

    results = [as_tokens(outputs[0], output_size), *last]
    if return_cells:
        # Nobody asks for the gates: in their place stands something of their shape.
        gates = op.Identity(from_x) if save else op.Constant(value_floats=[])
        results += [gates, as_tokens(outputs[1], states[-1].shape[-1])]
    return results


@functools.cache
def _body(
    cell: Cell,
    hidden_size: int,
    output_size: int,
    projects: bool,
    resets: bool,
    zoneout: tuple[int, ...],
    return_cells: bool,
    gates: str,
    angle_gates: str,
    dtype: torch.dtype,
    opset: int,
) -> Any:
    """A step as an ONNX graph, to new states and output, and c if it is wanted of every step.

    From states, ``W_ih x + b`` and marks of resets if there are any; then come what is the same at
    every step: w_hh, w_hr, and the shares of the states (by number) that zoneout keeps.
    """
    from onnxscript import ir

    class Step(nn.Module):
        def forward(
            self,
            states: list[Tensor],
            from_x: Tensor,
            marks: Tensor | None,
            w_hh: Tensor,
            w_hr: Tensor | None,
            shares: list[Tensor],
        ) -> tuple[Tensor, ...]:
            if marks is not None:
                states = [torch.where(marks, torch.zeros_like(s), s) for s in states]
            squash, squash_angles = GATE_FUNCTIONS[gates], GATE_FUNCTIONS[angle_gates]
            a = Gates(cell, hidden_size, squash, squash_angles, from_x, w_hh, b_hh=None)
            new = list(cell.recurrence.step(a, states, w_hr))
            for state, share in zip(zoneout, shares, strict=True):
                new[state] = share * states[state] + (1 - share) * new[state]
            return *new, new[0], *([new[-1]] if return_cells else [])

    rows, batch = cell.rows(hidden_size), 2
    states = [
        torch.zeros(batch, size, dtype=dtype) for size in cell.state_sizes(hidden_size, output_size)
    ]
    from_x = torch.zeros(batch, rows, dtype=dtype)
    w_hh = torch.zeros(rows, output_size, dtype=dtype)
    w_hr = torch.zeros(output_size, hidden_size, dtype=dtype) if projects else None
    marks = torch.zeros(batch, 1, dtype=torch.bool) if resets else None
    shares = [torch.zeros(1, hidden_size, dtype=dtype) for _ in zoneout]
    any_batch = {0: torch.export.Dim.DYNAMIC}
    program = torch.onnx.export(
        Step().eval(),
        (states, from_x, marks, w_hh, w_hr, shares),
        dynamo=True,
        verbose=False,
        opset_version=opset,
        dynamic_shapes=(
            [any_batch] * len(states),
            any_batch,
            any_batch if resets else None,
            None,
            None,
            [None] * len(shares),
        ),
    )
    assert program is not None
    graph = program.model.graph
    for value in graph.initializers.values():
        constant = ir.node("Constant", [], {"value": value.const_value})
        graph.insert_before(graph[0], constant)
        value.replace_all_uses_with(constant.outputs[0])
    graph.initializers.clear()
    # Names of the body must not be those of the graph around it.
    graph.name = f"{cell.name}_step"
    for value in [*graph.inputs, *(output for node in graph for output in node.outputs)]:
        value.name = f"{graph.name}.{value.name}"
    return graph
