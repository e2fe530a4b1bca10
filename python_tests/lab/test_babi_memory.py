"""Memory that training steps use again and again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# How many bytes of what a step freed are still the process's. What glibc does by itself depends on
# what else lies in the heap; with the threshold set, it gives every large block back at once.
KEPT = """
import ctypes, os, sys, torch
from rotcell.lab.memory import keep_freed_memory

M_MMAP_THRESHOLD = -3
ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 20)
if sys.argv[1] == "keep":
    keep_freed_memory()
if sys.argv[1] == "train":
    from rotcell.lab.tasks.babi import RunSettings, load_task, train
    train(load_task(1, questions=40), RunSettings(1, "rotlstm", state_size=4, epochs=1))

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def step():
    blocks = [torch.ones(5 << 20) for _ in range(8)]  # 20 MB each

before = resident()
step()
print(resident() - before)
"""
STEP = 8 * (20 << 20)


def bytes_kept(mode: str) -> int:
    return int(subprocess.check_output([sys.executable, "-c", KEPT, mode], text=True))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_memory_that_a_step_freed_is_kept_for_the_next():
    assert bytes_kept("give back") < STEP / 10
    assert bytes_kept("keep") > STEP * 9 / 10


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_train_as_a_library_function_leaves_malloc_alone():
    assert bytes_kept("train") < STEP / 10
