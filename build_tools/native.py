"""Whether the kernels are compiled, or rotcell is installed as Python alone, on its reference."""

import os
import shlex
import shutil
import sys


def compiler():
    """The C++ compiler and its first arguments."""
    return shlex.split(os.environ.get("CXX", "")) or ["c++"]


def native_decision():
    """Whether the kernels are compiled, and why (not). ROTCELL_NATIVE forces it."""
    requested = os.environ.get("ROTCELL_NATIVE", "")
    if requested not in ("", "0", "1"):
        raise SystemExit(f"ROTCELL_NATIVE must be 0, 1 or unset, not {requested!r}.")
    if requested == "0":
        return False, "ROTCELL_NATIVE=0"
    obstacle = _obstacle()
    if obstacle is None:
        return True, f"compiled by {compiler()[0]}"
    for variable in ("ROTCELL_NATIVE", "ROTCELL_CUDA", "CXX"):
        if os.environ.get(variable, "") not in ("", "0"):
            raise SystemExit(f"{variable}={os.environ[variable]}, but {obstacle}.")
    return False, obstacle


def _obstacle():
    if not sys.platform.startswith("linux"):
        return f"the kernels compile on Linux only so far, not on {sys.platform}"
    if shutil.which(compiler()[0]) is None:
        return f"there is no C++ compiler ({compiler()[0]})"
    return None
