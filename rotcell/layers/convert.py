"""Make a RotLSTM from an LSTM, torch's or ours, or from its state_dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from rotcell.reference import CELLS

from .base import no_weights_drawn
from .checkpoints import METADATA_KEY
from .layer import Layer
from .options import angle_biases
from .parameters import RECURRENT, direction_suffixes, present

if TYPE_CHECKING:
    from .lstm import LSTM, RotLSTM

#: A rotation bias at which sigmoid, and so every angle, is exactly 0 in each float type. It is
#: finite, so nothing turns into NaN, and a float16 can hold it.
ROTATION_OFF = -1e4

_LSTM_OPTIONS = (
    "input_size",
    "hidden_size",
    "num_layers",
    "bias",
    "batch_first",
    "dropout",
    "bidirectional",
    "proj_size",
)

# The additional options of rotcell.LSTM; its forget_bias is in the weights.
_OWN_OPTIONS = ("gate_activation", "recurrent_dropout", "zoneout")

_NO_LSTM = "not the state_dict of an nn.LSTM"

AnyRotLSTM = TypeVar("AnyRotLSTM", bound="RotLSTM")


def from_lstm(
    layer_type: type[AnyRotLSTM],
    lstm: nn.LSTM | LSTM | Mapping[str, Tensor],
    batch_first: bool | None,
    dropout: float | None,
    rotation_bias: float | str,
    rotation_size: int,
) -> AnyRotLSTM:
    """Do the work of `RotLSTM.from_lstm`."""
    options, weights = _options_and_weights(lstm)
    if not options["bias"]:
        raise ValueError(
            "an LSTM without biases cannot be converted: "
            "only a bias can hold the angles at 0 for every input"
        )
    if batch_first is not None:
        options["batch_first"] = batch_first
    if dropout is not None:
        options["dropout"] = dropout

    first = weights["weight_ih_l0"]
    with no_weights_drawn():
        layer = layer_type(
            **options,
            rotation_bias=rotation_bias,
            rotation_size=rotation_size,
            device=first.device,
            dtype=first.dtype,
        )
    # Additional tensors of a subclass keep the values that its constructor gave them.
    layer = layer.to(first.device)
    _set_weights(layer, weights, rotation_bias)
    if isinstance(lstm, nn.Module):
        for name, weight in weights.items():
            getattr(layer, name).requires_grad_(weight.requires_grad)
        layer.train(lstm.training)
    return layer


def _options_and_weights(
    lstm: nn.LSTM | LSTM | Mapping[str, Tensor],
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The constructor arguments of an LSTM, and its weights by name."""
    if isinstance(lstm, nn.LSTM) or (isinstance(lstm, Layer) and lstm._cell is CELLS["lstm"]):
        options = {name: getattr(lstm, name) for name in _LSTM_OPTIONS}
        if isinstance(lstm, Layer):
            options |= {name: getattr(lstm, name) for name in _OWN_OPTIONS}
        names = [p.name + s for s in direction_suffixes(lstm) for p in present(RECURRENT, lstm)]
        return options, {name: getattr(lstm, name) for name in names}
    if isinstance(lstm, Mapping):
        return _options_from_state_dict(lstm), dict(lstm)
    raise TypeError(
        "lstm must be an nn.LSTM, a rotcell.LSTM without layer norm or a state_dict, got "
        f"{type(lstm).__name__}"
    )


@torch.no_grad()
def _set_weights(layer: RotLSTM, weights: Mapping[str, Tensor], rotation_bias: float | str) -> None:
    """Copy the rows of an LSTM; those of the angles are zero, but for their bias."""
    for name, weight in weights.items():
        parameter = getattr(layer, name)
        parameter[: weight.shape[0]] = weight
        angles = parameter[weight.shape[0] :]
        angles[:] = angle_biases(rotation_bias, angles) if name.startswith("bias_ih") else 0.0


def _options_from_state_dict(state_dict: Mapping[str, Tensor]) -> dict[str, Any]:
    """Read the constructor arguments of an nn.LSTM off its state_dict, and check all of it."""
    for name, tensor in state_dict.items():
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ValueError(f"{_NO_LSTM}: {name} must be a floating-point tensor, got {kind}")
    for name in ("weight_ih_l0", "weight_hh_l0", "weight_hr_l0"):
        if name not in state_dict and name != "weight_hr_l0":
            raise ValueError(f"{_NO_LSTM}: {name} is missing")
        if name in state_dict and state_dict[name].dim() != 2:
            raise ValueError(f"{_NO_LSTM}: {name} must be 2-D, got {state_dict[name].dim()}-D")
    has_projection = "weight_hr_l0" in state_dict
    state_weight = state_dict["weight_hr_l0" if has_projection else "weight_hh_l0"]
    options = {
        "input_size": state_dict["weight_ih_l0"].shape[-1],
        "hidden_size": state_weight.shape[-1],
        "num_layers": sum(
            name.startswith("weight_ih_l") and not name.endswith("_reverse") for name in state_dict
        ),
        "bias": any(name.startswith("bias_ih_l") for name in state_dict),
        "batch_first": False,
        "dropout": 0.0,
        "bidirectional": any(name.endswith("_reverse") for name in state_dict),
        "proj_size": state_weight.shape[0] if has_projection else 0,
    }

    twin = nn.LSTM(**options, device="meta").state_dict()
    if twin.keys() != state_dict.keys():
        raise ValueError(
            f"{_NO_LSTM}: missing {sorted(twin.keys() - state_dict.keys())}, "
            f"unexpected {sorted(state_dict.keys() - twin.keys())}"
        )
    for name, expected in twin.items():
        if state_dict[name].shape != expected.shape:
            raise ValueError(
                f"{_NO_LSTM}: {name} must have shape "
                f"{tuple(expected.shape)}, got {tuple(state_dict[name].shape)}"
            )
    if len({(tensor.dtype, tensor.device) for tensor in state_dict.values()}) > 1:
        raise ValueError(f"{_NO_LSTM}: its entries must have one dtype and one device, got several")
    return options | _options_in_metadata(state_dict)


def _options_in_metadata(state_dict: Mapping[str, Tensor]) -> dict[str, Any]:
    """The options that a rotcell.LSTM writes into its state_dict, next to the weights."""
    metadata = getattr(state_dict, "_metadata", {}).get("", {}).get(METADATA_KEY, {})
    return {name: value for name, value in metadata.items() if name != "cell"}
