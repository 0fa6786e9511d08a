"""`recordmill` and `python -m recordmill`: the command line."""

import atexit
import gc
import os
import sys


def main() -> int:
    """Runs the command line, quietly from its first import on.

    Each module is imported when what it needs is set up: signals first.
    """
    from recordmill.pipelines.run.early_exit import exit_on_signals

    exit_on_signals()
    from recordmill.pipelines.console.standard_streams import (
        ignore_output_errors,
        open_closed_streams,
    )

    open_closed_streams()
    ignore_output_errors()
    from recordmill.pipelines.console.logs import set_up_logs

    set_up_logs()
    gc.disable()  # what is imported stays: to look through it, again and again, takes 0.4 s
    ended: list[int] = []
    atexit.register(_leave, ended)  # before any import adds its own: the first to come is the last
    from recordmill.pipelines.command_line import (
        main as run,  # after the logs are set up: Beam logs at import
    )

    ended.append(run(loaded=_collect_garbage))
    if ended[0] > 128:  # interrupted: what threads are still at is not waited for
        _leave(ended)
    return ended[0]


def _collect_garbage() -> None:
    """Begins to, of what is made from now on."""
    gc.freeze()
    gc.enable()


def _leave(ended: list[int]) -> None:
    """Ends the process where the libraries' C++ would clean up after itself.

    That aborts one run in fifteen on a busy machine, after all is done ("terminate called without
    an active exception"), by a thread of TensorFlow's that is still there.
    """
    if ended:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended[0])


if __name__ == "__main__":
    sys.exit(main())
