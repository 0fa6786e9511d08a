"""`recordmill` and `python -m recordmill`: the command line."""

import sys


def main() -> int:
    """Runs the command line, quietly from its first import on."""
    from recordmill.pipelines.run import startup

    startup.set_up_process()
    from recordmill.pipelines.command_line import main as run  # Beam logs as it is imported
    from recordmill.transforms.workers.process import collect_garbage

    return startup.end_process(run(loaded=collect_garbage))


if __name__ == "__main__":
    sys.exit(main())
