"""Commands whose output goes to one that stops reading, such as `head`."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from typing import ParamSpec

_P = ParamSpec("_P")


def quiet_on_closed_pipe(command: Callable[_P, int]) -> Callable[_P, int]:
    """Exit silently when nobody reads the output, with the status of a death by SIGPIPE."""

    @functools.wraps(command)
    def quiet(*args: _P.args, **kwargs: _P.kwargs) -> int:
        try:
            try:
                return command(*args, **kwargs)
            finally:
                print(end="", flush=True)  # here, or the interpreter does it and complains
        except BrokenPipeError:
            # What is left in the buffer is flushed once more at exit: let it go nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 128 + signal.SIGPIPE

    return quiet
