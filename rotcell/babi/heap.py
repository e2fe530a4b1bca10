"""Memory that every training step needs again."""

from __future__ import annotations

import ctypes
from typing import Final

# Names and numbers of glibc's <malloc.h>.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def keep_freed_memory() -> None:
    """Have glibc keep what a step frees for the next one, up to half a gigabyte.

    It would give it back to the system and ask for it again at every step, and each page of fresh
    memory costs a fault. Elsewhere than with glibc nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the most that it takes
    mallopt(_M_TRIM_THRESHOLD, 512 << 20)
