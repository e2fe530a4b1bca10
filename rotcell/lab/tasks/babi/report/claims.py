"""Every claim of the paper's results, with what our runs show and a verdict.

`judge` turns a 95 % interval into a verdict. Each claim is judged separately: intervals are not
corrected for the number of claims. Without three runs of each cell on each task that it is about,
a claim is undecided.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rotcell.lab.report.statistics import (
    Difference,
    Moments,
    compare,
    compare_pairs,
    mean_interval,
    median_interval,
    rank_test,
    sign_test,
    signed,
)
from rotcell.lab.tasks.babi.cells import CELLS
from rotcell.lab.tasks.babi.report.measures import (
    FEWEST,
    epochs_to_top,
    gaps,
    mean_test,
    sufficient_size,
)
from rotcell.lab.tasks.babi.report.paper import PRINTED, printed_mean
from rotcell.lab.tasks.babi.report.summary import Summary
from rotcell.lab.tasks.babi.report.tables import (
    SIGNIFICANT,
    Entry,
    Table,
    averaged_tasks,
    common_tasks,
    epochs_text,
    means_by_seed,
    overall,
    p_statement,
)

REPRODUCED: Final = "reproduced"
SMALLER: Final = "smaller than claimed"
LARGER: Final = "larger than claimed"
NOT: Final = "not reproduced"
UNDECIDED: Final = "undecided"
TOO_FEW: Final = f"fewer than {FEWEST} runs of a task and cell"
#: A verdict about several tasks lists them in this order.
_ORDER: Final = (REPRODUCED, LARGER, SMALLER, NOT, UNDECIDED)

_EARLY: Final = (1, 11, 12, 13)
#: Points. The paper calls two cells "the same" and names no margin: this one is ours.
SAME: Final = 1.0
#: Accuracy in %. The paper says "poorly" and names no limit: this one is ours.
POOR: Final = 50.0


class Finding(NamedTuple):
    """What was measured, and the verdict."""

    measured: str
    verdict: str


NOTHING_YET: Final = Finding("no runs yet", UNDECIDED)

Summaries = Mapping[str, Summary]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, its number there, and how to judge it from an experiment."""

    statement: str
    paper: str
    judge: Callable[[Summary], Finding]
    on: str = "lstm"  # the experiment; a claim about "lstm" is also judged with sigmoid gates


def judge(low: float, high: float, amount: float | None = None) -> str:
    """The verdict on a claim that something is more than 0, or more by an amount.

    Args:
        low: Lower end of the 95 % interval of our difference.
        high: Its upper end.
        amount: What the paper has, a positive number; None for a claim without an amount.
    """
    if low > 0:
        if amount is None or low <= amount <= high:
            return REPRODUCED
        return SMALLER if high < amount else LARGER
    # The interval holds 0 or less. Where it also excludes what was claimed, the claim has failed.
    return NOT if high <= 0 or (amount is not None and high < amount) else UNDECIDED


def judge_within(low: float, high: float, least: float, most: float) -> str:
    """The verdict on a claim that something is between `least` and `most`."""
    if least <= low and high <= most:
        return REPRODUCED
    return NOT if high < least or low > most else UNDECIDED


def by_task(verdicts: Mapping[int, str]) -> str:
    """One verdict on a claim about several tasks; where they differ, which tasks have which."""
    if len(set(verdicts.values())) == 1:
        return next(iter(verdicts.values()))
    parts = []
    for verdict in _ORDER:
        tasks = [str(task) for task, each in verdicts.items() if each == verdict]
        if tasks:
            parts.append(f"{verdict}: task{'s' * (len(tasks) > 1)} {', '.join(tasks)}")
    return "; ".join(parts)


def _judged(summary: Summary, tasks: Iterable[int], finding: Finding) -> Finding:
    """The finding, undecided with too few runs."""
    if all(len(summary.of(task, cell)) >= FEWEST for task in tasks for cell in summary.cells):
        return finding
    return Finding(f"{finding.measured} ({TOO_FEW})", UNDECIDED)


def _nothing(summary: Summary, tasks: Iterable[int]) -> Finding:
    """The finding if there are too few runs to compare."""
    there = any(summary.of(task, cell) for task in tasks for cell in summary.cells)
    return Finding(TOO_FEW, UNDECIDED) if there else NOTHING_YET


def _pair(summary: Summary) -> tuple[str, str]:
    return summary.pairs[0]


def _n(*counts: int) -> str:
    return f"n = {' / '.join(map(str, dict.fromkeys(counts)))}"


def each_task(
    tasks: Sequence[int], find: Callable[[Summary, int, str, str], Finding | None]
) -> Callable[[Summary], Finding]:
    """A claim about each of several tasks: `find` gets the task, the rotating and the plain cell;
    it gives None without enough runs."""

    def judge_all(summary: Summary) -> Finding:
        plain, cell = _pair(summary)
        found = {task: find(summary, task, cell, plain) for task in tasks}
        there = {task: finding for task, finding in found.items() if finding is not None}
        if not there:
            return _nothing(summary, tasks)
        several = len(tasks) > 1
        measured = "; ".join(
            f"task {task}: {finding.measured}" if several else finding.measured
            for task, finding in there.items()
        )
        verdict = by_task({task: finding.verdict for task, finding in there.items()})
        return _judged(summary, tasks, Finding(measured, verdict))

    return judge_all


def _difference(
    one: Sequence[float], other: Sequence[float], verdict: Callable[[Difference], str]
) -> Finding | None:
    found = compare(one, other)
    if found is None:
        return None
    return Finding(f"{found.text}, {_n(len(one), len(other))}", verdict(found))


def printed_gain(task: int, cell: str = "rotlstm", plain: str = "lstm") -> float:
    """How much more accurate the rotating cell is in the paper's table, in points."""
    return round(PRINTED[cell][task].mean - PRINTED[plain][task].mean, 1)


def better(task: int) -> Callable[[Summary], Finding]:
    """The rotating cell is more accurate on a task, by the amount in the paper's table."""

    def find(summary: Summary, task: int, cell: str, plain: str) -> Finding | None:
        return _difference(
            summary.values(task, cell),
            summary.values(task, plain),
            lambda found: judge(found.low, found.high, printed_gain(task)),
        )

    return each_task([task], find)


def better_overall(amount: float | None = None) -> Callable[[Summary], Finding]:
    """The rotating cell is more accurate in the mean over all tasks."""

    def judge_mean(summary: Summary) -> Finding:
        found = _overall(summary)
        if found is None:
            return _nothing(summary, summary.tasks)
        difference, measured = found
        verdict = judge(difference.low, difference.high, amount)
        return _judged(summary, summary.experiment.tasks, Finding(measured, verdict))

    return judge_mean


def _overall(summary: Summary) -> tuple[Difference, str] | None:
    """The difference of the means over tasks, and how to print it."""
    plain, cell = _pair(summary)
    found = overall(summary, plain, cell)
    if found is None:
        return None
    counts = (len(means_by_seed(summary, each)) for each in (cell, plain))
    return found, f"{found.text}, {len(averaged_tasks(summary))} tasks, {_n(*counts)} seeds"


def better_on_most(summary: Summary) -> Finding:
    """The rotating cell has the higher mean on most tasks, by a sign test over tasks."""
    plain, cell = _pair(summary)
    tasks = common_tasks(summary)
    if not tasks:
        return NOTHING_YET
    gains = [
        (mean_test(summary, task, cell) or 0) - (mean_test(summary, task, plain) or 0)
        for task in tasks
    ]
    higher, lower = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    p = sign_test(higher, lower)
    verdict = UNDECIDED if p >= SIGNIFICANT else REPRODUCED if higher > lower else NOT
    measured = (
        f"higher on {higher}, lower on {lower} of {len(tasks)} tasks, sign test {p_statement(p)}"
    )
    return _judged(summary, summary.experiment.tasks, Finding(measured, verdict))


def sooner(tasks: Sequence[int], by: float) -> Callable[[Summary], Finding]:
    """The rotating cell reaches the top so many epochs before the plain one, by a rank test."""

    def find(summary: Summary, task: int, cell: str, plain: str) -> Finding | None:
        ours, theirs = (epochs_to_top(summary, task, each) for each in (cell, plain))
        if not ours or not theirs:
            return None
        medians = statistics.median_high(ours), statistics.median_high(theirs)
        p = rank_test(ours, theirs)
        if p >= SIGNIFICANT or medians[0] == medians[1]:
            verdict = UNDECIDED
        elif medians[0] > medians[1]:
            verdict = NOT
        else:
            verdict = REPRODUCED if medians[1] - medians[0] >= by else SMALLER
        measured = (
            f"epochs {epochs_text(medians[0])} and {epochs_text(medians[1])}, "
            f"rank test {p_statement(p)}, {_n(len(ours), len(theirs))}"
        )
        return Finding(measured, verdict)

    return each_task(tasks, find)


def similar(tasks: Sequence[int], within: float) -> Callable[[Summary], Finding]:
    """Both cells have the same accuracy, within so many points."""

    def find(summary: Summary, task: int, cell: str, plain: str) -> Finding | None:
        return _difference(
            summary.values(task, cell),
            summary.values(task, plain),
            lambda found: judge_within(found.low, found.high, -within, within),
        )

    return each_task(tasks, find)


def top_at(
    task: int, ours: tuple[float, float], theirs: tuple[float, float] | None = None
) -> Callable[[Summary], Finding]:
    """The rotating cell, and the plain one if given, reach the top within a range of epochs."""

    def find(summary: Summary, task: int, cell: str, plain: str) -> Finding | None:
        measured, verdicts, counts = [], [], []
        for each, limits in ((cell, ours), (plain, theirs)):
            epochs = epochs_to_top(summary, task, each)
            if not epochs:
                return None
            counts.append(len(epochs))
            low, high = median_interval(epochs)
            median = statistics.median_high(epochs)
            measured.append(f"{epochs_text(median)} [{epochs_text(low)}, {epochs_text(high)}]")
            verdicts += [judge_within(low, high, *limits)] if limits else []
        both = NOT if NOT in verdicts else UNDECIDED if UNDECIDED in verdicts else REPRODUCED
        return Finding(f"epochs {' and '.join(measured)}, {_n(*counts)}", both)

    return each_task([task], find)


def steadier(task: int) -> Callable[[Summary], Finding]:
    """The rotating cell's accuracy varies less from seed to seed (test of Brown and Forsythe)."""

    def find(summary: Summary, task: int, cell: str, plain: str) -> Finding | None:
        values = [summary.values(task, each) for each in (cell, plain)]
        if min(map(len, values)) < 2:
            return None
        ours, theirs = ([abs(v - statistics.median(each)) for v in each] for each in values)
        found = _difference(theirs, ours, lambda found: judge(found.low, found.high))
        if found is None:
            return None
        deviations = " and ".join(f"{statistics.stdev(each):.1f}" for each in values)
        measured = f"standard deviations {deviations}; deviation from the median less by "
        return Finding(f"{measured}{found.measured}", found.verdict)

    return each_task([task], find)


def smaller(
    tasks: Sequence[int], ours: tuple[int, int], theirs: tuple[int, int]
) -> Callable[[Summary], Finding]:
    """The plain cell needs so many times the state size of the rotating one."""
    least, most = theirs[0] / ours[1], theirs[1] / ours[0]

    def judge_sizes(summary: Summary) -> Finding:
        plain, cell = _pair(summary)
        measured, verdicts = [], {}
        sizes = summary.experiment.sizes
        for task in tasks:
            counts = [len(summary.of(task, each, size)) for each in (cell, plain) for size in sizes]
            if not any(counts):
                continue
            found = [sufficient_size(summary, task, each) for each in (cell, plain)]
            texts = ["none" if size is None else str(size) for size in found]
            measured.append(f"task {task}: {texts[0]} and {texts[1]}, {_n(*sorted(set(counts)))}")
            if min(counts) < FEWEST or found == [None, None]:
                verdicts[task] = UNDECIDED
            elif found[0] is None:
                verdicts[task] = NOT
            else:
                # Where no size is enough for the plain cell, it needs more than the largest.
                ratio = (found[1] or max(sizes) + 1) / found[0]
                if ratio <= 1:
                    verdicts[task] = NOT
                elif ratio < least:
                    verdicts[task] = SMALLER
                else:
                    verdicts[task] = REPRODUCED if ratio <= most else LARGER
        return Finding("; ".join(measured), by_task(verdicts)) if measured else NOTHING_YET

    return judge_sizes


def quicker_early(tasks: Sequence[int], epoch: int = 11) -> Callable[[Summary], Finding]:
    """The rotating cell is ahead on the test questions early in training."""

    def find(summary: Summary, task: int, cell: str, plain: str) -> Finding | None:
        ours, theirs = (
            [100 * r.history.test[epoch] for r in summary.of(task, each) if r.history]
            for each in (cell, plain)
        )
        found = _difference(ours, theirs, lambda found: judge(found.low, found.high))
        return found and Finding(f"after epoch {epoch} {found.measured}", found.verdict)

    return each_task(tasks, find)


def overfits_more(tasks: Sequence[int]) -> Callable[[Summary], Finding]:
    """The rotating cell has the larger gap between training and test accuracy."""

    def find(summary: Summary, task: int, cell: str, plain: str) -> Finding | None:
        return _difference(
            gaps(summary, task, cell),
            gaps(summary, task, plain),
            lambda found: judge(found.low, found.high),
        )

    return each_task(tasks, find)


def poor(tasks: Sequence[int]) -> Callable[[Summary], Finding]:
    """No cell does well."""

    def find(summary: Summary, task: int, *cells: str) -> Finding | None:
        values = max((summary.values(task, each) for each in cells), key=_mean_or_nothing)
        found = Moments.of(values)
        if found is None:
            return None
        low, high = mean_interval(found)
        measured = f"{found.mean:.1f} [{low:.1f}, {high:.1f}], {_n(len(values))}"
        return Finding(measured, judge_within(low, high, -math.inf, POOR))

    return each_task(tasks, find)


def _mean_or_nothing(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else -math.inf


def not_better(summary: Summary) -> Finding:
    """The rotating cell is the same or slightly worse, in the mean over all tasks."""
    found = _overall(summary)
    if found is None:
        return _nothing(summary, summary.tasks)
    difference, measured = found
    verdict = NOT if difference.low > 0 else REPRODUCED if difference.high < SAME else UNDECIDED
    return _judged(summary, summary.experiment.tasks, Finding(measured, verdict))


def slower(summary: Summary) -> Finding:
    """The rotating cell takes longer to train: the ratio of times, its mean over tasks."""
    plain, cell = _pair(summary)
    tasks = common_tasks(summary)
    times = [
        [statistics.fmean(r.seconds for r in summary.of(task, each)) for task in tasks]
        for each in (cell, plain)
    ]
    ratios = Moments.of([math.log(a / b) for a, b in zip(*times, strict=True)])
    if ratios is None:
        return _nothing(summary, summary.tasks)
    low, high = mean_interval(ratios)
    measured = (
        f"{math.exp(ratios.mean):.2f} times [{math.exp(low):.2f}, {math.exp(high):.2f}], "
        f"{len(tasks)} tasks, on shared machines"
    )
    return _judged(summary, tasks, Finding(measured, judge(low, high)))


CLAIMS: Final = (
    Claim("rotation gives a slight improvement overall", "no amount", better_overall()),
    Claim(
        "mean of the table of LSTM and RotLSTM",
        signed(printed_mean("rotlstm") - printed_mean("lstm")),
        better_overall(printed_mean("rotlstm") - printed_mean("lstm")),
    ),
    Claim(
        "it has a positive impact on most tasks",
        f"higher on {sum(printed_gain(task) > 0 for task in PRINTED['lstm'])}, "
        f"lower on {sum(printed_gain(task) < 0 for task in PRINTED['lstm'])} of 20 tasks",
        better_on_most,
    ),
    Claim(
        "tasks 1, 11, 12, 13: RotLSTM reaches the top a couple of epochs before LSTM",
        "2 epochs or more",
        sooner(_EARLY, 2),
    ),
    Claim(
        "tasks 1, 11, 12, 13: the top is similar, RotLSTM better by up to 2.5",
        ", ".join(signed(printed_gain(task)) for task in _EARLY),
        similar(_EARLY, 2.5),
    ),
    Claim(
        "tasks 1, 11, 12, 13: a smaller state is enough for RotLSTM",
        "sizes 10 to 20 and 20 to 30",
        smaller(_EARLY, (10, 20), (20, 30)),
        "state-size",
    ),
    Claim(
        "task 18: RotLSTM is at the top before epoch 20, LSTM takes 40 epochs",
        "epochs below 20 and about 40",
        top_at(18, (1, 19), (31, math.inf)),
    ),
    Claim(
        "task 18: training is more stable with RotLSTM",
        "standard deviations 0.9 and 20.8",
        steadier(18),
    ),
    Claim("task 18: accuracy better by 20", signed(printed_gain(18)), better(18)),
    Claim(
        "task 18: a smaller state is enough for RotLSTM",
        "sizes 10 and 40",
        smaller((18,), (6, 10), (40, 40)),
        "state-size",
    ),
    Claim("task 5: accuracy better by 22.1", signed(printed_gain(5)), better(5)),
    Claim(
        "task 5: RotLSTM reaches the top around epoch 25", "epochs 20 to 30", top_at(5, (20, 30))
    ),
    Claim("task 7: accuracy better by 14", signed(printed_gain(7)), better(7)),
    Claim("tasks 4, 20: RotLSTM is better in early epochs", "no amount", quicker_early((4, 20))),
    Claim(
        "task 20: a smaller state is enough for RotLSTM",
        "sizes 10 and 40 to 50",
        smaller((20,), (6, 10), (40, 50)),
        "state-size",
    ),
    Claim("tasks 15, 17: RotLSTM overfits more than LSTM", "no amount", overfits_more((15, 17))),
    Claim(
        "tasks 2, 3, 14: both do poorly",
        "the better cell "
        + ", ".join(
            f"{max(PRINTED[cell][task].mean for cell in ('lstm', 'rotlstm')):.1f}"
            for task in (2, 3, 14)
        ),
        poor((2, 3, 14)),
    ),
    Claim(
        "RotGRU does the same as GRU or slightly worse",
        signed(printed_mean("rotgru") - printed_mean("gru")),
        not_better,
        "gru",
    ),
    Claim("RotGRU takes longer than GRU (wall clock)", "no amount", slower, "gru"),
)
GRU_BEATS_BOTH: Final = "GRU does better than LSTM and RotLSTM"


def gru_beats_both(summaries: Summaries) -> Finding:
    """The GRU's mean over tasks is higher than LSTM's and RotLSTM's: paired by seed."""
    if not {"lstm", "gru"} <= set(summaries):
        return NOTHING_YET
    lstm, gru = summaries["lstm"], summaries["gru"]
    if averaged_tasks(lstm) != averaged_tasks(gru) or not lstm.results:
        return _nothing(gru, gru.tasks)
    ours = means_by_seed(gru, "gru")
    measured, verdicts = [], []
    for cell in ("lstm", "rotlstm"):
        theirs = means_by_seed(lstm, cell)
        seeds = sorted(ours.keys() & theirs.keys())
        found = compare_pairs([ours[s] for s in seeds], [theirs[s] for s in seeds])
        if found is None:
            return Finding(TOO_FEW, UNDECIDED)
        measured.append(f"{found.text} above {CELLS[cell].title}, {_n(len(seeds))} seeds")
        verdicts.append(judge(found.low, found.high))
    every = gru.experiment.tasks
    # A claim about both: the weaker of the two verdicts.
    verdict = NOT if NOT in verdicts else UNDECIDED if UNDECIDED in verdicts else REPRODUCED
    finding = Finding("; ".join(measured), verdict)
    return _judged(lstm, every, _judged(gru, every, finding))


def claims_table(summaries: Summaries) -> Table:
    """A row per claim: what we measured with hard gates, and with sigmoid ones."""
    rows = []
    for claim in CLAIMS:
        row = [Entry(claim.statement), Entry(claim.paper)]
        row += _entries(_find(claim, summaries.get(claim.on)))
        if claim.on == "lstm":
            row += _entries(_find(claim, summaries.get("lstm-sigmoid")))
        else:
            row += [Entry(""), Entry("")]
        rows.append(tuple(row))
    printed = ", ".join(
        f"{signed(printed_mean('gru') - printed_mean(cell))} above {CELLS[cell].title}"
        for cell in ("lstm", "rotlstm")
    )
    found = _entries(gru_beats_both(summaries))
    rows.append((Entry(GRU_BEATS_BOTH), Entry(printed), *found, Entry(""), Entry("")))
    header = ("claim of the paper", "paper", "hard gates", "verdict", "sigmoid gates", "verdict")
    return Table(header, tuple(rows), words=True)


def _entries(finding: Finding) -> list[Entry]:
    return [Entry(finding.measured), Entry(finding.verdict, finding.verdict != UNDECIDED)]


def _find(claim: Claim, summary: Summary | None) -> Finding:
    if summary is None or not summary.pairs or not summary.results:
        return NOTHING_YET
    return claim.judge(summary)


def does_rotation_help(summaries: Summaries) -> list[str]:
    """The question behind the paper, answered in sentences, for each gate function."""
    sentences = []
    printed = signed(printed_mean("rotlstm") - printed_mean("lstm"))
    for name, gates in (("lstm", "hard gates"), ("lstm-sigmoid", "sigmoid gates")):
        summary = summaries.get(name)
        if summary is None or not summary.pairs or _overall(summary) is None:
            sentences.append(f"With {gates}, there are not enough runs yet to say.")
            continue
        finding = better_overall()(summary)
        answer = {
            REPRODUCED: "rotation helps an LSTM",
            NOT: "rotation does not help an LSTM",
            UNDECIDED: "it is undecided whether rotation helps an LSTM",
        }[finding.verdict]
        sentences.append(
            f"With {gates}, {answer}: RotLSTM - LSTM in the mean over tasks is {finding.measured} "
            f"(paper {printed})."
        )
    return sentences
