"""Peak memory of one training step, each measured in a separate process.

On the CPU it is how far the resident set grows during the step above where it stood before, when
layer and input already exist and a tiny step has loaded all libraries. On a GPU it is the same of
torch's allocator.
"""

from __future__ import annotations

import ctypes
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from contestants import COMPARED, Limits, Task, build
from work import Work

REPEATS = 3


def measure(task: Task) -> dict[str, Any]:
    """Measure rotcell and torch on the same training step; bytes."""
    row: dict[str, Any] = {
        "work": task.work.to_json(),
        "cell": task.cell,
        "threads": task.threads,
        "bytes": {},
        "samples": {},
    }
    for name in COMPARED:
        samples = [_in_new_process(task, name) for _ in range(REPEATS)]
        row["samples"][name] = samples
        row["bytes"][name] = statistics.median(samples)
    return row


def _in_new_process(task: Task, contestant: str) -> int:
    request = {
        "work": task.work.to_json(),
        "cell": task.cell,
        "threads": task.threads,
        "device": str(task.device),
        "dtype": str(task.dtype).removeprefix("torch."),
        "contestant": contestant,
    }
    command = [sys.executable, str(Path(__file__).resolve()), json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"measuring memory failed:\n{done.stderr.strip()}")
    return int(done.stdout)


def _status(field: str) -> int:
    """Read a size of this process, in bytes, as Linux reports it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def _growth_during_step(request: dict[str, Any]) -> int:
    torch.set_num_threads(request["threads"])
    device = torch.device(request["device"])

    def step_of(work: Work) -> Any:
        dtype = getattr(torch, request["dtype"])
        task = Task(work, request["cell"], "train", request["threads"], device, dtype)
        return build(task, (), Limits(0, 0))[request["contestant"]]

    work = Work(**request["work"])
    step_of(Work("tiny", 2, 2, 4, 4, work.form))()
    step = step_of(work)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before must not hide what the step needs
    Path("/proc/self/clear_refs").write_text("5")  # restarts the high-water mark
    before = _status("VmRSS")
    step()
    return max(_status("VmHWM") - before, 0)


if __name__ == "__main__":
    print(_growth_during_step(json.loads(sys.argv[1])))
