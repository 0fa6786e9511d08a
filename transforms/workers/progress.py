"""How far the work is: for a progress bar, never for the row counts.

Each process counts for itself. Where workers share the driver's process, it looks at their counts;
workers elsewhere tell theirs in small files of a folder that all of them see, as they see the
shards. So it is the same on every engine: none of them tells the counters of a job that runs.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Literal

from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.schemas import layout
from recordmill.transforms.storage.files import files_below, is_local, open_binary, write_bytes
from recordmill.transforms.storage.stores.options import current_options

_SECONDS = 2.0
_STORE_SECONDS = 10.0

Count = Literal["read", "analyzed", "placed", "written", "rejected", "verified"]


@dataclass
class ProgressCounters:
    """Counts that workers raise as they go; retries count twice.

    Attributes:
        read: rows read from tables, or files found in folders.
        surveyed: rows looked at.
        total: all rows, once the survey has counted them.
        placed: rows placed in a shard, or rejected before.
        written: records written.
        rejected: rows rejected while records were written.
        verified: records re-read.
    """

    read: int = 0
    analyzed: int = 0
    total: int = 0
    placed: int = 0
    written: int = 0
    rejected: int = 0
    verified: int = 0

    def reset(self) -> None:
        """Begins again."""
        self.__init__()  # type: ignore[misc]


PULSE = ProgressCounters()
"""One a process."""


class ProgressOptions(PipelineOptions):
    """Where workers tell their counts: the driver sets it, nobody else."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--progress_folder", default="", help=argparse.SUPPRESS)


def advance(what: Count, number: int = 1) -> None:
    """Raises one of this process's counts, and tells all of them if it is time to."""
    setattr(PULSE, what, getattr(PULSE, what) + number)
    _TELLER.tell()


def set_total(rows: int) -> None:
    """Notes how many rows there are in all."""
    PULSE.total = rows
    _TELLER.tell(at_once=True)


def sum_of(pulses: Iterable[ProgressCounters]) -> ProgressCounters:
    """Returns the counts of all processes together.

    >>> sum_of([ProgressCounters(read=3, total=9), ProgressCounters(read=2)])
    Pulse(read=5, surveyed=0, total=9, placed=0, written=0, rejected=0, verified=0)
    """
    known = list(pulses)
    names = [field.name for field in fields(ProgressCounters) if field.name != "total"]
    counts = {name: sum(getattr(pulse, name) for pulse in known) for name in names}
    return ProgressCounters(total=max((pulse.total for pulse in known), default=0), **counts)


def read_counters(folder: str) -> dict[str, ProgressCounters]:
    """Returns the counts that processes have told: by the files they are in.

    Raises:
        OSError: if the folder cannot be listed.
    """
    found = {}
    for name in files_below(folder, "*.json"):
        try:
            with open_binary(layout.join(folder, name)) as stream:
                found[name] = ProgressCounters(**json.loads(stream.read()))
        except (OSError, ValueError, TypeError):
            continue  # being written, or just gone: it is reported again
    return found


class _Teller:
    """Writes the counts of this process into its file, now and then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due = 0.0
        self._folder = ""
        self._timer: threading.Timer | None = None

    def tell(self, at_once: bool = False) -> None:
        """Writes them if it is time, and somebody wants them; nothing waits for it."""
        if time.monotonic() >= self._due or at_once:
            self._tell()
        elif self._timer is None and self._folder and is_local(self._folder):
            self._timer = threading.Timer(
                _SECONDS, self._tell
            )  # so that the last ones are reported
            self._timer.daemon = True
            self._timer.start()

    def _tell(self) -> None:
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._timer = None
            self._folder = current_options().view_as(ProgressOptions).progress_folder
            is_here = is_local(self._folder)
            self._due = time.monotonic() + (_SECONDS if is_here else _STORE_SECONDS)
            if self._folder and (not is_here or os.path.isdir(self._folder)):
                write_bytes(layout.join(self._folder, f"{_process()}.json"), _encoded(PULSE))
        except Exception:  # noqa: BLE001 - a bar that stands still must not fail a run
            self._due = time.monotonic() + _STORE_SECONDS
        finally:
            self._lock.release()


def _encoded(pulse: ProgressCounters) -> bytes:
    return json.dumps(asdict(pulse)).encode()


def _process() -> str:
    """Returns a name for this process, of all on all machines; another one after a fork."""
    return f"{uuid.uuid5(_RUN, str(os.getpid()))}"


_RUN = uuid.uuid4()
_TELLER = _Teller()
