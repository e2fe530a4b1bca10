"""Facts about this build, for tests and tools. No layer needs it; it knows nothing of torch.

It is built for one Python. With another, importing it fails and all else works.
"""

from enum import Enum

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
    """How threads that wait for each other learn of other busy programs; times in seconds."""

    class Advice(Enum):
        """What threads should do."""

        WAIT_FOR_EACH_OTHER = ...
        WORK_ALONE = ...
        LOOK_FIRST = ...

    def advice(self, now: float) -> Advice:
        """Whether threads should wait for each other now."""

    def put_off(self, now: float) -> None:
        """Begin another pause as long as the last."""

    def learn(self, worked: float, slept: float, now: float) -> None:
        """Take in how long threads worked together, and how long they slept, in total."""
