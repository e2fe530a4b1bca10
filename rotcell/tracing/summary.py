"""Every plane of a trace, a pair of units mostly, in a few numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import torch
from torch import Tensor

from .planes import Plane, planes_of

if TYPE_CHECKING:
    from .trace import Direction

#: An angle this near to 0 or 2 pi counts as saturated, in radians.
SATURATED: Final = 0.1


class PlaneSummary(NamedTuple):
    """One plane over all steps and rows. Angles are NaN if the cell does not rotate."""

    direction: str
    plane: Plane  #: a pair of units; with a larger `rotation_size`, one of a group's planes
    mean_angle: float  #: radians, between 0 and 2 pi; the mean of directions, not of numbers
    spread: float  #: circular standard deviation, radians
    turn: float  #: mean of the angle to the nearest whole turn, radians, 0 to pi
    saturated: float  #: share of steps within 0.1 rad of 0 or 2 pi
    #: Of the norm of the state's two units, the share that the forget (GRU: reset) gate leaves.
    norm_kept: float


class Summary(tuple[PlaneSummary, ...]):
    """One `PlaneSummary` per plane; prints as a table."""

    __slots__ = ()

    def __str__(self) -> str:
        # In a pair, one angle turns both units.
        in_pairs = all(row.plane.layer == 0 for row in self)
        names = ["pair" if in_pairs else "plane", *(_name(row, in_pairs) for row in self)]
        width = max(16, *map(len, names))
        heads = f"{'mean angle':>12}{'spread':>9}{'turn':>9}{'saturated':>11}{'kept':>9}"
        lines = [f"{names[0]:>{width}}{heads}"]
        for name, row in zip(names[1:], self, strict=True):
            lines.append(
                f"{name:>{width}}{_text(row.mean_angle, '.3f'):>12}"
                f"{_text(row.spread, '.3f'):>9}{_text(row.turn, '.3f'):>9}"
                f"{_text(row.saturated, '.1%'):>11}{_text(row.norm_kept, '.1%'):>9}"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def _name(row: PlaneSummary, in_pairs: bool) -> str:
    group, layer, units = row.plane
    if in_pairs:
        return f"{row.direction} {group}"
    return f"{row.direction} group {group}, layer {layer} {units}"


def _text(number: float, form: str) -> str:
    """A number, or a dash where there is none: a cell without rotation has no angles."""
    return "-" if math.isnan(number) else format(number, form)


def summarize(directions: Iterable[Direction]) -> Summary:
    """The summary of all planes of all directions."""
    return Summary(row for direction in directions for row in _rows(direction))


def turn(angles: Tensor) -> Tensor:
    """The angle to the nearest whole turn, 0 to pi: how far a rotation moves things."""
    return math.pi - (angles % (2 * math.pi) - math.pi).abs()


def _rows(direction: Direction) -> Iterable[PlaneSummary]:
    planes = planes_of(direction.rotation_size, direction.groups)
    kept = _norms(direction.flat("kept"), planes).sum(0)
    whole = _norms(direction.flat("previous_state"), planes).sum(0)
    norm_kept = kept / whole  # NaN for units whose state is 0 throughout
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
        columns = [torch.full((len(planes),), math.nan)] * 4
    rows = zip(*(column.tolist() for column in (*columns, norm_kept)), strict=True)
    for plane, numbers in zip(planes, rows, strict=True):
        yield PlaneSummary(direction.name, plane, *numbers)


def _norms(state: Tensor, planes: Sequence[Plane]) -> Tensor:
    """``[N, planes]``, the norm of the two units of each plane."""
    first, second = (state[:, [plane.units[k] for plane in planes]].double() for k in (0, 1))
    return torch.hypot(first, second)
