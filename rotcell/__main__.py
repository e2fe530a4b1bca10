"""``python -m rotcell`` shows how rotcell was built and what it runs on."""

import argparse
import json
import sys
from pathlib import Path

from ._closed_pipe import quiet_on_closed_pipe
from ._libraries import why_missing
from .cuda import paths
from .cuda.gpu_check import command as gpu_check
from .info import build_info, describe


@quiet_on_closed_pipe
def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m rotcell", description="Show how rotcell was built and what it runs on."
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--json", action="store_true", help="print JSON")
    what.add_argument(
        "--cuda-paths",
        action="store_true",
        help="show which kernels run for which sizes, on the GPUs of this machine or, without any, "
        "on well-known ones",
    )
    what.add_argument(
        "--check-gpu",
        action="store_true",
        help="compare every kernel with the reference on the GPU of this machine, time it against "
        "cuDNN, and write a report file to send us; exit status 1 if a check fails, 2 if there is "
        "nothing to check, 130 after Ctrl-C",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help=f"file that --check-gpu writes (default: {gpu_check.DEFAULT_OUTPUT})",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help="time limit of --check-gpu: results first, then timings as time permits "
        f"(default: {gpu_check.DEFAULT_SECONDS:g})",
    )
    options = parser.parse_args(arguments)
    for name in ("output", "seconds"):
        if getattr(options, name) is not None and not options.check_gpu:
            parser.error(f"--{name} belongs to --check-gpu")
    if options.seconds is not None and not options.seconds > 0:
        parser.error(f"--seconds must be positive, got {options.seconds:g}")
    if options.check_gpu:
        return gpu_check.main(
            options.output or gpu_check.DEFAULT_OUTPUT, options.seconds or gpu_check.DEFAULT_SECONDS
        )
    if options.cuda_paths:
        if missing := why_missing():
            print(f"There are no kernels here: {missing}", file=sys.stderr)
            return 2
        print(paths.describe())
    else:
        print(json.dumps(build_info(), indent=2) if options.json else describe())
    return 0


if __name__ == "__main__":
    sys.exit(main())
