"""Where people and things are, as far as a reader can know."""

from __future__ import annotations

from rotcell.lab.tasks.babi.data.check.replay import ContradictionError


class Spots:
    """Where people and things are, also while the name of the place is not known.

    Two that meet are at one spot; a spot has at most one name.
    """

    def __init__(self) -> None:
        self._spot: dict[str, int] = {}
        self._name: dict[int, str] = {}
        self._unused = 0

    def spot(self, who: str) -> int:
        """The spot of a person or thing, a new one when nothing is known."""
        if who not in self._spot:
            self._spot[who] = self._new()
        return self._spot[who]

    def name(self, who: str) -> str | None:
        """The name of the place where somebody or something is, where known."""
        return self._name.get(self.spot(who))

    def move(self, who: str, place: str) -> None:
        """Somebody came to a place."""
        named = [spot for spot, name in self._name.items() if name == place]
        self._spot[who] = named[0] if named else self._new()
        self._name[self._spot[who]] = place

    def put(self, thing: str, where: str) -> None:
        """Something now lies where somebody is."""
        self._spot[thing] = self.spot(where)

    def meet(self, one: str, other: str) -> None:
        """Both are at one spot; raises when their places are known to differ."""
        kept, merged = self.spot(one), self.spot(other)
        names = {self._name[spot] for spot in (kept, merged) if spot in self._name}
        if len(names) > 1:
            here, there = self.name(one), self.name(other)
            raise ContradictionError(f"{one} is in the {here} but {other} in the {there}")
        for who, spot in self._spot.items():
            if spot == merged:
                self._spot[who] = kept
        self._name.pop(merged, None)
        for name in names:
            self._name[kept] = name

    def _new(self) -> int:
        self._unused += 1
        return self._unused
