"""`recordmill` and `python -m recordmill`: the command line."""

import sys


def main() -> int:
    """Runs the command line, quietly from its first import on."""
    from recordmill.pipelines.run import startup

    startup.set_up_process()
    from recordmill.pipelines.command_line import main as run  # Beam logs as it is imported

    return startup.end_process(run(owned=True))


if __name__ == "__main__":
    sys.exit(main())
