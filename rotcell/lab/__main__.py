"""``python -m rotcell.lab`` is ``rotcell-lab``."""

import sys

from rotcell.lab.cli import main

if __name__ == "__main__":
    sys.exit(main())
