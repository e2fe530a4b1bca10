"""More threads than free processors: RotLSTM compared with nn.LSTM at batch 1.

Next to busy processes, with more threads than processors, bound to one processor, and with a quota
of one (which needs the right to make a control group). In each case both layers run with the
threads of the case and again with one, all in turns: more threads should never cost much more than
one. Results go into a JSON file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import contestants
import machine
import results
import torch
from contestants import COMPARED, ROTCELL, TORCH, Function, Limits, Task
from ratios import Row, median, ratio
from timing import Effort, measure
from work import PASSES, Work

KIND = "busy"
DEFAULT_OUT = Path(__file__).resolve().parent / "out" / "busy.json"
WORK = Work("busy", 1, 1000, 64, 256)
TINY = Work("tiny", 1, 3, 4, 6)
#: How many times as long as with one thread a call may take.
MOST_OF_ONE_THREAD = 1.5


@dataclass(frozen=True)
class Case:
    """What a process finds around it; measured in a separate process."""

    name: str
    busy_processes: int = 0
    #: None: torch's default.
    threads: int | None = None
    one_processor: bool = False
    omp_num_threads: int | None = None
    #: Whether the control group of the process has the time of one processor.
    quota_of_one: bool = False


CASES = (
    Case("quiet"),
    Case("1 busy process", busy_processes=1),
    Case("2 busy processes", busy_processes=2),
    Case("set_num_threads(8)", threads=8),
    Case("taskset -c 0, OMP_NUM_THREADS=2", one_processor=True, omp_num_threads=2),
    Case("quota of 1 processor", quota_of_one=True),
)


class NotPossible(Exception):
    """A case cannot be had on this machine."""


def of_one(name: str) -> str:
    """Name a contestant that runs with one thread."""
    return f"{name}, 1 thread"


def run_case(case: Case, work: Work, seconds: float) -> dict[str, Any]:
    """Measure one case in a new process, next to its busy ones; one row per pass."""
    request = json.dumps({"case": asdict(case), "work": work.to_json(), "seconds": seconds})
    environment = dict(os.environ)
    environment.pop("OMP_NUM_THREADS", None)
    if case.omp_num_threads is not None:
        environment["OMP_NUM_THREADS"] = str(case.omp_num_threads)
    command = [sys.executable, str(Path(__file__).resolve()), "--in-case", request]
    if case.one_processor:
        command = ["taskset", "-c", str(min(os.sched_getaffinity(0))), *command]
    with _busy_processes(case.busy_processes), _quota(case.quota_of_one) as prefix:
        command = [*prefix, *command]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{case.name} failed:\n{done.stderr.strip()}")
    rows: dict[str, Any] = json.loads(done.stdout)
    return rows


@contextmanager
def _busy_processes(count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def _quota(of_one: bool) -> Iterator[list[str]]:
    """What to put before a command to run it in a control group with one processor's time."""
    if not of_one:
        yield []
        return
    group, limits = _control_group()
    try:
        group.mkdir(exist_ok=True)
        for name, text in limits.items():
            (group / name).write_text(text)
    except OSError as error:
        raise NotPossible(f"no control group can be made: {error}") from None
    try:
        yield ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(group / "cgroup.procs")]
    finally:
        group.rmdir()


def _control_group() -> tuple[Path, dict[str, str]]:
    """Where it would be, and the files that limit it: version 1 has a folder for processors."""
    root, name, period = Path("/sys/fs/cgroup"), f"rotcell-{os.getpid()}", "100000"
    if (root / "cpu").is_dir():
        return root / "cpu" / name, {"cpu.cfs_period_us": period, "cpu.cfs_quota_us": period}
    return root / name, {"cpu.max": f"{period} {period}"}


def _measure_here(case: Case, work: Work, seconds: float) -> dict[str, Any]:
    """Measure a case in this process, whose environment is the case's."""
    threads = case.threads or torch.get_num_threads()
    rows = {}
    for passes in PASSES:
        functions: dict[str, Function] = {}
        for count, suffix in ((threads, str), (1, of_one)):
            task = Task(work, "RotLSTM", passes, count, torch.device("cpu"), torch.float32)
            for name, function in contestants.build(task, (), Limits(0, 0)).items():
                if name in COMPARED:
                    functions[suffix(name)] = _with_threads(function, count)
        timings = measure(functions, list(functions), Effort(seconds, 11), torch.device("cpu"))
        rows[passes] = {
            "threads": threads,
            "timings": {name: timing.to_json() for name, timing in timings.items()},
        }
    return rows


def _with_threads(function: Function, threads: int) -> Function:
    def run() -> None:
        torch.set_num_threads(threads)
        function()

    return run


def line(row: Row) -> str:
    """Give the line of one row of the result file."""
    over_torch, over_one = ratio(row), ratio(row, ROTCELL, of_one(ROTCELL))
    torchs = ratio(row, TORCH, of_one(TORCH))
    if over_torch is None or over_one is None or torchs is None:
        errors = [timing["error"] for timing in row["timings"].values() if "error" in timing]
        return f"{row['case']['name']:32}  {row['pass']:5}  failed: {'; '.join(errors)}"
    verdict = "" if over_one.median <= MOST_OF_ONE_THREAD else f" above {MOST_OF_ONE_THREAD}"
    return (
        f"{row['case']['name']:32}  {row['pass']:5}  {row['threads']:7}  "
        f"{1e3 * (median(row, ROTCELL) or 0):10.1f}  {over_torch!s:17}  "
        f"{over_one!s:17}  {torchs!s:17}{verdict}"
    )


def run(work: Work, seconds: float, out: Path, described: dict[str, Any]) -> None:
    """Measure all cases, printing and saving rows as they come."""
    found: dict[str, Any] = {
        "kind": KIND,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": described,
        "work": work.to_json(),
        "rows": [],
    }
    print(f"{machine.summary(found['machine'])}; RotLSTM, {work.label()}")
    print(
        "Ratios: medians (95 % confidence interval); of 1 thread: over the same layer with one.\n"
    )
    columns = ("rotcell ms", "rotcell/torch    ", "rotcell of 1     ", "torch of 1")
    print(f"{'case':32}  pass   threads  {'  '.join(columns)}")
    for case in CASES:
        try:
            rows = run_case(case, work, seconds)
        except NotPossible as reason:
            print(f"{case.name:32}  not measured: {reason}")
            continue
        for passes, row in rows.items():
            found["rows"].append({"case": asdict(case), "pass": passes, **row})
            print(line(found["rows"][-1]), flush=True)
            results.save(out, found)
    print(f"\nWrote {out}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="seconds per row (default: %(default)s)"
    )
    parser.add_argument("--tiny", action="store_true", help="a tiny size, to try the script")
    parser.add_argument(
        "--out",
        type=Path,
        default=DEFAULT_OUT,
        metavar="FILE",
        help="where the JSON goes (default: bench/out/busy.json)",
    )
    machine.add_options(parser)
    parser.add_argument("--in-case", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.in_case is not None:
        request = json.loads(options.in_case)
        case = Case(**request["case"])
        print(json.dumps(_measure_here(case, Work(**request["work"]), request["seconds"])))
        return 0
    if options.seconds <= 0:
        parser.error("--seconds must be positive")
    try:
        results.check_writable(options.out)
    except ValueError as error:
        parser.error(str(error))
    described = machine.describe_or_refuse(parser, options, torch.device("cpu"))
    run(TINY if options.tiny else WORK, options.seconds, options.out, described)
    return 0


if __name__ == "__main__":
    sys.exit(main())
