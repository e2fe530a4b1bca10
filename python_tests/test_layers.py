"""The layers: results and gradients against the reference, and life as an nn.Module."""

from __future__ import annotations

import copy
import doctest
import importlib
import inspect
import io
import itertools
import math
import os
import pickle
import threading
import warnings
from typing import Any

import pytest
import torch
from helpers import (
    KINDS,
    OPTIONS,
    SHIFTS,
    Kind,
    assert_all_near,
    assert_near,
    double_parameters,
    gradients,
    leaves,
    run_step_by_step,
    states_for,
)
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

import rotcell
from rotcell.layers.base import no_weights_drawn
from rotcell.layers.layer import DirectionCall


def check_against_steps(kind: Kind, layer: Any, x: Tensor, states: tuple[Tensor, ...]) -> None:
    """Output, states and every gradient of a layer over x [T, B, I], against float64 steps."""
    x, *states = leaves((x, *states))
    out, hx = layer(x, kind.as_hx(states))
    results = [out, *kind.as_states(hx)]
    cotangents = [torch.randn_like(r, dtype=torch.float64) for r in results]
    actual = gradients(results, [x, *states, *layer.parameters()], cotangents)

    parameters = double_parameters(layer)
    x64, *states64 = leaves([x, *states], torch.float64)
    out64, last64 = run_step_by_step(kind, layer, parameters, x64, states64)
    expected = gradients([out64, *last64], [x64, *states64, *parameters.values()], cotangents)

    assert_all_near(results, [out64, *last64], ["output", "h_n", "c_n"][: len(results)])
    names = ["input", "h_0", "c_0"][: 1 + kind.num_states] + list(parameters)
    assert_all_near(actual, expected, names)


def test_this_run_is_of_the_kernels() -> None:
    """These tests would pass on the reference, too."""
    assert rotcell.build_info()["native"] == (os.environ.get("ROTCELL_NATIVE") != "0")


# Other sizes, and what is no number, are up to the kernels: test_kernels.py has them.
@pytest.mark.parametrize(("hidden_size", "dtype"), [(7, torch.float64), (4, torch.float32)])
def test_results_and_gradients_match_the_reference(
    kind_and_options: tuple[Kind, str], hidden_size: int, dtype: torch.dtype
) -> None:
    kind, name = kind_and_options
    layer = kind.layer(3, hidden_size, dtype=dtype, **OPTIONS[name])
    check_against_steps(kind, layer, torch.randn(6, 5, 3, dtype=dtype), states_for(kind, layer, 5))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_hard_gates_match_the_reference(kind: Kind, dtype: torch.dtype) -> None:
    functions = {"gate_activation": "hard_sigmoid"}
    if kind.description.rotates:
        functions["angle_activation"] = "hard_sigmoid"
    layer = kind.layer(3, 7, 2, bidirectional=True, dtype=dtype, **functions)
    x = 3 * torch.randn(6, 5, 3, dtype=dtype)  # so that some gates are fully open or shut
    check_against_steps(kind, layer, x, states_for(kind, layer, 5))


def test_gate_activations_match_their_names(kind: Kind) -> None:
    """So that the equality above is not true for want of a choice."""
    x = torch.randn(4, 2, 3)
    names = (
        ["gate_activation", "angle_activation"] if kind.description.rotates else ["gate_activation"]
    )
    layer = kind.layer(3, 5)
    seen = [layer(x)[0]]
    for name in names:
        other = kind.layer(3, 5, **{name: "hard_sigmoid"})
        other.load_state_dict(layer.state_dict())
        seen.append(other(x)[0])
        assert f"{name}=hard_sigmoid" in repr(other)
    for a, b in itertools.combinations(seen, 2):
        assert (a - b).abs().max() > 1e-3


def test_missing_initial_state_is_zeros(kind: Kind) -> None:
    layer = kind.layer(3, 4, 2, bidirectional=True).double()
    x = torch.randn(5, 2, 3).double()
    zeros = kind.as_hx([torch.zeros_like(s) for s in states_for(kind, layer, 2)])
    out, hx = layer(x)
    expected_out, expected_hx = layer(x, zeros)
    assert torch.equal(out, expected_out)
    assert all(map(torch.equal, kind.as_states(hx), kind.as_states(expected_hx)))


def test_output_ends_in_the_last_state(kind: Kind) -> None:
    layer = kind.layer(3, 4, num_layers=2, bidirectional=True)
    out, hx = layer(torch.randn(5, 2, 3))
    h_n = kind.as_states(hx)[0]
    assert torch.equal(out[-1, :, :4], h_n[2])
    assert torch.equal(out[0, :, 4:], h_n[3])


def test_last_state_can_be_cut_off_in_place(kind: Kind) -> None:
    """As for nn.LSTM, in training on one piece of a long sequence after the other."""
    _, hx = kind.layer(3, 4)(torch.randn(5, 2, 3))
    for state in kind.as_states(hx):
        assert state.requires_grad
        assert not state.detach_().requires_grad


def test_batch_first_swaps_input_and_output_only(kind: Kind) -> None:
    layer = kind.layer(3, 4, 2, bidirectional=True)
    swapped = kind.layer(3, 4, 2, batch_first=True, bidirectional=True)
    swapped.load_state_dict(layer.state_dict())
    x, hx = torch.randn(5, 2, 3), kind.as_hx(states_for(kind, layer, 2))
    out, last = layer(x, hx)
    swapped_out, swapped_last = swapped(x.transpose(0, 1), hx)
    assert swapped_out.shape == (2, 5, 8)
    assert_near(swapped_out.transpose(0, 1), out)
    assert_all_near(kind.as_states(swapped_last), kind.as_states(last))


@pytest.mark.parametrize("batch_first", [False, True])
def test_unbatched_input_is_a_batch_of_one(kind: Kind, batch_first: bool) -> None:
    layer = kind.layer(3, 5, 2, batch_first=batch_first, bidirectional=True)
    x, states = torch.randn(6, 3), states_for(kind, layer, None)
    out, hx = layer(x, kind.as_hx(states))
    batch_dim = 0 if batch_first else 1
    expected, expected_hx = layer(
        x.unsqueeze(batch_dim), kind.as_hx([s.unsqueeze(1) for s in states])
    )
    assert out.shape == (6, 10)
    assert torch.equal(out, expected.squeeze(batch_dim))
    for state, expected_state in zip(kind.as_states(hx), kind.as_states(expected_hx), strict=True):
        assert torch.equal(state, expected_state.squeeze(1))


@pytest.mark.parametrize("batch_first", [False, True])
def test_zero_length_batch(kind_and_options: tuple[Kind, str], batch_first: bool) -> None:
    kind, name = kind_and_options
    layer = kind.layer(3, 4, batch_first=batch_first, **OPTIONS[name])
    plain = kind.plain_layer(3, 4, batch_first=batch_first, **OPTIONS[name])
    x = torch.randn((0, 5, 3) if batch_first else (5, 0, 3), requires_grad=True)
    out, hx = layer(x)
    plain_out, plain_hx = plain(x)
    assert out.shape == plain_out.shape
    assert [s.shape for s in kind.as_states(hx)] == [s.shape for s in kind.as_states(plain_hx)]
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape
    assert all(p.grad is None or not p.grad.any() for p in layer.parameters())


def strided_variants(t: Tensor) -> dict[str, Tensor]:
    """The values of t in other memory layouts."""
    padded = torch.full((*t.shape[:-1], 2 * t.shape[-1] + 1), math.nan, dtype=t.dtype)
    every_other = padded[..., 1::2]
    every_other.copy_(t)
    order = tuple(reversed(range(t.dim())))
    return {"every_other": every_other, "transposed": t.permute(order).contiguous().permute(order)}


@pytest.mark.parametrize("layout", ["every_other", "transposed"])
def test_non_contiguous_tensors_give_the_same(kind: Kind, layout: str) -> None:
    layer = kind.layer(3, 5, 2, bidirectional=True).double()
    x, states = torch.randn(4, 2, 3).double(), states_for(kind, layer, 2)
    expected, expected_hx = layer(x, kind.as_hx(states))
    moved = [strided_variants(t)[layout].requires_grad_() for t in (x, *states)]
    assert not moved[0].is_contiguous()
    out, hx = layer(moved[0], kind.as_hx(moved[1:]))
    assert_near(out, expected)
    assert_all_near(kind.as_states(hx), kind.as_states(expected_hx))

    weighted = (out * torch.arange(out.numel()).double().view_as(out)).sum()
    grads = torch.autograd.grad(weighted, moved)
    plain = leaves([x, *states])
    out, _ = layer(plain[0], kind.as_hx(plain[1:]))
    weighted = (out * torch.arange(out.numel()).double().view_as(out)).sum()
    assert_all_near(grads, torch.autograd.grad(weighted, plain))


def test_non_contiguous_parameters_give_the_same(kind: Kind) -> None:
    layer = kind.layer(3, 5).double()
    x = torch.randn(4, 2, 3).double()
    expected, _ = layer(x)
    for name, parameter in list(layer.named_parameters()):
        moved = strided_variants(parameter.detach())["every_other"]
        setattr(layer, name, nn.Parameter(moved))
        assert not getattr(layer, name).is_contiguous()
    assert_near(layer(x)[0], expected)


def test_expanded_tensors_give_the_same(kind: Kind) -> None:
    layer = kind.layer(3, 5).double()
    row = torch.randn(1, 1, 3, dtype=torch.float64, requires_grad=True)
    state = torch.randn(1, 1, 5, dtype=torch.float64, requires_grad=True)

    def run(copied: bool) -> tuple[Tensor, ...]:
        tensors = [row.expand(4, 2, 3), *[state.expand(1, 2, 5)] * kind.num_states]
        if copied:
            tensors = [t.contiguous() for t in tensors]
        out, _ = layer(tensors[0], kind.as_hx(tensors[1:]))
        return out, *torch.autograd.grad(out.square().sum(), [row, state])

    assert_all_near(run(copied=False), run(copied=True))


def test_results_of_the_loss_may_be_expanded(kind: Kind) -> None:
    """sum() sends an expanded scalar backward; an op must not read it as a full tensor."""
    layer = kind.layer(3, 5).double()
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    out, _ = layer(x)
    (summed,) = torch.autograd.grad(out.sum(), x, retain_graph=True)
    (ones,) = torch.autograd.grad(out, x, torch.ones_like(out))
    assert_near(summed, ones)


def test_one_row_with_nan_leaves_the_others_alone(kind: Kind) -> None:
    layer = kind.layer(3, 5)
    x = torch.randn(4, 3, 3)
    expected, _ = layer(x)
    x[1, 1, 0] = math.nan
    out, _ = layer(x)
    assert torch.equal(out[:, [0, 2]], expected[:, [0, 2]])
    assert out[1:, 1].isnan().any()


# Dropout


def test_dropout_acts_in_training_only(kind: Kind) -> None:
    layer, plain = kind.layer(3, 8, 2, dropout=0.5), kind.layer(3, 8, 2)
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(4, 2, 3)
    assert not torch.equal(layer(x)[0], plain(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], plain(x)[0])


def test_dropout_draws_new_masks_each_time_and_repeats_with_the_seed(kind: Kind) -> None:
    layer = kind.layer(3, 8, 2, dropout=0.5)
    x = torch.randn(4, 2, 3)
    torch.manual_seed(1)
    first, second = layer(x)[0], layer(x)[0]
    torch.manual_seed(1)
    assert torch.equal(layer(x)[0], first)
    assert not torch.equal(first, second)


def test_dropout_of_everything_leaves_the_next_layer_its_biases(kind: Kind) -> None:
    layer = kind.layer(3, 4, 2, dropout=1.0).double()
    x = torch.randn(5, 2, 3).double()
    upper = kind.layer(4, 4).double()
    upper.load_state_dict(
        {name.replace("l1", "l0"): p for name, p in layer.state_dict().items() if "l1" in name}
    )
    assert_near(layer(x)[0], upper(torch.zeros(5, 2, 4).double())[0])


def test_dropout_keeps_the_mean_between_the_layers(kind: Kind) -> None:
    """Looks at what enters the second layer: a share of 1 - p, scaled by 1 / (1 - p)."""
    layer = kind.layer(3, 50, 2, dropout=0.3)
    entered = []

    def spy(call: DirectionCall) -> Any:
        result = call.run()
        entered.append((call.x, result[0]))
        return result

    layer.direction_runner = spy
    layer(torch.randn(20, 10, 3))
    (_, below), (above, _) = entered
    kept = above != 0
    torch.testing.assert_close(above[kept], below[kept] / 0.7)
    count = kept.numel()
    # Five standard deviations of a binomial share.
    assert abs(kept.float().mean().item() - 0.7) < 5 * math.sqrt(0.3 * 0.7 / count)


def test_dropout_without_a_second_layer_warns(kind: Kind) -> None:
    with pytest.warns(UserWarning, match="dropout") as record:
        kind.layer(3, 4, dropout=0.5)
    assert record[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kind.layer(3, 4, 2, dropout=0.5)


# Weights that are not drawn


def draws_weights() -> bool:
    before = torch.get_rng_state()
    KINDS[0].layer(3, 4)
    return not torch.equal(torch.get_rng_state(), before)


def test_blocks_without_drawn_weights_nest() -> None:
    with no_weights_drawn():
        with no_weights_drawn():
            assert not draws_weights()
        assert not draws_weights()
        with pytest.raises(KeyError), no_weights_drawn():
            raise KeyError
        assert not draws_weights()
    assert draws_weights()


def test_blocks_without_drawn_weights_concern_their_thread_only() -> None:
    found = []
    with no_weights_drawn():
        thread = threading.Thread(target=lambda: found.append(draws_weights()))
        thread.start()
        thread.join()
    assert found == [True]


# Life as a module


def test_parameters_have_the_names_and_order_of_the_plain_layer(
    kind_and_options: tuple[Kind, str],
) -> None:
    kind, name = kind_and_options
    layer = kind.layer(3, 7, **OPTIONS[name])
    plain = kind.plain_layer(3, 7, **OPTIONS[name])
    assert list(layer.state_dict()) == list(plain.state_dict())
    for key, value in plain.state_dict().items():
        rows = value.shape[0] if key.startswith("weight_hr") else kind.rows(7)
        assert layer.state_dict()[key].shape == (rows, *value.shape[1:])
    ours, theirs = layer.all_weights, plain.all_weights
    assert [len(w) for w in ours] == [len(w) for w in theirs]
    assert all(a is b for a, b in zip(itertools.chain(*ours), layer.parameters(), strict=True))


def test_attributes_are_those_of_the_plain_layer(kind: Kind) -> None:
    args = (3, 7, 2, False, True, 0.25, True)
    layer, plain = kind.layer(*args), kind.plain_layer(*args)
    for name in (*plain.__constants__, "training"):
        if name == "mode":  # names a kernel of PyTorch's
            continue
        assert getattr(layer, name) == getattr(plain, name), name


def test_positional_arguments_have_the_order_of_the_plain_layer(kind: Kind) -> None:
    # nn.GRU itself takes what comes after `bidirectional` for a proj_size.
    rest = (5, "cpu", torch.float64) if kind.description.can_project else ()
    args = (3, 7, 2, True, True, 0.25, True, *rest)
    layer, plain = kind.layer(*args), kind.plain_layer(*args)
    assert layer.extra_repr() == plain.extra_repr()
    assert layer.weight_ih_l0.dtype == plain.weight_ih_l0.dtype


def test_repr_lists_what_is_not_default(kind: Kind) -> None:
    name = kind.layer.__name__
    assert repr(kind.layer(3, 4)) == f"{name}(3, 4)"
    shown = repr(kind.layer(3, 4, 2, bidirectional=True, gate_activation="hard_sigmoid"))
    assert shown == f"{name}(3, 4, num_layers=2, bidirectional=True, gate_activation=hard_sigmoid)"


def test_initial_values_fill_the_range_of_nn_lstm(kind: Kind) -> None:
    layer = kind.layer(40, 64, 2)
    bound = 1 / math.sqrt(64)
    for name, parameter in layer.named_parameters():
        assert parameter.abs().max() <= bound, name
        assert parameter.max() > 0.9 * bound, name
        assert parameter.min() < -0.9 * bound, name


@pytest.mark.parametrize("hidden_size", [1, 6, 7])
@pytest.mark.parametrize("option", SHIFTS)
def test_options_shift_the_rows_of_their_gate_in_the_input_biases(
    kind: Kind, option: str, hidden_size: int
) -> None:
    gate = SHIFTS[option]
    if gate not in kind.description.gates:
        with pytest.raises(TypeError, match=option):
            kind.layer(3, hidden_size, **{option: -4.0})
        return
    options = {"num_layers": 2, "bidirectional": True}
    torch.manual_seed(3)
    plain = kind.layer(3, hidden_size, **options)
    torch.manual_seed(3)
    moved = kind.layer(3, hidden_size, **options, **{option: -4.0})
    assert f"{option}=-4.0" in repr(moved)
    rows = kind.description.rows_of(gate, hidden_size)
    for (name, a), b in zip(plain.named_parameters(), moved.parameters(), strict=True):
        shift = torch.zeros_like(a)
        if name.startswith("bias_ih"):
            shift[rows] = -4.0
        assert torch.equal(a + shift, b)


@pytest.mark.parametrize("option", SHIFTS)
def test_reset_parameters_draws_new_values(kind: Kind, option: str) -> None:
    gate = SHIFTS[option]
    has_gate = gate in kind.description.gates
    layer = kind.layer(3, 4, **({option: 100.0} if has_gate else {}))
    before = copy.deepcopy(layer.state_dict())
    layer.reset_parameters()
    assert not any(torch.equal(p, before[name]) for name, p in layer.named_parameters())
    if has_gate:
        assert layer.bias_ih_l0[kind.description.rows_of(gate, 4)].min() > 99


def test_flatten_parameters_changes_nothing(kind: Kind) -> None:
    layer = kind.layer(3, 4)
    before = copy.deepcopy(layer.state_dict())
    assert layer.flatten_parameters() is None
    assert all(torch.equal(p, before[name]) for name, p in layer.named_parameters())


def saved_and_loaded(layer: nn.Module) -> nn.Module:
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def state_dict_copy(layer: Any) -> nn.Module:
    options = {
        "num_layers": 2,
        "bidirectional": True,
        "dropout": 0.5,
        "gate_activation": "hard_sigmoid",
    }
    fresh = type(layer)(3, 5, **options).eval()
    fresh.load_state_dict(layer.state_dict())
    return fresh


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), saved_and_loaded, state_dict_copy],
    ids=["deepcopy", "pickle", "torch_save", "state_dict"],
)
def test_copies_compute_the_same_and_are_independent(kind: Kind, duplicate: Any) -> None:
    layer = kind.layer(
        3, 5, 2, dropout=0.5, bidirectional=True, gate_activation="hard_sigmoid"
    ).eval()
    x = torch.randn(4, 2, 3)
    expected, _ = layer(x)
    twin = duplicate(layer)
    assert repr(twin) == repr(layer)
    assert twin.training is False
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    assert torch.equal(twin(x)[0], expected)
    assert not torch.equal(layer(x)[0], expected)


def test_conversion_of_dtypes_and_devices(kind: Kind) -> None:
    layer = kind.layer(3, 5, 2)
    x = torch.randn(4, 2, 3)
    expected, _ = layer(x)
    doubled = copy.deepcopy(layer).double()
    assert doubled(x.double())[0].dtype == torch.float64
    assert_near(doubled(x.double())[0], expected, 1e-5)
    assert torch.equal(doubled.to(torch.float32)(x)[0], expected)
    for dtype in (torch.float16, torch.bfloat16):
        out, hx = copy.deepcopy(layer).to(dtype)(x.to(dtype))
        assert {out.dtype, *(s.dtype for s in kind.as_states(hx))} == {dtype}
    assert {p.device.type for p in kind.layer(3, 5, device="meta").parameters()} == {"meta"}
    assert {p.dtype for p in kind.layer(3, 5, dtype=torch.float64).parameters()} == {torch.float64}


def test_replaced_parameters_are_used(kind: Kind) -> None:
    layer, other = kind.layer(3, 5), kind.layer(3, 5)
    x = torch.randn(4, 2, 3)
    called = torch.func.functional_call(layer, dict(other.named_parameters()), (x,))
    assert torch.equal(called[0], other(x)[0])
    for name, parameter in other.named_parameters():
        setattr(layer, name, parameter)
    assert torch.equal(layer(x)[0], other(x)[0])


def test_parametrized_weights_are_computed_once_per_forward(kind: Kind) -> None:
    layer, calls = kind.layer(3, 5), []
    spectral_norm(layer, "weight_ih_l0")  # each computation is one more power iteration
    layer.parametrizations.weight_ih_l0[0].register_forward_hook(lambda *_: calls.append(1))
    layer(torch.randn(4, 2, 3))
    assert len(calls) == 1


def test_frozen_parameters_get_no_gradient(kind: Kind) -> None:
    layer = kind.layer(3, 5)
    layer.weight_hh_l0.requires_grad_(False)
    layer(torch.randn(4, 2, 3))[0].sum().backward()
    assert layer.weight_hh_l0.grad is None
    assert layer.weight_ih_l0.grad is not None


def test_no_graph_without_need_of_gradients(kind: Kind) -> None:
    layer = kind.layer(3, 5)
    with torch.no_grad():
        assert not layer(torch.randn(4, 2, 3))[0].requires_grad
    layer.requires_grad_(False)
    assert not layer(torch.randn(4, 2, 3))[0].requires_grad


def test_inputs_and_parameters_are_left_as_they_were(kind: Kind) -> None:
    layer = kind.layer(3, 5, 2, bidirectional=True)
    tensors = [torch.randn(4, 2, 3), *states_for(kind, layer, 2)]
    before = [t.clone() for t in (*tensors, *layer.parameters())]
    out, hx = layer(tensors[0], kind.as_hx(tensors[1:]))
    (out.sum() + sum(s.sum() for s in kind.as_states(hx))).backward()
    assert all(map(torch.equal, (*tensors, *layer.parameters()), before))


def test_backward_twice_gives_the_same_bits(kind: Kind) -> None:
    layer = kind.layer(3, 5, 2, bidirectional=True)
    out, _ = layer(torch.randn(4, 2, 3))
    loss = out.square().sum()
    first = torch.autograd.grad(loss, list(layer.parameters()), retain_graph=True)
    second = torch.autograd.grad(loss, list(layer.parameters()))
    assert all(map(torch.equal, first, second))


def test_training_lowers_the_loss(kind: Kind) -> None:
    """Remembers the first token's sign over six steps."""
    layer, head = kind.layer(1, 8), nn.Linear(8, 1)
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=0.02)
    x = torch.randn(6, 64, 1)
    target = (x[0] > 0).float()
    losses = []
    for _ in range(60):
        loss = nn.functional.binary_cross_entropy_with_logits(head(layer(x)[0][-1]), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


@pytest.mark.parametrize(
    "module",
    ["rotcell.reference", "rotcell.layers.lstm", "rotcell.layers.gru", "rotcell.layers.cells"],
)
def test_docstring_examples_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("form", ["layer", "cell"])
def test_docstrings_document_every_argument(kind: Kind, form: str) -> None:
    module = getattr(kind, form)
    for documented, function in ((module, module.__init__), (module.forward, module.forward)):
        text = inspect.getdoc(documented)
        assert text is not None
        assert max(map(len, text.splitlines())) <= 100
        for argument in list(inspect.signature(function).parameters)[1:]:
            assert f"\n    {argument}: " in text, (documented, argument)
    assert "Returns:" in inspect.getdoc(module.forward)
    for name, parameter in module(3, 4).named_parameters():
        assert f"``{name.replace('_l0', '_l{k}')}``: ``[" in inspect.getdoc(module), parameter
