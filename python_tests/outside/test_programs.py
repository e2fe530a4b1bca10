"""Pieces of programs written for nn.LSTM, with our layers in its place."""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import KINDS, Kind, assert_near
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.flop_counter import FlopCounterMode

import rotcell

LSTMS = [kind for kind in KINDS if "f" in kind.description.gates]


# Initialization


def initialize(model: nn.Module) -> None:
    """By the name of each parameter and gate; the lines that replace those by quarters."""
    for module in model.modules():
        if not isinstance(module, nn.RNNBase):
            continue
        for name, parameter in module.named_parameters():
            if "weight_ih" in name:
                for _, rows in module.named_gates(name):
                    nn.init.xavier_uniform_(rows)
            elif "weight_hh" in name:
                for _, rows in module.named_gates(name):
                    nn.init.orthogonal_(rows)
            elif "bias" in name:
                nn.init.zeros_(parameter)
                if "f" in module._cell.gates and "bias_ih" in name:
                    nn.init.ones_(module.gate_rows("forget", name))


def test_initialization_gate_by_gate(kind: Kind) -> None:
    model = nn.Sequential(kind.layer(6, 8, 2, bidirectional=True))
    initialize(model)
    layer = model[0]
    for name in layer._flat_weights_names:
        for gate, rows in layer.named_gates(name):
            if "bias" in name:
                expected = float(gate == "f" and "bias_ih" in name)
                assert (rows == expected).all()
            elif "weight_hh" in name:
                assert_near(rows @ rows.T, torch.eye(len(rows)))
            else:
                assert rows.abs().max() <= math.sqrt(6 / sum(rows.shape))


@pytest.mark.parametrize("kind", LSTMS, ids=str)
def test_the_option_for_the_forget_bias_shifts_that_gate_alone(kind: Kind) -> None:
    torch.manual_seed(1)
    plain = kind.layer(3, 4)
    torch.manual_seed(1)
    layer = kind.layer(3, 4, forget_bias=2.0)
    for gate, rows in layer.named_gates("bias_ih_l0"):
        assert_near(rows, plain.gate_rows(gate, "bias_ih_l0") + 2.0 * (gate == "f"))


# Saving and copying


def test_a_checkpoint_of_nn_lstm_and_back() -> None:
    theirs, x = nn.LSTM(3, 4, 2, bidirectional=True), torch.randn(5, 2, 3)
    ours = rotcell.LSTM(3, 4, 2, bidirectional=True)
    ours.load_state_dict(theirs.state_dict())
    assert_near(ours(x)[0], theirs(x)[0])
    again = nn.LSTM(3, 4, 2, bidirectional=True)
    again.load_state_dict(ours.state_dict())
    assert torch.equal(again(x)[0], theirs(x)[0])
    assert_near(rotcell.RotLSTM.from_lstm(theirs.state_dict())(x)[0], theirs(x)[0])


class Tagger(nn.Module):
    """Embedding, a layer over packed sentences, and a score for every tag of every token."""

    def __init__(self, rnn: type, **options: Any) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 6, padding_idx=0)
        self.rnn = rnn(6, 8, bidirectional=True, batch_first=True, **options)
        self.head = nn.Linear(16, 3)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(
            self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False
        )
        output, _ = self.rnn(packed)
        padded, _ = pad_packed_sequence(output, batch_first=True)
        return self.head(padded)


def sentences() -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([3, 7, 5])
    tokens = torch.randint(1, 20, (3, 7))
    tokens[torch.arange(7) >= lengths[:, None]] = 0
    return tokens, lengths


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@pytest.mark.parametrize("way", list(COPIES))
def test_copies_of_a_model_are_apart_from_it(kind: Kind, way: str) -> None:
    model = Tagger(kind.layer, num_layers=2)
    twin = COPIES[way](model)
    batch = sentences()
    expected = model(*batch)
    assert torch.equal(twin(*batch), expected)
    with torch.no_grad():
        for parameter in twin.rnn.parameters():
            parameter.zero_()
    assert torch.equal(model(*batch), expected)
    assert not torch.equal(twin(*batch), expected)


def test_a_whole_model_is_loaded_with_the_safe_default(kind: Kind) -> None:
    model = nn.Sequential(kind.layer(3, 4, 2, bidirectional=True))
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    with torch.serialization.safe_globals([nn.Sequential]):
        loaded = torch.load(buffer)
    x = torch.randn(5, 2, 3)
    assert torch.equal(loaded(x)[0], model(x)[0])


# Training


def test_a_tagger_learns_and_padding_does_not_matter(kind: Kind) -> None:
    model = Tagger(kind.layer)
    tokens, lengths = sentences()
    tags = (tokens % 3).masked_fill(tokens == 0, -100)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens, lengths).flatten(0, 1), tags.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0]
    alone = model(tokens[:1, :3], lengths[:1])
    assert_near(alone, model(tokens, lengths)[:1, :3])


def test_lbfgs_on_a_sine(kind: Kind) -> None:
    """Two cells, stepped by hand, under an optimizer that calls the model repeatedly."""

    class Forecaster(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = kind.cell(1, 8), kind.cell(8, 8)
            self.head = nn.Linear(8, 1)

        def forward(self, series: Tensor) -> Tensor:
            states: list[Any] = [None, None]
            outputs = []
            for value in series.split(1, dim=1):
                states[0] = self.first(value, states[0])
                states[1] = self.second(kind.as_states(states[0])[0], states[1])
                outputs.append(self.head(kind.as_states(states[1])[0]))
            return torch.cat(outputs, dim=1)

    model = Forecaster().double()
    wave = torch.sin(0.3 * torch.arange(24.0).double() + torch.tensor([[0.0], [1.0], [2.0]]))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.8, max_iter=20)
    losses = []

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(wave[:, :-1]), wave[:, 1:])
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(3):
        optimizer.step(closure)
    assert losses[-1] < 0.1 * losses[0]


def detached(state: Any) -> Any:
    return state.detach() if isinstance(state, Tensor) else tuple(s.detach() for s in state)


@pytest.mark.parametrize("in_place", [False, True])
def test_truncated_backpropagation(kind: Kind, in_place: bool) -> None:
    """Chunks with the state carried over and cut off give what one run over all of them gives."""
    layer, x = kind.layer(3, 4, 2), torch.randn(12, 2, 3)
    whole, _ = layer(x)
    state, outputs = None, []
    for chunk in x.split(4):
        output, state = layer(chunk, state)
        output.sum().backward()
        if in_place:
            for part in kind.as_states(state):
                part.detach_()
            outputs.append(output.detach_())
        else:
            state = detached(state)
            outputs.append(output.detach())
    assert_near(torch.cat(outputs), whole)


# Weights that are not plain parameters


@pytest.mark.parametrize("way", ["spectral_norm", "weight_norm"])
def test_parametrized_weights(kind: Kind, way: str) -> None:
    layer = getattr(parametrizations, way)(kind.layer(3, 4), "weight_hh_l0")
    layer.eval()  # spectral_norm iterates in training
    x = torch.randn(5, 2, 3)
    plain = kind.layer(3, 4)
    with torch.no_grad():
        for name in plain._flat_weights_names:
            getattr(plain, name).copy_(getattr(layer, name))
    assert_near(layer(x)[0], plain(x)[0])
    layer(x)[0].sum().backward()
    assert all(p.grad is not None for p in layer.parametrizations.parameters())
    parametrize.remove_parametrizations(layer, "weight_hh_l0")
    assert_near(layer(x)[0], plain(x)[0])


class DropsWeights(nn.Module):
    """Dropout of recurrent weights: the raw ones are kept under another name."""

    def __init__(self, rnn: nn.RNNBase, names: tuple[str, ...], p: float) -> None:
        super().__init__()
        self.rnn, self.names, self.p = rnn, names, p
        for name in names:
            raw = getattr(rnn, name)
            del rnn._parameters[name]
            rnn.register_parameter(f"{name}_raw", nn.Parameter(raw.data))

    def forward(self, *args: Any) -> Any:
        for name in self.names:
            raw = getattr(self.rnn, f"{name}_raw")
            setattr(self.rnn, name, F.dropout(raw, self.p, self.training))
        return self.rnn(*args)


def test_dropout_of_recurrent_weights(kind: Kind) -> None:
    layer, x = kind.layer(3, 4), torch.randn(5, 2, 3)
    expected = layer(x)[0]
    wrapped = DropsWeights(layer, ("weight_hh_l0",), 0.5)
    assert not torch.equal(wrapped(x)[0], wrapped(x)[0])
    wrapped(x)[0].sum().backward()
    assert layer.weight_hh_l0_raw.grad.abs().sum() > 0
    assert_near(wrapped.eval()(x)[0], expected)


def test_functional_call_runs_with_other_weights(kind: Kind) -> None:
    """As meta-learning and moving averages of weights do."""
    model, x = kind.layer(3, 4), torch.randn(5, 2, 3)
    others = {n: (p * 0.5).detach().requires_grad_() for n, p in model.named_parameters()}
    found = torch.func.functional_call(model, others, (x,))[0]
    found.sum().backward()
    twin = kind.layer(3, 4)
    twin.load_state_dict(others)
    expected = twin(x)[0]
    expected.sum().backward()
    assert_near(found, expected)
    for name, parameter in twin.named_parameters():
        assert_near(others[name].grad, parameter.grad)
    assert all(p.grad is None for p in model.parameters())


# Tools


def rnns(model: nn.Module) -> Iterator[nn.RNNBase]:
    return (m for m in model.modules() if isinstance(m, nn.RNNBase))


def test_libraries_that_look_for_rnns_find_ours(kind: Kind) -> None:
    (found,) = rnns(Tagger(kind.layer))
    found.flatten_parameters()
    assert (found.hidden_size, found.bidirectional, found.batch_first) == (8, True, True)
    assert [len(weights) for weights in found.all_weights] == [4, 4]


def test_flops_are_counted() -> None:
    x = torch.randn(7, 3, 4)
    with FlopCounterMode(display=False) as counter:
        rotcell.RotLSTM(4, 8)(x)
    assert counter.get_total_flops() == 2 * 7 * 3 * (36 * 4 + 36 * 8)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_dynamic_quantization_leaves_our_layers_in_float(kind: Kind) -> None:
    """Documented, not wished for: the layers around ours are quantized and the model runs."""
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("this torch has no quantized kernels for x86")
    model = Tagger(kind.layer).eval()
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.Linear, nn.LSTM, nn.GRU})
    assert type(quantised.rnn) is kind.layer
    assert not isinstance(quantised.head, nn.Linear)
    batch = sentences()
    assert (quantised(*batch) - model(*batch)).abs().max() < 0.1
