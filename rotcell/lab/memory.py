"""What the allocator keeps for the next step. Only programs call this, never library functions."""

from __future__ import annotations

import ctypes
from typing import Final

# Names and numbers of glibc's <malloc.h>.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


def keep_freed_memory() -> None:
    """Let glibc keep up to half a gigabyte of freed memory for the next step, process-wide.

    By default it returns the memory to the system after every step, and each page of fresh memory
    costs a page fault. Does nothing with other C libraries.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the most that it takes
    mallopt(_M_TRIM_THRESHOLD, 512 << 20)
