"""Recurrent layers with a rotating state for PyTorch, with fused kernels.

>>> import torch
>>> from rotcell import RotLSTM
>>> layer = RotLSTM(10, 20, batch_first=True)
>>> output, (h_n, c_n) = layer(torch.randn(3, 7, 10))
>>> output.shape
torch.Size([3, 7, 20])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from ._torch_check import check_torch

check_torch()

from . import cuda, reference
from ._version import __version__
from .cuda import paths as _cuda_paths
from .cuda import self_check as _self_check
from .info import build_info
from .layers import (
    EURNN,
    GORU,
    GRU,
    LSTM,
    RUM,
    ClassicGRU,
    ClassicGRUCell,
    EURNNCell,
    GORUCell,
    GRUCell,
    LinearRotLSTM,
    LinearRotLSTMCell,
    LSTMCell,
    RotGRU,
    RotGRUCell,
    RotLSTM,
    RotLSTMCell,
    RUMCell,
)
from .layers.quantized import QUANTIZED as _QUANTIZED
from .layers.quantized import quantize_dynamic, register_with_torch_ao
from .ops import use_reference

if TYPE_CHECKING:
    from .tracing.trace import trace

__all__ = [
    "EURNN",
    "GORU",
    "GRU",
    "LSTM",
    "RUM",
    "ClassicGRU",
    "ClassicGRUCell",
    "EURNNCell",
    "GORUCell",
    "GRUCell",
    "LSTMCell",
    "LinearRotLSTM",
    "LinearRotLSTMCell",
    "RUMCell",
    "RotGRU",
    "RotGRUCell",
    "RotLSTM",
    "RotLSTMCell",
    "__version__",
    "build_info",
    "cuda",
    "quantize_dynamic",
    "reference",
    "trace",
    "use_reference",
]


def __getattr__(name: str) -> Any:
    # Imported at first use: training does not look inside layers.
    if name in ("trace", "tracing"):
        tracing = import_module(".tracing", __name__)
        return tracing if name == "tracing" else tracing.trace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# torch.load(weights_only=True) then reads whole models that contain them.
torch.serialization.add_safe_globals(
    [
        EURNN,
        GORU,
        GRU,
        LSTM,
        RUM,
        ClassicGRU,
        ClassicGRUCell,
        EURNNCell,
        GORUCell,
        GRUCell,
        LSTMCell,
        LinearRotLSTM,
        LinearRotLSTMCell,
        RUMCell,
        RotGRU,
        RotGRUCell,
        RotLSTM,
        RotLSTMCell,
        *_QUANTIZED.values(),
    ]
)
register_with_torch_ao(globals().values())

_cuda_paths.set_up()
_self_check.set_up()
