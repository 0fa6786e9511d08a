"""run.json: the result of a run, and everything that differs between runs of the same options."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from platform import python_version
from typing import Any

from PIL import features
from pydantic import BaseModel, Field, ValidationError

from recordmill.schemas import errors, layout
from recordmill.schemas.dataset_info import DatasetInfo
from recordmill.schemas.findings import Finding
from recordmill.schemas.masking import masked, masked_command
from recordmill.schemas.records import OUTSIDE_WHERE
from recordmill.schemas.rejects import reason_counts, reject_lines
from recordmill.transforms.storage.files import NOT_A_FILE, read

_PACKAGES = ("recordmill", "apache-beam", "tensorflow", "Pillow", "pyarrow", "protobuf")

PUBLISHED = "published"
RUNNING = "running"


@dataclass(frozen=True)
class RunContext:
    """Identity and start of a run."""

    run_id: str
    started: float  # seconds since 1970
    runner: str
    # The command line with secrets masked; () for a call of the library.
    command: tuple[str, ...] = ()
    folder: str = ""  # the working folder of the command; "" for a call of the library

    def record_in(self, *directories: str) -> RunRecord | None:
        """Returns the result of this run from the first of some folders that has it."""
        for record in map(read_record, directories):
            if record and record.run_id == self.run_id and record.state != RUNNING:
                return record
        return None

    @classmethod
    def begin(cls, runner: str, command: Sequence[str] = ()) -> RunContext:
        """Returns the context of a run that begins now; secrets in its command line are masked."""
        shown = tuple(masked_command(command))
        return cls(uuid.uuid4().hex, time.time(), runner, shown, _working_folder() if shown else "")


class RunRecord(BaseModel):
    """The content of run.json."""

    run_id: str
    # "published", "failed" or "interrupted"; "submitted" for a job that the command did not wait
    # for; in an object store, "running" until the run ends, or if it was killed.
    state: str
    exit_code: int
    message: str  # reason of the failure, or for a submitted job, the path of its result; or ""
    runner: str
    started: datetime
    finished: datetime
    seconds: float
    rows: int
    records: int
    rejected: int
    shards: int
    shards_reused: int  # number of shards that an earlier, unpublished run had finished
    shards_linked: int = 0  # number of shards taken from the base version without reading them
    manifest_sha256: str = ""  # checksum of the published manifest; "" if none was published
    # Fingerprint of each shard's input, by file, for runs with this base version.
    fingerprints: dict[str, str] = {}
    reject_reasons: dict[str, int] = {}
    first_rejects: tuple[dict[str, Any], ...] = ()
    skipped_names: dict[str, tuple[str, ...]] = {}
    records_per_second: float  # mean over the whole run, with start-up and verification
    versions: dict[str, str]  # versions of Python and of the packages that determine bytes
    # The command line with secrets masked; () for a call of the library.
    command: tuple[str, ...] = ()
    folder: str = ""  # the working folder of the command; "" for a call of the library
    # The folder with the output of a failed run; not written.
    directory: str = Field(default="", exclude=True)
    warnings: tuple[str, ...] = ()
    # What the run noticed about the data; empty if it ended before.
    findings: tuple[Finding, ...] = ()

    def to_json(self) -> bytes:
        """Returns the file's content."""
        document = json.dumps(self.model_dump(mode="json"), ensure_ascii=False, indent=2)
        return document.encode("utf-8", "backslashreplace") + b"\n"

    def with_findings(self, found: Iterable[Finding]) -> RunRecord:
        """Returns the record with further findings."""
        findings = (*self.findings, *found)
        warnings = tuple(one.text for one in findings if one.severity == "warning")
        return self.model_copy(update={"findings": findings, "warnings": warnings})

    @property
    def reject_lines(self) -> list[str]:
        """The number of rejects by reason, and their first ones with what to do about them."""
        counts = reason_counts(self.reject_reasons)
        return [f"rejected: {counts}", *reject_lines(self.first_rejects)] if counts else []

    def error(self, directory: str) -> errors.RecordmillError:
        """Returns the error of a failed run, whose folder is `directory`, by its exit code."""
        kinds = (
            errors.UsageError,
            errors.VerificationFailed,
            errors.RejectBudgetExceeded,
            errors.DatasetExists,
        )
        known: dict[int, type[errors.RecordmillError]] = {kind.exit_code: kind for kind in kinds}
        kind = known.get(self.exit_code, errors.RecordmillError)
        return kind(self.message, self.reject_reasons, self.first_rejects, directory)


def read_record(directory: str) -> RunRecord | None:
    """Returns the run.json in a folder; None if it is missing or damaged.

    Raises OSError if it cannot be read, which does not mean that it was deleted.
    """
    path = layout.join(directory, layout.RUN)
    try:
        return RunRecord.model_validate_json(read(path))
    except (*NOT_A_FILE, ValidationError):
        return None


def finished_record(
    context: RunContext, info: DatasetInfo | None, error: errors.RecordmillError | None
) -> RunRecord:
    """Returns the record of a run that ends now, with the written dataset, or the error."""
    now = time.time()
    seconds = now - context.started
    counts = info.counts if info else None
    records = counts.records if counts else 0
    skipped = info.skipped if info else {}
    reasons, rejects = (error.reject_reasons, error.first_rejects) if error else ({}, ())
    if info:
        reasons = info.counts.reasons
        rejects = [reject.to_dict() for reject in info.rejects]
    return RunRecord(
        run_id=context.run_id,
        state=error.state if error else PUBLISHED,
        exit_code=error.exit_code if error else 0,
        message=masked(str(error)) if error else "",
        runner=context.runner,
        started=datetime.fromtimestamp(context.started, timezone.utc),
        finished=datetime.fromtimestamp(now, timezone.utc),
        seconds=round(seconds, 3),
        rows=counts.rows if counts else sum(reasons.values()),
        records=records,
        rejected=counts.rejected if counts else sum(reasons.values()),
        shards=len(info.shards) if info else 0,
        shards_reused=info.reused if info else 0,
        shards_linked=info.linked if info else 0,
        fingerprints=dict(info.fingerprints) if info else {},
        reject_reasons=dict(reasons),
        first_rejects=tuple(dict(reject) for reject in rejects),
        # Values of rows that are left out are not published.
        skipped_names={k: s.names for k, s in skipped.items() if s.names and k != OUTSIDE_WHERE},
        records_per_second=round(records / seconds, 1) if seconds else 0.0,
        versions=_versions(),
        command=context.command,
        folder=context.folder,
    )


def submitted_record(context: RunContext, path: str) -> RunRecord:
    """Returns the record of a run whose job continues without this process.

    `path` is the run.json that the job will write when it ends.
    """
    files = f"{path}, and _SUCCESS beside it once verified"
    message = f"submitted; the job writes its result to {files}"
    return finished_record(context, None, None).model_copy(
        update={"state": "submitted", "message": message}
    )


def running_record(context: RunContext) -> RunRecord:
    """Returns the record of a run that has just begun, which marks its folder in a store."""
    message = "the run has not ended: it is active, or was killed"
    update = {"state": RUNNING, "exit_code": 1, "message": message}
    return finished_record(context, None, None).model_copy(update=update)


def _working_folder() -> str:
    """Returns the working folder, with bytes that are not UTF-8 escaped; "" if it was deleted."""
    try:
        return os.getcwdb().decode("utf-8", "backslashreplace")
    except FileNotFoundError:
        return ""


@cache  # each version parses all metadata of a package
def _versions() -> dict[str, str]:
    versions = {"python": python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # in a checkout, or provided by tensorflow-cpu
            versions[package] = "not installed as such"
    # Part of Pillow, encodes resized JPEGs.
    return {**versions, "libjpeg-turbo": features.version("libjpeg_turbo") or "none"}
