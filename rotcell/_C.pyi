"""Facts about this build, for tests and tools. No layer needs it; it knows nothing of torch.

It is built for one Python. With another, importing it fails and all else works.
"""

from enum import Enum
from typing import Any

def instruction_set() -> str:
    """The name of the instruction set in use: "generic", "avx2" or "avx512"."""

def instruction_sets() -> list[str]:
    """The instruction sets that were built and run on this machine."""

def processors() -> int:
    """How many processors this process may use."""

def cgroup_processors(membership: str, root: str) -> int | None:
    """The processors that cgroups leave a process.

    Args:
        membership: text as that of /proc/self/cgroup.
        root: where cgroups are mounted.

    Returns:
        None without a quota.
    """

def runnable_elsewhere() -> int:
    """How many threads of other programs run or wait for a processor; 0 if that is not known."""

class Contention:
    """What threads that wait for each other know of other programs; all times in seconds."""

    class Advice(Enum):
        """What threads had better do."""

        WAIT_FOR_EACH_OTHER = ...
        WORK_ALONE = ...
        LOOK_FIRST = ...

    def advice(self, now: float) -> Advice:
        """Whether threads had better wait for each other now."""

    def put_off(self, now: float) -> None:
        """Begin another pause as long as the last."""

    def learn(self, worked: float, slept: float, now: float) -> None:
        """Tell how long threads worked together, and how long they slept, added up."""

def cuda_plan(
    cell: str,
    pass_name: str,
    hidden: int,
    batch: int,
    steps: int,
    dtype: str,
    device: str | dict[str, int],
    projection: bool = False,
    path: str | None = None,
) -> dict[str, Any] | None:
    """The path a sequence takes on a GPU, and its launch. A pure function: it needs no GPU.

    Args:
        cell: "rot_lstm" or another name of `rotcell.reference.CELLS`.
        pass_name: "forward" or "backward".
        hidden: number of units.
        batch: rows of the batch.
        steps: length of the longest sequence.
        dtype: "float32", "float64", "float16" or "bfloat16".
        device: a name from `known_cuda_devices` or a dict like its values.
        projection: whether the output is projected.
        path: how this path would run, instead of the one expected to be the fastest.

    Returns:
        None if the given path cannot run there.
    """

def known_cuda_devices() -> dict[str, dict[str, int]]:
    """Properties of some GPUs, by name."""
