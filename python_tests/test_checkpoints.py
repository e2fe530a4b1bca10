"""What load_state_dict reports for checkpoints of other layers."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from helpers import KINDS, LINEAR, PLAIN_LSTM, ROTATING, Kind
from torch import nn

import rotcell
from rotcell.layers import checkpoints

FORMS = ["layer", "cell"]


@pytest.fixture
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def saved_and_loaded(state_dict: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(state_dict, buffer)
    buffer.seek(0)
    return torch.load(buffer)  # weights_only=True


def without_prefix(state_dict: Any) -> Any:
    nn.modules.utils.consume_prefix_in_state_dict_if_present(state_dict, "module.")
    return state_dict


#: Ways of a state_dict from one module to another, which keep its metadata.
WAYS = {
    "direct": lambda module: module.state_dict(),
    "torch_save": lambda module: saved_and_loaded(module.state_dict()),
    "data_parallel": lambda module: without_prefix(nn.DataParallel(module).state_dict()),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [*KINDS, LINEAR], ids=str)
@pytest.mark.usefixtures("_no_warnings")
def test_own_checkpoints_load_without_a_warning(kind: Kind, form: str, way: str) -> None:
    make = getattr(kind, form)
    state_dict = WAYS[way](make(3, 4))
    assert state_dict._metadata[""][checkpoints.METADATA_KEY] == {"cell": kind.name}
    make(3, 4).load_state_dict(state_dict)


@pytest.mark.parametrize("kind", [*KINDS, LINEAR], ids=str)
@pytest.mark.usefixtures("_no_warnings")
def test_own_checkpoints_load_inside_other_modules(kind: Kind) -> None:
    model = nn.DataParallel(nn.Sequential(kind.layer(3, 4), kind.cell(4, 4)))
    model.load_state_dict(saved_and_loaded(model.state_dict()))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("_no_warnings")
def test_checkpoints_without_metadata_of_cells_that_cannot_be_confused(form: str) -> None:
    """As safetensors gives them."""
    for kind in KINDS:
        make = getattr(kind, form)
        if make._lookalike is None:
            make(3, 4).load_state_dict(dict(make(3, 4).state_dict()))


@pytest.mark.usefixtures("_no_warnings")
def test_lstm_and_nn_lstm_exchange_checkpoints() -> None:
    for ours, theirs in ((rotcell.LSTM, nn.LSTM), (rotcell.LSTMCell, nn.LSTMCell)):
        ours(3, 4).load_state_dict(theirs(3, 4).state_dict())
        theirs(3, 4).load_state_dict(ours(3, 4).state_dict())


@pytest.mark.parametrize("prefix", ["", "0.", "module.0."])
@pytest.mark.parametrize("way", ["direct", "torch_save", "plain"])
@pytest.mark.parametrize("name", ["GRU", "GRUCell"])
def test_classic_gru_warns_of_weights_of_nn_gru(name: str, way: str, prefix: str) -> None:
    theirs: Any = getattr(nn, name)(3, 4)
    ours: Any = getattr(rotcell, f"Classic{name}")(3, 4)
    if prefix:
        theirs, ours = nn.Sequential(theirs), nn.Sequential(ours)
    if prefix.startswith("module"):
        theirs, ours = nn.DataParallel(theirs), nn.DataParallel(ours)
    state_dict = WAYS.get(way, lambda module: dict(module.state_dict()))(theirs)
    if way == "direct":
        state_dict = theirs.state_dict()
    with pytest.warns(
        UserWarning, match=rf"Classic{name}.*nn\.{name} has the same names"
    ) as record:
        ours.load_state_dict(state_dict)
    assert len(record) == 1
    if prefix:
        assert repr(prefix[:-1]) in str(record[0].message)
    else:
        assert record[0].filename == __file__


def test_a_checkpoint_without_this_layer_warns_of_nothing() -> None:
    model = nn.Sequential(rotcell.ClassicGRU(3, 4), nn.Linear(4, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.load_state_dict({"1.bias": torch.zeros(4)}, strict=False)


@pytest.mark.parametrize("where", ["alone", "in a model"])
@pytest.mark.parametrize("source", [nn.LSTM, rotcell.LSTM])
@pytest.mark.parametrize("plain_dict", [False, True])
def test_rot_lstm_names_from_lstm(source: Any, where: str, plain_dict: bool) -> None:
    options: dict[str, Any] = {"num_layers": 2, "bidirectional": True, "proj_size": 2}
    theirs, ours = source(3, 4, **options), rotcell.RotLSTM(3, 4, **options)
    if where != "alone":
        theirs, ours = nn.Sequential(theirs), nn.Sequential(ours)
    state_dict = theirs.state_dict()
    with pytest.raises(RuntimeError, match=r"no rows for its angles.*RotLSTM\.from_lstm") as raised:
        ours.load_state_dict(dict(state_dict) if plain_dict else state_dict)
    message = str(raised.value)
    assert message.count("from_lstm(lstm)") == 1
    assert message.index("from_lstm") < message.index("size mismatch")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ROTATING, ids=str)
def test_rotating_modules_explain_the_conversion_of_plain_weights(kind: Kind, form: str) -> None:
    plain = getattr(kind, f"plain_{form}")(3, 4)
    with pytest.raises(RuntimeError, match=f"no rows for its angles.*{type(plain).__name__}"):
        getattr(kind, form)(3, 4).load_state_dict(plain.state_dict())


def test_a_wrong_size_is_not_called_a_missing_rotation() -> None:
    with pytest.raises(RuntimeError, match="size mismatch") as raised:
        rotcell.RotLSTM(3, 4).load_state_dict(rotcell.RotLSTM(3, 6).state_dict())
    assert "from_lstm" not in str(raised.value)


def test_a_hook_may_convert_before_the_check() -> None:
    layer, lstm = rotcell.RotLSTM(3, 4), nn.LSTM(3, 4)

    def convert(state_dict: Any, prefix: str, *_: Any) -> None:
        state_dict.update(rotcell.RotLSTM.from_lstm(lstm).state_dict())

    layer._register_load_state_dict_pre_hook(convert)
    layer.load_state_dict(lstm.state_dict())
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(layer(x)[0], lstm(x)[0])


def test_a_checkpoint_of_another_cell_is_refused() -> None:
    """Names and shapes that fit are not enough."""
    state_dict = rotcell.ClassicGRU(3, 4).state_dict()
    state_dict._metadata[""][checkpoints.METADATA_KEY] = {"cell": "some_gru"}
    with pytest.raises(RuntimeError, match="'some_gru', expected 'classic_gru'"):
        rotcell.ClassicGRU(3, 4).load_state_dict(state_dict)


@pytest.mark.parametrize("form", FORMS)
def test_other_activations_are_warned_of(kind: Kind, form: str) -> None:
    make = getattr(kind, form)
    state_dict = saved_and_loaded(make(3, 4, gate_activation="hard_sigmoid").state_dict())
    with pytest.warns(UserWarning, match=r"gate_activation='hard_sigmoid' \(here 'sigmoid'\)"):
        make(3, 4).load_state_dict(state_dict)


def test_from_lstm_reads_the_activation_from_a_checkpoint() -> None:
    lstm, x = PLAIN_LSTM.layer(3, 4, gate_activation="hard_sigmoid"), torch.randn(5, 2, 3)
    layer = rotcell.RotLSTM.from_lstm(saved_and_loaded(lstm.state_dict()))
    assert layer.gate_activation == "hard_sigmoid"
    torch.testing.assert_close(layer(x)[0], lstm(x)[0])
