"""Direct calls of the ops with unusable tensors: each is refused by name, and none crashes."""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import LSTM, Kind
from torch import Tensor

import rotcell
from rotcell.reference import CELLS
from rotcell.reference_int8 import INT8_CELLS, quantize_weight
from rotcell.reference_rows import ROW_CELLS

T, B, I, H, P = 3, 2, 3, 5, 4  # noqa: E741

FORWARD = [(name, overload) for name in CELLS for overload in ("default", "extended", "row_bias")]
FORWARD += [(cell.name, overload) for cell in ROW_CELLS for overload in ("default", "extended")]
OPS = [(name + way, overload) for way in ("", "_backward") for name, overload in FORWARD]
OPS += [(cell.name, "default") for cell in INT8_CELLS.values()]
DESCRIPTIONS = CELLS | {cell.name: cell for cell in (*ROW_CELLS, *INT8_CELLS.values())}

#: Layers with the parameters of the row cells.
ROW_LAYERS: dict[str, Callable[..., Any]] = {
    "layer_norm_lstm": functools.partial(rotcell.LSTM, layer_norm=True),
    "layer_norm_rot_lstm": functools.partial(rotcell.RotLSTM, layer_norm=True),
    "rum": rotcell.RUM,
    "goru": rotcell.GORU,
    "eurnn": rotcell.EURNN,
}


def op_of(name: str, overload: str) -> Any:
    return getattr(getattr(torch.ops.rotcell, name), overload)


def names_of(op: Any) -> list[str]:
    return [a.name for a in op._schema.arguments]


def arguments_of(name: str, overload: str) -> dict[str, Any]:
    """What the op computes without complaint: every tensor is given, of packed sequences."""
    cell = DESCRIPTIONS[name.removesuffix("_backward")]
    op = op_of(name, overload)
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    # Zoneout and a projection exclude each other.
    has_hooks = overload == "extended" or cell.is_quantized
    outputs = P if cell.can_project and not has_hooks else H
    rows, saved_rows, tokens = cell.rows(H), cell.saved_rows(H), 2 * B + 1
    given: dict[str, Any] = {
        "x": draw(tokens, I),
        "h0": draw(B, outputs),
        "c0": draw(B, H),
        "w_ih": draw(rows, I),
        "w_hh": draw(rows, outputs),
        "b_ih": None if overload == "row_bias" else draw(rows),
        "b_hh": None if overload == "row_bias" else draw(rows),
        "w_hr": draw(outputs, H) if outputs != H else None,
        "batch_sizes": torch.tensor([B, B, 1]),
        "reverse": False,
        "gate_activation": 0,
        "angle_activation": 0,
        "save": True,
        "resets": torch.zeros(tokens, dtype=torch.bool),
        "recurrent_dropout": torch.ones(B, outputs),
        "zoneout_h": torch.full((1, H), 0.5),
        "zoneout_c": torch.full((1, H), 0.5),
        "return_cells": True,
        "row_bias": draw(B, saved_rows),
        "norm": 1.0,
    }
    if cell.sees_rows:
        layer = ROW_LAYERS[cell.name](I, H, **({} if outputs == H else {"proj_size": P}))
        fields = zip(cell.weights_type._fields, layer._weight_names[0], strict=True)
        given |= {f: None if n is None else draw(*getattr(layer, n).shape) for f, n in fields}
    if cell.is_quantized:
        given["w_ih"], given["s_ih"] = quantize_weight(given["w_ih"])
        given["w_hh"], given["s_hh"] = quantize_weight(given["w_hh"])
        given |= {"bias": draw(saved_rows), "s_hr": None}
    if name.endswith("_backward"):
        forward = op_of(cell.name, overload)
        results = forward(**{n: given[n] for n in names_of(forward)})
        given |= {a.name: r for a, r in zip(forward._schema.returns, results, strict=True)}
        given |= {f"grad_{n}": torch.ones_like(given[n]) for n in ("out", "h_n", "c_n", "cells")
                  if n in given}  # fmt: skip
        given |= {"needs_grad_x": True, "needs_grad_weights": True}
    return {n: given[n] for n in names_of(op)}


@pytest.fixture(params=OPS, ids="-".join)
def call(request: pytest.FixtureRequest) -> tuple[Any, dict[str, Any]]:
    return op_of(*request.param), arguments_of(*request.param)


def tensors_in(arguments: dict[str, Any]) -> list[str]:
    return [name for name, value in arguments.items() if isinstance(value, Tensor)]


def test_the_arguments_to_be_spoiled_are_accepted(call: tuple[Any, dict[str, Any]]) -> None:
    op, arguments = call
    assert all(torch.isfinite(result).all() for result in op(**arguments))


def test_every_tensor_must_be_on_the_same_device(call: tuple[Any, dict[str, Any]]) -> None:
    op, arguments = call
    for name in tensors_in(arguments):
        if name == "batch_sizes":  # stays on the CPU, as in PackedSequence
            continue
        with pytest.raises(RuntimeError, match=r"rotcell: expected .* on .*, as x, got") as caught:
            op(**(arguments | {name: arguments[name].to("meta")}))
        if name != "x":
            assert f"expected {name} on cpu, as x, got meta" in str(caught.value)
    on_meta = {n: arguments[n].to("meta") for n in tensors_in(arguments) if n != "batch_sizes"}
    assert all(result.is_meta for result in op(**(arguments | on_meta)))
    with pytest.raises(RuntimeError, match="rotcell: expected batch_sizes on cpu, got meta"):
        op(**(arguments | {"batch_sizes": arguments["batch_sizes"].to("meta")}))


@pytest.mark.parametrize("bytes_left", [0, 4])
def test_tensors_must_have_their_storage(call: tuple[Any, dict[str, Any]], bytes_left: int) -> None:
    op, arguments = call
    for name in tensors_in(arguments):
        freed = arguments[name].clone()
        freed.untyped_storage().resize_(bytes_left)
        with pytest.raises(RuntimeError, match=f"expected {name} with a storage"):
            op(**(arguments | {name: freed}))


def test_views_within_their_storage_are_taken(call: tuple[Any, dict[str, Any]]) -> None:
    """Strided, and up to the last element of what they are a part of."""
    op, arguments = call
    expected = op(**arguments)
    for name in tensors_in(arguments):
        tensor = arguments[name]
        wide = tensor.new_empty(3, *tensor.shape[:-1], 2 * tensor.shape[-1])
        view = wide[-1][..., 1::2]
        view.copy_(tensor)
        for found, true in zip(op(**(arguments | {name: view})), expected, strict=True):
            assert torch.equal(found, true)


def freed(tensor: Tensor) -> Tensor:
    tensor.untyped_storage().resize_(0)
    return tensor


def test_layers_and_cells_refuse_a_freed_parameter(kind: Kind) -> None:
    for make, shape in ((kind.layer, (T, B, I)), (kind.cell, (B, I))):
        for name, _ in make(I, H).named_parameters():
            module = make(I, H)
            freed(getattr(module, name).data)
            with pytest.raises(RuntimeError, match="with a storage of all its elements"):
                module(torch.randn(*shape))


@pytest.mark.parametrize(
    "make",
    [
        functools.partial(rotcell.LSTM, layer_norm=True),
        rotcell.RUM,
        rotcell.GORU,
        rotcell.EURNN,
        rotcell.GORUCell,
        rotcell.EURNNCell,
    ],
    ids=["LayerNormLSTM", "RUM", "GORU", "EURNN", "GORUCell", "EURNNCell"],
)
def test_row_cells_refuse_a_freed_parameter(make: Any) -> None:
    for name, _ in make(I, H).named_parameters():
        module = make(I, H)
        freed(getattr(module, name).data)
        with pytest.raises(RuntimeError, match="with a storage of all its elements"):
            module(torch.randn(B, I))


def test_layers_refuse_a_freed_input(kind: Kind) -> None:
    with pytest.raises(RuntimeError, match="expected x with a storage"):
        kind.layer(I, H)(freed(torch.randn(T, B, I)))


@pytest.mark.parametrize("reference", [False, True], ids=["kernels", "reference"])
@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
def test_layers_and_cells_refuse_a_parameter_left_on_meta(
    kind: Kind, grad: bool, reference: bool
) -> None:
    """As nn.LSTM does. What remains there after load_state_dict(assign=True) has no values."""
    options = {"num_layers": 2, "bidirectional": True}
    options |= {"proj_size": P} if kind.description.can_project else {}
    for make, shape in (
        (lambda: kind.layer(I, H, **options), (T, B, I)),
        (lambda: kind.layer(I, H, **options), (T, I)),
        (lambda: kind.cell(I, H), (B, I)),
    ):
        for name, parameter in make().named_parameters():
            module = make()
            setattr(module, name, torch.nn.Parameter(parameter.to("meta")))
            mode = rotcell.use_reference() if reference else torch.enable_grad()
            with pytest.raises(RuntimeError, match="meta"), mode, torch.set_grad_enabled(grad):
                module(torch.randn(*shape))


def test_layers_and_cells_refuse_states_and_context_on_meta(kind: Kind) -> None:
    for make, shape, state_shape in (
        (kind.layer, (T, B, I), (1, B, H)),
        (kind.cell, (B, I), (B, H)),
    ):
        for k in range(kind.num_states):
            states = [torch.zeros(state_shape) for _ in range(kind.num_states)]
            states[k] = states[k].to("meta")
            with pytest.raises(RuntimeError, match="meta"):
                make(I, H)(torch.randn(*shape), kind.as_hx(states))
    layer = kind.layer(I + 2, H)
    with pytest.raises(RuntimeError, match="meta"):
        layer(torch.randn(T, B, I), context=torch.zeros(B, 2, device="meta"))
    with pytest.raises(RuntimeError, match="meta"):
        layer(torch.randn(T, B, I + 2), resets=torch.zeros(T, B, dtype=torch.bool, device="meta"))
    for name, parameter in kind.layer(I + 2, H).named_parameters():
        layer = kind.layer(I + 2, H)
        setattr(layer, name, torch.nn.Parameter(parameter.to("meta")))
        with pytest.raises(RuntimeError, match="meta"):
            layer(torch.randn(T, B, I), context=torch.zeros(B, 2))


def test_torch_compile_refuses_a_parameter_left_on_meta() -> None:
    layer = LSTM.layer(I, H)
    layer.weight_hh_l0 = torch.nn.Parameter(layer.weight_hh_l0.to("meta"))
    with pytest.raises(Exception, match="meta"):
        torch.compile(layer, backend="eager")(torch.randn(T, B, I))


#: Arguments of a call with 3 features and 5 units that are huge but take no memory, and what is
#: refused. All other shapes fit them.
HUGE = {
    "rows of no features": (
        {"x": torch.empty(2**40, 0), "w_ih": torch.empty(22, 0)},
        "x with at most 2147483647 rows",
    ),
    "rows of no units": (
        {
            "x": torch.empty(1, I).expand(2**40, I),
            **{name: torch.empty(2, 0) for name in ("h0", "c0")},
            "w_ih": torch.empty(0, I),
            "w_hh": torch.empty(0, 0),
        },
        "x with at most 2147483647 rows",
    ),
    "rows of the state without units": (
        {
            "x": torch.empty(0, I),
            **{name: torch.empty(2**40, 0) for name in ("h0", "c0")},
            "w_ih": torch.empty(0, I),
            "w_hh": torch.empty(0, 0),
        },
        "h0 with at most 2147483647 rows",
    ),
    "units": (
        {name: torch.empty(0, 2**62) for name in ("h0", "c0")},
        "h0 with at most 2147483647 features",
    ),
    "features": (
        {"x": torch.empty(0, 2**62), "w_ih": torch.empty(22, 0)},
        "x with at most 2147483647 features",
    ),
    "steps": ({"batch_sizes": torch.tensor([1]).expand(2**31)}, "batch_sizes with at most 5 "),
}


@pytest.mark.parametrize("name", HUGE)
def test_sizes_without_memory_behind_them_are_refused_at_once(name: str) -> None:
    huge, refused = HUGE[name]
    arguments = arguments_of("rot_lstm", "default")
    arguments |= dict.fromkeys(["batch_sizes", "w_hr", "b_ih", "b_hh"])
    arguments |= {"h0": torch.empty(B, H), "w_hh": torch.empty(22, H)}
    with pytest.raises(RuntimeError, match=f"rotcell: expected {refused}.* got"):
        torch.ops.rotcell.rot_lstm(**(arguments | huge))


#: The same for the ops with int8 weights, with all sizes that have to fit.
NOTHING = {name: torch.empty(0) for name in ("s_ih", "s_hh", "bias")} | {
    "w_ih": torch.empty(0, 0, 16, 4, dtype=torch.int8),
    "w_hh": torch.empty(0, 0, 16, 4, dtype=torch.int8),
}
HUGE_INT8 = {
    "rows": (
        {"x": torch.empty(2**40, 0), **{name: torch.empty(2, 0) for name in ("h0", "c0")}},
        "x with at most 2147483647 rows",
    ),
    "rows of the state": (
        {"x": torch.empty(0, 0), **{name: torch.empty(2**40, 0) for name in ("h0", "c0")}},
        "h0 with at most 2147483647 rows",
    ),
    "steps": (
        {
            "x": torch.empty(5, 0),
            **{name: torch.empty(2, 0) for name in ("h0", "c0")},
            "batch_sizes": torch.tensor([1]).expand(2**31),
        },
        "batch_sizes with at most 5 ",
    ),
}


@pytest.mark.parametrize("name", HUGE_INT8)
def test_int8_sizes_without_memory_behind_them_are_refused_at_once(name: str) -> None:
    huge, refused = HUGE_INT8[name]
    arguments = arguments_of("lstm_int8", "default")
    hooks = ["resets", "recurrent_dropout", "zoneout_h", "zoneout_c"]
    arguments |= dict.fromkeys(["batch_sizes", *hooks])
    with pytest.raises(RuntimeError, match=f"rotcell: expected {refused}.* got"):
        torch.ops.rotcell.lstm_int8(**(arguments | NOTHING | huge))


@pytest.mark.parametrize("name", ["goru", "eurnn"])
def test_layers_of_rotations_without_angles_take_no_time(name: str) -> None:
    """A single unit is in no plane, so that any number of layers takes no memory."""
    layer = ROW_LAYERS[name](I, 1).requires_grad_(False)
    expected = layer(torch.ones(T, B, I))[0]
    layer.angles_l0 = torch.nn.Parameter(torch.empty(2**40, 0))
    found = layer(torch.ones(T, B, I))[0]
    assert torch.equal(found, expected)
    found.sum().backward()
    assert layer.angles_l0.grad.shape == (2**40, 0)


def odd(tensor: Tensor, draw: random.Random) -> Tensor:
    """The tensor with a dimension more, fewer, or of another size, or of other strides."""
    kinds = ["empty", "expand", "unsqueeze", "flatten", "transpose", "repeat", "narrow", "wide"]
    dim = draw.randrange(tensor.dim())
    match draw.choice(kinds):
        case "empty":
            return tensor.narrow(dim, 0, 0)
        case "expand":
            return tensor.narrow(dim, 0, 1).expand(tensor.shape)
        case "unsqueeze":
            return tensor.unsqueeze(draw.choice([0, -1]))
        case "flatten":
            return tensor.flatten()
        case "transpose":
            return tensor.transpose(0, -1)
        case "repeat":
            return torch.cat([tensor, tensor], dim)
        case "narrow":
            return tensor.narrow(dim, 0, draw.randrange(tensor.shape[dim]))
        case _:
            return torch.stack([tensor, tensor], -1)[..., 0]


@pytest.mark.parametrize(("name", "overload"), OPS, ids=str)
def test_unusual_tensors_compute_or_raise(name: str, overload: str) -> None:
    op, arguments = op_of(name, overload), arguments_of(name, overload)
    draw = random.Random(0)
    names = tensors_in(arguments)
    for count in itertools.chain.from_iterable([(1, 2, 3)] * 60):
        changed = {}
        for n in draw.sample(names, count):
            changed[n] = odd(arguments[n], draw)
        optional = [a.name for a in op._schema.arguments if str(a.type) == "Optional[Tensor]"]
        if draw.random() < 0.5:
            changed[draw.choice(optional)] = None
        with contextlib.suppress(RuntimeError):
            op(**(arguments | changed))


@pytest.mark.parametrize("steps", [4, 40])
@pytest.mark.parametrize("name", CELLS)
def test_weight_gradients_without_input_features(name: str, steps: int) -> None:
    """As those with one feature that is always zero."""
    rows = CELLS[name].rows(H)
    torch.manual_seed(0)
    given = {"x": torch.zeros(steps * 8, 1), "h0": torch.randn(8, H), "c0": torch.randn(8, H)}
    given |= {"w_ih": torch.randn(rows, 1), "w_hh": torch.randn(rows, H)}
    options = {"reverse": False, "gate_activation": 0, "angle_activation": 0, "save": True}
    options |= dict.fromkeys(["b_ih", "b_hh", "w_hr", "batch_sizes"])
    gradients = []
    for features in (0, 1):
        op = op_of(name, "default")
        arguments = {**given, **options}
        arguments |= {key: given[key][:, :features].contiguous() for key in ("x", "w_ih")}
        w_hh = arguments["w_hh"] = given["w_hh"].clone().requires_grad_()
        out = op(**{key: arguments[key] for key in names_of(op)})[0]
        gradients += torch.autograd.grad(out.sum(), w_hh)
    torch.testing.assert_close(*gradients)
