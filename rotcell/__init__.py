"""Rotating-memory recurrent layers for PyTorch, with fused kernels.

>>> import torch
>>> from rotcell import RotLSTM
>>> layer = RotLSTM(10, 20, batch_first=True)
>>> output, (h_n, c_n) = layer(torch.randn(3, 7, 10))
>>> output.shape
torch.Size([3, 7, 20])
"""

import torch

from ._torch_check import check_torch

__version__ = check_torch()["version"]

from . import cuda_graphs, reference, self_check
from .cells import ClassicGRUCell, LSTMCell, RotGRUCell, RotLSTMCell
from .info import build_info
from .layers import LSTM, ClassicGRU, RotGRU, RotLSTM
from .ops import use_reference
from .tracing import trace

__all__ = [
    "LSTM",
    "ClassicGRU",
    "ClassicGRUCell",
    "LSTMCell",
    "RotGRU",
    "RotGRUCell",
    "RotLSTM",
    "RotLSTMCell",
    "__version__",
    "build_info",
    "cuda_graphs",
    "reference",
    "self_check",
    "trace",
    "use_reference",
]

# So that torch.load reads whole models that have them.
torch.serialization.add_safe_globals(
    [LSTM, ClassicGRU, ClassicGRUCell, LSTMCell, RotGRU, RotGRUCell, RotLSTM, RotLSTMCell]
)

self_check.set_up()
cuda_graphs.set_up()
