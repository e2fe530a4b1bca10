"""``python -m rotcell`` says how rotcell was built and what it runs on."""

import argparse
import json
import sys

from ._closed_pipe import quiet_on_closed_pipe
from .cuda_paths import describe_cuda_paths
from .info import build_info, describe


@quiet_on_closed_pipe
def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m rotcell", description="Say how rotcell was built and what it runs on."
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--json", action="store_true", help="print JSON")
    what.add_argument(
        "--cuda-paths",
        action="store_true",
        help="say which kernels run for which sizes, on the GPUs of this machine or, without any, "
        "on well-known ones",
    )
    options = parser.parse_args(arguments)
    if options.cuda_paths:
        print(describe_cuda_paths())
    else:
        print(json.dumps(build_info(), indent=2) if options.json else describe())
    return 0


if __name__ == "__main__":
    sys.exit(main())
