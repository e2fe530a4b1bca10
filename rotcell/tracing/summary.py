"""Every pair of a trace in a few numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .trace import Direction

#: An angle this near to 0 or 2 pi counts as saturated, in radians.
SATURATED: Final = 0.1


class PairSummary(NamedTuple):
    """One pair of units, over all steps and rows. Angles are NaN if the cell does not rotate."""

    direction: str
    pair: int  #: units 2 pair and 2 pair + 1
    mean_angle: float  #: radians, between 0 and 2 pi; the mean of directions, not of numbers
    spread: float  #: circular standard deviation, radians
    turn: float  #: mean of the angle to the nearest whole turn, radians, 0 to pi
    saturated: float  #: share of steps within 0.1 rad of 0 or 2 pi
    norm_kept: float  #: of the state's norm, the share that the forget (GRU: reset) gate leaves


class Summary(tuple[PairSummary, ...]):
    """One `PairSummary` per pair; prints as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        head = f"{'pair':>16}{'mean angle':>12}{'spread':>9}{'turn':>9}{'saturated':>11}{'kept':>9}"
        lines = [head]
        for pair in self:
            lines.append(
                f"{f'{pair.direction} {pair.pair}':>16}{_text(pair.mean_angle, '.3f'):>12}"
                f"{_text(pair.spread, '.3f'):>9}{_text(pair.turn, '.3f'):>9}"
                f"{_text(pair.saturated, '.1%'):>11}{_text(pair.norm_kept, '.1%'):>9}"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def _text(number: float, form: str) -> str:
    """A number, or a dash where there is none: a cell without rotation has no angles."""
    return "-" if math.isnan(number) else format(number, form)


def summarize(directions: Iterable[Direction]) -> Summary:
    """The summary of all pairs of all directions."""
    return Summary(pair for direction in directions for pair in _pairs(direction))


def larger_groups(directions: Iterable[Direction]) -> int:
    """The size of rotated groups, if they are no pairs; otherwise 0."""
    return next((d.rotation_size for d in directions if d.rotation_size != 2), 0)


def turn(angles: Tensor) -> Tensor:
    """The angle to the nearest whole turn, 0 to pi: how far a rotation moves things."""
    return math.pi - (angles % (2 * math.pi) - math.pi).abs()


def _pairs(direction: Direction) -> Iterable[PairSummary]:
    pairs = direction.hidden_size // 2
    kept = _pair_norms(direction.flat("kept"), pairs).sum(0)
    whole = _pair_norms(direction.flat("previous_state"), pairs).sum(0)
    norm_kept = kept / whole  # NaN for a pair whose state is 0 throughout
    if direction.rotates:
        angles = direction.flat("angles").double()
        towards = torch.polar(torch.ones_like(angles), angles).mean(0)
        length = towards.abs().clamp(max=1)
        columns = [
            towards.angle() % (2 * math.pi),
            (-2 * length.log()).sqrt(),
            turn(angles).mean(0),
            (turn(angles) < SATURATED).double().mean(0),
        ]
    else:
        columns = [torch.full((pairs,), math.nan)] * 4
    rows = zip(*(column.tolist() for column in (*columns, norm_kept)), strict=True)
    for pair, numbers in enumerate(rows):
        yield PairSummary(direction.name, pair, *numbers)


def _pair_norms(state: Tensor, pairs: int) -> Tensor:
    """``[N, pairs]``."""
    paired = state[:, : 2 * pairs].double()
    norms: Tensor = torch.linalg.vector_norm(paired.reshape(-1, pairs, 2), dim=-1)
    return norms
