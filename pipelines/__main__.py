"""`python -m pipelines`: the command line."""

import sys

from pipelines.command_line import main

if __name__ == "__main__":
    sys.exit(main())
