"""Layers and cells with int8 weights; test_instruction_sets.py repeats a part on each set."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from helpers import KINDS
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import rotcell
from rotcell.reference_int8 import quantize_rows, quantize_weight, unpack

INPUTS = 10
#: Sizes that fill no panel of 16 rows and no group of 4.
HIDDEN = 21
OPTIONS = [
    {},
    {"num_layers": 2, "bidirectional": True, "batch_first": True},
    {"bias": False},
    {"gate_activation": "hard_sigmoid"},
    {"proj_size": 7},
    {"angles_from": "input"},
    {"zoneout": 0.2},
]
LAYERS = [
    pytest.param(kind.layer, options, id=f"{kind}-{'-'.join(options) or 'plain'}")
    for kind in KINDS
    for options in OPTIONS
    if ("proj_size" not in options or kind.description.can_project)
    and ("angles_from" not in options or kind.description.rotates)
    and ("zoneout" not in options or kind.description.rotates or kind.description.can_project)
]
kinds = pytest.mark.parametrize("kind", KINDS, ids=str)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def assert_same_arithmetic(found: Tensor, expected: Tensor) -> None:
    """Equal but for rounding, which may turn a few quantized values into their neighbors."""
    error = (found - expected).abs()
    assert error.max() < 0.01
    assert (error > 2e-6).double().mean() <= 0.02


def both(layer: nn.Module, *arguments, **options):
    """What the kernels return, and what the reference of the int8 arithmetic does."""
    with torch.no_grad():
        found = layer(*arguments, **options)
        with rotcell.use_reference():
            return found, layer(*arguments, **options)


def tensors_in(value) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [t for part in value or () for t in tensors_in(part)]


@pytest.mark.parametrize(("layer_type", "options"), LAYERS)
def test_a_layer_computes_what_the_reference_does_and_stays_close_to_float32(layer_type, options):
    layer = layer_type(INPUTS, HIDDEN, **options).eval()
    quantized, x = rotcell.quantize_dynamic(layer), torch.rand(6, 5, INPUTS) * 2 - 1
    found, expected = both(quantized, x)
    for one, other, full in zip(*map(tensors_in, (found, expected, layer(x))), strict=True):
        assert one.shape == full.shape
        assert one.stride() == full.stride()
        assert_same_arithmetic(one, other)
        assert (one - full).abs().max() < 0.03


@kinds
@pytest.mark.parametrize(("batch", "inputs", "hidden"), [(1, 1, 1), (9, 70, 64), (17, 3, 50)])
def test_other_sizes_match_the_reference(kind, batch, inputs, hidden):
    quantized = rotcell.quantize_dynamic(kind.layer(inputs, hidden))
    found, expected = both(quantized, torch.randn(4, batch, inputs))
    assert_same_arithmetic(found[0], expected[0])


@kinds
def test_calls_match_the_reference(kind):
    layer = rotcell.quantize_dynamic(kind.layer(INPUTS, HIDDEN, bidirectional=True))
    x = torch.rand(6, 5, INPUTS) * 2 - 1
    resets = torch.rand(6, 5) < 0.3
    # Larger than any output: the scale of h follows it.
    states = [3 * torch.randn(2, 5, HIDDEN) for _ in kind.description.states]
    hx = states[0] if len(states) == 1 else tuple(states)
    calls = [((x, hx), {}), ((x,), {"resets": resets}), ((x[:, 0],), {})]
    calls.append(((x[..., :7],), {"context": x[0, :, 7:]}))
    if len(states) > 1:
        calls.append(((x,), {"return_cells": True}))
    for arguments, options in calls:
        found, expected = both(layer, *arguments, **options)
        for one, other in zip(*map(tensors_in, (found, expected)), strict=True):
            assert_same_arithmetic(one, other)


@kinds
def test_packed_input_gives_what_each_sequence_gives(kind):
    layer = rotcell.quantize_dynamic(kind.layer(INPUTS, HIDDEN, 2, bidirectional=True))
    x, lengths = torch.randn(6, 3, INPUTS), [2, 6, 5]
    with torch.no_grad():
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        found, _ = pad_packed_sequence(layer(packed)[0])
        for row, length in enumerate(lengths):
            alone = layer(x[:length, row])[0]
            torch.testing.assert_close(found[:length, row], alone, rtol=0, atol=1e-6)


@kinds
def test_the_number_of_threads_changes_no_bit(kind):
    layer, x = rotcell.quantize_dynamic(kind.layer(300, 300)), torch.randn(40, 1, 300)
    before = torch.get_num_threads()
    try:
        outputs = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            outputs.append(layer(x)[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*outputs)


def test_the_arithmetic_is_that_of_torchs_cell_on_rounded_numbers():
    cell = rotcell.LSTMCell(INPUTS, HIDDEN)
    x, h, c = torch.randn(5, INPUTS), torch.randn(5, HIDDEN), torch.randn(5, HIDDEN)

    def rounded(t: Tensor) -> Tensor:
        step = t.double().abs().amax(-1, keepdim=True) / 127
        return (t.double() / step).round() * step

    torchs = nn.LSTMCell(INPUTS, HIDDEN).double()
    torchs.load_state_dict(
        {n: rounded(p.detach()) if p.dim() == 2 else p for n, p in cell.named_parameters()}
    )
    expected = torchs(rounded(x), (rounded(h), c.double()))
    for found, value in zip(rotcell.quantize_dynamic(cell)(x, (h, c)), expected, strict=True):
        torch.testing.assert_close(found.double(), value, rtol=0, atol=2e-6)


@kinds
def test_a_cell_is_one_step_of_the_layer(kind):
    cell = kind.cell(INPUTS, HIDDEN)
    layer = kind.layer(INPUTS, HIDDEN)
    layer.load_state_dict({f"{name}_l0": p for name, p in cell.state_dict().items()})
    x = torch.randn(5, INPUTS)
    small = rotcell.quantize_dynamic(cell)
    found = tensors_in(small(x))[0]
    assert torch.equal(found, rotcell.quantize_dynamic(layer)(x[None])[0][0])
    assert torch.equal(tensors_in(small(x[0]))[0], found[0])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_token_that_is_not_finite_is_nan_from_there_on_in_its_row(value):
    layer, x = rotcell.quantize_dynamic(rotcell.RotLSTM(INPUTS, HIDDEN)), torch.randn(6, 2, INPUTS)
    x[3, 1, 4] = value
    (found, _), (expected, _) = both(layer, x)
    assert found[3:, 1].isnan().all()
    assert not found[:, 0].isnan().any()
    assert torch.equal(found.isnan(), expected.isnan())


def test_zeros_and_tiny_numbers_are_quantized_to_zero():
    layer = rotcell.quantize_dynamic(rotcell.LSTM(INPUTS, HIDDEN))
    zeros = torch.zeros(3, 2, INPUTS)
    assert torch.equal(layer(zeros)[0], layer(zeros + 1e-35)[0])


def test_weights_are_rounded_to_the_nearest_step_of_their_row():
    weight = torch.randn(37, 10)
    packed, scales = quantize_weight(weight)
    values = unpack(packed, 37, 10)
    assert values.abs().amax(1).eq(127).all()
    assert ((values * scales[:, None] - weight).abs() <= 0.5001 * scales[:, None]).all()
    assert torch.equal(quantize_rows(weight)[0].to(torch.int8), values)


@kinds
def test_saving_and_copying_keep_every_bit(kind):
    layer = rotcell.quantize_dynamic(kind.layer(INPUTS, HIDDEN, 2, bidirectional=True))
    x = torch.randn(4, 2, INPUTS)
    expected = layer(x)[0]
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    other = rotcell.quantize_dynamic(kind.layer(INPUTS, HIDDEN, 2, bidirectional=True))
    other.load_state_dict(layer.state_dict())
    loaded = torch.load(file, weights_only=True)
    for same in (loaded, copy.deepcopy(layer), other):
        assert torch.equal(same(x)[0], expected)
    assert repr(loaded) == f"Quantized{kind.layer.__name__}({INPUTS}, {HIDDEN}, num_layers=2, " + (
        "bidirectional=True)"
    )


def test_weights_take_a_fourth():
    def size(module: nn.Module) -> int:
        return sum(t.nbytes for t in module.state_dict().values())

    layer = rotcell.RotLSTM(256, 256)
    assert size(rotcell.quantize_dynamic(layer)) < 0.26 * size(layer)


def test_a_state_dict_of_the_float32_layer_is_refused_by_name():
    layer = rotcell.RotLSTM(3, 4)
    with pytest.raises(RuntimeError, match="that of a 'rot_lstm', expected 'rot_lstm_int8'"):
        rotcell.quantize_dynamic(layer).load_state_dict(layer.state_dict())


def test_only_our_layers_are_quantized_and_the_original_stays():
    shared = rotcell.RotLSTM(3, 3)
    model = nn.ModuleDict(
        {"a": shared, "b": shared, "cell": rotcell.RotGRUCell(3, 4), "linear": nn.Linear(3, 4)}
    )
    small = rotcell.quantize_dynamic(model)
    assert small["a"] is small["b"]
    names = [type(m).__name__ for m in small.values()]
    assert names == ["QuantizedRotLSTM", "QuantizedRotLSTM", "QuantizedRotGRUCell", "Linear"]
    assert type(model["a"]) is rotcell.RotLSTM
    assert [n for n, _ in small.named_parameters()] == ["linear.weight", "linear.bias"]
    again = rotcell.quantize_dynamic(small)
    assert torch.equal(again["a"].weight_ih_l0, small["a"].weight_ih_l0)


def test_hooks_and_modes_stay():
    layer, calls = rotcell.LSTM(3, 4).eval(), []
    layer.register_forward_hook(lambda *_: calls.append(1))
    small = rotcell.quantize_dynamic(layer)
    small(torch.randn(2, 1, 3))
    assert calls == [1]
    assert not small.training


def test_backward_says_that_there_is_none():
    layer, x = rotcell.quantize_dynamic(rotcell.RotLSTM(3, 4)), torch.randn(2, 1, 3)
    assert not layer(x)[0].requires_grad
    out = layer(x.requires_grad_())[0]
    with pytest.raises(RuntimeError, match="cannot be trained or differentiated"):
        out.sum().backward()


def test_derivatives_of_the_reference_are_refused_too():
    layer, x = rotcell.quantize_dynamic(rotcell.RotLSTM(3, 4)), torch.randn(2, 1, 3)

    def output(x: Tensor) -> Tensor:
        return layer(x)[0]

    def backward_in_the_reference() -> None:
        with rotcell.use_reference():
            output(x.clone().requires_grad_()).sum().backward()

    for differentiate in (
        backward_in_the_reference,
        lambda: torch.func.grad(lambda x: output(x).sum())(x),
        lambda: torch.func.jvp(output, (x,), (x,)),
        lambda: torch.func.vmap(torch.func.grad(lambda x: output(x).sum()))(x[None]),
    ):
        with pytest.raises(RuntimeError, match="cannot be trained or differentiated"):
            differentiate()
    found = torch.func.vmap(output)(torch.stack([x, 2 * x]))
    torch.testing.assert_close(found[1], output(2 * x))


@kinds
def test_export_and_compile_give_the_same(kind):
    torch._dynamo.reset()
    layer, x = rotcell.quantize_dynamic(kind.layer(3, 4, bidirectional=True)), torch.randn(5, 2, 3)
    with torch.no_grad():
        expected = layer(x)[0]
        exported = torch.export.export(layer, (x,)).module()
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        assert torch.equal(exported(x)[0], expected)
        assert torch.equal(compiled(x)[0], expected)


def test_autocast_computes_in_float32():
    layer, x = rotcell.quantize_dynamic(rotcell.RotLSTM(3, 4)), torch.randn(2, 1, 3).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x)[0], layer(x.float())[0])


@pytest.mark.filterwarnings("ignore")  # torch calls it deprecated
def test_torchs_own_function_does_the_same():
    quantization = pytest.importorskip("torch.ao.quantization")
    model, x = nn.Sequential(rotcell.RotLSTM(3, 4)), torch.randn(5, 2, 3)
    small = quantization.quantize_dynamic(model, {rotcell.RotLSTM})
    assert torch.equal(small(x)[0], rotcell.quantize_dynamic(model)(x)[0])
    with pytest.raises(ValueError, match=r"dtype must be torch\.qint8"):
        quantization.quantize_dynamic(model, {rotcell.RotLSTM}, dtype=torch.float16)


@pytest.mark.filterwarnings("ignore")  # torch calls it deprecated
@pytest.mark.parametrize(
    "module",
    [
        rotcell.RUM(3, 4),
        rotcell.GORUCell(3, 4),
        rotcell.LinearRotLSTM(3, 4),
        rotcell.LSTM(3, 4, layer_norm=True),
    ],
    ids=lambda module: type(module).__name__,
)
def test_torchs_own_function_skips_no_layer_that_it_was_asked_for(module):
    quantization = pytest.importorskip("torch.ao.quantization")
    name = type(module).__name__
    with pytest.raises((TypeError, ValueError), match=f"{name} cannot be quantized"):
        quantization.quantize_dynamic(nn.Sequential(module), {type(module)})


class Derived(rotcell.RotLSTM):
    pass


def not_finite() -> nn.Module:
    layer = rotcell.LSTM(3, 4)
    with torch.no_grad():
        layer.weight_hh_l0[1, 2] = float("nan")
    return layer


@pytest.mark.parametrize(
    ("module", "error", "message"),
    [
        (3, TypeError, r"module must be a torch\.nn\.Module, got int"),
        (nn.Linear(3, 4), ValueError, "no layer or cell of rotcell, got Linear"),
        (nn.Sequential(rotcell.RUM(3, 4)), TypeError, "RUM '0' cannot be quantized"),
        (rotcell.LinearRotLSTM(3, 4), TypeError, "LinearRotLSTM cannot be quantized"),
        (rotcell.LinearRotLSTMCell(3, 4), TypeError, "LinearRotLSTMCell cannot be quantized"),
        (Derived(3, 4), TypeError, "Derived cannot be quantized"),
        (rotcell.LSTM(3, 4, layer_norm=True), ValueError, "layer_norm=True has no int8 kernels"),
        (rotcell.GRU(3, 4).double(), ValueError, r"weight_ih_l0 of torch\.float64 on cpu"),
        (rotcell.GRU(3, 4, device="meta"), ValueError, "on meta"),
        (not_finite(), ValueError, "weight_hh_l0 of LSTM must be finite"),
    ],
)
def test_what_cannot_be_quantized_is_named(module, error, message):
    with pytest.raises(error, match=message):
        rotcell.quantize_dynamic(module)


def test_build_info_names_the_instructions():
    info = rotcell.build_info()
    assert info["int8_instructions"] in ("generic", "avx2", "avx_vnni", "avx512_vnni")
    assert (info["int8_instructions"] == "generic") == info["instruction_set"].startswith("generic")


@pytest.mark.parametrize("name", ["x", "w_hh", "s_ih", "bias", "batch_sizes", "resets"])
def test_the_op_refuses_a_freed_tensor(name):
    layer = rotcell.quantize_dynamic(rotcell.RotLSTM(INPUTS, HIDDEN))
    (weights,) = layer._weights()
    given = {
        "x": torch.randn(5, INPUTS), "h0": torch.zeros(2, HIDDEN), "c0": torch.zeros(2, HIDDEN),
        "w_ih": weights.w_ih, "w_hh": weights.w_hh, "s_ih": weights.s_ih, "s_hh": weights.s_hh,
        "bias": weights.bias, "batch_sizes": torch.tensor([2, 2, 1]),
        "resets": torch.zeros(5, dtype=torch.bool),
    }  # fmt: skip
    given[name].untyped_storage().resize_(0)
    hooks = dict.fromkeys(("recurrent_dropout", "zoneout_h", "zoneout_c"))
    with pytest.raises(RuntimeError, match=f"expected {name} with a storage of all its elements"):
        torch.ops.rotcell.rot_lstm_int8(
            **given, **hooks, w_hr=None, s_hr=None, reverse=False, gate_activation=0,
            angle_activation=0, return_cells=False,
        )  # fmt: skip


def test_wrong_calls_are_named():
    layer = rotcell.quantize_dynamic(rotcell.RotLSTM(3, 4))
    with pytest.raises(ValueError, match=r"input is torch\.float64 but the weights are torch\.fl"):
        layer(torch.randn(2, 1, 3).double())
    with pytest.raises(TypeError, match=r"made from a float32 module by rotcell\.quantize_dynamic"):
        type(layer)(3, 4)
    with pytest.raises(ValueError, match="trace the float32 layer"):
        rotcell.trace(layer, torch.randn(2, 1, 3))
    layer.scale_ih_l0 = layer.scale_ih_l0[1:]
    with pytest.raises(RuntimeError, match=r"expected s_ih of shape \[18\], got \[17\]"):
        layer(torch.randn(2, 1, 3))
