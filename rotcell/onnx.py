"""Export to ONNX: the translations of this package's ops for `torch.onnx.export`.

::

    import rotcell.onnx

    program = torch.onnx.export(
        model, args, dynamo=True, custom_translation_table=rotcell.onnx.translations()
    )

Each op becomes a Scan over the timesteps. Its body is one step of the cell's reference code, which
is exported as well: standard ops of any opset that torch exports to (18 and later). Number of steps
and batch may be dynamic. An export needs onnx and onnxscript: ``pip install
'.[onnx]'`` in a clone.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .ops.cell_ops import CELL_OPS
from .ops.private_torch import schema_of
from .reference import GATE_FUNCTIONS, Cell, Gates

__all__ = ["translations"]

_AnyTensor = TypeVar("_AnyTensor")


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """The translations of this package's ops, for ``custom_translation_table``.

    Packed sequences are refused: ONNX has no equivalent.
    """
    return {
        overload.forward.call: _translation(ops.cell, overload.forward.call)
        for ops in CELL_OPS.values()
        for overload in (ops.plain, ops.extended)
    }


def _translation(cell: Cell, op: Any) -> Callable[..., Any]:
    arguments = schema_of(op).arguments

    def translate(*values: Any) -> list[Any]:
        given = dict(zip([a.name for a in arguments], values, strict=True))
        return _Translation(cell, given).results()

    # The exporter distinguishes constants from tensors by the annotations of the parameters.
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    constants = {"int": int, "bool": bool, "float": float}
    translate.__name__ = cell.name
    translate.__annotations__ = {a.name: constants.get(a.type, _AnyTensor) for a in arguments}
    translate.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(a.name, kind) for a in arguments]
    )
    return translate


class _Translation:
    """One call of an op as ONNX nodes, which are recorded as they are made."""

    def __init__(self, cell: Cell, given: Mapping[str, Any]) -> None:
        from onnxscript import evaluator

        self._recorder: Any = evaluator.default()
        self._op = self._recorder.opset
        self._cell = cell.with_constants(*(given[name] for name in cell.constant_names))
        self._given = given
        self._states = [given[f"{state}0"] for state in cell.states]
        self._hidden_size = self._states[-1].shape[-1]
        self._output_size = self._states[0].shape[-1]
        self._reverse = bool(given["reverse"])
        # Whether b_hh is added in the step, not together with b_ih.
        self._bias_in_step = False
        if not cell.sees_rows:
            all_rows = given["w_hh"].shape[0] == given["w_ih"].shape[0]
            apart = bool(cell.recurrence.apart) or not all_rows
            self._bias_in_step = apart and given["b_hh"] is not None
        self._resets = given.get("resets")
        self._return_cells = bool(given.get("return_cells", False))
        zoneout = [given.get(f"zoneout_{state}") for state in cell.states]
        self._zoneout = {k: share for k, share in enumerate(zoneout) if share is not None}

    def results(self) -> list[Any]:
        """Output, last states and returned cell states, but not what backward needs."""
        self._refuse_what_onnx_cannot_express()
        sees_rows = self._cell.sees_rows
        x = self._given["x"] if sees_rows else self._input_matmul()
        scanned = [self._by_step(x, self._given["w_ih"].shape[1 if sees_rows else 0])]
        if self._resets is not None:
            scanned.append(self._reset_masks())
        outputs = self._scan(self._body(), scanned)
        last, every = outputs[: len(self._states)], outputs[len(self._states) :]
        results = [self._as_tokens(every[0], self._output_size), *last]
        if self._return_cells:
            # Nothing reads the saved gates: a placeholder of their shape takes their place.
            saves = self._given["save"]
            gates = self._op.Identity(x) if saves else self._op.Constant(value_floats=[])
            results += [gates, self._as_tokens(every[1], self._hidden_size)]
        return results

    def _refuse_what_onnx_cannot_express(self) -> None:
        if self._given["batch_sizes"] is not None:
            raise NotImplementedError(
                "packed sequences cannot be exported to ONNX: give the layer padded input, and cut "
                "its output by the lengths"
            )
        is_masked = self._given.get("recurrent_dropout") is not None
        if is_masked or any(share.shape[0] != 1 for share in self._zoneout.values()):
            raise NotImplementedError(
                "recurrent dropout and zoneout of training cannot be exported to ONNX: export the "
                "layer in evaluation mode"
            )

    def _input_matmul(self) -> Any:
        """``[N, rows]``: W_ih x plus the biases, one matmul for all steps.

        Where h has its own part of a gate, or feeds fewer gates, its bias is added in the step.
        """
        b_ih, b_hh = self._given["b_ih"], self._given["b_hh"]
        is_alone = b_ih is None or b_hh is None or self._bias_in_step
        bias = b_ih if is_alone else self._op.Add(b_ih, b_hh)
        return self._op.Gemm(self._given["x"], self._given["w_ih"], bias, transB=1)

    def _by_step(self, tokens: Any, width: int) -> Any:
        """``[N, width]`` as ``[T, B, width]``."""
        op = self._op
        batch = op.Shape(self._states[0], start=0, end=1)
        ends = [op.Constant(value_ints=[size]) for size in (-1, width)]
        return op.Reshape(tokens, op.Concat(ends[0], batch, ends[1], axis=0))

    def _as_tokens(self, by_step: Any, width: int) -> Any:
        """``[T, B, width]`` as ``[N, width]``."""
        return self._op.Reshape(by_step, self._op.Constant(value_ints=[-1, width]))

    def _reset_masks(self) -> Any:
        """``[T, B, 1]``: which rows start a step from zero."""
        op = self._op
        masks = self._by_step(self._resets, 1)
        if not self._reverse:
            return masks
        # In reverse the border is crossed one step earlier, after the step that is marked.
        first, second, last = (op.Constant(value_ints=[k]) for k in (0, 1, 2**63 - 1))
        one = op.Slice(masks, first, second, first)
        return op.Concat(op.Slice(masks, second, last, first), op.Xor(one, one), axis=0)

    def _body(self) -> Any:
        """The graph of one step, in which what is the same at every step comes from outside."""
        given, activations = self._given, tuple(GATE_FUNCTIONS)
        if self._cell.sees_rows:
            weights = [given[name] for name in CELL_OPS[self._cell.name].weights]
        else:
            b_hh = given["b_hh"] if self._bias_in_step else None
            weights = [given["w_hh"], b_hh, given.get("w_hr")]
        step = _Step(
            self._cell,
            self._hidden_size,
            self._output_size,
            x_size=given["w_ih"].shape[1 if self._cell.sees_rows else 0],
            weight_shapes=tuple(None if w is None else tuple(map(int, w.shape)) for w in weights),
            has_resets=self._resets is not None,
            zoneout=tuple(self._zoneout),
            return_cells=self._return_cells,
            gate_activation=activations[given["gate_activation"]],
            angle_activation=activations[given["angle_activation"]],
            dtype=getattr(torch, given["x"].dtype.name.lower()),
        )
        body = _exported(step, self._op.version).clone()
        constants = [*(w for w in weights if w is not None), *self._zoneout.values()]
        for constant in reversed(constants):
            body.inputs.pop().replace_all_uses_with(constant)
        self._hoist(body, constants)
        return body

    def _hoist(self, body: Any, constants: list[Any]) -> None:
        """Move what only reads constants, above all slices of weights, out of the loop."""
        constants = list(constants)
        for node in list(body):
            if all(value in constants for value in node.inputs):
                body.remove(node)
                self._recorder.nodes.append(node)
                for value in node.outputs:
                    value.name = None  # another Scan may have a value of the same name
                    constants.append(value)

    def _scan(self, body: Any, scanned: list[Any]) -> Any:
        """The last states, then what the body gives at every step."""
        from onnxscript import ir

        num_outputs = 1 + self._return_cells
        scan = ir.node(
            "Scan",
            [*self._states, *scanned],
            {
                "body": body,
                "num_scan_inputs": len(scanned),
                "scan_input_directions": [int(self._reverse)] * len(scanned),
                "scan_output_directions": [int(self._reverse)] * num_outputs,
            },
            num_outputs=len(self._states) + num_outputs,
        )
        self._recorder.nodes.append(scan)  # op.Scan would give one output only
        return scan.outputs


@dataclass(frozen=True)
class _Step:
    """Everything that one step of a cell, as an ONNX graph, depends on."""

    cell: Cell
    hidden_size: int
    output_size: int
    x_size: int  # of x, for a cell that sees rows; of what x gives to the gates, for others
    #: Shapes of all weights, or of w_hh, b_hh (if separate from b_ih) and w_hr; None if absent.
    weight_shapes: tuple[tuple[int, ...] | None, ...]
    has_resets: bool
    zoneout: tuple[int, ...]  # which states have it, by number
    return_cells: bool
    gate_activation: str
    angle_activation: str
    dtype: torch.dtype

    def compute(
        self,
        states: list[Tensor],
        x: Tensor,
        reset_mask: Tensor | None,
        weights: list[Tensor | None],
        zoneout_keep: list[Tensor],
    ) -> tuple[Tensor, ...]:
        """New states, output, and c if it is returned for every step."""
        if reset_mask is not None:
            states = [torch.where(reset_mask, torch.zeros_like(s), s) for s in states]
        names = self.gate_activation, self.angle_activation
        if self.cell.sees_rows:
            new = list(self.cell.step(x, states, self.cell.weights_type(*weights), *names))
        else:
            w_hh, b_hh, w_hr = weights
            assert w_hh is not None
            of_gates, of_angles = (GATE_FUNCTIONS[name] for name in names)
            gates = Gates(self.cell, self.hidden_size, of_gates, of_angles, x, w_hh, b_hh)
            new = list(self.cell.recurrence.step(gates, states, w_hr))
        for state, keep in zip(self.zoneout, zoneout_keep, strict=True):
            new[state] = keep * states[state] + (1 - keep) * new[state]
        return *new, new[0], *([new[-1]] if self.return_cells else [])

    def examples(self) -> tuple[Any, ...]:
        """Arguments of `compute`; first those that change from step to step."""
        batch = 2

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=self.dtype)

        sizes = self.cell.state_sizes(self.hidden_size, self.output_size)
        return (
            [zeros(batch, size) for size in sizes],
            zeros(batch, self.x_size),
            torch.zeros(batch, 1, dtype=torch.bool) if self.has_resets else None,
            [None if shape is None else zeros(*shape) for shape in self.weight_shapes],
            [zeros(1, self.hidden_size) for _ in self.zoneout],
        )

    def dynamic_shapes(self) -> tuple[Any, ...]:
        """The dynamic shapes of the same arguments: any batch."""
        any_batch = {0: torch.export.Dim.DYNAMIC}
        states, resets = [any_batch] * len(self.cell.states), any_batch if self.has_resets else None
        weights = [None] * len(self.weight_shapes)
        return states, any_batch, resets, weights, [None] * len(self.zoneout)


@functools.cache
def _exported(step: _Step, opset: int) -> Any:
    """A step as an ONNX graph with the inputs and outputs of `_Step.compute`."""

    class Module(nn.Module):
        def forward(
            self,
            states: list[Tensor],
            x: Tensor,
            reset_mask: Tensor | None,
            weights: list[Tensor | None],
            zoneout_keep: list[Tensor],
        ) -> tuple[Tensor, ...]:
            return step.compute(states, x, reset_mask, weights, zoneout_keep)

    program = torch.onnx.export(
        Module().eval(),
        step.examples(),
        dynamo=True,
        verbose=False,
        opset_version=opset,
        dynamic_shapes=step.dynamic_shapes(),
    )
    assert program is not None
    graph = program.model.graph
    _inline_initializers(graph)
    # Names of the body must differ from those of the graph around it.
    graph.name = f"{step.cell.name}_step"
    for value in [*graph.inputs, *(output for node in graph for output in node.outputs)]:
        value.name = f"{graph.name}.{value.name}"
    return graph


def _inline_initializers(graph: Any) -> None:
    """Make constants of a graph's initializers, which the body of a Scan cannot have."""
    from onnxscript import ir

    for value in graph.initializers.values():
        constant = ir.node("Constant", [], {"value": value.const_value})
        graph.insert_before(graph[0], constant)
        value.replace_all_uses_with(constant.outputs[0])
    graph.initializers.clear()
