"""run.json: what differs from run to run, and how a run ended."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from platform import python_version

from pydantic import BaseModel

from schemas.dataset_info import DatasetInfo
from schemas.errors import RunError

_PACKAGES = ("recordmill", "apache-beam", "tensorflow", "Pillow", "pyarrow", "protobuf")


@dataclass(frozen=True)
class RunContext:
    """Who runs, and since when.

    Attributes:
        run_id: tells this run from all others.
        started: seconds since 1970.
        runner: the Beam runner.
    """

    run_id: str
    started: float
    runner: str

    @classmethod
    def begin(cls, runner: str) -> RunContext:
        """Returns the context of a run that begins now."""
        return cls(uuid.uuid4().hex, time.time(), runner)


class RunRecord(BaseModel):
    """The whole of run.json.

    Attributes:
        run_id: tells this run from all others.
        state: "published" or "failed".
        exit_code: as the command ends.
        message: why it failed; "" if it did not.
        runner: the Beam runner.
        started: when, in UTC.
        finished: when, in UTC.
        seconds: between the two.
        rows: read.
        records: written.
        rejected: rows.
        records_per_second: over the whole run, start-up and verification included.
        versions: of Python and of the packages that decide bytes.
    """

    run_id: str
    state: str
    exit_code: int
    message: str
    runner: str
    started: datetime
    finished: datetime
    seconds: float
    rows: int
    records: int
    rejected: int
    records_per_second: float
    versions: dict[str, str]

    def to_json(self) -> bytes:
        """Returns the file's content."""
        return self.model_dump_json(indent=2).encode() + b"\n"


def finished(context: RunContext, info: DatasetInfo | None, error: RunError | None) -> RunRecord:
    """Returns the record of a run that ends now.

    Args:
        context: who ran.
        info: what was written, if it came that far.
        error: why nothing was published; None if it was.
    """
    now = time.time()
    seconds = now - context.started
    books = info.books if info else None
    records = books.written if books else 0
    return RunRecord(
        run_id=context.run_id,
        state="failed" if error else "published",
        exit_code=error.exit_code if error else 0,
        message=str(error) if error else "",
        runner=context.runner,
        started=datetime.fromtimestamp(context.started, timezone.utc),
        finished=datetime.fromtimestamp(now, timezone.utc),
        seconds=round(seconds, 3),
        rows=books.rows_read if books else 0,
        records=records,
        rejected=books.rejected if books else 0,
        records_per_second=round(records / seconds, 1) if seconds else 0.0,
        versions=_versions(),
    )


def _versions() -> dict[str, str]:
    versions = {"python": python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # run from a checkout, or from tensorflow-cpu
            versions[package] = "not installed as such"
    return versions
