"""``python -m instella``: the same command line."""

import sys

from instella.cli import main

if __name__ == "__main__":
    sys.exit(main())
