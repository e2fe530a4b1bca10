"""The planes that a rotation turns: which group, layer and units each angle belongs to."""

from __future__ import annotations

from typing import NamedTuple


class Plane(NamedTuple):
    """The plane that one angle turns."""

    group: int  #: of neighboring units; a pair is a group of two
    layer: int  #: of the layers of a group, which turn one after the other
    units: tuple[int, int]


def planes_of(size: int, groups: int) -> list[Plane]:
    """The planes of groups of `size` units, in the order of their angles.

    >>> planes_of(3, 1)
    [Plane(group=0, layer=0, units=(0, 1)), Plane(group=0, layer=1, units=(1, 2)), \
Plane(group=0, layer=2, units=(0, 1))]
    """
    return [
        Plane(group, layer, (group * size + first, group * size + first + 1))
        for group in range(groups)
        for layer in range(size)
        for first in range(layer % 2, size - 1, 2)
    ]
