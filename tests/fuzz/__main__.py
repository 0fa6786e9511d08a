"""Fuzzes a target, or all: `python -m tests.fuzz csv -runs=100000`; flags are libFuzzer's.

Atheris guides it by code coverage. A crash, a minute or 8 GB end it with an error and the input in
a file; the limit is high because Arrow allocates whatever size up to 2 GiB a page of Parquet
declares. New inputs go to the first folder given, or to `build/fuzz/`, never to `corpus/`.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import atheris
import pyarrow as pa

with atheris.instrument_imports(include=["recordmill.schemas", "recordmill.transforms.functional"]):
    from tests.fuzz.targets import TARGETS

from tests.fuzz import CORPUS

FOUND = Path(__file__).parents[2] / "build" / "fuzz"
LIMITS = ("-timeout=60", "-rss_limit_mb=8192", "-max_len=16384", "-verbosity=0")
AT_A_TIME = 2  # each uses one core


def main() -> None:
    target, *flags = sys.argv[1:]
    if target == "all":
        sys.exit(_fuzz_all(flags))
    _fuzz(target, flags)


def _fuzz_all(flags: Sequence[str]) -> int:
    """Fuzzes each target in a fork, since it takes 8 s to instrument the code.

    Prints the output of each at its end. Returns the exit code: 1 if one failed.
    """
    waiting, running, code = [*TARGETS], {}, 0
    while waiting or running:
        while waiting and len(running) < AT_A_TIME:
            target, output = waiting.pop(0), tempfile.TemporaryFile()  # noqa: SIM115 - closed below
            if (child := os.fork()) == 0:
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                _fuzz(target, flags)
            running[child] = target, output
        child, status = os.wait()
        target, output = running.pop(child)
        with output:
            output.seek(0)
            print(f"fuzzed {target}\n{output.read().decode(errors='replace')}", file=sys.stderr)
        code = code or int(status != 0)
    return code


def _fuzz(target: str, flags: Sequence[str]) -> None:
    """Fuzzes a target; ends the process."""
    folders = [flag for flag in flags if not flag.startswith("-")]
    chosen = [flag for flag in flags if flag.startswith("-")]
    found = FOUND / target
    found.mkdir(parents=True, exist_ok=True)
    finds = f"-artifact_prefix={FOUND}/"
    arguments = [sys.argv[0], *LIMITS, finds, *chosen, *folders, str(found), str(CORPUS / target)]
    atheris.Setup(arguments, TARGETS[target])
    _leave_threads_at_exit()
    atheris.Fuzz()


def _leave_threads_at_exit() -> None:
    """Ends the process before Arrow joins its threads: they wait for the GIL, which libFuzzer keeps

    in `exit`. Handlers run in reverse, so Arrow's pools have to register theirs first.
    """
    pa.cpu_count()
    pa.io_thread_count()
    libc = ctypes.CDLL(None)
    libc.on_exit(libc._exit, None)


if __name__ == "__main__":
    main()
