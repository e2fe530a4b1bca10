"""LSTM, and RotLSTM with the rotation off, are nn.LSTM; the GRUs are the one of the paper."""

from __future__ import annotations

import copy
import itertools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers import (
    CLASSIC_GRU,
    GRU,
    LSTM,
    PLAIN_LSTM,
    ROTATING,
    Kind,
    assert_all_near,
    assert_near,
    gradients,
    leaves,
    pack,
    random_sequences,
    states_for,
)
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

import rotcell
from rotcell import RotLSTM
from rotcell.layers.convert import ROTATION_OFF

ALL_OPTIONS = [
    {
        "num_layers": layers,
        "batch_first": batch_first,
        "bidirectional": bidirectional,
        "proj_size": projection,
    }
    for layers, batch_first, bidirectional, projection in itertools.product(
        (1, 2), (False, True), (False, True), (0, 2)
    )
]


def option_id(options: dict[str, Any]) -> str:
    return "-".join(f"{k}={v}" for k, v in options.items())


def plain_rows(gradient: Tensor, name: str, hidden_size: int) -> Tensor:
    """The part of a RotLSTM parameter's gradient that nn.LSTM's parameter has."""
    return gradient if name.startswith("weight_hr") else gradient[: 4 * hidden_size]


def results_and_gradients(
    layer: nn.Module,
    x: list[Tensor],
    states: tuple[Tensor, ...],
    packed: bool,
    cotangents: list[Tensor],
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    inputs = leaves([*x, *states])
    given = pack(inputs[: len(x)]) if packed else inputs[0]
    out, last = layer(given, tuple(inputs[len(x) :]))
    results = [out.data if isinstance(out, PackedSequence) else out, *last]
    if not cotangents:
        cotangents += [torch.randn_like(r) for r in results]
    return results, gradients(results, [*inputs, *layer.parameters()], cotangents)


def ours_from(kind: Kind, lstm: nn.LSTM) -> Any:
    """A layer of ours that must compute what an nn.LSTM does."""
    if kind is LSTM:
        return RotLSTM.from_lstm(lstm)
    names = ("num_layers", "batch_first", "dropout", "bidirectional", "proj_size")
    options = {name: getattr(lstm, name) for name in names}
    dtype = lstm.weight_ih_l0.dtype
    layer = kind.layer(lstm.input_size, lstm.hidden_size, dtype=dtype, **options)
    layer.load_state_dict(lstm.state_dict())
    return layer.train(lstm.training)


BOTH_LSTMS = pytest.mark.parametrize("kind", [LSTM, PLAIN_LSTM], ids=str)


def assert_same_as_lstm(
    lstm: nn.LSTM, layer: Any, x: list[Tensor], batch: int, packed: bool
) -> None:
    states, cotangents = states_for(LSTM, lstm, batch), []
    expected, expected_gradients = results_and_gradients(lstm, x, states, packed, cotangents)
    results, actual = results_and_gradients(layer, x, states, packed, cotangents)
    assert_all_near(results, expected)
    names = [name for name, _ in lstm.named_parameters()]
    others = len(actual) - len(names)
    assert_all_near(actual[:others], expected_gradients[:others])
    for name, a, e in zip(names, actual[others:], expected_gradients[others:], strict=True):
        assert_near(plain_rows(a, name, lstm.hidden_size), e, what=name)
        assert not a[e.shape[0] :].any(), f"{name}: angles of 0 have no gradient"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("options", ALL_OPTIONS, ids=option_id)
@BOTH_LSTMS
def test_outputs_and_gradients_are_those_of_nn_lstm(
    kind: Kind, options: dict[str, Any], dtype: torch.dtype
) -> None:
    hidden_size = 7 if options["bidirectional"] else 4
    lstm = nn.LSTM(3, hidden_size, dtype=dtype, **options)
    x = torch.randn((4, 6, 3) if lstm.batch_first else (6, 4, 3), dtype=dtype)
    assert_same_as_lstm(lstm, ours_from(kind, lstm), [x], 4, packed=False)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("options", ALL_OPTIONS, ids=option_id)
@BOTH_LSTMS
def test_packed_outputs_and_gradients_are_those_of_nn_lstm(
    kind: Kind, options: dict[str, Any], dtype: torch.dtype
) -> None:
    lengths = [5, 4, 2] if options["batch_first"] else [2, 6, 1, 4]
    lstm = nn.LSTM(3, 5, dtype=dtype, **options)
    sequences = random_sequences(lengths, 3, dtype)
    assert_same_as_lstm(lstm, ours_from(kind, lstm), sequences, len(lengths), packed=True)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_without_bias_a_single_unit_has_no_angle_and_is_nn_lstm(
    bidirectional: bool, packed: bool
) -> None:
    """The one case without biases in which nothing rotates."""
    options = {"bias": False, "num_layers": 2, "bidirectional": bidirectional}
    lstm, layer = nn.LSTM(3, 1, **options).double(), RotLSTM(3, 1, **options).double()
    layer.load_state_dict(lstm.state_dict())
    x = random_sequences([4, 2], 3) if packed else [torch.randn(4, 2, 3).double()]
    assert_same_as_lstm(lstm, layer, x, 2, packed)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dropout", [0.4, 1.0])
@pytest.mark.parametrize("training", [False, True])
@BOTH_LSTMS
def test_dropout_draws_the_masks_of_nn_lstm(
    kind: Kind, training: bool, dropout: float, packed: bool
) -> None:
    lstm = nn.LSTM(3, 6, 3, dropout=dropout, bidirectional=True).double().train(training)
    layer = ours_from(kind, lstm)
    x = pack(random_sequences([5, 2, 4], 3)) if packed else torch.randn(5, 3, 3).double()
    torch.manual_seed(5)
    expected, (h_n, c_n) = lstm(x)
    torch.manual_seed(5)
    out, last = layer(x)
    if packed:
        out, expected = out.data, expected.data
    assert_all_near([out, *last], [expected, h_n, c_n])


@BOTH_LSTMS
def test_unbatched_input_is_as_for_nn_lstm(kind: Kind) -> None:
    lstm = nn.LSTM(3, 5, 2, bidirectional=True).double()
    x = torch.randn(4, 3).double()
    expected, last = lstm(x)
    out, hx = ours_from(kind, lstm)(x)
    assert_all_near([out, *hx], [expected, *last])


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str
)
def test_the_rotation_is_exactly_off_in_every_dtype(dtype: torch.dtype) -> None:
    assert torch.tensor(ROTATION_OFF, dtype=dtype).isfinite()
    assert torch.sigmoid(torch.tensor(ROTATION_OFF, dtype=dtype)) == 0
    lstm = nn.LSTM(3, 4, dtype=dtype)
    layer = RotLSTM.from_lstm(lstm)
    assert layer.bias_ih_l0.dtype == dtype
    x = torch.randn(5, 2, 3, dtype=dtype)
    expected, _ = lstm.double()(x.double())
    # Two roundings of a step's result, over values below 1, for fp16 and bf16.
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 4 * torch.finfo(dtype).eps)
    assert_near(layer(x)[0], expected, tolerance)


@pytest.mark.parametrize("options", [*ALL_OPTIONS, {"bias": False}], ids=option_id)
def test_state_dicts_are_exchanged_with_nn_lstm(options: dict[str, Any]) -> None:
    ours, theirs = rotcell.LSTM(3, 5, **options), nn.LSTM(3, 5, **options)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 4, 3)
    assert_near(ours(x)[0], theirs(x)[0])
    again = rotcell.LSTM(3, 5, **options)
    again.load_state_dict(theirs.state_dict())
    assert torch.equal(again(x)[0], ours(x)[0])


def test_the_same_seed_draws_the_weights_of_nn_lstm() -> None:
    torch.manual_seed(4)
    ours = rotcell.LSTM(3, 5, 2, bidirectional=True)
    torch.manual_seed(4)
    theirs = nn.LSTM(3, 5, 2, bidirectional=True)
    assert all(map(torch.equal, ours.parameters(), theirs.parameters()))


def test_a_step_is_that_of_nn_lstm_cell() -> None:
    ours, theirs = rotcell.LSTMCell(3, 5), nn.LSTMCell(3, 5)
    theirs.load_state_dict(ours.state_dict())
    x, hx = torch.randn(4, 3), (torch.randn(4, 5), torch.randn(4, 5))
    assert_all_near(ours(x, hx), theirs(x, hx))


# from_lstm


def test_conversion_keeps_options_type_mode_and_frozen_parameters() -> None:
    lstm = nn.LSTM(3, 7, 2, True, True, 0.3, True, 2, dtype=torch.float64).eval()
    lstm.weight_hh_l1.requires_grad_(False)
    layer = RotLSTM.from_lstm(lstm)
    assert layer.extra_repr() == lstm.extra_repr() + f", rotation_bias={ROTATION_OFF}"
    assert not layer.training
    assert {p.dtype for p in layer.parameters()} == {torch.float64}
    for name, parameter in layer.named_parameters():
        assert parameter.requires_grad == (name != "weight_hh_l1")
    assert {
        p.device.type for p in RotLSTM.from_lstm(nn.LSTM(3, 4, device="meta")).parameters()
    } == {"meta"}


@pytest.mark.parametrize("rotation_bias", [ROTATION_OFF, -5.0])
def test_converted_angles_depend_on_their_bias_alone(rotation_bias: float) -> None:
    lstm = nn.LSTM(3, 7, 2, bidirectional=True, proj_size=2)
    layer = RotLSTM.from_lstm(lstm, rotation_bias=rotation_bias)
    for name, parameter in layer.named_parameters():
        plain = getattr(lstm, name)
        expected = rotation_bias if name.startswith("bias_ih") else 0.0
        assert torch.equal(parameter[: plain.shape[0]], plain), name
        assert (parameter[plain.shape[0] :] == expected).all(), name


def test_conversion_copies_the_weights_and_leaves_the_source_alone() -> None:
    lstm = nn.LSTM(3, 4)
    before = copy.deepcopy(lstm.state_dict())
    layer = RotLSTM.from_lstm(lstm)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    assert all(torch.equal(p, before[name]) for name, p in lstm.state_dict().items())


def test_conversion_draws_no_random_numbers() -> None:
    lstm = nn.LSTM(3, 4)
    state = torch.random.get_rng_state()
    RotLSTM.from_lstm(lstm)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_conversion_of_a_subclass_gives_the_subclass() -> None:
    class Mine(RotLSTM):
        pass

    assert type(Mine.from_lstm(nn.LSTM(3, 4))) is Mine


def test_conversion_of_a_subclass_leaves_alone_what_it_adds() -> None:
    class Mine(RotLSTM):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.scale = nn.Parameter(torch.tensor([2.0, 3.0]))
            self.register_buffer("steps", torch.arange(4))
            self.head = nn.Linear(4, 2, device=kwargs["device"])

    lstm = nn.LSTM(3, 4).eval()
    lstm.requires_grad_(False)
    torch.manual_seed(2)
    layer = Mine.from_lstm(lstm)
    torch.manual_seed(2)
    head = nn.Linear(4, 2)
    assert layer.scale.tolist() == [2.0, 3.0]
    assert layer.steps.tolist() == [0, 1, 2, 3]
    assert torch.equal(layer.head.weight, head.weight)
    assert layer.scale.requires_grad
    assert not layer.weight_hh_l0.requires_grad
    x = torch.randn(5, 2, 3)
    assert_near(layer(x)[0], lstm(x)[0])


def test_conversion_of_our_own_lstm_keeps_its_gates() -> None:
    lstm = rotcell.LSTM(3, 5, 2, dropout=0.25, gate_activation="hard_sigmoid", proj_size=2).eval()
    layer = RotLSTM.from_lstm(lstm)
    assert layer.extra_repr() == lstm.extra_repr() + f", rotation_bias={ROTATION_OFF}"
    x = torch.randn(4, 2, 3)
    assert_near(layer(x)[0], lstm(x)[0])


def test_conversion_takes_the_effective_weights_of_a_parametrized_lstm() -> None:
    lstm = nn.LSTM(3, 4)
    nn.utils.parametrizations.weight_norm(lstm, "weight_hh_l0")
    x = torch.randn(5, 2, 3)
    assert_near(RotLSTM.from_lstm(lstm)(x)[0], lstm(x)[0])


def test_converted_with_small_angles_the_rotation_can_be_trained() -> None:
    layer = RotLSTM.from_lstm(nn.LSTM(3, 4), rotation_bias=-5.0)
    assert layer.rotation_bias == -5.0
    layer(torch.randn(5, 2, 3))[0].sum().backward()
    assert layer.bias_ih_l0.grad[16:].all()
    assert layer.weight_ih_l0.grad[16:].all()


@pytest.mark.parametrize("options", ALL_OPTIONS, ids=option_id)
def test_a_state_dict_converts_as_its_layer_does(options: dict[str, Any]) -> None:
    lstm = nn.LSTM(3, 5, dtype=torch.float64, **options)
    expected = RotLSTM.from_lstm(lstm)
    layer = RotLSTM.from_lstm(lstm.state_dict(), batch_first=lstm.batch_first)
    assert repr(layer) == repr(expected)
    assert layer.training
    for a, b in zip(layer.parameters(), expected.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.requires_grad


def test_options_missing_from_a_state_dict_are_arguments() -> None:
    lstm = nn.LSTM(3, 5, 2, batch_first=True, dropout=0.25)
    assert RotLSTM.from_lstm(lstm.state_dict(), batch_first=True, dropout=0.25).dropout == 0.25
    assert RotLSTM.from_lstm(lstm).batch_first
    assert not RotLSTM.from_lstm(lstm, batch_first=False).batch_first
    assert RotLSTM.from_lstm(lstm, dropout=0.0).dropout == 0.0
    assert not RotLSTM.from_lstm(lstm.state_dict()).batch_first


def edited(
    edit: Callable[[OrderedDict[str, Tensor]], object], **options: Any
) -> OrderedDict[str, Tensor]:
    state_dict = nn.LSTM(3, 4, 2, **options).state_dict()
    edit(state_dict)
    return state_dict


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        (lambda: nn.GRU(3, 4), TypeError, "GRU"),
        (lambda: nn.LSTMCell(3, 4), TypeError, "LSTMCell"),
        (lambda: RotLSTM(3, 4), TypeError, "RotLSTM"),
        (lambda: None, TypeError, "NoneType"),
        (lambda: [1], TypeError, "list"),
        (lambda: nn.LSTM, TypeError, "type"),
        (lambda: nn.LSTM(3, 4, bias=False), ValueError, "bias"),
        (lambda: nn.LSTM(3, 4, bias=False).state_dict(), ValueError, "bias"),
        (lambda: {}, ValueError, "weight_ih_l0"),
        (lambda: nn.GRU(3, 4).state_dict(), ValueError, "weight_ih_l0 must have shape"),
        (lambda: nn.RNN(3, 4).state_dict(), ValueError, "weight_ih_l0 must have shape"),
        (lambda: RotLSTM(3, 4).state_dict(), ValueError, "weight_ih_l0 must have shape"),
        (lambda: nn.Linear(3, 4).state_dict(), ValueError, "missing"),
        (lambda: edited(lambda s: s.pop("weight_hh_l1")), ValueError, "weight_hh_l1"),
        (lambda: edited(lambda s: s.pop("bias_hh_l0")), ValueError, "bias_hh_l0"),
        (lambda: edited(lambda s: s.pop("weight_ih_l0")), ValueError, "weight_ih_l0"),
        (
            lambda: edited(lambda s: s.pop("bias_ih_l1_reverse"), bidirectional=True),
            ValueError,
            "bias_ih_l1_reverse",
        ),
        (lambda: edited(lambda s: s.pop("weight_hr_l1"), proj_size=2), ValueError, "weight_hr_l1"),
        (lambda: edited(lambda s: s.update(extra=torch.zeros(1))), ValueError, "extra"),
        (lambda: edited(lambda s: s.update(bias_hh_l1=torch.zeros(15))), ValueError, "bias_hh_l1"),
        (
            lambda: edited(lambda s: s.update(weight_ih_l1=torch.zeros(16, 3))),
            ValueError,
            "weight_ih_l1",
        ),
        (
            lambda: edited(lambda s: s.update(weight_hh_l0=torch.zeros(()))),
            ValueError,
            "weight_hh_l0",
        ),
        (lambda: edited(lambda s: s.update(weight_ih_l0="x")), ValueError, "weight_ih_l0"),
        (
            lambda: edited(lambda s: s.update(bias_hh_l1=torch.zeros(16).double())),
            ValueError,
            "dtype",
        ),
        (
            lambda: edited(lambda s: s.update({k: v.long() for k, v in s.items()})),
            ValueError,
            "floating",
        ),
    ],
)
def test_what_cannot_be_converted_is_refused(
    source: Callable[[], Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        RotLSTM.from_lstm(source())


# The GRU. nn.GRU resets after the matmul, so an independent twin of the paper's GRU is needed.


def paper_gru(x: Tensor, h: Tensor, layer: Any) -> Tensor:
    """The paper's GRU without a rotation, [T, B, I] to [T, B, H], from the weights of a layer."""
    hidden = layer.hidden_size
    w, v = layer.weight_ih_l0, layer.weight_hh_l0
    b = layer.bias_ih_l0 + layer.bias_hh_l0
    outputs = []
    for x_t in x:
        joined = torch.cat([h, x_t], dim=1)
        both = torch.cat([v, w], dim=1)
        r = 1 / (1 + torch.exp(-(joined @ both[:hidden].T + b[:hidden])))
        z = 1 / (1 + torch.exp(-(joined @ both[hidden : 2 * hidden].T + b[hidden : 2 * hidden])))
        joined = torch.cat([h * r, x_t], dim=1)
        n = torch.tanh(joined @ both[2 * hidden : 3 * hidden].T + b[2 * hidden : 3 * hidden])
        h = (1 - z) * h + z * n
        outputs.append(h)
    return torch.stack(outputs)


def switched_off(layer: Any) -> Any:
    """Without its rotation, if it has one."""
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter[3 * layer.hidden_size :] = ROTATION_OFF if name.startswith("bias_ih") else 0.0
    return layer


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("hidden_size", [1, 4, 7])
@pytest.mark.parametrize("kind", [GRU, CLASSIC_GRU], ids=str)
def test_gru_without_rotation_is_the_papers_gru(
    kind: Kind, hidden_size: int, dtype: torch.dtype
) -> None:
    layer = switched_off(kind.layer(3, hidden_size, dtype=dtype))
    (x, h) = leaves([torch.randn(6, 4, 3), torch.randn(4, hidden_size)], dtype)
    out, _ = layer(x, h[None])
    cotangent = [torch.randn(out.shape)]
    actual = gradients([out], [x, h, *layer.parameters()], cotangent)

    twin = switched_off(kind.layer(3, hidden_size)).double()
    twin.load_state_dict(layer.state_dict())
    x64, h64 = leaves([x, h], torch.float64)
    expected_out = paper_gru(x64, h64, twin)
    expected = gradients([expected_out], [x64, h64, *twin.parameters()], cotangent)
    assert_near(out, expected_out)
    for a, e in zip(actual, expected, strict=True):
        assert_near(a, e)


@pytest.mark.parametrize("kind", [GRU, CLASSIC_GRU], ids=str)
def test_gru_is_nn_gru_where_the_reset_cannot_matter(kind: Kind) -> None:
    """With the reset gate fully open both agree, once z is swapped for 1 - z."""
    ours = switched_off(kind.layer(3, 5).double())
    theirs = nn.GRU(3, 5).double()
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            parameter[:5] = 50.0 if name.startswith("bias_ih") else 0.0
            plain = getattr(theirs, name)
            plain.copy_(parameter[:15])
            plain[5:10] *= -1
    x, h = torch.randn(6, 4, 3).double(), torch.randn(1, 4, 5).double()
    expected, h_n = theirs(x, h)
    out, last = ours(x, h)
    assert_all_near([out, last], [expected, h_n])


@pytest.mark.parametrize("kind", ROTATING, ids=str)
def test_without_switching_off_the_layer_does_rotate(kind: Kind) -> None:
    """So that the equalities above are not true for want of a rotation."""
    layer = kind.layer(3, 4).double()
    x = torch.randn(5, 2, 3).double()
    rotated, _ = layer(x)
    with torch.no_grad():
        layer.bias_ih_l0[-2:] = ROTATION_OFF
    assert (layer(x)[0] - rotated).abs().max() > 1e-3
