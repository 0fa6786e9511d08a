"""Fuzzes one target: `python -m tests.fuzz csv -runs=100000`; flags are libFuzzer's.

Atheris guides it by code coverage. A crash, a minute or 8 GB end it with an error and the input in
a file; the limit is high because Arrow allocates whatever size up to 2 GiB a page of Parquet
declares. New inputs go to the first folder given, or to `build/fuzz/`, never to `corpus/`.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import atheris
import pyarrow as pa

with atheris.instrument_imports(include=["recordmill.schemas", "recordmill.transforms.functional"]):
    from tests.fuzz.seeds import CORPUS
    from tests.fuzz.targets import TARGETS

FOUND = Path(__file__).parents[2] / "build" / "fuzz"
LIMITS = ("-timeout=60", "-rss_limit_mb=8192", "-max_len=16384", "-verbosity=0")


def main() -> None:
    """Fuzzes; ends the process."""
    target, *flags = sys.argv[1:]
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
