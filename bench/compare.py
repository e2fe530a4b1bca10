"""Compare rotcell's layers with torch's own, and with other ways to run them.

Takes about an hour; see --quick, --cells, --seconds and --peers (torch.compile takes a good part).

On a machine with a GPU torch's layers are cuDNN's, otherwise those of the CPU. All contestants of a
row take turns: each gives one sample per round, in random order (slow peers sit out rounds). The
ratio of rotcell's time to torch's is the median of the rounds' ratios, with its confidence
interval. Results go into a JSON file, and a chart is drawn from it, as PNG and SVG.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import chart
import contestants
import cudnn
import jax_scan
import machine
import memory
import report
import results
import speed_targets
import torch
from contestants import COMPARED, PEERS, Limits, Task
from ratios import ratio
from timing import CONFIDENCE, Effort, measure
from work import (
    CELLS,
    PASSES,
    QUICK,
    RANDOM_BATCH,
    RANDOM_HIDDEN,
    RANDOM_INPUTS,
    RANDOM_STEPS,
    TABLE,
    Work,
    parse,
    random_works,
)

KIND = "compare"
DTYPES = ("float32", "float64", "bfloat16", "float16")
DEFAULT_OUT = Path(__file__).resolve().parent / "out" / "compare.json"
QUICK_EFFORT = Effort(seconds=0.6, least_samples=3, least_samples_of_rest=1)
FULL_EFFORT = Effort(seconds=6.0, least_samples=11, least_samples_of_rest=3)


def _listed(text: str) -> list[str]:
    items = [item.strip() for item in text.split(",") if item.strip()]
    if not items:
        raise argparse.ArgumentTypeError("the list is empty")
    return items


def _works(text: str) -> list[Work]:
    try:
        return [parse(item) for item in _listed(text)]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _cells(text: str) -> list[str]:
    items = _listed(text)
    if unknown := [item for item in items if item not in CELLS]:
        raise argparse.ArgumentTypeError(
            f"unknown cell {unknown[0]!r}: choose from {', '.join(CELLS)}"
        )
    return items


def _thread_counts(text: str) -> list[int]:
    items = _listed(text)
    if not all(item.isdigit() and int(item) > 0 for item in items):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers of threads, as in 1,2")
    return [int(item) for item in items]


def _peers(text: str) -> list[str]:
    if text == "none":
        return []
    items = _listed(text)
    for item in items:
        if item not in PEERS:
            raise argparse.ArgumentTypeError(
                f"unknown peer {item!r}: choose from {', '.join(PEERS)}"
            )
        if reason := contestants.missing(item):
            raise argparse.ArgumentTypeError(f"{item}: {reason}")
    return items


def make_parser() -> argparse.ArgumentParser:
    """Define the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    _add_rows(parser.add_argument_group("rows"))
    _add_settings(parser.add_argument_group("settings"))
    _add_output(parser.add_argument_group("output"))
    machine.add_options(parser)
    return parser


def _add_rows(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--quick",
        action="store_true",
        help=f"a few minutes on two cores: fewer shapes ({', '.join(QUICK)}), fewer turns, no "
        "torch.compile unless asked for with --peers",
    )
    group.add_argument(
        "--shapes",
        type=_works,
        metavar="LIST",
        help="comma-separated names or BATCHxSTEPSxINPUTxHIDDEN; "
        f"names: {', '.join(TABLE)} (default: all)",
    )
    group.add_argument(
        "--random-shapes",
        type=int,
        metavar="N",
        help="measure N random shapes and show the geometric mean and the worst row; log-uniform: "
        "batch {} to {}, steps {} to {}, inputs {} to {}, hidden size {} to {}".format(
            *RANDOM_BATCH, *RANDOM_STEPS, *RANDOM_INPUTS, *RANDOM_HIDDEN
        ),
    )
    group.add_argument(
        "--seed",
        type=int,
        help="seed of --random-shapes; the same seed, the same shapes (default: 0)",
    )
    group.add_argument(
        "--packed",
        action="store_true",
        help="packed input only: the packed rows of the table, or every shape of --shapes or "
        "--random-shapes packed",
    )
    group.add_argument(
        "--cells",
        type=_cells,
        default=list(CELLS),
        metavar="LIST",
        help=f"layers to measure: of {', '.join(CELLS)} (default: all)",
    )
    group.add_argument("--dtype", choices=DTYPES, default="float32")


def _add_settings(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--threads",
        type=_thread_counts,
        metavar="LIST",
        help="comma-separated numbers of CPU threads (default: 1 and the number of cores)",
    )
    group.add_argument(
        "--seconds",
        type=float,
        help="seconds per row, without warm-up (default: "
        f"{FULL_EFFORT.seconds:g}, or {QUICK_EFFORT.seconds:g} with --quick)",
    )
    group.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="auto uses CUDA if available (default: auto)",
    )
    group.add_argument(
        "--peers",
        type=_peers,
        metavar="LIST",
        help=f"also measured: any of {', '.join(PEERS)}, or none (default: all "
        "that are installed); compiled and jax run with the most threads only, and layers without "
        "a rotation meet onnxruntime only",
    )
    group.add_argument(
        "--compile-steps",
        type=int,
        default=68,
        metavar="T",
        help="leave torch.compile out of rows with more steps: compiling the loop takes minutes, "
        "the more the more steps (default: %(default)s)",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--memory",
        action="store_true",
        help="also measure the peak memory of a training step (about 20 s per shape)",
    )
    group.add_argument(
        "--targets",
        action="store_true",
        help="show the project's speed targets for a CPU, and which are reached",
    )
    group.add_argument(
        "--out",
        type=Path,
        default=DEFAULT_OUT,
        metavar="FILE",
        help="where the JSON goes, with the chart next to it (default: bench/out/compare.json)",
    )
    group.add_argument(
        "--resume",
        action="store_true",
        help="keep the rows that an interrupted run with the same settings left in --out",
    )
    group.add_argument(
        "--draw",
        type=Path,
        metavar="FILE",
        help="measure nothing: print the table of an existing JSON and draw its chart next to it",
    )


def _check_random(options: argparse.Namespace) -> None:
    """Raise ValueError if the options of random shapes do not fit together."""
    if options.random_shapes is None:
        if options.seed is not None:
            raise ValueError("--seed needs --random-shapes")
        return
    for given, name in ((options.shapes is not None, "--shapes"), (options.quick, "--quick")):
        if given:
            raise ValueError(f"--random-shapes and {name} both choose shapes: give one of them")
    if options.random_shapes < 1:
        raise ValueError(f"--random-shapes must be at least 1, got {options.random_shapes}")


def _chosen_works(options: argparse.Namespace) -> list[Work]:
    _check_random(options)
    works: list[Work] | None = options.shapes
    if options.random_shapes is not None:
        works = random_works(options.random_shapes, options.seed or 0)
    if works is not None:
        return [work.packed() for work in works] if options.packed else works
    works = [TABLE[name] for name in QUICK] if options.quick else list(TABLE.values())
    return [work for work in works if work.form == "packed"] if options.packed else works


def _default_peers(quick: bool) -> list[str]:
    peers = []
    for peer in PEERS:
        if quick and peer == contestants.COMPILED:
            continue
        if reason := contestants.missing(peer):
            print(f"Without {peer}: {reason}.")
        else:
            peers.append(peer)
    return peers


def _tasks(
    works: Sequence[Work],
    cells: Sequence[str],
    threads: Sequence[int],
    device: torch.device,
    dtype: torch.dtype,
) -> list[Task]:
    return [
        Task(work, cell, passes, count, device, dtype)
        for count in threads
        for work in works
        for cell in cells
        for passes in PASSES
    ]


def run_row(task: Task, peers: Sequence[str], limits: Limits, effort: Effort) -> dict[str, Any]:
    """Measure all contestants of one row."""
    torch.set_num_threads(task.threads)
    row: dict[str, Any] = {
        "work": task.work.to_json(),
        "cell": task.cell,
        "pass": task.passes,
        "threads": task.threads,
    }
    if task.device.type == "cuda":
        gpu = cudnn.Gpu.of(task.device)
        row["cudnn"] = cudnn.algorithms(task.traits.torch, task.work, task.dtype, gpu, task.passes)
    timings = measure(contestants.build(task, peers, limits), COMPARED, effort, task.device)
    row["timings"] = {name: timing.to_json() for name, timing in timings.items()}
    if found := ratio(row):
        row["ratio"] = {"confidence": CONFIDENCE, **found._asdict()}
    return row


def _threads(options: argparse.Namespace, peers: Sequence[str], device: torch.device) -> list[int]:
    threads: list[int] = options.threads or sorted({1, machine.usable_cores()})
    if device.type == "cuda":
        threads = [torch.get_num_threads()]
    if contestants.JAX in peers:
        jax_scan.limit_threads(max(threads))
    return threads


def _new_results(
    options: argparse.Namespace,
    device: torch.device,
    described: dict[str, Any],
    threads: list[int],
    peers: Sequence[str],
    effort: Effort,
) -> dict[str, Any]:
    """A result file without rows."""
    random_shapes = None
    if options.random_shapes is not None:
        random_shapes = {"count": options.random_shapes, "seed": options.seed or 0}
    return {
        "kind": KIND,
        "finished": False,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": described,
        "settings": {
            "device": device.type,
            "dtype": options.dtype,
            "threads": threads,
            "peers": peers,
            "quick": options.quick,
            "row_seconds": effort.seconds,
            "compile_steps": options.compile_steps,
            "gemm_size": contestants.GEMM_SIZE,
            "random_shapes": random_shapes,
        },
        "rows": [],
        "memory": [],
    }


def run(
    options: argparse.Namespace,
    works: Sequence[Work],
    device: torch.device,
    described: dict[str, Any],
) -> dict[str, Any]:
    """Measure everything, printing rows as they come and saving after each."""
    peers = _default_peers(options.quick) if options.peers is None else options.peers
    threads = _threads(options, peers, device)
    effort = QUICK_EFFORT if options.quick else FULL_EFFORT
    if options.seconds is not None:
        effort = replace(effort, seconds=options.seconds)
    limits = Limits(options.compile_steps, max(threads))
    found = _new_results(options, device, described, threads, peers, effort)
    if options.resume and options.out.exists():
        found |= _measured_before(options.out, found)
    results.save(options.out, found)

    table = report.Table(works, peers, device.type == "cuda", options.targets)
    _print_head(found, table, works, options.targets)
    tasks = _tasks(works, options.cells, threads, device, getattr(torch, options.dtype))
    progress = report.Progress(len(tasks))
    begin = time.perf_counter()
    before = {_key(row): row for row in found["rows"]}
    for done, task in enumerate(tasks):
        progress.show(done, f"{task.work.label()}, {task.cell} {task.passes}")
        row = before.get((task.work, task.cell, task.passes, task.threads))
        if row is None:
            row = run_row(task, peers, limits, effort)
            found["rows"].append(row)
            results.save(options.out, found)
        progress.print(table.row(row))
    if options.memory:
        _measure_memory(found, [task for task in tasks if _shows_memory(task, limits)], options.out)
    found["finished"] = True
    found["seconds"] = round(time.perf_counter() - begin, 1)
    results.save(options.out, found)
    return found


class OtherRunError(ValueError):
    """The results to resume are of another measurement."""


def _measured_before(path: Path, now: dict[str, Any]) -> dict[str, Any]:
    """Load the rows of an interrupted run, if it was of the same code with the same settings."""
    try:
        found = results.load(path, KIND)
    except ValueError as error:
        raise OtherRunError(str(error)) from error
    if found["settings"] != now["settings"]:
        raise OtherRunError(f"--resume: {path} has other settings: {found['settings']}")
    for name in ("cpu", "commit", "versions"):
        if found["machine"][name] != now["machine"][name]:
            raise OtherRunError(
                f"--resume: {path} has {name} {found['machine'][name]}, "
                f"here it is {now['machine'][name]}"
            )
    return {name: found[name] for name in ("started", "rows", "memory")}


def _key(row: dict[str, Any]) -> tuple[Work, str, str, int]:
    return Work(**row["work"]), row["cell"], row["pass"], row["threads"]


def _shows_memory(task: Task, limits: Limits) -> bool:
    """Only sequences in training, and once: the number of threads hardly matters."""
    return task.train and task.work.form != "cell" and task.threads == limits.most_threads


def _measure_memory(found: dict[str, Any], tasks: Sequence[Task], out: Path) -> None:
    print("\nPeak memory of a training step, beyond layer and input:")
    progress = report.Progress(len(tasks))
    before = {(Work(**row["work"]), row["cell"]): row for row in found["memory"]}
    for done, task in enumerate(tasks):
        progress.show(done, f"{task.work.label()}, {task.cell}")
        row = before.get((task.work, task.cell))
        if row is None:
            row = memory.measure(task)
            found["memory"].append(row)
            results.save(out, found)
        progress.print(report.memory_line(row))


def _print_head(
    found: dict[str, Any], table: report.Table, works: Sequence[Work], targets: bool
) -> None:
    settings = found["settings"]
    print(f"{machine.summary(found['machine'])}, {settings['dtype']}")
    for fault in machine.faults(found["machine"]):
        print(f"Measured {fault}.")
    has_gemm = any(work.hidden_size >= 256 for work in works)
    print(report.legend(has_gemm, settings["peers"], targets))
    print(f"\n{table.header()}", flush=True)


def _print_end(found: dict[str, Any], targets: bool) -> None:
    for line in report.failures(found["rows"]):
        print(f"Failed: {line}")
    if found["settings"].get("random_shapes"):
        print("", *report.averages(found["rows"]), sep="\n")
    if targets:
        print("", *speed_targets.summary(found["rows"]), sep="\n")


def _print_again(found: dict[str, Any], targets: bool) -> None:
    works = [Work(**row["work"]) for row in found["rows"]]
    settings = found["settings"]
    table = report.Table(works, settings["peers"], settings["device"] == "cuda", targets)
    _print_head(found, table, works, targets)
    for row in found["rows"]:
        print(table.row(row))
    for row in found["memory"]:
        print(report.memory_line(row))


def _draw(found: dict[str, Any], path: Path) -> bool:
    if chart.missing():
        print(f"No chart: {chart.missing()}.", file=sys.stderr)
        return False
    if not any(ratio(row) for row in found["rows"]):
        print("No chart: no row was measured.", file=sys.stderr)
        return False
    for file in chart.draw_comparison(found, path):
        print(f"Wrote {file}")
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.draw is not None:
        try:
            found = results.load(options.draw, KIND)
        except ValueError as error:
            parser.error(str(error))
        _print_again(found, options.targets)
        _print_end(found, options.targets)
        return 0 if _draw(found, options.draw) else 1
    has_cuda = torch.cuda.is_available()
    if options.device == "cuda" and not has_cuda:
        parser.error("--device cuda: torch finds no GPU")
    device = torch.device("cuda" if has_cuda and options.device != "cpu" else "cpu")
    if options.targets and device.type == "cuda":
        parser.error("--targets needs --device cpu: there are no targets for GPUs")
    if options.seconds is not None and options.seconds <= 0:
        parser.error("--seconds must be positive")
    try:
        works = _chosen_works(options)
        results.check_writable(options.out)
    except ValueError as error:
        parser.error(str(error))
    described = machine.describe_or_refuse(parser, options, device)
    try:
        found = run(options, works, device, described)
    except KeyboardInterrupt:
        print(
            f"\nInterrupted. What was measured is in {options.out}; --resume continues it.",
            file=sys.stderr,
        )
        return 130
    except OtherRunError as error:
        parser.error(str(error))
    _print_end(found, options.targets)
    print(f"\nWrote {options.out} after {found['seconds']:.0f} s")
    _draw(found, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
