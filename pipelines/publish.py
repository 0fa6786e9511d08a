"""Publishes a verified dataset: checks it, and writes sidecars, manifest, and commit marker last.

This is the last step of the graph, so that jobs publish even after their driver has exited. It is
idempotent: when a worker is retried, each step writes the same files again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone

from recordmill.pipelines.dataset.channels import channel_statistics
from recordmill.pipelines.findings import Outcome, findings_of
from recordmill.pipelines.report.write_report import ReportInput, write_report
from recordmill.pipelines.run.lock import committing
from recordmill.pipelines.run.run_record import PUBLISHED, RunContext, RunRecord, finished_record
from recordmill.pipelines.run.target import Target
from recordmill.pipelines.sidecars import digests_of, sidecars
from recordmill.schemas import errors, layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import DatasetInfo, Problem, base_entry, manifest_of
from recordmill.schemas.findings import Finding, counted, first_lines, lost_rows_message
from recordmill.schemas.manifest import Base
from recordmill.schemas.masking import masked
from recordmill.schemas.rejects import Reason, reason_counts, reject_lines
from recordmill.schemas.removal import RemovedRecords, certificate_of
from recordmill.transforms.reconcile_counts import digest_of_lines
from recordmill.transforms.storage.dataset import DatasetFolder, read_lines
from recordmill.transforms.storage.files import exists, write_bytes, write_checked
from recordmill.transforms.storage.published import commit_marker

_SHOWN_PROBLEMS = 5


def publish(
    info: DatasetInfo,
    config: ConvertConfig,
    target: Target,
    context: RunContext,
    lists: Sequence[str],
    written_lists: Iterable[str],
    indexes: Mapping[str, str],
    base: Base | None = None,
    removed: RemovedRecords | None = None,
) -> str:
    """Publishes a dataset if it passes all checks, and writes run.json in either case.

    Returns the state in run.json: "published" or "failed". `lists` is the folders of rejects,
    dropped rows and the like; `written_lists` the files of those with a line; a side input, so that
    they are written first. `indexes`: sha256 of each file in idx/, by name. `removed` is the
    records that were removed from it; None for a conversion. Raises RecordmillError if the files of
    the run were deleted, or taken over by another run.
    """
    if state := _state_of_earlier_attempt(target, context):
        return state
    target.check_active(context)
    _write_empty_lists(target.work, lists, written_lists)
    try:
        _check_publishable(info, config, target)
    except errors.RecordmillError as reason:
        damaged = {problem.file for problem in info.problems}
        target.forget_damaged(damaged, [shard.entry.file for shard in info.shards])
        written = DatasetFolder(target.work, manifest_of(info, config, {}))
        record = _report(info, config, written, finished_record(context, info, reason))
        target.delete_temporary()
        write_bytes(layout.join(target.work, layout.RUN), record.to_json())
        target.keep_failed_output()
        return record.state
    try:
        return _commit(info, config, target, context, indexes, base, removed)
    except FileNotFoundError:
        target.check_active(context)
        raise


def _write_empty_lists(directory: str, lists: Sequence[str], written: Iterable[str]) -> None:
    """Writes an empty file for each list without a line, also over one of an earlier run."""
    files = {layout.join(directory, layout.lines_name(folder)) for folder in lists}
    for path in sorted(files.difference(written)):
        write_checked(path, b"")


def _state_of_earlier_attempt(target: Target, context: RunContext) -> str | None:
    """Returns the state of a run that an earlier attempt has ended; None if there was none.

    It may have died before the engine noticed.
    """
    ended = context.record_in(target.final)
    if ended and target.is_published:
        target.clean_up_published(context)
        return PUBLISHED
    if ended and not exists(layout.join(target.work, layout.RUN)):
        return ended.state  # the results of a failure were moved to the final folder
    return None


def _check_publishable(info: DatasetInfo, config: ConvertConfig, target: Target) -> None:
    """Checks that a dataset is verified, and within the reject budget."""
    if info.problems:
        raise _damaged(info.problems)
    counts = info.counts
    if not counts.rows:
        raise errors.UsageError(f"not published: {config.no_rows(info.skipped)}")
    # The budget is about the rows of this run: those copied from the base version are not new.
    new_rows = counts.rows - sum(copied.rows for copied in info.copied.values())
    over = config.max_rejects.exceeded(counts.reasons, new_rows)
    if Reason.LOST_ROWS.value in over:
        raise errors.RejectBudgetExceeded(f"not published: {lost_rows_message(_lost(target.work))}")
    if over or not counts.records:
        report = f", {layout.REPORT} beside it shows them" if config.report else ""
        lines = "\n".join(reject_lines(reject.to_dict() for reject in info.rejects))
        verb = "was" if counts.rejected == 1 else "were"
        new = "new " if config.append else ""
        why = f"--max_rejects allows {config.max_rejects.describe(over)}"
        remedy = "Fix them, or raise --max_rejects."
        rejects = layout.join(target.failed_folder, layout.REJECTS)
        if Reason.CHANGED_RECORD.value in over:
            why = "some because --base has another record with their key"
            remedy = "Fix them, or choose --on_conflict update or keep."
        if not counts.records:
            why, remedy = "and no record is left", "Fix them."
        of_all = f"{counts.rejected} of {counted(new_rows, f'{new}row')} {verb} rejected"
        raise errors.RejectBudgetExceeded(
            f"not published: {of_all} ({reason_counts(counts.reasons)}), {why}:\n{lines}\n"
            f"Each is in {rejects} with its reason{report}. {remedy}"
        )
    if target.work != target.final:
        target.contents().check()  # checked again: files may have been added since the start


def _damaged(problems: Sequence[Problem]) -> errors.VerificationFailed:
    shown = first_lines(list(map(str, problems)), _SHOWN_PROBLEMS)
    return errors.VerificationFailed(
        f"not published, because verification failed:{shown}\n"
        "Run again: damaged shards are written again."
    )


def _lost(directory: str) -> Iterator[tuple[str, str]]:
    for line in read_lines(directory, layout.REJECTS):
        reject = json.loads(line)
        if reject["reason"] == Reason.LOST_ROWS.value:
            yield reject["source"], reject["detail"]


def _report(
    info: DatasetInfo, config: ConvertConfig, written: DatasetFolder, record: RunRecord
) -> RunRecord:
    """Writes report.html, unless the option is off; returns the record with the findings."""
    outcome = Outcome(written.manifest, record.skipped_names, info.linked)
    record = record.with_findings(findings_of(outcome))
    if not config.report:
        return record
    return record.with_findings(
        Finding(kind="report", severity="warning", text=masked(text))
        for text in write_report(ReportInput(written, record, info.shapes, info.problems))
    )


def _commit(
    info: DatasetInfo,
    config: ConvertConfig,
    target: Target,
    context: RunContext,
    indexes: Mapping[str, str],
    base: Base | None,
    removed: RemovedRecords | None,
) -> str:
    files = sidecars(info, config)
    certificate = None
    if base and removed:
        started = datetime.fromtimestamp(int(context.started), timezone.utc)
        certificate = certificate_of(removed, base, info, config.version, started)
        files[layout.REMOVAL] = certificate.to_json()
    digests = {**digests_of(files), **dict(sorted(indexes.items()))}
    removed_keys = removed.keys_sha256 if removed else ()
    of_base = base_entry(base, info, config, removed_keys) if base else None
    folders = (*layout.LINES, *config.unmatched_lists)
    lines = {folder: digest_of_lines(read_lines(target.work, folder)) for folder in folders}
    document = manifest_of(info, config, digests, of_base, lines)
    # Computed from the records, which are found by the shards of a manifest.
    channels = channel_statistics(DatasetFolder(target.work, document))
    document = document.model_copy(update={"channels": channels})
    manifest = document.to_json()
    # The workers have searched the shards for the removed records.
    if certificate and (problems := list(certificate.false_statements(document))):
        raise _damaged(problems)
    update = {"manifest_sha256": hashlib.sha256(manifest).hexdigest()}
    published = finished_record(context, info, None).model_copy(update=update)
    record = _report(info, config, DatasetFolder(target.work, document), published)
    target.check_active(context)  # again: all above takes time
    # The manifest is written first: if the run is killed after it, the next run deletes the files
    # that it lists. TFDS takes the folder for a dataset as soon as it has dataset_info.json.
    last = {name: files.pop(name) for name in (layout.DATASET_INFO,) if name in files}
    _write(target.work, {layout.MANIFEST: manifest, **files, layout.RUN: record.to_json(), **last})
    target.delete_others(document.files)
    # The commit marker is written last: without it, readers ignore the folder.
    with committing(context.run_id):
        _write(target.work, {layout.SUCCESS: commit_marker(manifest)})
        target.publish(document.files, context)
    return record.state


def _write(directory: str, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        write_checked(layout.join(directory, name), data)
