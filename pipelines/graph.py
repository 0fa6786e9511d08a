"""The graph of a conversion: label tables and images in, a verified TFRecord dataset out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsIter, PCollection

from recordmill.pipelines.publish import publish
from recordmill.pipelines.run.lock import Lock
from recordmill.pipelines.run.run_record import RunContext
from recordmill.pipelines.run.target import Target
from recordmill.schemas import layout
from recordmill.schemas.condition import Condition
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.features import Schema
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import Unmatched
from recordmill.schemas.rejects import Reject
from recordmill.schemas.removal import RemovedRecords
from recordmill.schemas.tables import Projection
from recordmill.transforms import assign_shards, similar_rows
from recordmill.transforms.analyze_rows import AnalyzeRows
from recordmill.transforms.duplicates import (
    Deduplicated,
    DropDuplicates,
    FindDuplicateImages,
    FindGroupLeaks,
)
from recordmill.transforms.elements import AssignedRows
from recordmill.transforms.functional.rows.analysis import Analyzer
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.rows.binding import files_of
from recordmill.transforms.functional.rows.columns import (
    image_columns,
    needed_columns,
    required_columns,
)
from recordmill.transforms.functional.rows.placement import Sampler
from recordmill.transforms.functional.rows.strata import ClassSampler
from recordmill.transforms.inputs.formats import FORMATS, unnamed_images
from recordmill.transforms.inputs.input_tables import InputTables
from recordmill.transforms.join_labels import JoinLabels, ListUnusedImages
from recordmill.transforms.read_rows import (
    BindRows,
    ListedParts,
    ListSources,
    ReadOutcome,
    ReadRows,
    Unnamed,
)
from recordmill.transforms.reconcile_counts import ReconcileCounts, WriteLines
from recordmill.transforms.select_ranks import FindSample, SampleRows
from recordmill.transforms.verification.verify_shard import Removed
from recordmill.transforms.verify_shards import FindRemovedRecords, IndexShards, VerifyShards
from recordmill.transforms.write_shards import WriteShards

_ARCHIVES = ("tar", "tfrecord")


@dataclass(frozen=True)
class Conversion:
    """A conversion with everything that its graph is built from."""

    config: ConvertConfig
    tables: InputTables
    labels: InputTables | None
    analyzer: Analyzer  # computes the plan from the rows; holds the resolved schema and the columns
    context: RunContext
    target: Target
    lock: Lock
    scratch: str = ""  # a folder on the one machine that runs all steps; "" if there are several

    @property
    def stages_images(self) -> bool:
        """Whether a run first copies images to staging files, because they are embedded."""
        images = image_columns(self.analyzer.schema, self.config)
        # Members of a gzipped archive have no byte range that a worker could read later.
        zipped = (file.gzipped and file.format in _ARCHIVES for file in self.tables.files)
        return bool(images) and (not self.tables.embedded.isdisjoint(images) or any(zipped))


def build(root: beam.Pipeline, job: Conversion) -> PCollection[str]:
    """Adds all stages of a conversion to a pipeline; its one element is the state in run.json."""
    return write_dataset(read_rows(root, job, staging=job.target.work), job)


class Reading(NamedTuple):
    """The rows of a conversion."""

    read: ReadOutcome
    analyzed: PCollection[RowBatch]  # the same rows for the analyze pass, maybe of a separate read
    # Labels and images that lack each other, by the folder of their list.
    unmatched: Mapping[str, Sequence[PCollection[Unmatched]]]
    # The rows with those outside of the sample; None if there is no sample.
    all_rows: PCollection[RowBatch] | None = None


def write_dataset(reading: Reading, job: Conversion) -> PCollection[str]:
    """Adds all stages after reading; returns one element, the final state of the run."""
    reading = _keep_together(reading, job)
    assigned = assign_rows(reading, job)
    rows, dropped = _drop_duplicates(assigned.rows, assigned.plan, job)
    return publish_rows(assigned._replace(rows=rows, dropped=dropped, lists=reading.unmatched), job)


class RowsOfShards(NamedTuple):
    """The rows that shards are written from, and what the stages before counted."""

    plan: PCollection[Plan]  # the classes, and the number of shards; one element
    rows: PCollection[AssignedRows]  # ((split, shard), [(order, ImageRef)])
    rejects: Sequence[PCollection[Reject]] = ()
    counts: Mapping[str, Sequence[PCollection[Any]]] = MappingProxyType({})  # of `ReconcileCounts`
    dropped: Sequence[Deduplicated] = ()
    # The lists that are published besides those of rejects and dropped rows, by folder.
    lists: Mapping[str, Sequence[PCollection[Unmatched]]] = MappingProxyType({})


def publish_rows(
    rows: RowsOfShards, job: Conversion, removed: RemovedRecords | None = None
) -> PCollection[str]:
    """Adds the stages from the writing of shards to the commit marker.

    Returns one element: the final state of the run, as in run.json. `removed` are the records that
    the version does not have any more.
    """
    config, work, base = job.config, job.target.work, job.analyzer.base
    plan = rows.plan
    writing = WriteShards(config, job.target.checkpoints, plan, base, job.scratch)
    written = rows.rows | "WriteShards" >> writing
    verified = written.good | "VerifyShards" >> VerifyShards(config, work)
    shards = verified.shards
    if base and removed:
        absent = Removed.of(removed, base.manifest.resolved)
        shards = shards | "FindRemovedRecords" >> FindRemovedRecords(work, absent)
    contents = [found.stats for found in rows.dropped]
    findings = list[PCollection[Any]]()
    if job.analyzer.schema.has_image:
        contents.append(shards | "FindDuplicateImages" >> FindDuplicateImages(work, plan))
        findings += shards | "FindImageIssues" >> similar_rows.FindImageIssues(work, plan)
    may_leak = [rows.rows] if _groups_may_span_splits(config) else []
    # Flattened once, for their counts and their file: each transform costs a small run 5 ms.
    rejects = (*rows.rejects, written.rejects) | "Rejects" >> beam.Flatten()
    duplicates = [found.duplicates for found in rows.dropped]
    dropped = {layout.DROPPED: duplicates} if duplicates else {}
    lists = {layout.REJECTS: [rejects], **rows.lists, **dropped}
    info = shards | "Reconcile" >> ReconcileCounts(
        plan=plan,
        counts={
            **rows.counts,
            "rejects": [rejects],
            "tallies": [verified.tallies],
            "dropped": duplicates,
            "content": contents,
            "group_leaks": [groups | "CompareGroups" >> FindGroupLeaks() for groups in may_leak],
            "findings": findings,
        },
        base=base,
    )
    # publish() gets all written files as side inputs, so that it runs after them.
    indexes = AsDict(shards | "IndexShards" >> IndexShards(work)) if config.index else {}
    written_lists = AsIter(tuple(_written(lists, work)) | "AllFiles" >> beam.Flatten())
    context = (config, job.target, job.context, tuple(lists))
    return info | "Publish" >> beam.Map(publish, *context, written_lists, indexes, base, removed)


def assign_rows(reading: Reading, job: Conversion) -> RowsOfShards:
    """Adds the stages from the rows to the only shuffle of a plain run."""
    read, analyzer, config = reading.read, job.analyzer, job.config
    plan = reading.analyzed | "AnalyzeRows" >> AnalyzeRows(analyzer, reading.all_rows)
    bound = read.good | "BindRows" >> BindRows(analyzer.binding, plan)  # RefBatch
    refs, rejects = bound.good, [read.rejects, bound.rejects]
    if assign_shards.keys_may_span_shards(config):
        rejecting = assign_shards.RejectDuplicateKeys(
            config, sequences=analyzer.schema.sequence is not None
        )
        keyed = refs | "RejectDuplicateKeys" >> rejecting  # RefBatch
        refs = keyed.good
        rejects.append(keyed.rejects)
    rows = refs | "AssignShards" >> assign_shards.AssignShards(
        plan, analyzer.ranges, config.seed, analyzer.base
    )
    counts = {"rows": read.good, "unread": read.rejects, "skipped": read.skipped, "assigned": rows}
    return RowsOfShards(plan, rows, rejects, {name: [part] for name, part in counts.items()})


def _drop_duplicates(
    rows: PCollection[AssignedRows], plan: PCollection[Plan], job: Conversion
) -> tuple[PCollection[AssignedRows], list[Deduplicated]]:
    """Adds the steps that keep one row of identical images, and of similar ones, if asked for.

    Returns the rows that are kept, and the results of these steps.
    """
    config, base, found = job.config, job.analyzer.base, list[Deduplicated]()
    if config.deduplicate == "content":
        drop = DropDuplicates(config, plan, base, staged=job.stages_images)
        found.append(rows | "DropDuplicates" >> drop)
    if config.near_duplicates == "drop":
        rows = found[-1].rows if found else rows
        found.append(rows | "DropSimilar" >> similar_rows.DropSimilar(config, plan, base))
    return (found[-1].rows if found else rows), found


def _keep_together(reading: Reading, job: Conversion) -> Reading:
    """Adds the comparison of all images; returns the rows with their clusters, if asked for."""
    read, analyzed, all_rows = reading.read, reading.analyzed, reading.all_rows
    if job.config.near_duplicates != "keep_together":
        return reading
    # Only the rows of the first read have embedded images, in staging files.
    compared = read.good if job.stages_images else analyzed
    keep = similar_rows.KeepTogether(
        job.analyzer, compared | "FindClusters" >> similar_rows.FindClusters(job.analyzer)
    )
    rows = read.good | "KeepTogether" >> keep
    return Reading(
        read=read._replace(good=rows),
        analyzed=rows if analyzed is read.good else analyzed | "KeepAnalyzedTogether" >> keep,
        unmatched=reading.unmatched,
        # They determine splits; those outside of the sample have no cluster.
        all_rows=None if all_rows is None else all_rows | "KeepAllTogether" >> keep,
    )


def _written(
    lists: Mapping[str, Sequence[PCollection[Any]]], directory: str
) -> Iterator[PCollection[str]]:
    """Adds the writing of lists of JSON lines, by folder; yields the paths of their files."""
    for folder, (first, *others) in lists.items():
        step = "".join(word.title() for word in folder.split("_"))
        lines = (first, *others) | f"All{step}" >> beam.Flatten() if others else first
        yield lines | f"Write{step}" >> WriteLines(directory, folder)


def read_rows(root: beam.Pipeline, job: Conversion, staging: str) -> Reading:
    """Adds the reading of the rows, for the conversion and for its analyze pass.

    `staging` is the folder for embedded images; "" to read no image bytes.
    """
    listed = root | "ListTables" >> ListSources(job.tables.files, unnamed=_unnamed(job))
    if job.labels is not None:
        reading = _read_joined(listed, job.labels, job, staging)
    else:
        reading = _read_tables(listed, job, staging)
    return _with_unused_images(reading, listed, job) if job.config.list_unused_images else reading


def _unnamed(job: Conversion) -> Unnamed:
    columns = image_columns(job.analyzer.schema, job.config)
    addresses = partial(files_of, binding=job.analyzer.binding)
    return partial(unnamed_images, columns=columns, addresses_of=addresses)


def _read_tables(listed: ListedParts, job: Conversion, staging: str) -> Reading:
    """Reads the tables twice: that is cheaper than holding all rows between two stages."""
    config = job.config
    projection = projection_of(job.analyzer.schema, job.config)
    if config.sample is not None or config.per_class is not None:
        found = listed | "AnalyzeTables" >> ReadRows(projection, counted=False)
        sample = _sample(found, job)
        # Where the sample ends is known after all rows were read. Its rows are then read again,
        # because a runner would hold all rows in memory until they can be selected.
        again = listed | "AnalyzeSample" >> ReadRows(projection, counted=False, sample=sample)
        read = listed | "ReadTables" >> ReadRows(projection, staging, sample=sample)
        return Reading(read, again.good, {}, found.good)
    analyzed = listed | "AnalyzeTables" >> ReadRows(projection, counted=False)
    return Reading(listed | "ReadTables" >> ReadRows(projection, staging), analyzed.good, {})


def _read_joined(
    listed: ListedParts, labels: InputTables, job: Conversion, staging: str
) -> Reading:
    """Reads the tables and their labels.

    Which rows are in a sample is known once they are joined.
    """
    config = job.config
    projection = projection_of(job.analyzer.schema, config)
    read = listed | "ReadTables" >> ReadRows(projection, staging)
    listed_labels = listed.parts.pipeline | "ListLabels" >> ListSources(labels.files)
    columns = Projection(projection.columns, renamed=projection.renamed, names=config.rename)
    read_labels = listed_labels | "ReadLabels" >> ReadRows(columns, counted=False)
    on = config.join_columns or ("", "")
    first = FORMATS[labels.files[0].format].first_rows(labels.files[0], 1, on[1:])
    example = first[0].values.get(on[1]) if first else None
    joined = read | "JoinLabels" >> JoinLabels(read_labels, on, projection.image, example)
    lists = {layout.UNMATCHED_LABELS: [joined.labels], layout.UNMATCHED_IMAGES: [joined.images]}
    sample = _sample(joined.read, job)
    if sample is None:
        return Reading(joined.read, joined.read.good, lists)
    sampled = joined.read | "Sample" >> SampleRows(sample)
    return Reading(sampled, sampled.good, lists, joined.read.good)


def _sample(read: ReadOutcome, job: Conversion) -> PCollection[Sampler] | None:
    """Returns the sampler of the rows; None to convert all."""
    config, binding = job.config, job.analyzer.binding
    if config.per_class is not None:
        of_classes = ClassSampler(binding, config.seed, analyzer=job.analyzer)
        return read | "FindSample" >> FindSample(of_classes, config.per_class)
    if config.sample is None:
        return None
    rows = config.sample if isinstance(config.sample, int) else None
    return read | "FindSample" >> FindSample(Sampler.of(config, binding), rows)


def _with_unused_images(reading: Reading, listed: ListedParts, job: Conversion) -> Reading:
    """Adds the images below the image root that no row names to those without a label."""
    root = job.config.image_root or ""
    rows = reading.all_rows or reading.analyzed
    if job.config.where is not None:  # which rows outside of it name, too
        every = replace(projection_of(job.analyzer.schema, job.config), where=None)
        others = listed | "ReadAllTables" >> ReadRows(every, counted=False)
        rows = (rows, others.good) | "WithRowsOutside" >> beam.Flatten()
    exclusions = {file.exclusion for file in job.tables.files if file.exclusion.patterns}
    listing = ListUnusedImages(root, job.analyzer.binding, exclusions)
    unused = rows | "ListUnusedImages" >> listing
    folder = layout.UNMATCHED_IMAGES
    skipped = (reading.read.skipped, unused.skipped)
    images = [unused.images, *reading.unmatched.get(folder, ())]
    return reading._replace(
        read=reading.read._replace(skipped=skipped | "WithUnusedImages" >> beam.Flatten()),
        unmatched={**reading.unmatched, folder: images},
    )


def _groups_may_span_splits(config: ConvertConfig) -> bool:
    # A row's own split, and that of its key in the base version, override that of its group.
    return config.group_column is not None and bool(config.split_column or config.base)


def projection_of(schema: Schema, config: ConvertConfig) -> Projection:
    """Returns the projection of the columns that a conversion needs."""
    image, *others = image_columns(schema, config) or ("",)
    renamed = schema.label_features.values() if config.rename else ()
    return Projection(
        columns=needed_columns(schema, config),
        required=required_columns(schema, config),
        image=image,
        other_images=tuple(others),
        image_root=config.image_root,
        labels=frozenset(config.column(name) for name in schema.label_columns),
        drops_boxes=schema.boxes.invalid == "drop",
        where=Condition(config.where) if config.where is not None else None,
        renamed={config.column(one.source.name): one for one in renamed},
        names=config.rename,
    )
