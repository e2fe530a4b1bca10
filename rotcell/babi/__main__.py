"""``python -m rotcell.babi`` is ``rotcell-babi``."""

import sys

from rotcell.babi.cli import main

if __name__ == "__main__":
    sys.exit(main())
