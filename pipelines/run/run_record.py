"""run.json: what differs from run to run, and how a run ended."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from platform import python_version

from pydantic import BaseModel, Field, ValidationError

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import DatasetInfo
from recordmill.schemas.errors import (
    DatasetExists,
    RecordmillError,
    RejectBudgetExceeded,
    UsageError,
    VerificationFailed,
)
from recordmill.schemas.masking import masked, masked_command
from recordmill.schemas.statistics import GroupLeakage, Timeline
from recordmill.transforms.storage.files import open_binary

_PACKAGES = ("recordmill", "apache-beam", "tensorflow", "Pillow", "pyarrow", "protobuf")

PUBLISHED = "published"
RUNNING = "running"


@dataclass(frozen=True)
class RunContext:
    """Who runs, and since when.

    Attributes:
        run_id: identifies this run.
        started: seconds since 1970.
        runner: the Beam runner.
        command: what was typed, secrets left out; none if it was no command.
        folder: where it was typed.
    """

    run_id: str
    started: float
    runner: str
    command: tuple[str, ...] = ()
    folder: str = ""

    def is_of(self, directory: str) -> bool:
        """Returns whether the run.json in a folder says how this run ended."""
        record = read_record(directory)
        return record is not None and record.run_id == self.run_id and record.state != RUNNING

    @classmethod
    def begin(cls, runner: str, command: Sequence[str] = ()) -> RunContext:
        """Returns the context of a run that begins now."""
        shown = tuple(masked_command(command))
        return cls(uuid.uuid4().hex, time.time(), runner, shown, working_folder() if shown else "")


class Throughput(BaseModel):
    """How many records were written when.

    Attributes:
        begins: seconds from the run's begin to the first interval's.
        interval: seconds.
        records: written in each interval, one after the other.
    """

    begins: float = 0.0
    interval: int = 1
    records: tuple[int, ...] = ()


class RunRecord(BaseModel):
    """The whole of run.json.

    Attributes:
        run_id: identifies this run.
        state: "published", "failed", "interrupted", or for a job that nobody waited for,
            "submitted"; in an object store "running" until the run ends, and if it is killed.
        exit_code: as the command ends.
        message: why it failed, or where a submitted job will record its end; "" if published.
        runner: the Beam runner.
        started: when, in UTC.
        finished: when, in UTC.
        seconds: between the two.
        rows: read.
        records: written.
        rejected: rows.
        shards: written, or taken from an earlier run.
        shards_reused: those taken from an earlier run that did not publish.
        shards_linked: those of the base, under another name.
        manifest_sha256: of the manifest that was published with it; "" if none was.
        fingerprints: shard file to what decided its bytes, for those who take it as a base.
        group_leaks: which groups are in more than one split.
        records_per_second: over the whole run, start-up and verification included.
        versions: of Python and of the packages that decide bytes.
        command: what was typed, secrets left out; none if it was no command.
        folder: where it was typed.
        throughput: how many records were written when.
        warnings: what went wrong beside the data, such as a report that could not be rendered.
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
    shards: int
    shards_reused: int
    shards_linked: int = 0
    manifest_sha256: str = ""
    fingerprints: dict[str, str] = {}
    group_leaks: GroupLeakage = GroupLeakage()
    records_per_second: float
    versions: dict[str, str]
    command: tuple[str, ...] = ()
    folder: str = ""
    throughput: Throughput = Field(default_factory=Throughput)
    warnings: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """Returns the file's content."""
        document = json.dumps(self.model_dump(mode="json"), ensure_ascii=False, indent=2)
        return document.encode("utf-8", "backslashreplace") + b"\n"

    def error(self) -> RecordmillError:
        """Returns the error that a run ended with."""
        kinds = (UsageError, VerificationFailed, RejectBudgetExceeded, DatasetExists)
        known: dict[int, type[RecordmillError]] = {kind.exit_code: kind for kind in kinds}
        return known.get(self.exit_code, RecordmillError)(self.message)


def read_record(directory: str) -> RunRecord | None:
    """Returns the run.json in a folder; None if there is none that can be read."""
    path = layout.join(directory, layout.RUN)
    try:
        with open_binary(path) as stream:
            return RunRecord.model_validate_json(stream.read())
    except (OSError, ValidationError):
        return None


def finished(
    context: RunContext, info: DatasetInfo | None, error: RecordmillError | None
) -> RunRecord:
    """Returns the record of a run that ends now.

    Args:
        context: who ran.
        info: what was written, if it came that far.
        error: why nothing was published; None if it was.
    """
    now = time.time()
    seconds = now - context.started
    counts = info.counts if info else None
    records = counts.records if counts else 0
    return RunRecord(
        run_id=context.run_id,
        state=error.state if error else PUBLISHED,
        exit_code=error.exit_code if error else 0,
        message=masked(str(error)) if error else "",
        runner=context.runner,
        started=datetime.fromtimestamp(context.started, timezone.utc),
        finished=datetime.fromtimestamp(now, timezone.utc),
        seconds=round(seconds, 3),
        rows=counts.rows if counts else 0,
        records=records,
        rejected=counts.rejected if counts else 0,
        shards=len(info.shards) if info else 0,
        shards_reused=info.reused if info else 0,
        shards_linked=info.linked if info else 0,
        fingerprints=dict(info.fingerprints) if info else {},
        group_leaks=info.group_leaks if info else GroupLeakage(),
        records_per_second=round(records / seconds, 1) if seconds else 0.0,
        versions=_versions(),
        command=context.command,
        folder=context.folder,
        throughput=throughput_of(info.timeline if info else Timeline(), context.started),
    )


def submitted(context: RunContext, path: str) -> RunRecord:
    """Returns the record of a run whose job goes on without this process.

    Args:
        context: who ran.
        path: the run.json that the job will write at its end.
    """
    message = (
        f"submitted; the job writes its result to {path}, and _SUCCESS beside it once verified"
    )
    return finished(context, None, None).model_copy(
        update={"state": "submitted", "message": message}
    )


def running(context: RunContext) -> RunRecord:
    """Returns the record of a run that has just begun: it marks the folder as its own."""
    message = "the run has not ended: it is at work, or was killed"
    update = {"state": RUNNING, "exit_code": 1, "message": message}
    return finished(context, None, None).model_copy(update=update)


def throughput_of(timeline: Timeline, started: float) -> Throughput:
    """Returns a timeline as seconds since a run began; intervals without a record are 0."""
    if not timeline.counts:
        return Throughput()
    first, last = min(timeline.counts), max(timeline.counts)
    return Throughput(
        begins=round(max(0.0, first * timeline.seconds - started), 3),
        interval=timeline.seconds,
        records=tuple(timeline.counts.get(index, 0) for index in range(first, last + 1)),
    )


def working_folder() -> str:
    """Returns the working folder in UTF-8, other bytes escaped; "" if it was deleted."""
    try:
        return os.getcwdb().decode("utf-8", "backslashreplace")
    except FileNotFoundError:
        return ""


def _versions() -> dict[str, str]:
    versions = {"python": python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # run from a checkout, or from tensorflow-cpu
            versions[package] = "not installed as such"
    return versions
