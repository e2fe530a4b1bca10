"""bAbI as a task of the lab's studies."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rotcell.lab.errors import TrainingError
from rotcell.lab.judged import Judged, Measure, Picture
from rotcell.lab.tasks.babi.data.source import Source
from rotcell.lab.tasks.babi.estimate import estimate
from rotcell.lab.tasks.babi.experiments import PAPER_SIZE
from rotcell.lab.tasks.babi.report.constant import DATA, constant_accuracy
from rotcell.lab.tasks.babi.report.paper import PRINTED
from rotcell.lab.tasks.babi.settings import RunSettings


class Babi(Judged):
    """Runs and records are those of `rotcell.lab.tasks.babi.sweep`."""

    name = "babi"
    about = "question answering (bAbI)"
    needs_data = True
    measure = Measure(
        "accuracy", "mean accuracy over tasks in %, layers of the same size", 0.01, 1, 100
    )
    pooled = ("task",)
    picture = Picture(
        "sizes",
        "babi-packed",
        "bAbI without padding: mean test accuracy over the tasks, {seeds} seeds, with 95 % "
        "intervals of the mean. Gray: always the most frequent answer in training.",
        printed="paper, padded",
        constant="constant answer",
    )

    def settings(self, plain: Mapping[str, Any]) -> RunSettings:
        """The settings of a run; missing ones are the paper's."""
        return RunSettings.from_plain(plain)

    def run(
        self,
        settings: RunSettings,
        data: Path | None,
        on_epoch: Callable[[int, float], None] | None = None,
    ) -> dict[str, Any]:
        """Train and test; the record of the run."""
        began = time.process_time()
        source = Source.at(None if data is None else str(data))
        result = source.compute(
            settings, on_epoch=None if on_epoch is None else lambda epoch: on_epoch(epoch, 0.0)
        )
        if result.error is not None:
            raise TrainingError(result.error)
        record = result.plain()
        record["environment"]["load"] = round(os.getloadavg()[0], 2)
        record["cpu_seconds"] = round(time.process_time() - began, 3)
        return record

    def cell(self, settings: Mapping[str, Any]) -> str:
        """The GRU of these runs is RotGRU without rotation."""
        return "classicgru" if settings["cell"] == "gru" else str(settings["cell"])

    def printed(self, settings: Mapping[str, Any]) -> float | None:
        """The paper's mean, which is of padded stories."""
        if settings["state_size"] != PAPER_SIZE or settings["cell"] not in PRINTED:
            return None
        return PRINTED[settings["cell"]][settings["task"]].mean

    def constant(self, settings: Mapping[str, Any]) -> float | None:
        """On the official data."""
        return constant_accuracy(DATA, settings["task"])

    def score(self, record: Mapping[str, Any]) -> tuple[float, float]:
        """Error on the validation questions; bAbI has no target to reach."""
        return 1 - record["outcome"]["validation"], math.inf

    def seconds(self, settings: RunSettings, data: Path | None) -> float:
        """From steps measured here."""
        return estimate([settings], Source.at(None if data is None else str(data)))
