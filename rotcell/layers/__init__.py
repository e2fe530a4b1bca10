"""The public layers and single-step cells.

- `lstm`, `gru`: the layers, used like nn.LSTM and nn.GRU; `cells`: one timestep, like nn.LSTMCell.
- `rum`, `orthogonal`: RUM, and GORU and EURNN, used like nn.GRU.
- `layer`: what all layers share; `base`: what layers and single-step cells share.
- `options`, `parameters`: what the constructors' options and the parameters are, as tables.
- `checkpoints`: which cell a state_dict belongs to; `convert`: a RotLSTM from an LSTM.
"""

from .cells import (
    ClassicGRUCell,
    EURNNCell,
    GORUCell,
    GRUCell,
    LinearRotLSTMCell,
    LSTMCell,
    RotGRUCell,
    RotLSTMCell,
    RUMCell,
)
from .gru import GRU, ClassicGRU, RotGRU
from .lstm import LSTM, LinearRotLSTM, RotLSTM
from .orthogonal import EURNN, GORU
from .rum import RUM

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
]
