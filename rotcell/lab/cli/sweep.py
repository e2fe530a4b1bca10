"""The command line of sweeps."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from rotcell.lab.cli import study
from rotcell.lab.cli.options import (
    add_data_options,
    add_protocol_options,
    cells,
    positive,
    protocol_of,
    say_data,
    source_of,
    tasks,
)
from rotcell.lab.errors import SettingsError
from rotcell.lab.progress import duration
from rotcell.lab.studies import STUDIES
from rotcell.lab.sweep.engine import Engine
from rotcell.lab.sweep.local import local_engine
from rotcell.lab.tasks.babi.cells import CELLS
from rotcell.lab.tasks.babi.data.source import Source
from rotcell.lab.tasks.babi.estimate import estimate
from rotcell.lab.tasks.babi.experiments import EXPERIMENTS, Plan, make_plan
from rotcell.lab.tasks.babi.settings import RunSettings
from rotcell.lab.tasks.babi.sweep.collect import known_runs, restore
from rotcell.lab.tasks.babi.sweep.on_ray import ray_engine
from rotcell.lab.tasks.babi.sweep.results import Result
from rotcell.lab.tasks.babi.sweep.runner import Folder, pending, sweep


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `rotcell-lab sweep`, for the study or experiment in the first argument."""
    parsers = parser.add_subparsers(dest="experiment", required=True, metavar="EXPERIMENT")
    for name, each in STUDIES.items():
        command = parsers.add_parser(name, help=each.about, description=each.about)
        study.add_arguments(command)
        command.set_defaults(run=study.run)
    for name, experiment in EXPERIMENTS.items():
        about = f"bAbI: {experiment.about}"
        _add_babi_arguments(parsers.add_parser(name, help=about, description=about))


def _add_babi_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tasks",
        type=tasks,
        metavar="LIST",
        help="tasks, such as 1,6,15-18 (default: the experiment's)",
    )
    parser.add_argument(
        "--seeds", type=positive, metavar="N", help="use seeds 0 to N-1 (default: the experiment's)"
    )
    parser.add_argument(
        "--cells",
        type=cells,
        metavar="LIST",
        help=f"layers, any of {', '.join(CELLS)} (default: the experiment's)",
    )
    parser.add_argument(
        "--sizes",
        type=_sizes,
        metavar="LIST",
        help="hidden sizes for state-size, such as 6,10,50 (default 6,10,14,20,30,40,50)",
    )
    add_protocol_options(parser)
    add_data_options(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("babi-runs"),
        metavar="DIR",
        help="folder of the runs (default babi-runs)",
    )
    parser.add_argument(
        "--have",
        type=Path,
        metavar="FILE.jsonl[.gz]",
        help="collected runs to skip",
    )
    parser.add_argument(
        "--workers", type=positive, metavar="N", help="worker processes (default: number of cores)"
    )
    parser.add_argument(
        "--threads", type=positive, default=1, help="CPU threads per worker (default 1)"
    )
    parser.add_argument(
        "--engine", choices=("local", "ray"), default="local", help="runs workers (default local)"
    )
    parser.add_argument(
        "--address", help="cluster address for --engine ray (default: start Ray on this machine)"
    )
    parser.add_argument(
        "--keep-models", action="store_true", help="also keep the weights of every run, in models/"
    )
    parser.add_argument("--dry-run", action="store_true", help="list the runs, estimate the time")


def run(options: argparse.Namespace) -> int:
    """Do the sweep; returns the exit status, which is 1 when a run failed."""
    experiment = EXPERIMENTS[options.experiment]
    if options.sizes and not experiment.by_size:
        raise SettingsError("--sizes is for state-size: the tables are of size 50")
    if options.address and options.engine != "ray":
        raise SettingsError("--address is for --engine ray")
    if options.keep_models and options.engine == "ray":
        raise SettingsError("--keep-models is for --engine local: nodes of Ray share no folder")
    source = source_of(options)
    data = source.names(options.tasks or experiment.tasks)
    plan = make_plan(
        experiment,
        tasks=options.tasks,
        seeds=options.seeds,
        sizes=options.sizes,
        cells=options.cells,
        data=data,
        **protocol_of(options),
    )
    say_data(data, source)
    folder = Folder(options.out)
    if options.have is not None and not options.have.exists():
        raise SettingsError(f"{options.have} does not exist")
    workers = options.workers or len(os.sched_getaffinity(0))
    if options.dry_run:
        have = {} if options.have is None else known_runs(options.have)
        runs = [run for run in pending(plan, folder, source) if not _had(have.get(run), source)]
        return _dry_run(plan, runs, source, workers, options.threads)
    if options.have is not None:
        restored = restore(options.have, plan, folder)
        without = ", of which there are no models to keep" if options.keep_models else ""
        print(f"{restored} runs of {options.have}{without}", file=sys.stderr)
    engine: Engine
    if options.engine == "ray":
        engine = ray_engine(options.address, workers, options.threads)
    else:
        models = folder.path / "models" if options.keep_models else None
        engine = local_engine(workers, options.threads, models)
    try:
        tally = sweep(plan, folder, source, engine)
    except KeyboardInterrupt:
        print("Stopped. Run the same command to continue.", file=sys.stderr)
        raise
    done = tally.before + tally.done + tally.elsewhere
    print(
        f"{done} of {len(plan.runs)} runs done, {tally.failed} failed; "
        f"see them with: rotcell-lab report {folder.path}"
    )
    return 1 if tally.failed else 0


def _dry_run(
    plan: Plan, runs: Sequence[RunSettings], source: Source, workers: int, threads: int
) -> int:
    """List what a sweep would do: these runs of its plan."""
    torch.set_num_threads(threads)
    for run in runs:
        print(run.name)
    if not runs:
        print(f"0 of {len(plan.runs)} runs to do: all are there.")
        return 0
    seconds = estimate(runs, source)
    kinds = Counter(run.cell for run in runs)
    print(
        f"{len(runs)} of {len(plan.runs)} runs to do ("
        + ", ".join(f"{number} {cell}" for cell, number in kinds.items())
        + f"). About {duration(seconds / workers)} with "
        f"{workers} worker{'s' * (workers > 1)}, from steps timed on this machine."
    )
    return 0


def _had(result: Result | None, source: Source) -> bool:
    """Whether a run was collected; SettingsError if it used other data."""
    if result is not None and result.data != source.load(result.settings.task).data:
        raise SettingsError(f"{result.settings.name} was collected on other data: {result.data}")
    return result is not None


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(sorted({positive(part.strip()) for part in text.split(",")}))
