"""``python -m rotcell`` says how rotcell was built and what it runs on."""

import argparse
import json

from .info import build_info, describe


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m rotcell", description="Say how rotcell was built and what it runs on."
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    print(json.dumps(build_info(), indent=2) if options.json else describe())


if __name__ == "__main__":
    main()
