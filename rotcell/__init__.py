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

from . import cuda, layers, reference
from ._version import __version__
from .cuda import paths as _cuda_paths
from .cuda import self_check as _self_check
from .info import build_info
from .layers import *
from .layers.quantized import QUANTIZED as _QUANTIZED
from .layers.quantized import quantize_dynamic, register_with_torch_ao
from .ops import use_reference

if TYPE_CHECKING:
    from .tracing.trace import trace

__all__ = [
    "__version__",
    "build_info",
    "cuda",
    "quantize_dynamic",
    "reference",
    "trace",
    "use_reference",
]
__all__ += layers.__all__


def __getattr__(name: str) -> Any:
    # Imported at first use: training does not look inside layers.
    if name in ("trace", "tracing"):
        tracing = import_module(".tracing", __name__)
        return tracing if name == "tracing" else tracing.trace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_PUBLIC = [getattr(layers, name) for name in layers.__all__]
# torch.load(weights_only=True) then reads whole models that contain them.
torch.serialization.add_safe_globals([*_PUBLIC, *_QUANTIZED.values()])
register_with_torch_ao(_PUBLIC)

_cuda_paths.set_up()
_self_check.set_up()
