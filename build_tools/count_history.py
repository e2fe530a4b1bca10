"""Counts what a step of the CUDA kernels executed before and after each step of the work on them.

    python build_tools/count_history.py [COMMIT ...]

takes the kernels of each of these commits (all, without arguments) out of the history, compiles
them to PTX, and executes that with today's csrc/ptx, by the driver of their own time. The results
of the kernels must be right. It takes about a minute a commit. The counts go to
bench/results/cuda-history.json, and from there to docs/cuda-history.md; --page writes only that.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import history_page
import run_ptx
from cuda_compiler import find_nvcc, nvcc_command, toolkit_of
from sources import ROOT

# Today's files that take the place of older ones: what counts, and the seam by which launches are
# given to the executor of PTX.
TODAYS = (
    *("cuda/grid.h", "simt/launch.h", "tests/error_limit.h", "tests/ptx_counts.cpp"),
    *(f"ptx/{header.name}" for header in run_ptx.CSRC.glob("ptx/*.h")),
)
# The rest of that seam, for commits that do not have it yet.
SEAM = (
    (
        "simt/platform.h",
        "{run, &context}",
        "{run, &context, reinterpret_cast<const void*>(kernel), &params}",
    ),
    (
        "simt/executor.cpp",
        "\nvoid launch(",
        "\nRunner launch_runner = nullptr;\n"
        "void run_launches_by(Runner runner) { launch_runner = runner; }\n"
        "\nvoid launch(",
    ),
    (
        "simt/executor.cpp",
        "  execution.name = name;",
        "  if (launch_runner != nullptr) return launch_runner(name, kind, grid, call);\n"
        "  execution.name = name;",
    ),
)

# The oldest driver has a class for each of its two cells. Seen as the later ones are:
OLDEST = "ff84f6b"
ADAPTER = """
namespace rotcell {

using CellIndex = int;
inline CellIndex cell_named(const std::string& name) { return name == "rot_lstm" ? 0 : -1; }

namespace tests {

template <class T>
class CudaCell {
 public:
  CudaCell(CellIndex, const Shape& shape, const OnPath& where) : lstm_(shape, where) {}
  Results<double> run() { return lstm_.run(); }

 private:
  CudaLstm<T> lstm_;
};

struct Threads {
  int64_t rows, units;
};

template <class T>
Results<T> run_cell(CellIndex, const Shape& shape, Threads threads) {
  return run_lstm<T>(shape, threads.rows);
}

}  // namespace tests
}  // namespace rotcell
"""

RESIDENT = "rot_lstm,resident,float32,32,50"
COOPERATIVE = ("rot_lstm,cooperative,float16,64,256", "rot_lstm,cooperative,float16,64,512")
CLUSTER = ("rot_lstm,cluster,float16,64,256", "rot_lstm,cluster,float16,64,512")
ON_A100 = {"80": (RESIDENT, *COOPERATIVE)}
ON_BOTH = {**ON_A100, "90": COOPERATIVE}
WITH_CLUSTERS = {**ON_A100, "90": (*COOPERATIVE, *CLUSTER)}


OTHERS = {
    "6d4415f": ON_BOTH,
    "edaa41a": WITH_CLUSTERS,
    "9dfb1e2": WITH_CLUSTERS,
    "5006b21": WITH_CLUSTERS,
}


def check_out(commit: str, folder: Path) -> Path:
    """The sources of the commit, ready to be run from their PTX."""
    command = ["git", "-C", str(ROOT), "archive", commit, "csrc"]
    archived = subprocess.run(command, capture_output=True)
    if archived.returncode:
        sys.exit(f"{archived.stderr.decode()}This needs the whole history: git fetch --unshallow.")
    unpack = ["tar", "--extract", f"--directory={folder}"]
    subprocess.run(unpack, input=archived.stdout, check=True)
    csrc = folder / "csrc"
    has_seam = "run_launches_by" in (csrc / "simt/launch.h").read_text(encoding="utf-8")
    for name in TODAYS:
        (csrc / name).parent.mkdir(exist_ok=True)
        shutil.copy(run_ptx.CSRC / name, csrc / name)
    for name, before, after in () if has_seam else SEAM:
        text = (csrc / name).read_text(encoding="utf-8")
        if text.count(before) != 1:
            sys.exit(f"{commit}: {name} has {text.count(before)} times {before!r}.")
        (csrc / name).write_text(text.replace(before, after), encoding="utf-8")
    if commit == OLDEST:
        with (csrc / "tests/cuda_sequences.h").open("a", encoding="utf-8") as driver:
            driver.write(ADAPTER)
    return csrc


def count(
    commit: str, nvcc: str, executor: list[Path], work: Path, pool: ThreadPoolExecutor
) -> list[dict[str, object]]:
    """What its kernels execute, in a folder of their own."""
    sequences = OTHERS.get(commit, ON_A100)
    csrc = check_out(commit, work)
    command = nvcc_command(toolkit_of(nvcc), [run_ptx.COMPILER], csrc)
    flags = ["-DROTCELL_FEW_CELLS", "-w"]  # nobody will change what it warns of
    kernels = [f for path in ("resident", "cooperative") for f in csrc.glob(f"cuda/*{path}*.cu")]
    run_ptx.compile_ptx([*command, *flags], kernels, work / "ptx", sequences, pool)
    plain = [*flags, *run_ptx.PLAIN]
    sources = [*run_ptx.host_sources(csrc), csrc / "tests/ptx_counts.cpp"]
    objects = list(pool.map(lambda s: run_ptx.compile_host(csrc, s, plain, work), sources))
    run_ptx.link([*objects, *executor], work / "ptx_counts")
    jobs = [
        pool.submit(run_ptx.run, work / "ptx_counts", work / "ptx" / arch, sequence)
        for arch, of_architecture in sequences.items()
        for sequence in of_architecture
    ]
    return [json.loads(line) for job in jobs for line in job.result().splitlines()]


def store(commit: str, rows: list[dict[str, object]], nvcc: str) -> None:
    counts = {**history_page.stored(), commit: {"nvcc": toolkit_of(nvcc).release, "rows": rows}}
    in_order = {name: counts[name] for name in history_page.COMMITS if name in counts}
    history_page.COUNTS.write_text(json.dumps(in_order, indent=1) + "\n", encoding="utf-8")


def count_all(commits: list[str]) -> None:
    nvcc = find_nvcc()
    if nvcc is None:
        sys.exit("This needs nvcc.")
    start = time.monotonic()
    jobs = int(os.environ.get("MAX_JOBS") or len(os.sched_getaffinity(0)))
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(jobs) as pool:
        work = Path(name)
        executor = run_ptx.compile_executor(work, pool)
        for commit in commits:
            folder = work / commit
            folder.mkdir()
            store(commit, count(commit, nvcc, executor, folder, pool), nvcc)
            print(f"{commit} counted; {time.monotonic() - start:.0f} s.", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("commits", nargs="*", metavar="COMMIT", help="of the list; by default all")
    parser.add_argument("--page", action="store_true", help="count nothing")
    options = parser.parse_args()
    if unknown := set(options.commits) - set(history_page.COMMITS):
        parser.error(f"not among {', '.join(history_page.COMMITS)}: {', '.join(unknown)}")
    if not options.page:
        count_all(options.commits or list(history_page.COMMITS))
    history_page.write()


if __name__ == "__main__":
    main()
