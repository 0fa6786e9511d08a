"""`recordmill` and `python -m pipelines`: the command line."""

import sys

from pipelines.logs import set_up_logs


def main() -> int:
    """Runs the command line, quietly from its first import on."""
    set_up_logs()
    from pipelines.command_line import main as run  # after the logs are set up: Beam logs at import

    return run()


if __name__ == "__main__":
    sys.exit(main())
