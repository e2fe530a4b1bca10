"""The same mistake made with torch's layer and with ours raises the same type of exception."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers import KINDS, LINEAR, SHIFTS, Kind
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

PROJECTING = [kind for kind in KINDS if kind.description.can_project]
#: By the form of their state: (h, c), or h alone.
PAIRS = [kind for kind in KINDS if kind.num_states == 2]
SINGLES = [kind for kind in KINDS if kind.num_states == 1]

CONSTRUCTOR: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "input_size_zero": ((0, 4), {}),
    "input_size_negative": ((-1, 4), {}),
    "input_size_str": (("3", 4), {}),
    "input_size_float": ((3.0, 4), {}),
    "hidden_size_zero": ((3, 0), {}),
    "hidden_size_negative": ((3, -1), {}),
    "hidden_size_str": ((3, "4"), {}),
    "hidden_size_float": ((3, 4.0), {}),
    "hidden_size_missing": ((3,), {}),
    "sizes_missing": ((), {}),
    "num_layers_zero": ((3, 4), {"num_layers": 0}),
    "num_layers_negative": ((3, 4), {"num_layers": -1}),
    "num_layers_str": ((3, 4), {"num_layers": "1"}),
    "num_layers_float": ((3, 4), {"num_layers": 1.5}),
    "bias_int": ((3, 4), {"bias": 1}),
    "bias_none": ((3, 4), {"bias": None}),
    "batch_first_int": ((3, 4), {"batch_first": 1}),
    "batch_first_str": ((3, 4), {"batch_first": "yes"}),
    "dropout_negative": ((3, 4), {"dropout": -0.1}),
    "dropout_above_one": ((3, 4), {"dropout": 1.1}),
    "dropout_nan": ((3, 4), {"dropout": math.nan}),
    "dropout_bool": ((3, 4), {"dropout": True}),
    "dropout_word": ((3, 4), {"dropout": "half"}),
    "dropout_str": ((3, 4), {"dropout": "0.5"}),
    "dropout_none": ((3, 4), {"dropout": None}),
    "dropout_tensor": ((3, 4), {"dropout": torch.tensor(0.5)}),
    "unknown_argument": ((3, 4), {"speed": 1}),
    "dtype_integer": ((3, 4), {"dtype": torch.long}),
    "dtype_str": ((3, 4), {"dtype": "float32"}),
    "device_unknown": ((3, 4), {"device": "nowhere"}),
    "too_many_positional": ((3, 4, 1, True, False, 0.0, False, 0, None, None, 0), {}),
}
PROJECTION_CONSTRUCTOR: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "proj_size_negative": ((3, 4), {"proj_size": -1}),
    "proj_size_of_hidden_size": ((3, 4), {"proj_size": 4}),
    "proj_size_float": ((3, 4), {"proj_size": 1.5}),
}


def exception_of(call: Callable[[], Any]) -> Exception:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except Exception as error:
            return error
    raise AssertionError("no exception was raised")


def assert_same_type_of_exception(ours: Callable[[], Any], theirs: Callable[[], Any]) -> Exception:
    theirs_raised, actual = exception_of(theirs), exception_of(ours)
    # "'list' object has no attribute 'dim'" is what torch stumbles over: ours names the argument.
    expected = TypeError if type(theirs_raised) is AttributeError else type(theirs_raised)
    assert type(actual) is expected, f"ours {actual!r}, theirs {theirs_raised!r}"
    assert str(actual)
    return actual


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, name) for kind in KINDS for name in CONSTRUCTOR),
        *((kind, name) for kind in PROJECTING for name in PROJECTION_CONSTRUCTOR),
    ],
    ids=str,
)
def test_constructors_raise_as_torchs_do(kind: Kind, name: str) -> None:
    args, kwargs = (CONSTRUCTOR | PROJECTION_CONSTRUCTOR)[name]
    error = assert_same_type_of_exception(
        lambda: kind.layer(*args, **kwargs), lambda: kind.plain_layer(*args, **kwargs)
    )
    argument = name.rsplit("_", 1)[0]
    if isinstance(error, ValueError) and name != "dropout_word":
        assert any(part in str(error) for part in (argument, name.split("_")[0]))


def test_values_that_nn_lstm_accepts_are_accepted(kind: Kind) -> None:
    for args, kwargs in [((True, 4), {}), ((3, True), {}), ((3, 4), {"bidirectional": 1})]:
        kind.plain_layer(*args, **kwargs)
        layer = kind.layer(*args, **kwargs)
        layer(torch.randn(2, 1, layer.input_size))


KINDS_AND_SHIFTS = pytest.mark.parametrize(
    ("kind", "option"),
    [(k, o) for k in (*KINDS, LINEAR) for o, gate in SHIFTS.items() if gate in k.description.gates],
    ids=str,
)


@KINDS_AND_SHIFTS
@pytest.mark.parametrize("value", [None, "1", True, 1j, torch.tensor(1.0)], ids=str)
def test_shifts_of_biases_must_be_numbers(kind: Kind, option: str, value: Any) -> None:
    for make in (kind.layer, kind.cell):
        with pytest.raises((TypeError, ValueError), match=option):
            make(3, 4, **{option: value})


@KINDS_AND_SHIFTS
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_shifts_of_biases_must_be_finite(kind: Kind, option: str, value: float) -> None:
    for make in (kind.layer, kind.cell):
        with pytest.raises(ValueError, match=option):
            make(3, 4, **{option: value})


@KINDS_AND_SHIFTS
def test_shifts_of_biases_need_a_bias(kind: Kind, option: str) -> None:
    for make in (kind.layer, kind.cell):
        with pytest.raises(ValueError, match="bias=True"):
            make(3, 4, bias=False, **{option: -1.0})
        make(3, 4, bias=False, **{option: 0})


def test_own_options_are_keyword_only(kind: Kind) -> None:
    with pytest.raises(TypeError):
        kind.cell(3, 4, True, None, None, "sigmoid")


@pytest.mark.parametrize("option", ["gate_activation", "angle_activation"])
@pytest.mark.parametrize("value", [None, 1, "Sigmoid", "relu", ["sigmoid"]], ids=str)
def test_gate_activations_must_be_known(kind: Kind, option: str, value: Any) -> None:
    has_option = option == "gate_activation" or kind.description.rotates
    for make in (kind.layer, kind.cell):
        with pytest.raises(ValueError if has_option else TypeError, match=option) as caught:
            make(3, 4, **{option: value})
        assert "'hard_sigmoid'" in str(caught.value) or not has_option


def state(kind: Kind, *shape: int, **options: Any) -> Any:
    return kind.as_hx([torch.zeros(*shape, **options)] * kind.num_states)


def packed(
    lengths: list[int], *features: int, enforce_sorted: bool = True, **options: Any
) -> PackedSequence:
    x = torch.zeros(max(lengths), len(lengths), *features, **options)
    return pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted)


def batch_sizes_of(*sizes: int) -> PackedSequence:
    return PackedSequence(torch.zeros(5, 3), torch.tensor(sizes, dtype=torch.int64))


X = torch.zeros(5, 2, 3)
#: What is passed to forward of a layer (3, 4); a function of the kind, for the states' sake.
FORWARD: dict[str, Callable[[Kind], tuple[Any, ...]]] = {
    "nothing": lambda k: (),
    "none": lambda k: (None,),
    "list": lambda k: ([1.0],),
    "scalar": lambda k: (torch.zeros(()),),
    "one_dimension": lambda k: (torch.zeros(3),),
    "four_dimensions": lambda k: (torch.zeros(1, 5, 2, 3),),
    "no_timestep": lambda k: (torch.zeros(0, 2, 3),),
    "no_timestep_unbatched": lambda k: (torch.zeros(0, 3),),
    "features": lambda k: (torch.zeros(5, 2, 7),),
    "features_unbatched": lambda k: (torch.zeros(5, 7),),
    "double": lambda k: (X.double(),),
    "half": lambda k: (X.half(),),
    "integer": lambda k: (X.long(),),
    "complex": lambda k: (X.to(torch.complex64),),
    "other_device": lambda k: (X.to("meta"),),
    "state_double": lambda k: (X, state(k, 1, 2, 4, dtype=torch.float64)),
    "state_other_device": lambda k: (X, state(k, 1, 2, 4, device="meta")),
    "state_layers": lambda k: (X, state(k, 2, 2, 4)),
    "state_batch": lambda k: (X, state(k, 1, 3, 4)),
    "state_of_one_row": lambda k: (X, state(k, 1, 1, 4)),
    "state_features": lambda k: (X, state(k, 1, 2, 5)),
    "state_unbatched": lambda k: (X, state(k, 1, 4)),
    "state_batched_for_unbatched": lambda k: (X[:, 0], state(k, 1, 1, 4)),
    "state_batch_first": lambda k: (X, state(k, 2, 1, 4)),
    "packed_features": lambda k: (packed([5, 3], 7),),
    "packed_one_dimension": lambda k: (packed([5, 3]),),
    "packed_three_dimensions": lambda k: (packed([5, 3], 3, 3),),
    "packed_state_batch": lambda k: (packed([5, 3], 3), state(k, 1, 3, 4)),
    "packed_state_layers": lambda k: (packed([5, 3], 3), state(k, 2, 2, 4)),
    "packed_state_features": lambda k: (packed([5, 3], 3), state(k, 1, 2, 5)),
    "packed_state_double": lambda k: (packed([5, 3], 3), state(k, 1, 2, 4, dtype=torch.float64)),
    "packed_unsorted_state_small": lambda k: (
        packed([3, 5], 3, enforce_sorted=False),
        state(k, 1, 1, 4),
    ),
    "packed_sizes_increase": lambda k: (batch_sizes_of(2, 3),),
    "packed_sizes_too_many": lambda k: (batch_sizes_of(3, 3),),
    "packed_sizes_empty": lambda k: (batch_sizes_of(),),
}
PAIR_FORWARD: dict[str, Callable[[Kind], tuple[Any, ...]]] = {
    "packed_sizes_too_few": lambda k: (batch_sizes_of(2, 2),),
    "only_h_0": lambda k: (X, torch.zeros(1, 2, 4)),
    "only_h_0_of_two_layers": lambda k: (X, torch.zeros(2, 2, 4)),
    "pair_of_one": lambda k: (X, (torch.zeros(1, 2, 4),)),
    "pair_of_three": lambda k: (X, (torch.zeros(1, 2, 4),) * 3),
    "pair_of_none": lambda k: (X, (None, None)),
    "c_0_batch": lambda k: (X, (torch.zeros(1, 2, 4), torch.zeros(1, 3, 4))),
    "c_0_features": lambda k: (X, (torch.zeros(1, 2, 4), torch.zeros(1, 2, 5))),
    "c_0_double": lambda k: (X, (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4).double())),
}
SINGLE_FORWARD: dict[str, Callable[[Kind], tuple[Any, ...]]] = {
    "pair": lambda k: (X, (torch.zeros(1, 2, 4),) * 2),
    "packed_double": lambda k: (packed([5, 3], 3, dtype=torch.float64),),
    "packed_state_unbatched": lambda k: (packed([5, 3], 3), state(k, 1, 4)),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, name) for kind in KINDS for name in FORWARD),
        *((kind, name) for kind in PAIRS for name in PAIR_FORWARD),
        *((kind, name) for kind in SINGLES for name in SINGLE_FORWARD),
    ],
    ids=str,
)
def test_layers_raise_as_torchs_do(kind: Kind, name: str) -> None:
    args = (FORWARD | PAIR_FORWARD | SINGLE_FORWARD)[name](kind)
    layer, plain = kind.layer(3, 4), kind.plain_layer(3, 4)
    assert_same_type_of_exception(lambda: layer(*args), lambda: plain(*args))


@pytest.mark.parametrize("kind", PAIRS, ids=str)
@pytest.mark.parametrize(
    ("args", "error"),
    [
        ((packed([5, 3], 3, dtype=torch.float64),), ValueError),
        ((packed([5, 3], 3), (torch.zeros(1, 4), torch.zeros(1, 4))), RuntimeError),
        ((packed([5, 3], 3), (torch.zeros(1, 2, 4),)), IndexError),
    ],
    ids=["dtype", "state_unbatched", "pair_of_one"],
)
def test_packed_lstm_input_is_checked_as_padded_input_is(
    kind: Kind, args: tuple[Any, ...], error: type[Exception]
) -> None:
    """Here nn.LSTM itself checks nothing and raises what its internals stumble over."""
    with pytest.raises(error):
        kind.layer(3, 4)(*args)


@pytest.mark.parametrize("kind", SINGLES, ids=str)
def test_leftover_tokens_are_refused_for_a_gru_too(kind: Kind) -> None:
    """nn.GRU silently drops them; nn.LSTM refuses them."""
    with pytest.raises(RuntimeError):
        kind.layer(3, 4)(batch_sizes_of(2, 2))


NO_TENSORS = [(None, "NoneType"), ([[0.0] * 3], "list"), (np.zeros((2, 3)), "numpy.ndarray")]


@pytest.mark.parametrize(("value", "came"), NO_TENSORS, ids=["none", "list", "array"])
@pytest.mark.parametrize("form", ["layer", "cell"])
def test_input_and_states_must_be_tensors(kind: Kind, form: str, value: Any, came: str) -> None:
    module = getattr(kind, form)(3, 4)
    with pytest.raises(TypeError, match=f"input must be a Tensor.*, got {came}"):
        module(value)
    if value is not None and kind.num_states == 1:
        with pytest.raises(TypeError, match=f"hx must be a Tensor, got {came}"):
            module(torch.zeros(2, 3), value)
    if kind.num_states == 2:
        with pytest.raises(TypeError, match=rf"hx\[1\] \(c.* must be a Tensor, got {came}"):
            module(torch.zeros(2, 3), (torch.zeros(2, 4), value))
        with pytest.raises(TypeError, match=r"hx must be a pair .* got (int|numpy.ndarray)"):
            module(torch.zeros(2, 3), value if came == "numpy.ndarray" else 1)


def test_a_cell_refuses_a_packed_sequence(kind: Kind) -> None:
    with pytest.raises(TypeError, match=r"input must be a Tensor, got .*PackedSequence"):
        kind.cell(3, 4)(packed([5, 3], 3))


@pytest.mark.parametrize("layers", [1, 2])
def test_a_deleted_weight_is_reported_by_its_name(kind: Kind, layers: int) -> None:
    layer, cell = kind.layer(3, 4, layers), kind.cell(3, 4)
    del layer.weight_hh_l0, cell.weight_hh
    with pytest.raises(AttributeError, match="weight_hh_l0"):
        layer(X)
    with pytest.raises(AttributeError, match="weight_hh"):
        cell(ROWS)
    for name in ("all_weights", "_flat_weights"):
        with pytest.raises(RuntimeError, match="weight_hh_l0"):
            getattr(layer, name)


@pytest.mark.parametrize("name", ["weight_ih", "weight_hh", "bias_ih", "bias_hh"])
def test_a_weight_on_another_device_is_reported_by_its_name(kind: Kind, name: str) -> None:
    """As after a partial load_state_dict(assign=True) into a module on the meta device."""
    layer, cell = kind.layer(3, 4, 2), kind.cell(3, 4)
    for module, weight in ((layer, f"{name}_l1"), (cell, name)):
        setattr(module, weight, nn.Parameter(getattr(module, weight).to("meta")))
        x = X if module is layer else ROWS
        with pytest.raises(RuntimeError, match=f"input is on cpu but {weight} is on meta"):
            module(x)


def test_states_context_and_resets_on_another_device_are_reported(kind: Kind) -> None:
    for make, x, shape in ((kind.layer, X, (1, 2, 4)), (kind.cell, ROWS, (2, 4))):
        for k in range(kind.num_states):
            states = [torch.zeros(shape) for _ in range(kind.num_states)]
            states[k] = states[k].to("meta")
            name = "hx" if kind.num_states == 1 else rf"hx\[{k}\].*"
            with pytest.raises(RuntimeError, match=f"{name} is on meta") as caught:
                make(3, 4)(x, kind.as_hx(states))
            assert "input is on cpu" in str(caught.value)
    with pytest.raises(RuntimeError, match="context is on meta but the input is on cpu"):
        kind.layer(3, 4)(X[..., 1:], context=X[0, :, :1].to("meta"))
    with pytest.raises(RuntimeError, match="resets are on meta but the input is on cpu"):
        kind.layer(3, 4)(X, resets=torch.zeros(X.shape[:2], dtype=torch.bool, device="meta"))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("one_dimension", "input .* 2-D .* 3-D .* 1-D"),
        ("features", "input .* input_size=3 .* 7"),
        ("double", "input is torch.float64 .* torch.float32"),
        ("other_device", "input is on meta .* cpu"),
        ("no_timestep", "input .* at least one timestep"),
        ("state_batch", r"hx.* \(1, 2, 4\) .* \(1, 3, 4\)"),
        ("state_unbatched", "hx.* 3-D .* 2-D"),
        ("state_double", "hx.* torch.float64 .* torch.float32"),
    ],
)
def test_messages_name_the_argument_and_what_was_expected(
    kind: Kind, name: str, words: str
) -> None:
    with pytest.raises((ValueError, RuntimeError), match=words):
        kind.layer(3, 4)(*FORWARD[name](kind))


ROWS = torch.zeros(2, 3)
CELL_FORWARD: dict[str, Callable[[Kind], tuple[Any, ...]]] = {
    "none": lambda k: (None,),
    "list": lambda k: ([1.0],),
    "scalar": lambda k: (torch.zeros(()),),
    "three_dimensions": lambda k: (torch.zeros(1, 2, 3),),
    "features": lambda k: (torch.zeros(2, 5),),
    "features_unbatched": lambda k: (torch.zeros(5),),
    "double": lambda k: (ROWS.double(),),
    "integer": lambda k: (ROWS.long(),),
    "other_device": lambda k: (ROWS.to("meta"),),
    "state_double": lambda k: (ROWS, state(k, 2, 4, dtype=torch.float64)),
    "state_batch": lambda k: (ROWS, state(k, 3, 4)),
    "state_of_one_row": lambda k: (ROWS, state(k, 1, 4)),
    "state_features": lambda k: (ROWS, state(k, 2, 5)),
    "state_unbatched": lambda k: (ROWS, state(k, 4)),
    "state_batched_for_unbatched": lambda k: (ROWS[0], state(k, 1, 4)),
    "state_three_dimensions": lambda k: (ROWS, state(k, 1, 2, 4)),
}
PAIR_CELL_FORWARD: dict[str, Callable[[Kind], tuple[Any, ...]]] = {
    "only_h": lambda k: (ROWS, torch.zeros(2, 4)),
    "pair_of_one": lambda k: (ROWS, (torch.zeros(2, 4),)),
    "pair_of_three": lambda k: (ROWS, (torch.zeros(2, 4),) * 3),
    "c_features": lambda k: (ROWS, (torch.zeros(2, 4), torch.zeros(2, 5))),
    "c_batch": lambda k: (ROWS, (torch.zeros(2, 4), torch.zeros(3, 4))),
}
SINGLE_CELL_FORWARD: dict[str, Callable[[Kind], tuple[Any, ...]]] = {
    "pair": lambda k: (ROWS, (torch.zeros(2, 4),) * 2),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, name) for kind in (*KINDS, LINEAR) for name in CELL_FORWARD),
        *((kind, name) for kind in (*PAIRS, LINEAR) for name in PAIR_CELL_FORWARD),
        *((kind, name) for kind in SINGLES for name in SINGLE_CELL_FORWARD),
    ],
    ids=str,
)
def test_cells_raise_as_torchs_do(kind: Kind, name: str) -> None:
    args = (CELL_FORWARD | PAIR_CELL_FORWARD | SINGLE_CELL_FORWARD)[name](kind)
    cell, plain = kind.cell(3, 4), kind.plain_cell(3, 4)
    assert_same_type_of_exception(lambda: cell(*args), lambda: plain(*args))


@pytest.mark.parametrize(
    "args", [(-1, 4), (3, -1), ("3", 4), (3, "4"), (3.0, 4), (3, 4.0), (3,), ()], ids=str
)
@pytest.mark.parametrize("kind", [*KINDS, LINEAR], ids=str)
def test_constructors_of_cells_raise_as_torchs_do(kind: Kind, args: tuple[Any, ...]) -> None:
    assert_same_type_of_exception(lambda: kind.cell(*args), lambda: kind.plain_cell(*args))
