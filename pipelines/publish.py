"""Publishes a verified dataset, or says why not: the gate, the sidecars, and the commit mark, last.

Runs within the graph, so that it holds on engines whose driver is gone, and more than once if its
worker is retried: each step gives the same files again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from recordmill.pipelines.report.write_report import ReportInput, write_report
from recordmill.pipelines.run.lock import committing
from recordmill.pipelines.run.run_record import PUBLISHED, RunContext, RunRecord, finished
from recordmill.pipelines.run.target import Target
from recordmill.schemas import layout, tensorflow_metadata
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import DatasetInfo, base_entry, manifest_of
from recordmill.schemas.errors import (
    RecordmillError,
    RejectBudgetExceeded,
    UsageError,
    VerificationFailed,
)
from recordmill.schemas.manifest import Base
from recordmill.schemas.masking import masked
from recordmill.schemas.rejects import Reason, lost_rows_message
from recordmill.transforms.reconcile_counts import digest_of_lines
from recordmill.transforms.storage.dataset import Dataset, commit_marker, read_lines
from recordmill.transforms.storage.files import write_bytes

_SHOWN_PROBLEMS = 5


def publish(
    info: DatasetInfo,
    config: ConvertConfig,
    target: Target,
    context: RunContext,
    _: Iterable[str],
    indexes: Mapping[str, str],
    base: Base | None = None,
) -> str:
    """Publishes a dataset if nothing speaks against it, and writes run.json in any case.

    Args:
        info: the written dataset with its verification.
        config: the run's settings.
        target: where it was written, and where it belongs.
        context: who runs this, and since when.
        _: the files of rejects, which have to be there.
        indexes: the files of idx/, and the digest of each.
        base: the dataset that this one is made from, if any.

    Returns:
        The state that run.json says: "published" or "failed".
    """
    try:
        check(info, config, target)
    except RecordmillError as reason:
        record = report(info, config, target, finished(context, info, reason))
        target.delete_temporary()
        write_bytes(layout.join(target.work, layout.RUN), record.to_json())
        target.keep_failed_output()
        return record.state
    if target.is_published and context.is_of(target.final):
        target.clean_up()  # it was published, but the engine does not know, and tries again
        return PUBLISHED
    return _commit(info, config, target, context, indexes, base)


def check(info: DatasetInfo, config: ConvertConfig, target: Target) -> None:
    """The gate: passes a dataset that is verified and within the reject budget.

    Raises:
        ProofError: if a shard is not what was written, or the row counts do not match.
        RejectBudgetExceeded: if too many rows were rejected, rows are lost, or no record is left.
        UsageError: if there was no row at all, or foreign files lie where the dataset belongs.
    """
    if info.problems:
        shown = "\n  ".join(str(problem) for problem in info.problems[:_SHOWN_PROBLEMS])
        more = len(info.problems) - _SHOWN_PROBLEMS
        tail = f"\n  and {more} more" if more > 0 else ""
        raise VerificationFailed(f"not published, because verification failed:\n  {shown}{tail}")
    counts = info.counts
    if not counts.rows:
        raise UsageError(f"not published: the input has no rows: {', '.join(config.inputs)}")
    over = config.max_rejects.exceeded(counts.reasons, counts.rows)
    if Reason.LOST_ROWS.value in over:
        raise RejectBudgetExceeded(f"not published: {lost_rows_message(_lost(target.work))}")
    if over or not counts.records:
        reasons = ", ".join(f"{count} {reason}" for reason, count in counts.reasons.items())
        shown = f", {layout.REPORT} beside it shows them" if config.report else ""
        why = f"--max_rejects allows {config.max_rejects.describe(over)}"
        remedy = "fix them, or raise --max_rejects"
        rejects = layout.join(target.failed_folder, layout.REJECTS)
        if not counts.records:
            why, remedy = "no record is left, whatever --max_rejects allows", "fix them"
        raise RejectBudgetExceeded(
            f"not published: {counts.rejected} of {counts.rows} rows were rejected ({reasons}), "
            f"{why}; each is in {rejects} with its reason{shown}: {remedy}"
        )
    if target.work != target.final:
        target.check_final()  # again: somebody may have put files there meanwhile


def _lost(directory: str) -> Iterator[tuple[str, str]]:
    for line in read_lines(directory, layout.REJECTS):
        reject = json.loads(line)
        if reject["reason"] == Reason.LOST_ROWS.value:
            yield reject["source"], reject["detail"]


def report(
    info: DatasetInfo, config: ConvertConfig, target: Target, record: RunRecord
) -> RunRecord:
    """Writes report.html, if it is asked for.

    Args:
        info: the written dataset.
        config: the run's settings.
        target: where it was written.
        record: how the run ended.

    Returns:
        The record, with a warning for each part of the report that could not be rendered.
    """
    if not config.report:
        return record
    manifest = manifest_of(info, config, {})
    source = ReportInput(Dataset(target.work, manifest), record, info.shapes, info.problems)
    return record.model_copy(update={"warnings": tuple(map(masked, write_report(source)))})


def sidecars(info: DatasetInfo, config: ConvertConfig) -> dict[str, bytes]:
    """Returns the files beside the shards that state what they hold: name to content."""
    resolved = info.plan.resolved
    files = {layout.SCHEMA: tensorflow_metadata.schema_text(resolved).encode("utf-8")}
    for feature, names in resolved.classes.items():
        if names:
            files[layout.labels_name(feature)] = "".join(f"{n}\n" for n in names).encode("utf-8")
    if config.compression == "none" and resolved.schema.sequence is None:
        # TFDS reads neither gzip nor sequences
        files[layout.FEATURES] = _json(tensorflow_metadata.features_document(resolved))
    return files


def dataset_info(info: DatasetInfo, config: ConvertConfig) -> bytes:
    """Returns dataset_info.json."""
    lengths = {
        split: [(s.entry.records, s.entry.payload) for s in info.shards if s.split == split]
        for split in info.plan.shards
    }
    description = info.plan.resolved.schema.description
    document = tensorflow_metadata.dataset_info_document(
        config.name, config.version, description, lengths
    )
    return _json(document)


def _commit(
    info: DatasetInfo,
    config: ConvertConfig,
    target: Target,
    context: RunContext,
    indexes: Mapping[str, str],
    base: Base | None,
) -> str:
    files = sidecars(info, config)
    last = {layout.DATASET_INFO: dataset_info(info, config)} if layout.FEATURES in files else {}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in {**files, **last}.items()}
    digests |= dict(sorted(indexes.items()))
    of_base = base_entry(base, info) if base else None
    lines = {folder: digest_of_lines(read_lines(target.work, folder)) for folder in layout.LINES}
    document = manifest_of(info, config, digests, of_base, lines)
    manifest = document.model_dump_json(indent=2).encode() + b"\n"
    checksum = hashlib.sha256(manifest).hexdigest()
    published = finished(context, info, None).model_copy(update={"manifest_sha256": checksum})
    record = report(info, config, target, published)
    # The manifest first: what a run has left that was killed from here on is known by it.
    _write(target.work, {layout.MANIFEST: manifest, **files, layout.RUN: record.to_json(), **last})
    target.delete_temporary()
    with committing(context.run_id):
        _write(target.work, {layout.SUCCESS: commit_marker(manifest)})
        target.publish([shard.entry.file for shard in info.shards])
    return record.state


def _write(directory: str, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        write_bytes(layout.join(directory, name), data)


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"
