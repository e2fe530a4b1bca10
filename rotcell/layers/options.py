"""The options that torch's layers do not have: their defaults, checks and descriptions.

Another option is an entry in `OPTIONS` and an argument of the classes that take it.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from rotcell.reference import GATE_FUNCTIONS

if TYPE_CHECKING:
    from .base import CellModule

__all__ = ["OPTIONS", "SPREAD", "Option", "angle_biases", "probability"]


class Option(NamedTuple):
    """An option of layers or cells."""

    default: Any
    #: From the name, the value and the module, whose sizes and bias are set, to the checked value.
    check: Callable[[str, Any, CellModule], Any]
    #: What docstrings say of it; words in braces are those of the class, see `documentation`.
    text: str
    #: Whether weights trained with one value compute something else with another.
    is_part_of_equations: bool = False


def _activation(name: str, value: object, module: CellModule) -> str:
    if not isinstance(value, str) or value not in GATE_FUNCTIONS:
        known = " or ".join(map(repr, GATE_FUNCTIONS))
        raise ValueError(f"{name} must be {known}, got {value!r}")
    return value


def _angles_from(name: str, value: object, module: CellModule) -> str:
    if value not in ("both", "input"):
        raise ValueError(f"{name} must be 'both' or 'input', got {value!r}")
    return str(value)


def _shift(name: str, value: Any, module: CellModule) -> float:
    """Refuse a shift that is not a finite number or that has no bias to be added to."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a real number, got {type(value).__name__}")
    shift = float(value)
    if not math.isfinite(shift):
        raise ValueError(f"{name} must be finite, got {shift}")
    if shift != 0 and not module.bias:
        raise ValueError(f"{name}={shift} needs bias=True: it is added to bias_ih")
    return shift


#: A rotation_bias: the angles start evenly on a log scale from 2 pi / 64 to pi.
SPREAD = "spread"


def angle_biases(rotation_bias: float | str, like: Tensor) -> float | Tensor:
    """What `rotation_bias` adds to these rows, which are those of the angles."""
    if not isinstance(rotation_bias, str):
        return rotation_bias
    smallest, largest = math.log10(2 * math.pi / 64), math.log10(math.pi)
    starts = torch.logspace(smallest, largest, len(like), dtype=torch.float64, device=like.device)
    return torch.logit(starts / (2 * math.pi)).to(like.dtype)


def _angle_shift(name: str, value: Any, module: CellModule) -> float | str:
    """As `_shift`, or `SPREAD`."""
    if not isinstance(value, str):
        return _shift(name, value, module)
    if value != SPREAD:
        raise ValueError(f"{name} must be a real number or {SPREAD!r}, got {value!r}")
    if not module.bias:
        raise ValueError(f"{name}={value!r} needs bias=True: it is added to bias_ih")
    return value


def probability(name: str, value: object, module: CellModule | None = None) -> float:
    """The value as a float, if it is a number between 0 and 1."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not 0 <= float(value) <= 1:  # type: ignore[arg-type]
        raise ValueError(f"{name} must be a probability between 0 and 1, got {value!r}")
    return float(value)  # type: ignore[arg-type]


def _flag(name: str, value: object, module: CellModule) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, got {type(value).__name__}")
    return value


def _positive_or_none(name: str, value: Any, module: CellModule) -> float | None:
    if value is None:
        return None
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be None or a real number, got {type(value).__name__}")
    if not 0 < float(value) < math.inf:
        raise ValueError(f"{name} must be None or positive and finite, got {value!r}")
    return float(value)


def _count(name: str, value: Any, module: CellModule) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if value <= 0:
        raise ValueError(f"{name} must be greater than zero, got {value}")
    return value


def _rotation_size(name: str, value: Any, module: CellModule) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if not 2 <= value <= max(2, module.hidden_size):
        raise ValueError(
            f"{name} must be between 2 and hidden_size={module.hidden_size}, got {value}"
        )
    return value


def _zoneout(name: str, value: Any, module: CellModule) -> float | tuple[float, float]:
    checked: float | tuple[float, float]
    if isinstance(value, (tuple, list)):
        if len(module._cell.states) == 1:
            raise ValueError(
                f"{name} must be a float for {type(module).__name__} (it has no cell state), got "
                f"{value!r}"
            )
        if len(value) != 2:
            raise ValueError(f"{name} must be a float or a pair (for h, for c), got {value!r}")
        checked = (probability(f"{name}[0]", value[0]), probability(f"{name}[1]", value[1]))
    else:
        checked = probability(name, value)
    if module.proj_size and checked not in (0.0, (0.0, 0.0)):
        raise ValueError(
            f"{name} must be 0 with proj_size={module.proj_size}: a projected output cannot keep "
            f"old values; got {value!r}"
        )
    return checked


OPTIONS = {
    "gate_activation": Option(
        "sigmoid",
        _activation,
        'activation of the gates {gates}: ``"sigmoid"``, or ``"hard_sigmoid"``, '
        "``clip(0.2 a + 0.5, 0, 1)``, which Keras had before 2.3.",
        is_part_of_equations=True,
    ),
    "angle_activation": Option(
        "sigmoid",
        _activation,
        "activation of the angles, with the same choices.",
        is_part_of_equations=True,
    ),
    "angles_from": Option(
        "both",
        _angles_from,
        'what makes the angles: ``"both"``, h and x, or ``"input"``, x alone. Then '
        "`weight_hh` and `bias_hh` have no rows for them, and the rotation costs nothing in the "
        "recurrent matmul. On a GPU the reference code then runs, with a warning.",
        is_part_of_equations=True,
    ),
    "rotation_size": Option(
        2,
        _rotation_size,
        "k, how many neighboring units form a group that is rotated. A group is turned by k (k "
        "- 1) / 2 angles in k layers of plane rotations, one after the other: even layers turn "
        "units (0, 1), (2, 3) and so on of the group, odd layers (1, 2), (3, 4) and so on. Rows "
        "of the angles are in the order of group, layer, plane; together they are A = (H // k) "
        "k (k - 1) / 2, about H (k - 1) / 2. A weight has A rows more than without rotation, a "
        "token takes 2 A {features} more FLOPs in the matmuls and about 6 A in the rotations, "
        "and training keeps A more numbers per token. Sizes other than 2, 3, 4 and 8 run on the "
        "reference code, as {sizes} do on GPUs, with a warning.",
        is_part_of_equations=True,
    ),
    "rotation_bias": Option(
        0.0,
        _angle_shift,
        "added to the angles' rows of `bias_ih` at initialization. At 0 the angles start around "
        'pi; with a negative value they start smaller. ``"spread"`` gives every angle its own '
        "start, from 2 pi / 64 to pi, evenly on a log scale.",
    ),
    "forget_bias": Option(
        0.0,
        _shift,
        "added to the forget gate's rows of `bias_ih` at initialization.",
    ),
    "recurrent_dropout": Option(
        0.0,
        probability,
        "probability of dropping elements of h where it enters the matmuls of the "
        "next step, in training: one mask per sequence, layer and direction.{carried}",
    ),
    "zoneout": Option(
        0.0,
        _zoneout,
        "probability, at every step, that a unit keeps its old value, in "
        "training{pair}. In eval mode the expected value is used.{projected}",
    ),
    "layer_norm": Option(
        False,
        _flag,
        "normalize, as Ba et al. (2016), ``W_ih x``, ``W_hh h`` (each over all its rows) and, "
        "where the output reads it, c: ``a = LN(W_ih x) * gain_ih + LN(W_hh h) * gain_hh + b_ih "
        "+ b_hh`` and ``h = o * tanh(LN(c) * gain_c + bias_c)``. The c that is carried on is "
        "not normalized. There are kernels for CPUs; on a GPU the reference code runs, with a "
        "warning.",
    ),
    "eta": Option(
        None,
        _positive_or_none,
        "if not None, every new state is scaled to this norm (time normalization).",
        is_part_of_equations=True,
    ),
    "capacity": Option(
        2,
        _count,
        "number of layers of plane rotations that make up the rotation of the state.",
        is_part_of_equations=True,
    ),
}
