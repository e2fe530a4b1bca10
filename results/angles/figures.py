"""Figures and tables of docs/results/angles.md, from the numbers in results/angles/runs.jsonl.

    python results/angles/figures.py [--collect DIR]

With --collect the runs that run.py has finished in DIR are put into runs.jsonl first.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from rotcell.lab.report.palette import color_of
from rotcell.lab.report.pictures import png
from rotcell.lab.report.statistics import compare
from rotcell.lab.tasks.babi.report.constant import constant_accuracy
from rotcell.lab.tasks.babi.report.paper import PRINTED

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "results" / "angles" / "runs.jsonl"
PAGE = ROOT / "docs" / "results" / "angles.md"
FIGURES = ROOT / "docs" / "results" / "angles"

TASKS = {
    1: "one fact",
    5: "three-arg relations",
    15: "deduction",
    18: "size reasoning",
    20: "motives",
}
MODELS = {
    "lstm": "LSTM",
    "rotlstm": "RotLSTM",
    "rotlstm x-only": "RotLSTM, angles from x only",
    "rotlstm fixed": "RotLSTM, one learned angle per pair",
    "rotlstm sign-flip": "LSTM whose cell state changes its sign at every step",
    "rotlstm half-turn": "RotLSTM, angles between 0 and π",
    "rotlstm small-start": "RotLSTM, angles that start around 0.3",
    "lstm packed": "LSTM, no padding",
    "rotlstm packed": "RotLSTM, no padding",
}
KNOWN = ("word", "position", "word and position", "word and question")
ROTLSTM, GREY = color_of("rotlstm"), "#8b949c"

Run = dict[str, Any]


def key(run: Run) -> tuple[int, str, int, int]:
    """What identifies a run: task, gates, model, seed."""
    task, seed = run["settings"]["task"], run["settings"]["seed"]
    return task, run["gates"], list(MODELS).index(run["model"]), seed


def collect(folder: Path) -> None:
    """Put finished runs into the committed file, in order; a newer one replaces an older one."""
    runs = {key(run): run for run in load()}
    for path in sorted(folder.glob("*.json")):
        run = json.loads(path.read_text())
        runs[key(run)] = run
    RUNS.parent.mkdir(parents=True, exist_ok=True)
    RUNS.write_text("".join(json.dumps(_rounded(runs[k])) + "\n" for k in sorted(runs)))


def _rounded(value: Any) -> Any:
    """Five digits are more than seeds agree on."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list) else value


def load() -> list[Run]:
    """The committed runs. All runs of one task must use the same data and protocol."""
    if not RUNS.exists():
        return []
    runs = [json.loads(line) for line in RUNS.read_text().splitlines()]
    seen: dict[tuple[int, str], tuple[object, ...]] = {}
    for run in runs:
        settings = {k: v for k, v in run["settings"].items() if k not in ("seed", "cell", "packed")}
        same = (run["data"], settings)
        task = run["settings"]["task"]
        if seen.setdefault((task, run["gates"]), same) != same:
            raise SystemExit(f"runs of task {task} are of different data or protocols: {key(run)}")
    return runs


class Numbers:
    """The runs with one kind of gates, by task and model."""

    def __init__(self, runs: Iterable[Run], gates: str = "sigmoid") -> None:
        self._runs = [run for run in runs if run["gates"] == gates]
        found = {run["settings"]["task"] for run in self._runs if run["model"] == "rotlstm"}
        self.tasks = sorted(found)

    def of(self, task: int, model: str = "rotlstm") -> list[Run]:
        """All seeds."""
        return [r for r in self._runs if r["settings"]["task"] == task and r["model"] == model]

    def spread(self, task: int, model: str, number: Callable[[Run], float]) -> str:
        """Mean ± standard deviation over the seeds, in percent."""
        return spread([number(run) for run in self.of(task, model)])


def spread(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean = f"{100 * statistics.mean(values):.1f}"
    if len(values) == 1:
        return f"{mean} (one seed)"
    return f"{mean} ± {100 * statistics.stdev(values):.1f}"


# Figures


def panels(numbers: Numbers, height: float, labels: float = 0.5, **options: Any) -> Any:
    """A panel per task, as wide together as a page shows at full size; `labels` is their inches."""
    count = len(numbers.tasks)
    figure, axes = plt.subplots(
        1,
        count,
        figsize=(1.6 * count + labels, height),
        layout="constrained",
        squeeze=False,
        **options,
    )
    for axis, task in zip(axes[0], numbers.tasks, strict=True):
        axis.set_title(f"task {task}\n{TASKS[task]}", fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    return figure, axes[0]


def band(
    axis: Any, xs: Sequence[float], curves: Sequence[Sequence[float]], color: str, label: str
) -> None:
    """The mean of curves, with the least and most as a band."""
    columns = list(zip(*curves, strict=True))
    axis.fill_between(
        xs, [min(c) for c in columns], [max(c) for c in columns], color=color, alpha=0.2, lw=0
    )
    axis.plot(xs, [statistics.mean(c) for c in columns], color=color, label=label, lw=1.5)


def legend(figure: Any, axes: Sequence[Any]) -> None:
    """One for all panels, above them."""
    handles: dict[str, Any] = {}
    for axis in axes:
        lines, labels = axis.get_legend_handles_labels()
        handles |= dict(zip(labels, lines, strict=True))
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside upper center",
        ncols=len(handles),
        frameon=False,
        fontsize=9,
    )


def histograms(numbers: Numbers) -> Any:
    figure, axes = panels(numbers, 2.5, sharey=True)
    for axis, task in zip(axes, numbers.tasks, strict=True):
        for when, color in (("before", GREY), ("after", ROTLSTM)):
            curves = []
            for run in numbers.of(task):
                counts = run["histogram"][when]
                curves.append([count / max(counts) for count in counts])
            width = 2 * math.pi / len(counts)
            middles = [(k + 0.5) * width for k in range(len(counts))]
            band(axis, middles, curves, color, f"{when} training")
        axis.set_xticks([0, math.pi, 2 * math.pi], ["0", "π", "2π"])
        axis.set_xlim(0, 2 * math.pi)
        axis.set_ylim(0, 1.03)
        axis.set_xlabel("angle")
    axes[0].set_ylabel("frequency, highest = 1")
    legend(figure, axes)
    return figure


def explained(numbers: Numbers) -> Any:
    figure, axes = panels(numbers, 2.4, 0.9, sharey=True)
    for axis, task in zip(axes, numbers.tasks, strict=True):
        for place, known in enumerate(KNOWN):
            values = [v for run in numbers.of(task) for v in run["explained"][known]]
            before = [
                v for run in numbers.of(task) for v in run["explained before training"][known]
            ]
            jitter = [place + 0.5 * ((k * 0.618) % 1 - 0.5) for k in range(len(values))]
            axis.plot(values, jitter, ".", color=ROTLSTM, alpha=0.35, ms=3, mew=0)
            for when, data, color in (("before", before, GREY), ("after", values, ROTLSTM)):
                median, label = statistics.median(data), f"median {when} training"
                ends = [place - 0.38, place + 0.38]
                axis.plot([median] * 2, ends, color=color, lw=2, label=label)
        axis.set_xlim(-0.04, 1.04)
        axis.set_xticks([0, 0.5, 1], ["0", "50", "100"])
        axis.set_xlabel("explained, %")
    names = [known.replace(" and ", "\n+ ") for known in KNOWN]
    axes[0].set_yticks(range(len(KNOWN)), names, fontsize=8)
    axes[0].invert_yaxis()
    legend(figure, axes)
    return figure


def norms(numbers: Numbers) -> Any:
    figure, axes = panels(numbers, 2.6, sharey=True)
    for axis, task in zip(axes, numbers.tasks, strict=True):
        for model in ("lstm", "rotlstm"):
            curves = [run["norm"] for run in numbers.of(task, model)]
            if curves:
                length = min(len(curve) for curve in curves)
                color = color_of(model)
                band(axis, range(length), [c[:length] for c in curves], color, MODELS[model])
        axis.set_xlabel("token of the story")
        axis.set_yscale("log")
    axes[0].set_yticks([1, 10, 100], ["1", "10", "100"])
    axes[0].set_ylabel("norm of the cell state")
    legend(figure, axes)
    return figure


def ablation_names(numbers: Numbers) -> list[str]:
    """In the order of a reader: the same change to ever more pairs together."""
    names = list(numbers.of(numbers.tasks[0])[0]["ablations"])
    names.remove("plain loop, as trained")
    kinds = [re.sub(r"\d+", "k", name) for name in names]
    return sorted(names, key=lambda name: kinds.index(re.sub(r"\d+", "k", name)))


def ablation_chart(numbers: Numbers) -> Any:
    names = ablation_names(numbers)
    figure, axes = panels(numbers, 0.19 * len(names) + 1.2, 2.3, sharey=True)
    for axis, task in zip(axes, numbers.tasks, strict=True):
        runs = numbers.of(task)
        whole = statistics.mean(run["ablations"]["as trained"] for run in runs)
        axis.axvline(100 * whole, color=ROTLSTM, lw=1, label="as trained")
        constant = constant_accuracy(runs[0]["data"]["train"]["name"], task)
        if constant is not None:
            axis.axvline(constant, color="#555555", lw=1, ls="--", label="constant answer")
        paper = PRINTED["rotlstm"][task].mean
        axis.plot(paper, 0, "D", color=ROTLSTM, mfc="white", ms=5, label="paper")
        for place, name in enumerate(names):
            values = [100 * run["ablations"][name] for run in runs]
            axis.plot(values, [place] * len(values), ".", color=ROTLSTM, alpha=0.5, mew=0)
            axis.plot(statistics.mean(values), place, "|", color=ROTLSTM, ms=9, mew=2)
        axis.set_xlim(-4, 104)
        axis.set_xlabel("accuracy, %")
        axis.grid(axis="y", color="#eceeef")
        axis.set_axisbelow(True)
    axes[0].set_yticks(range(len(names)), names, fontsize=8)
    axes[0].invert_yaxis()
    legend(figure, axes)
    return figure


FIGURE_MAKERS: dict[str, Callable[[Numbers], Any]] = {
    "histograms": histograms,
    "explained": explained,
    "ablations": ablation_chart,
    "norms": norms,
}


# Tables


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def headings(numbers: Numbers) -> list[str]:
    return ["", *(f"task {task}" for task in numbers.tasks)]


def ablation_table(numbers: Numbers) -> str:
    """The rules for all pairs, and for most; the figure has the others."""
    whole = re.compile(r"\D*|.*16 most varying.*")
    names = [name for name in ablation_names(numbers) if whole.fullmatch(name)]
    return table(
        headings(numbers),
        (
            [
                name,
                *(
                    numbers.spread(t, "rotlstm", lambda r, n=name: r["ablations"][n])
                    for t in numbers.tasks
                ),
            ]
            for name in names
        ),
    )


def versus(numbers: Numbers, task: int, model: str, other: str) -> list[str]:
    """Two models on a task: their accuracies, the difference with its interval, how many runs."""
    values = [[100 * run["outcome"]["test"] for run in numbers.of(task, m)] for m in (model, other)]
    found = compare(*values)
    accuracies = [spread([v / 100 for v in each]) for each in values]
    counts = " and ".join(str(len(each)) for each in values)
    return [*accuracies, "-" if found is None else found.text, counts]


#: What is asked by training something else, each on task 18.
QUESTIONS = (
    ("What rotation does for an LSTM", "rotlstm", "lstm"),
    ("An LSTM that reads no padding", "lstm packed", "lstm"),
    ("Rotation where there is no padding", "rotlstm packed", "lstm packed"),
    ("A change of sign at every step instead of learned angles", "rotlstm sign-flip", "rotlstm"),
    ("One learned angle per pair", "rotlstm fixed", "rotlstm"),
    ("Angles from the input only", "rotlstm x-only", "rotlstm"),
    ("Angles between 0 and π", "rotlstm half-turn", "rotlstm"),
    ("Angles that start near 0, not near π", "rotlstm small-start", "rotlstm"),
)


def answers_table(numbers: Numbers, task: int = 18) -> str:
    """Differences between trained variants."""
    return table(
        ["", "with the change", "against", "difference [95 %]", "runs"],
        ([text, *versus(numbers, task, *models)] for text, *models in QUESTIONS),
    )


def training_table(numbers: Numbers) -> str:
    """The models that were trained on several tasks; `answers_table` has those of task 18."""
    several = {
        model: label
        for model, label in MODELS.items()
        if sum(bool(numbers.of(task, model)) for task in numbers.tasks) > 1 or model == "rotlstm"
    }
    return table(
        [*headings(numbers), "seeds"],
        (
            [
                label,
                *(
                    numbers.spread(t, model, lambda run: run["outcome"]["test"])
                    for t in numbers.tasks
                ),
                ", ".join(str(len(numbers.of(task, model))) for task in numbers.tasks),
            ]
            for model, label in several.items()
        ),
    )


def near_half_turn(run: Run, when: str) -> float:
    """The share of angles within pi/2 of pi."""
    counts = run["histogram"][when]
    quarter = len(counts) // 4
    return sum(counts[quarter:-quarter]) / sum(counts)


def mean(values: Iterable[float | None]) -> str:
    """Two decimals per value; missing values are left out."""
    found = [value for value in values if value is not None]
    return f"{statistics.mean(found):.2f}".replace("-", "−") if found else "-"  # noqa: RUF001


def beat(run: Run, lag: int) -> float | None:
    """The median over pairs; None for a cell without angles."""
    return statistics.median(run["beat"][lag - 1]) if "beat" in run else None


def cell_state_table(numbers: Numbers) -> str:
    measures: dict[str, Callable[[Run], float | None]] = {
        "norm of the cell state when the story begins": lambda run: run["padding"],
        "cosine with the cell state one step earlier": lambda run: run["similar"][0],
        "cosine with the cell state two steps earlier": lambda run: run["similar"][1],
        "correlation of an angle with that one step earlier": lambda run: beat(run, 1),
        "correlation of an angle with that two steps earlier": lambda run: beat(run, 2),
        "probability of all answers together, last step": lambda run: run["speaks"][-1],
        "probability of all answers together, one step before": lambda run: run["speaks"][-2],
        "probability of all answers together, two steps before": lambda run: run["speaks"][-3],
    }
    return table(
        headings(numbers),
        (
            [
                f"{MODELS[model]}: {name}",
                *(mean(map(number, numbers.of(task, model))) for task in numbers.tasks),
            ]
            for model in ("lstm", "rotlstm")
            for name, number in measures.items()
            if model == "rotlstm" or not re.search("angle|two steps", name)
        ),
    )


def gates_table(task: int = 18) -> str:
    """What changes with the function of the gates, on one task."""
    runs = load()
    kinds = [Numbers(runs, gates) for gates in ("sigmoid", "hard_sigmoid")]

    def row(name: str, model: str, number: Callable[[Run], float]) -> list[str]:
        return [f"{MODELS[model]}: {name}", *(each.spread(task, model, number) for each in kinds)]

    def start(model: str) -> list[str]:
        norms = (mean(run["padding"] for run in each.of(task, model)) for each in kinds)
        return [f"{MODELS[model]}: norm of the cell state when the story begins", *norms]

    return table(
        ["", "sigmoid gates", "hard gates"],
        [
            row("test accuracy", "lstm", lambda run: run["outcome"]["test"]),
            row("test accuracy", "rotlstm", lambda run: run["outcome"]["test"]),
            start("lstm"),
            start("rotlstm"),
            row("angles within π/2 of π", "rotlstm", lambda run: near_half_turn(run, "after")),
            row("rotation off", "rotlstm", lambda run: run["ablations"]["rotation off"]),
        ],
    )


TABLES: dict[str, Callable[[Numbers], str]] = {
    "ablations": ablation_table,
    "answers": answers_table,
    "training": training_table,
    "cell state": cell_state_table,
    "gates": lambda numbers: gates_table(),
}


def with_tables(text: str, numbers: Numbers) -> str:
    """The page with updated tables, each between two comments."""
    for name, make in TABLES.items():
        pattern = rf"(<!-- table: {name} -->\n).*?(<!-- end -->)"
        made = make(numbers)
        text, count = re.subn(pattern, rf"\g<1>{made}\n\g<2>", text, flags=re.DOTALL)
        if count != 1:
            raise SystemExit(f"{PAGE} must have one place for the table {name!r}, has {count}")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--collect", type=Path, metavar="DIR", help="take in finished runs first")
    options = parser.parse_args()
    if options.collect:
        collect(options.collect)
    numbers = Numbers(load())
    if not numbers.tasks:
        raise SystemExit(f"{RUNS} has no run of a RotLSTM")
    FIGURES.mkdir(parents=True, exist_ok=True)
    for name, make in FIGURE_MAKERS.items():
        figure = make(numbers)
        (FIGURES / f"{name}.png").write_bytes(png(figure))
        plt.close(figure)
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), numbers), encoding="utf-8")


if __name__ == "__main__":
    main()
