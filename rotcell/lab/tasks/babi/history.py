"""How a run went, epoch by epoch, and the one number that counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Outcome(NamedTuple):
    """The result of a run: test accuracy where validation was best."""

    epoch: int
    validation: float
    test: float


@dataclass
class History:
    """Mean training loss and accuracies (0 to 1); the first entry is that of epoch 1."""

    loss: list[float] = field(default_factory=list)
    train: list[float] = field(default_factory=list)
    validation: list[float] = field(default_factory=list)
    test: dict[int, float] = field(default_factory=dict)  # only for the epochs looked at

    @property
    def epochs(self) -> int:
        return len(self.loss)

    def add(self, loss: float, train: float, validation: float, test: float | None) -> None:
        """Add the next epoch."""
        self.loss.append(loss)
        self.train.append(train)
        self.validation.append(validation)
        if test is not None:
            self.test[self.epochs] = test

    @property
    def outcome(self) -> Outcome:
        """The best epoch by validation among those with a test accuracy; the earliest on a tie."""
        epoch = max(sorted(self.test), key=lambda epoch: self.validation[epoch - 1])
        return Outcome(epoch, self.validation[epoch - 1], self.test[epoch])

    @property
    def latest_outcome(self) -> Outcome:
        """As `outcome`, but the latest on a tie: what the other reading of the paper would give."""
        epoch = max(sorted(self.test), key=lambda epoch: (self.validation[epoch - 1], epoch))
        return Outcome(epoch, self.validation[epoch - 1], self.test[epoch])

    def csv(self) -> bytes:
        """One row per epoch."""
        rows = ["epoch,loss,train,validation,test"]
        for number, row in enumerate(zip(self.loss, self.train, self.validation, strict=True), 1):
            numbers = (*row, self.test.get(number, ""))
            rows.append(",".join([str(number), *map(str, numbers)]))
        return ("\n".join(rows) + "\n").encode()

    def plain(self) -> dict[str, Any]:
        """As lists and numbers, for JSON."""
        return {
            "loss": self.loss,
            "train": self.train,
            "validation": self.validation,
            "test": {str(epoch): accuracy for epoch, accuracy in self.test.items()},
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> History:
        """The inverse of `plain`; ValueError when that cannot be."""
        try:
            history = cls(
                loss=[float(loss) for loss in plain["loss"]],
                train=[float(accuracy) for accuracy in plain["train"]],
                validation=[float(accuracy) for accuracy in plain["validation"]],
                test={int(epoch): float(accuracy) for epoch, accuracy in plain["test"].items()},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a history: {error!r}") from None
        curves = (history.loss, history.train, history.validation)
        if len({len(curve) for curve in curves}) != 1 or not all(
            1 <= epoch <= history.epochs for epoch in history.test
        ):
            raise ValueError("not a history: its curves do not have the same epochs")
        return history
