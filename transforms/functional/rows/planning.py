"""Plans a dataset by the result of the analyze pass: its schema, class names and shards."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import RecordmillError, UsageError
from recordmill.schemas.features import Schema
from recordmill.schemas.findings import Finding
from recordmill.schemas.manifest import Base
from recordmill.schemas.option import MAX_SHARDS
from recordmill.schemas.plan import Plan, ResolvedSchema, SourceEntry, SplitRanges
from recordmill.schemas.settings import AnnotationSettings
from recordmill.schemas.tables import NO_CLASSES
from recordmill.transforms.functional.records.framing import frame_size
from recordmill.transforms.functional.rows.analysis import (
    UNASSIGNED,
    Analysis,
    Analyzer,
    sampled_rows,
)
from recordmill.transforms.functional.rows.annotations import with_units
from recordmill.transforms.functional.rows.feature_values import merged_class_names, with_background

_FEATURE_BYTES = 12  # protobuf: approximate size of the tags and lengths of a feature


def build_plan(
    analysis: Analysis,
    analyzer: Analyzer,
    image_sizes: Mapping[str, int],
    shard_starts: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    ranges: SplitRanges | None = None,
) -> Plan:
    """Computes the plan of a run from the result of its analyze pass.

    `image_sizes` is the size in bytes of each sampled image, by uri; without unreadable images.
    `shard_starts` are the hash positions of the shards except the first of each split; only with
    `records_per_shard`. `ranges` are the ranges of the splits, if they depend on
    all rows. Raises UsageError if there are rows but no columns.
    """
    config, schema = analyzer.config, analyzer.schema
    base, kept, inferred = analyzer.base, 0, analysis.columns.features()
    # Without new rows, only the base version has the types of columns without a schema.
    if base and base.keeps_records and schema.every_column and not analysis.rows:
        inferred = base.manifest.dataset_schema.features
    features = {**inferred, **schema.features}
    if not features and analysis.rows:
        raise UsageError(f"--input {config.inputs[0]}: the table has no columns. Add a column.")
    resolved = schema.model_copy(update={"features": features})
    resolved, findings = with_units(resolved, analyzer.binding.columns, analysis.coordinates)
    if base and base.keeps_records:
        resolved, kept = _schema_of_base(resolved, base), base.manifest.input.records
    rows = _rows_by_split(analysis.splits, ranges)
    with_classes, splits = _with_classes(analysis, analyzer, resolved), sorted(rows)
    notes = _integral_floats(analysis, with_classes.classes)
    source = _source(
        analyzer, notes, (*findings, *_unnamed(analyzer), *_split_findings(analysis, analyzer))
    )
    if config.records_per_shard is not None:
        starts = {split: shard_starts.get(split, ()) for split in splits}
        shards = _with_base(base, {s: len(starts[s]) + 1 for s in splits})
        return Plan(with_classes, shards, analysis.rows, starts, source, ranges, kept)
    bytes_per_row = _bytes_per_row(analysis, image_sizes, resolved)
    shards = {s: _num_shards(rows[s] * bytes_per_row, config, s) for s in splits}
    with_base = _with_base(base, shards)
    return Plan(with_classes, with_base, analysis.rows, {}, source, ranges, kept)


def _schema_of_base(resolved: Schema, base: Base) -> Schema:
    """Returns the schema of a base version that keeps its records, which new rows must match too.

    The types of columns without a schema are those of the base version, whatever the new rows have;
    a row that does not fit is rejected. Raises UsageError if the schemas differ in another way.
    """
    old = base.manifest.dataset_schema
    for name in resolved.features.keys() ^ old.features.keys():
        where = "--base" if name in old.features else "the new rows"
        raise UsageError(
            f"--append: feature {name!r} is only in {where}. Use the schema and columns of --base, "
            "or convert the whole table without --append."
        )
    features = old.features if old.every_column else resolved.features
    new = resolved.model_copy(update={"features": features})
    # Neither a description nor the columns and units of rows change what records contain.
    of_rows = set(AnnotationSettings.model_fields) | {"columns", "column", "order"}
    ignored: Any = {"description": True, "boxes": of_rows, "masks": of_rows}
    one, other = (s.model_dump(mode="json", exclude=ignored) for s in (old, new))
    for block in (name for name in one if one[name] != other[name]):
        raise UsageError(
            f"--append: the schema differs from --base in {_difference(one, other, block)}. "
            "Use the same schema, or convert the whole table without --append."
        )
    return new


def _difference(old: Mapping[str, Any], new: Mapping[str, Any], block: str) -> str:
    """Returns the first setting that differs in a block of a schema, with both values."""
    one, other = old[block], new[block]
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return f"{block}: expected {one!r}, got {other!r}"
    name = next(name for name in {**one, **other} if one.get(name) != other.get(name))
    return f"{block} > {_difference(one, other, name)}" if name in one and name in other else name


def _with_classes(analysis: Analysis, analyzer: Analyzer, resolved: Schema) -> ResolvedSchema:
    """Returns a schema with class names: as configured, declared by the source, or found."""
    known = analyzer.base.manifest.classes if analyzer.base else {}
    declared, classes = analyzer.declared, dict[str, tuple[str, ...]]()
    for name in resolved.named_features:
        found = analysis.labels[name].found if name in analysis.labels else ()
        names = analyzer.config.class_names or merged_class_names(
            found, known.get(name), declared.get(name, NO_CLASSES)
        )
        classes[name] = with_background(names, resolved.features[name].label_offset)
    by_id = frozenset(name for name, source in declared.items() if source.by_id)
    return ResolvedSchema(resolved, classes, by_id)


def _integral_floats(analysis: Analysis, classes: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields a note for each feature whose labels are integers that are written as floats."""
    for name, labels in sorted(analysis.labels.items()):
        # Without class names, all labels are integers: those that are text have a fraction of 0.
        written = sorted(label for label in labels.found if isinstance(label, str))
        if written and not classes.get(name):
            yield f"labels of {name!r} such as {written[0]} are read as integers"


def _unnamed(analyzer: Analyzer) -> Iterator[Finding]:
    """Yields the features whose class ids have no names in any TFRecord file."""
    for feature, found in analyzer.declared.items():
        if found.unnamed and not found.names and analyzer.config.class_names is None:
            yield Finding(
                kind="unnamed_classes",
                severity="note",
                text=f"the class ids in {found.unnamed!r} are kept as they are, because nothing "
                "beside the files names them",
                feature=feature,
            )


def _split_findings(analysis: Analysis, analyzer: Analyzer) -> Iterator[Finding]:
    """Yields rows without a split, and each split that the source states without a row for it."""
    config = analyzer.config
    if analysis.unsplit:
        names = analyzer.ranges.names
        where = f"by the shares of {', '.join(names)}" if len(names) > 1 else f"to {names[0]}"
        yield Finding(
            kind="rows_without_split",
            severity="note" if len(names) > 1 else "warning",
            text=f"{analysis.unsplit:,} of {analysis.rows:,} rows have no value in the split "
            f"column {analyzer.binding.split_column!r}, and are assigned {where}",
            figures={"rows": analysis.unsplit, "all": analysis.rows},
        )
    if config.sample is None and not config.append:
        for split in analyzer.stated_splits:
            if not analysis.splits[split]:
                text = f"the input states the split {split!r}, but has no row for it"
                yield Finding(kind="empty_split", severity="warning", text=text, splits=(split,))


def _source(analyzer: Analyzer, notes: Iterable[str], findings: Iterable[Finding]) -> SourceEntry:
    declared, base, read = analyzer.declared, analyzer.base, analyzer.snapshots
    of_base = base.kept_snapshots if base else ()
    tables = {snapshot.table for snapshot in read}
    return SourceEntry(
        recognized=(*analyzer.recognized, *notes),
        # A later increment may read a table that this one does not.
        snapshots=(*(entry for entry in of_base if entry.table not in tables), *read),
        class_ids={
            feature: {name: id_ for id_, name in found.names}
            for feature, found in declared.items()
            if found.names
        },
        conflicts={name: found.conflict for name, found in declared.items() if found.conflict},
        findings=(*analyzer.findings, *findings),
    )


def _rows_by_split(counts: Mapping[str, int], ranges: SplitRanges | None) -> dict[str, int]:
    """Returns the number of rows of each split; where it is an estimate, at least 1.

    `counts` is the number of rows by the split that they state, and of `UNASSIGNED` rows. `ranges`
    are the ranges of the splits, whose bounds have the shares of the unassigned rows.

    >>> _rows_by_split({"": 4, "b": 5}, SplitRanges(("a", "b", "c"), (2**63, 2**64, 2**64)))
    {'b': 7, 'a': 2}
    """
    rows = {split: count for split, count in counts.items() if split != UNASSIGNED}
    begin = 0
    for split, end in zip(ranges.names, ranges.bounds, strict=True) if ranges else ():
        if end > begin and UNASSIGNED in counts:
            rows[split] = rows.get(split, 0) + -(-counts[UNASSIGNED] * (end - begin) >> 64)
        begin = end
    return rows


def _with_base(base: Base | None, shards: Mapping[str, int]) -> dict[str, int]:
    """Returns the number of shards of each split, including those of the base version."""
    # Base shards keep their numbers. New rows are assigned to new shards after them, or to the same
    # shards, if these keep their records.
    counts = dict(shards)
    for split in base.manifest.splits if base else ():
        of_base = base.shards(split) if base else ()
        added = 0 if base and base.keeps_records and of_base else counts.get(split, 0)
        counts[split] = len(of_base) + added
    return dict(sorted(counts.items()))


def _num_shards(split_bytes: float, config: ConvertConfig, split: str) -> int:
    """Returns the number of shards of a split, as configured or from the shard size.

    `split_bytes` is the estimated size of the split in bytes.
    """
    requested = config.requested_shards(split)
    if requested is not None:
        return requested
    return min(max(1, math.ceil(split_bytes / config.shard_size)), MAX_SHARDS)


def check_shard_counts(records: Mapping[str, int], records_per_shard: int) -> None:
    """Checks that no split has too many shards.

    Raises RecordmillError if a split has too many shards.
    """
    for split, count in sorted(records.items()):
        shards = -(-count // records_per_shard)
        if shards > MAX_SHARDS:
            raise RecordmillError(
                f"--records_per_shard {records_per_shard}: expected at most {MAX_SHARDS} shards "
                f"per split, got {shards} for {split!r}. Increase the flag."
            )


def needs_sizes(analysis: Analysis, config: ConvertConfig) -> bool:
    """Returns whether the number of shards of any split depends on the size of images."""
    if config.records_per_shard is not None:
        return False
    weighted = config.weights if UNASSIGNED in analysis.splits else ()
    return any(
        config.requested_shards(split) is None
        for split in {*analysis.splits, *weighted} - {UNASSIGNED}
    )


def _bytes_per_row(analysis: Analysis, image_sizes: Mapping[str, int], schema: Schema) -> float:
    """Returns the mean size of a record in bytes; rows with unreadable images are ignored."""
    overhead = frame_size(sum(_FEATURE_BYTES + len(name) for name in schema.features))
    sizes = [
        image_sizes[uri] + other if uri else other
        for _, uri, other in sampled_rows(analysis)
        if not uri or uri in image_sizes
    ]
    return overhead + (sum(sizes) / len(sizes) if sizes else 0)
