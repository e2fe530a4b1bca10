"""Every claim of the paper's results, and what our runs say of it.

A verdict is `holds`, `does not` or `undecided`. Differences are judged by their 95 % interval:
a claim of more holds when the interval lies above 0 (and, where the paper names an amount, reaches
half of it), does not when it lies below what would be half of the claim, and is undecided
otherwise. Without three runs of each cell on each task that it is about, a claim is undecided.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rotcell.babi.report.measures import (
    FEWEST,
    gaps,
    mean_test,
    median_epochs,
    sufficient_size,
)
from rotcell.babi.report.statistics import Difference, compare, signed
from rotcell.babi.report.summary import Summary
from rotcell.babi.report.tables import (
    Entry,
    Table,
    averaged_tasks,
    common_tasks,
    epochs_text,
    overall,
)

HOLDS: Final = "holds"
NOT: Final = "does not"
UNDECIDED: Final = "undecided"
TOO_FEW: Final = f"fewer than {FEWEST} runs of a task and cell"

_EARLY: Final = (1, 11, 12, 13)
_SLIGHT: Final = 1.0  # points: what a claim that names no amount is taken to mean at least


class Finding(NamedTuple):
    """What was measured, and what follows."""

    measured: str
    verdict: str


NOTHING_YET: Final = Finding("no runs yet", UNDECIDED)

Summaries = Mapping[str, Summary]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and how to judge it from an experiment about LSTMs or GRUs."""

    said: str
    judge: Callable[[Summary], Finding]
    on: str = "lstm"  # the experiment; for "lstm" it is judged with sigmoid gates too


def more(difference: Difference | None, amount: float | None = None) -> str:
    """The verdict on a claim that something is more, by so much."""
    if difference is None:
        return UNDECIDED
    half = (amount or _SLIGHT) / 2
    if difference.low > 0 and difference.high >= half:
        return HOLDS
    return NOT if difference.high < half else UNDECIDED


def all_of(verdicts: Iterable[str]) -> str:
    """The verdict on a claim about several tasks."""
    found = list(verdicts)
    if NOT in found:
        return NOT
    return UNDECIDED if UNDECIDED in found or not found else HOLDS


def _enough(summary: Summary, tasks: Iterable[int], cells: Iterable[str] | None = None) -> bool:
    return all(len(summary.of(t, c)) >= FEWEST for t in tasks for c in cells or summary.cells)


def _judged(summary: Summary, tasks: Sequence[int], finding: Finding) -> Finding:
    """The finding, undecided with too few runs."""
    if _enough(summary, tasks):
        return finding
    return Finding(f"{finding.measured} ({TOO_FEW})", UNDECIDED)


def _nothing(summary: Summary, tasks: Iterable[int]) -> Finding:
    """What to say where too few runs are there to compare any."""
    there = any(summary.of(task, cell) for task in tasks for cell in summary.cells)
    return Finding(TOO_FEW, UNDECIDED) if there else NOTHING_YET


def _pair(summary: Summary) -> tuple[str, str]:
    return summary.pairs[0]


def better_by(task: int, amount: float) -> Callable[[Summary], Finding]:
    """The rotating cell is more accurate on a task, by so many points."""

    def judge(summary: Summary) -> Finding:
        plain, cell = _pair(summary)
        found = compare(summary.values(task, cell), summary.values(task, plain))
        if found is None:
            return _nothing(summary, [task])
        return _judged(summary, [task], Finding(found.text, more(found, amount)))

    return judge


def better_overall(summary: Summary) -> Finding:
    """The rotating cell is more accurate in the mean over all tasks."""
    found = overall(summary, *_pair(summary))
    if found is None:
        return _nothing(summary, summary.tasks)
    finding = Finding(f"{found.text}, {len(averaged_tasks(summary))} tasks", more(found))
    return _judged(summary, summary.experiment.tasks, finding)


def better_on_most(summary: Summary) -> Finding:
    """The rotating cell has the higher mean on most tasks."""
    plain, cell = _pair(summary)
    tasks = common_tasks(summary)
    if not tasks:
        return NOTHING_YET
    higher = [
        task
        for task in tasks
        if (mean_test(summary, task, cell) or 0) > (mean_test(summary, task, plain) or 0)
    ]
    verdict = HOLDS if len(higher) > len(tasks) / 2 else NOT
    finding = Finding(f"on {len(higher)} of {len(tasks)} tasks", verdict)
    return _judged(summary, summary.experiment.tasks, finding)


def sooner(tasks: Sequence[int], by: float) -> Callable[[Summary], Finding]:
    """The rotating cell reaches the top so many epochs before the plain one."""

    def judge(summary: Summary) -> Finding:
        plain, cell = _pair(summary)
        said, verdicts = [], []
        for task in tasks:
            ours, theirs = median_epochs(summary, task, cell), median_epochs(summary, task, plain)
            if ours is None or theirs is None:
                continue
            said.append(f"task {task}: {epochs_text(ours)} and {epochs_text(theirs)}")
            if math.isinf(ours):
                verdicts.append(NOT if not math.isinf(theirs) else UNDECIDED)
            else:
                verdicts.append(HOLDS if theirs - ours >= by else NOT)
        if not said:
            return _nothing(summary, tasks)
        return _judged(summary, tasks, Finding("; ".join(said), all_of(verdicts)))

    return judge


def similar(tasks: Sequence[int], within: float) -> Callable[[Summary], Finding]:
    """Both cells have about the same accuracy."""

    def judge(summary: Summary) -> Finding:
        plain, cell = _pair(summary)
        said, verdicts = [], []
        for task in tasks:
            found = compare(summary.values(task, cell), summary.values(task, plain))
            if found is None:
                continue
            said.append(f"task {task}: {signed(found.mean)}")
            inside = -within <= found.low and found.high <= within
            outside = found.low > within or found.high < -within
            verdicts.append(HOLDS if inside else NOT if outside else UNDECIDED)
        if not said:
            return _nothing(summary, tasks)
        return _judged(summary, tasks, Finding("; ".join(said), all_of(verdicts)))

    return judge


def top_at(
    task: int, ours: tuple[float, float], theirs: tuple[float, float]
) -> Callable[[Summary], Finding]:
    """The rotating and the plain cell reach the top within ranges of epochs."""

    def judge(summary: Summary) -> Finding:
        plain, cell = _pair(summary)
        found = [median_epochs(summary, task, each) for each in (cell, plain)]
        if found[0] is None or found[1] is None:
            return NOTHING_YET
        fits = ours[0] <= found[0] <= ours[1] and theirs[0] <= found[1] <= theirs[1]
        said = f"epochs {epochs_text(found[0])} and {epochs_text(found[1])}"
        return _judged(summary, [task], Finding(said, HOLDS if fits else NOT))

    return judge


def steadier(task: int) -> Callable[[Summary], Finding]:
    """The rotating cell's accuracy varies less from seed to seed."""

    def judge(summary: Summary) -> Finding:
        plain, cell = _pair(summary)
        values = [summary.values(task, each) for each in (cell, plain)]
        if min(map(len, values)) < 2:
            return _nothing(summary, [task])
        ours, theirs = map(statistics.stdev, values)
        verdict = HOLDS if ours < theirs / 2 else NOT if ours >= theirs else UNDECIDED
        said = f"standard deviations {ours:.1f} and {theirs:.1f}"
        return _judged(summary, [task], Finding(said, verdict))

    return judge


def smaller(
    tasks: Sequence[int], ours: tuple[int, int], theirs: tuple[int, int]
) -> Callable[[Summary], Finding]:
    """Smaller states are enough for the rotating cell than for the plain one."""

    def judge(summary: Summary) -> Finding:
        plain, cell = _pair(summary)
        said, verdicts = [], []
        for task in tasks:
            counts = [
                len(summary.of(task, each, size))
                for each in (cell, plain)
                for size in summary.experiment.sizes
            ]
            if not any(counts):
                continue
            found = [sufficient_size(summary, task, each) for each in (cell, plain)]
            texts = ["none" if size is None else str(size) for size in found]
            said.append(f"task {task}: {texts[0]} and {texts[1]}")
            if min(counts) < FEWEST:
                verdicts.append(UNDECIDED)
            elif found[0] is None or (found[1] is not None and found[0] >= found[1]):
                verdicts.append(NOT)
            else:
                fits = ours[0] <= found[0] <= ours[1] and (
                    found[1] is None or theirs[0] <= found[1] <= theirs[1]
                )
                verdicts.append(HOLDS if fits else UNDECIDED)
        return Finding("; ".join(said), all_of(verdicts)) if said else NOTHING_YET

    return judge


def quicker_early(tasks: Sequence[int], epoch: int = 11) -> Callable[[Summary], Finding]:
    """The rotating cell is ahead on the test questions early in training."""

    def judge(summary: Summary) -> Finding:
        plain, cell = _pair(summary)
        said, verdicts = [], []
        for task in tasks:
            early = [
                [100 * r.history.test[epoch] for r in summary.of(task, each) if r.history]
                for each in (cell, plain)
            ]
            found = compare(early[0], early[1])
            if found is not None:
                said.append(f"task {task}: {found.text}")
                verdicts.append(more(found))
        if not said:
            return _nothing(summary, tasks)
        return _judged(
            summary, tasks, Finding(f"after epoch {epoch}, {'; '.join(said)}", all_of(verdicts))
        )

    return judge


def overfits_more(tasks: Sequence[int]) -> Callable[[Summary], Finding]:
    """The rotating cell's gap between training and test accuracy is the larger one."""

    def judge(summary: Summary) -> Finding:
        plain, cell = _pair(summary)
        said, verdicts = [], []
        for task in tasks:
            found = compare(gaps(summary, task, cell), gaps(summary, task, plain))
            if found is not None:
                said.append(f"task {task}: {found.text}")
                verdicts.append(more(found))
        if not said:
            return _nothing(summary, tasks)
        return _judged(summary, tasks, Finding("; ".join(said), all_of(verdicts)))

    return judge


def poor(tasks: Sequence[int], below: float) -> Callable[[Summary], Finding]:
    """No cell does well."""

    def judge(summary: Summary) -> Finding:
        best = {
            task: max(means)
            for task in tasks
            if (
                means := [
                    m for c in summary.cells if (m := mean_test(summary, task, c)) is not None
                ]
            )
        }
        if not best:
            return NOTHING_YET
        said = "; ".join(f"task {task}: {mean:.1f}" for task, mean in best.items())
        verdict = HOLDS if max(best.values()) < below and len(best) == len(tasks) else NOT
        return _judged(summary, tasks, Finding(f"the better cell, {said}", verdict))

    return judge


def not_better(summary: Summary) -> Finding:
    """The rotating cell is the same or slightly worse, in the mean over all tasks."""
    found = overall(summary, *_pair(summary))
    if found is None:
        return _nothing(summary, summary.tasks)
    verdict = HOLDS if found.high < _SLIGHT else NOT if found.low > 0 else UNDECIDED
    return _judged(summary, summary.experiment.tasks, Finding(found.text, verdict))


def slower(summary: Summary) -> Finding:
    """The rotating cell takes longer to train."""
    plain, cell = _pair(summary)
    tasks = common_tasks(summary)
    if not tasks:
        return NOTHING_YET
    seconds = {
        each: statistics.fmean(r.seconds for task in tasks for r in summary.of(task, each))
        for each in (plain, cell)
    }
    ratio = seconds[cell] / seconds[plain]
    verdict = HOLDS if ratio > 1.05 else NOT if ratio < 1 else UNDECIDED
    said = f"{seconds[cell]:.0f} s a run against {seconds[plain]:.0f} s ({ratio:.2f} times)"
    return _judged(summary, tasks, Finding(said, verdict))


CLAIMS: Final = (
    Claim("rotation gives a slight improvement overall", better_overall),
    Claim("it has a positive impact on most tasks", better_on_most),
    Claim(
        "tasks 1, 11, 12, 13: RotLSTM reaches the top a couple of epochs before LSTM",
        sooner(_EARLY, 2),
    ),
    Claim(
        "tasks 1, 11, 12, 13: the top is similar, RotLSTM better by up to 2.5",
        similar(_EARLY, 2.5),
    ),
    Claim(
        "tasks 1, 11, 12, 13: RotLSTM needs state size 10 to 20, LSTM 20 to 30",
        smaller(_EARLY, (10, 20), (20, 30)),
        "state-size",
    ),
    Claim(
        "task 18: RotLSTM is at the top before epoch 20, LSTM takes 40 epochs",
        top_at(18, (1, 19), (31, math.inf)),
    ),
    Claim("task 18: training is more stable with RotLSTM", steadier(18)),
    Claim("task 18: accuracy better by 20", better_by(18, 20.2)),
    Claim(
        "task 18: RotLSTM needs state size 10, LSTM 40",
        smaller((18,), (6, 10), (40, 40)),
        "state-size",
    ),
    Claim("task 5: accuracy better by 22.1", better_by(5, 22.1)),
    Claim("task 5: RotLSTM reaches the top around epoch 25", top_at(5, (20, 30), (1, math.inf))),
    Claim("task 7: accuracy better by 14", better_by(7, 14.0)),
    Claim("tasks 4, 20: RotLSTM is better in early epochs", quicker_early((4, 20))),
    Claim(
        "task 20: RotLSTM needs state size 10, LSTM 40 to 50",
        smaller((20,), (6, 10), (40, 50)),
        "state-size",
    ),
    Claim("tasks 15, 17: RotLSTM overfits more than LSTM", overfits_more((15, 17))),
    Claim("tasks 2, 3, 14: both do poorly", poor((2, 3, 14), 50.0)),
    Claim("RotGRU does the same as GRU or slightly worse", not_better, "gru"),
    Claim("RotGRU takes longer than GRU (wall clock)", slower, "gru"),
)
GRU_BEATS_BOTH: Final = "GRU does better than LSTM and RotLSTM"


def gru_beats_both(summaries: Summaries) -> Finding:
    """On how many tasks the GRU has a higher mean than LSTM and RotLSTM."""
    if not {"lstm", "gru"} <= set(summaries):
        return NOTHING_YET
    lstm, gru = summaries["lstm"], summaries["gru"]
    cells = [(lstm, "lstm"), (lstm, "rotlstm"), (gru, "gru")]
    tasks = [t for t in gru.tasks if all(summary.of(t, cell) for summary, cell in cells)]
    if not tasks:
        return NOTHING_YET
    higher = 0
    for task in tasks:
        a, b, c = (mean_test(summary, task, cell) or 0.0 for summary, cell in cells)
        higher += c > max(a, b)
    said = f"on {higher} of {len(tasks)} tasks"
    every = gru.experiment.tasks
    if not all(len(summary.of(t, cell)) >= FEWEST for t in every for summary, cell in cells):
        return Finding(f"{said} ({TOO_FEW})", UNDECIDED)
    return Finding(said, HOLDS if higher > len(tasks) / 2 else NOT)


def claims_table(summaries: Summaries) -> Table:
    """A row a claim: what we measured with the paper's gates, and with sigmoid ones."""
    rows = []
    for claim in CLAIMS:
        hard = _find(claim, summaries.get(claim.on))
        row = [
            Entry(claim.said),
            Entry(hard.measured),
            Entry(hard.verdict, hard.verdict != UNDECIDED),
        ]
        if claim.on == "lstm":
            soft = _find(claim, summaries.get("lstm-sigmoid"))
            row += [Entry(soft.measured), Entry(soft.verdict, soft.verdict != UNDECIDED)]
        else:
            row += [Entry(""), Entry("")]
        rows.append(tuple(row))
    found = gru_beats_both(summaries)
    last = (Entry(found.measured), Entry(found.verdict, found.verdict != UNDECIDED))
    rows.append((Entry(GRU_BEATS_BOTH), *last, Entry(""), Entry("")))
    header = ("claim of the paper", "hard gates", "verdict", "sigmoid gates", "verdict")
    return Table(header, tuple(rows), words=True)


def _find(claim: Claim, summary: Summary | None) -> Finding:
    if summary is None or not summary.pairs or not summary.results:
        return NOTHING_YET
    return claim.judge(summary)


def does_rotation_help(summaries: Summaries) -> list[str]:
    """The question behind the paper, answered in sentences, for each gate function."""
    said = []
    for name, gates in (("lstm", "hard gates, as the paper's"), ("lstm-sigmoid", "sigmoid gates")):
        summary = summaries.get(name)
        if summary is None or not summary.pairs or overall(summary, *_pair(summary)) is None:
            said.append(f"With {gates}, there are not enough runs yet to say.")
            continue
        finding = better_overall(summary)
        answer = {
            HOLDS: "rotation helps",
            NOT: "rotation does not help",
            UNDECIDED: "it is undecided whether rotation helps",
        }[finding.verdict]
        said.append(
            f"With {gates}, {answer}: RotLSTM - LSTM in the mean over tasks is {finding.measured}."
        )
    return said
