"""Commands whose output is piped into a program that stops reading, such as `head`."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from typing import ParamSpec

_P = ParamSpec("_P")


def quiet_on_closed_pipe(command: Callable[_P, int]) -> Callable[_P, int]:
    """Exit silently on a closed pipe, with the status of a process that SIGPIPE has ended."""

    @functools.wraps(command)
    def quiet(*args: _P.args, **kwargs: _P.kwargs) -> int:
        try:
            try:
                return command(*args, **kwargs)
            finally:
                print(end="", flush=True)  # otherwise the interpreter flushes at exit and complains
        except BrokenPipeError:
            # The rest of the buffer is flushed again at exit: discard it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE

    return quiet
