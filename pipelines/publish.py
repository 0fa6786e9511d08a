"""Publishes a proven dataset, or says why not: the gate, the sidecars, and the commit mark, last.

Runs within the graph, so that it holds on engines whose driver is gone, and more than once if its
worker is retried: each step gives the same files again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pipelines.run_record import RunContext, finished
from pipelines.target import Target
from schemas import layout, tensorflow_metadata, tfds_metadata
from schemas.config import ConvertConfig
from schemas.dataset_info import DatasetInfo
from schemas.errors import ProofError, RejectBudgetExceeded, RunError, UsageError
from schemas.manifest import manifest_of
from transforms.files import write_bytes

_SHOWN_PROBLEMS = 5


def publish(
    info: DatasetInfo, config: ConvertConfig, target: Target, context: RunContext, _: Iterable[str]
) -> str:
    """Publishes a dataset if nothing speaks against it, and writes run.json in any case.

    Args:
        info: the written dataset with its proof.
        config: the run's settings.
        target: where it was written, and where it belongs.
        context: who runs this, and since when.

    Returns:
        The state that run.json tells: "published" or "failed".
    """
    try:
        check(info, config, target)
    except RunError as refusal:
        record = finished(context, info, refusal)
        write_bytes(layout.join(target.work, layout.RUN), record.to_json())
        return record.state
    return _commit(info, config, target, context)


def check(info: DatasetInfo, config: ConvertConfig, target: Target) -> None:
    """The gate: passes a dataset that is proven and within the reject budget.

    Raises:
        ProofError: if a shard is not what was written, or the books do not balance.
        RejectBudgetExceeded: if too many rows were rejected.
        UsageError: if there was no row at all.
    """
    if info.problems:
        shown = "\n  ".join(str(problem) for problem in info.problems[:_SHOWN_PROBLEMS])
        more = len(info.problems) - _SHOWN_PROBLEMS
        tail = f"\n  and {more} more" if more > 0 else ""
        raise ProofError(f"not published, because the proof failed:\n  {shown}{tail}")
    books = info.books
    if not books.rows_read:
        raise UsageError(f"not published: the input has no rows: {', '.join(config.inputs)}")
    if not config.max_rejects.allows(books.rejected, books.rows_read):
        reasons = ", ".join(f"{count} {reason}" for reason, count in books.reasons.items())
        raise RejectBudgetExceeded(
            f"not published: {books.rejected} of {books.rows_read} rows were rejected ({reasons}), "
            f"--max_rejects allows {config.max_rejects}; each is in "
            f"{layout.join(target.work, layout.REJECTS)} with its reason: "
            "mend them, or raise --max_rejects"
        )


def sidecars(info: DatasetInfo, config: ConvertConfig) -> dict[str, bytes]:
    """Returns the files beside the shards that state what they hold: name to content."""
    resolved = info.plan.resolved
    files = {layout.SCHEMA: tensorflow_metadata.schema_text(resolved).encode("utf-8")}
    for feature, names in resolved.classes.items():
        if names:
            files[layout.labels_name(feature)] = "".join(f"{n}\n" for n in names).encode("utf-8")
    if config.compression == "none":  # TFDS reads no gzip
        files[layout.FEATURES] = _json(tfds_metadata.features_document(resolved))
    return files


def dataset_info(info: DatasetInfo, config: ConvertConfig) -> bytes:
    """Returns dataset_info.json."""
    lengths = {
        split: [(s.records, s.payload) for s in info.shards if s.split == split]
        for split in info.plan.shards
    }
    description = info.plan.resolved.schema.description
    document = tfds_metadata.dataset_info_document(
        config.name, config.version, description, lengths
    )
    return _json(document)


def _commit(info: DatasetInfo, config: ConvertConfig, target: Target, context: RunContext) -> str:
    files = sidecars(info, config)
    last = {layout.DATASET_INFO: dataset_info(info, config)} if layout.FEATURES in files else {}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in {**files, **last}.items()}
    manifest = manifest_of(info, config, digests).model_dump_json(indent=2).encode() + b"\n"
    record = finished(context, info, None)
    _write(target.work, {**files, layout.MANIFEST: manifest, layout.RUN: record.to_json(), **last})
    target.tidy()
    seal = hashlib.sha256(manifest).hexdigest().encode() + b"\n"
    _write(target.work, {layout.SUCCESS: seal})
    target.promote()
    return record.state


def _write(directory: str, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        write_bytes(layout.join(directory, name), data)


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"
