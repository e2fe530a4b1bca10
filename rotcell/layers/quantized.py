"""Layers and cells with int8 weights, for inference on the CPU: `quantize_dynamic`."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from rotcell.reference import Cell, Weights, with_rotation_size
from rotcell.reference_int8 import INT8_CELLS, Int8Cell, quantize_weight

from . import cells, gru, lstm
from .base import CellModule
from .layer import Layer
from .parameters import Parameter, direction_suffixes

__all__ = ["QUANTIZED", "quantize_dynamic"]


class _Quantized(CellModule):
    """A layer or cell with int8 weights; they are buffers."""

    _parameter_table: ClassVar[tuple[Parameter, ...]] = (
        Parameter("weight_ih", "w_ih", ("packed",)),
        Parameter("weight_hh", "w_hh", ("packed",)),
        Parameter("scale_ih", "s_ih", ("R",)),
        Parameter("scale_hh", "s_hh", ("S",)),
        Parameter("bias_sum", "bias", ("G",), option="bias"),
        Parameter("weight_hr", "w_hr", ("packed",), option="proj_size"),
        Parameter("scale_hr", "s_hr", ("P",), option="proj_size"),
    )

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TypeError(
            f"{type(self).__name__} is made from a float32 module by rotcell.quantize_dynamic"
        )

    @classmethod
    def from_float(cls, module: CellModule, use_precomputed_fake_quant: bool = False) -> Any:
        """Quantize a module; called by ``torch.ao.quantization.quantize_dynamic``."""
        qconfig = getattr(module, "qconfig", None)
        if qconfig is not None and qconfig.weight().dtype != torch.qint8:
            raise ValueError(
                f"dtype must be torch.qint8 to quantize a {type(module).__name__}, got "
                f"{qconfig.weight().dtype}"
            )
        _check(module, "")
        new = cls.__new__(cls)
        nn.Module.__init__(new)
        own = {k: v for k, v in module.__dict__.items() if k not in new.__dict__}
        new.__dict__.update(own, training=module.training)
        new.__dict__.pop("qconfig", None)
        new.__dict__.pop("_cell", None)
        new._choose_cell()
        is_layer = isinstance(module, Layer)
        own_names: Any = module._weight_names
        names = own_names if is_layer else [own_names]
        for of_direction, suffix in zip(names, direction_suffixes(module), strict=True):
            new._quantize(Weights(*module._read(of_direction)[: len(Weights._fields)]), suffix)
        new._name_weights()  # type: ignore[operator]
        return new

    def _chosen_cell(self) -> Cell:
        of_class = type(self)._cell
        assert isinstance(of_class, Int8Cell)
        return INT8_CELLS[with_rotation_size(of_class.float_cell, self.rotation_size).name]

    def _quantize(self, weights: Weights, suffix: str) -> None:
        """Register the buffers of one layer and direction."""
        cell = self._cell
        assert isinstance(cell, Int8Cell)
        with torch.no_grad():
            bias = cell.bias(weights.b_ih, weights.b_hh, self.hidden_size)
            for name in ("ih", "hh", "hr"):
                weight = getattr(weights, f"w_{name}")
                if weight is not None:
                    packed, scales = quantize_weight(weight)
                    self.register_buffer(f"weight_{name}{suffix}", packed)
                    self.register_buffer(f"scale_{name}{suffix}", scales)
            if bias is not None:
                self.register_buffer(f"bias_sum{suffix}", bias.clone())

    def _typed_weight(self, weights: Any) -> Tensor:
        return weights.s_ih  # type: ignore[no-any-return]


class QuantizedRotLSTM(_Quantized, lstm.RotLSTM):
    """A `RotLSTM` with int8 weights."""

    _cell = INT8_CELLS["rot_lstm"]


class QuantizedLSTM(_Quantized, lstm.LSTM):
    """An `LSTM` with int8 weights."""

    _cell = INT8_CELLS["lstm"]


class QuantizedRotGRU(_Quantized, gru.RotGRU):
    """A `RotGRU` with int8 weights."""

    _cell = INT8_CELLS["rot_gru"]


class QuantizedClassicGRU(_Quantized, gru.ClassicGRU):
    """A `ClassicGRU` with int8 weights."""

    _cell = INT8_CELLS["classic_gru"]


class QuantizedGRU(_Quantized, gru.GRU):
    """A `GRU` with int8 weights."""

    _cell = INT8_CELLS["gru"]


class QuantizedRotLSTMCell(_Quantized, cells.RotLSTMCell):
    """A `RotLSTMCell` with int8 weights."""

    _cell = INT8_CELLS["rot_lstm"]


class QuantizedLSTMCell(_Quantized, cells.LSTMCell):
    """An `LSTMCell` with int8 weights."""

    _cell = INT8_CELLS["lstm"]


class QuantizedRotGRUCell(_Quantized, cells.RotGRUCell):
    """A `RotGRUCell` with int8 weights."""

    _cell = INT8_CELLS["rot_gru"]


class QuantizedClassicGRUCell(_Quantized, cells.ClassicGRUCell):
    """A `ClassicGRUCell` with int8 weights."""

    _cell = INT8_CELLS["classic_gru"]


class QuantizedGRUCell(_Quantized, cells.GRUCell):
    """A `GRUCell` with int8 weights."""

    _cell = INT8_CELLS["gru"]


#: What each class becomes.
QUANTIZED: dict[type[CellModule], type[_Quantized]] = {
    lstm.RotLSTM: QuantizedRotLSTM,
    lstm.LSTM: QuantizedLSTM,
    gru.RotGRU: QuantizedRotGRU,
    gru.ClassicGRU: QuantizedClassicGRU,
    gru.GRU: QuantizedGRU,
    cells.RotLSTMCell: QuantizedRotLSTMCell,
    cells.LSTMCell: QuantizedLSTMCell,
    cells.RotGRUCell: QuantizedRotGRUCell,
    cells.ClassicGRUCell: QuantizedClassicGRUCell,
    cells.GRUCell: QuantizedGRUCell,
}


def quantize_dynamic(module: nn.Module) -> nn.Module:
    """Copy a module, with int8 weights in its rotcell layers and cells.

    For inference on the CPU. Weights are rounded to int8, with one scale per row, and take a fourth
    of the memory. Input and states are quantized while it runs, with one scale per token. Gates,
    rotation, states and outputs are float32. Everything else in the module stays as it is.

    The copies take the same arguments and options as the originals. They have no parameters;
    calling backward through them raises an error. ``torch.ao.quantization.quantize_dynamic(model,
    {rotcell.RotLSTM})`` does the same for the classes that it is given.

    Args:
        module: a layer, a cell, or any module that contains some. Their weights must be float32 and
            on the CPU.

    Returns:
        The copy.

    Raises:
        TypeError: if `module` is no module, or contains a layer that has no int8 kernels (RUM,
            GORU, EURNN, a class derived from one of rotcell's).
        ValueError: if it contains no layer or cell of rotcell, or one with ``layer_norm=True``,
            with weights that are not float32, not on the CPU or not finite.

    Example:
        >>> import torch, rotcell
        >>> layer, x = rotcell.RotLSTM(10, 20), torch.rand(5, 3, 10)
        >>> small = rotcell.quantize_dynamic(layer)
        >>> small
        QuantizedRotLSTM(10, 20)
        >>> bool((small(x)[0] - layer(x)[0]).abs().max() < 0.03)
        True
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    found = [(name, m) for name, m in module.named_modules() if isinstance(m, CellModule)]
    if not found:
        raise ValueError(f"module has no layer or cell of rotcell, got {type(module).__name__}")
    for name, part in found:
        _check(part, name)
    copied = copy.deepcopy(module)
    memo: dict[int, nn.Module] = {}

    def swapped(part: nn.Module) -> nn.Module:
        if id(part) not in memo:
            memo[id(part)] = part  # for modules that contain themselves
            if isinstance(part, CellModule) and not isinstance(part, _Quantized):
                new = QUANTIZED[type_before_parametrizations(part)].from_float(part)
                hooks = {k: v for k, v in part.__dict__.items() if "_hooks" in k}
                new.__dict__.update(hooks)
                memo[id(part)] = new
            else:
                for name, child in list(part._modules.items()):
                    if child is not None:
                        part._modules[name] = swapped(child)
        return memo[id(part)]

    return swapped(copied)


def _check(module: CellModule, name: str) -> None:
    """Raise unless a module can be quantized, or is already."""
    if isinstance(module, _Quantized):
        return
    kind = type_before_parametrizations(module)
    this = kind.__name__ + (f" {name!r}" if name else "")
    if kind not in QUANTIZED:
        known = ", ".join(c.__name__ for c in QUANTIZED)
        raise TypeError(f"{this} cannot be quantized: there are int8 kernels for {known} only")
    if module._cell.name not in INT8_CELLS:
        option = "layer_norm=True" if module.layer_norm else f"rotation_size={module.rotation_size}"
        raise ValueError(f"{this} cannot be quantized: {option} has no int8 kernels")
    own: Any = module
    names = own._flat_weights_names if isinstance(module, Layer) else own._weight_names
    for parameter, weight in zip(names, module._read(names), strict=True):
        if weight is None:
            continue
        if weight.dtype != torch.float32 or weight.device.type != "cpu":
            raise ValueError(
                f"the weights of {this} must be float32 and on the CPU to be quantized, got "
                f"{parameter} of {weight.dtype} on {weight.device}"
            )
        if not weight.isfinite().all():
            raise ValueError(f"{parameter} of {this} must be finite to be quantized")


def register_with_torch_ao(public: Iterable[object]) -> None:
    """Let ``torch.ao.quantization.quantize_dynamic`` find the classes, in a torch that has it.

    Public layers and cells without int8 kernels are registered to raise, as torch would skip them.
    """
    try:
        from torch.ao.quantization import quantization_mappings
    except ImportError:
        return
    mapping: dict[Any, Any] = quantization_mappings.DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS
    for kind in public:
        if isinstance(kind, type) and issubclass(kind, CellModule):
            mapping[kind] = QUANTIZED.get(kind, _Quantized)
