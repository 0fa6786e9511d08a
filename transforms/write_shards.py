"""Writes shards: a `beam.io.WriteToTFRecord` whose records are assigned to shards beforehand.

Files are opened and compressed by Beam's sink. Two things differ. Beam distributes records over
shards at random; here, references are grouped by their assigned shard, so the shuffle carries no
image bytes and the position of each record is fixed before it is built. Beam also renames all files
in one step on one worker; here, split, index and count of a shard are known before its first byte,
and the worker that writes it gives it its final name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import apache_beam as beam
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.pvalue import AsSingleton, PCollection, TaggedOutput
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import WrittenShard
from recordmill.schemas.features import Schema
from recordmill.schemas.layout import is_url
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef, StoredImage
from recordmill.schemas.rejects import Reject
from recordmill.schemas.row_counts import ShardCounts
from recordmill.transforms.elements import (
    REJECTS,
    AssignedRows,
    CheckedRows,
    ShardId,
    displayed,
    rejected,
    windowed,
)
from recordmill.transforms.functional.records.examples import image_shape
from recordmill.transforms.functional.records.image_columns import check_quality
from recordmill.transforms.functional.records.index import label_ids
from recordmill.transforms.functional.rows.sequences import arrange_shard
from recordmill.transforms.shards.checkpoints import (
    Checkpoints,
    settings_fingerprint,
    versions,
)
from recordmill.transforms.shards.encoded_refs import EncodedRefs, GatheredRefs, joined, spilled
from recordmill.transforms.shards.shard_task import ShardTask
from recordmill.transforms.shards.writer_processes import writers_for
from recordmill.transforms.storage.files import make_folders
from recordmill.transforms.task_dofn import TaskDoFn
from recordmill.transforms.verification.verifier_process import check_decodes

_Encoded: TypeAlias = tuple[ShardId, EncodedRefs]


@dataclass(eq=False)
class GroupByShard(beam.PTransform):
    """Groups references: PCollection[AssignedRows] → PCollection[(ShardId, [EncodedRefs])].

    The references may be encoded already.
    """

    # Shards that are elements of the result even without a row; None if there are none.
    planned: PCollection[ShardId] | None = None

    def expand(self, rows: PCollection[AssignedRows]) -> PCollection[Any]:
        """Adds the shuffle of references."""
        encoded = rows | "EncodeRefs" >> beam.ParDo(_EncodeRefs()).with_output_types(_Encoded)
        if self.planned is not None:
            empty = self.planned | "NoRefs" >> beam.Map(_without_refs).with_output_types(_Encoded)
            encoded = (encoded, empty) | "WithPlanned" >> beam.Flatten()
        return encoded | "GroupByKey" >> beam.GroupByKey()


def _without_refs(shard: ShardId) -> _Encoded:
    return shard, EncodedRefs()


class _EncodeRefs(beam.DoFn):
    """Encodes references, and gathers those of a shard from several batches."""

    def start_bundle(self) -> None:
        self._gathered = GatheredRefs()

    def process(self, assigned: AssignedRows | _Encoded) -> Iterator[_Encoded]:
        self._gathered.add(*assigned)
        if self._gathered.are_many:
            yield from spilled(self._gathered.take()).items()

    def finish_bundle(self) -> Iterator[WindowedValue | TaggedOutput]:
        # The rest stays in memory: it is small, and all of a small table.
        return map(windowed, self._gathered.take().items())


class WriteShards(beam.io.WriteToTFRecord):
    """Writes assigned rows: PCollection[AssignedRows] → CheckedRows((WrittenShard, Plan)).

    The plan is in every element, because engines do not fuse a step that has side inputs with the
    one before it. The step that verifies shards needs none, and so runs where they are written.
    """

    def __init__(
        self,
        config: ConvertConfig,
        checkpoints: Checkpoints,
        plan: PCollection[Plan],
        base: Base | None = None,
    ) -> None:
        """Creates the transform.

        `config` is the name, compression, decoding and verification. `checkpoints` are the
        checkpoints of finished shards, and the dataset's folder. `plan` is the number of shards,
        and the resolved schema. `base` is the base version, whose unchanged shards are linked; None
        if there is none.
        """
        super().__init__(
            file_path_prefix=layout.join(checkpoints.dataset, config.name),
            file_name_suffix=config.shard_format.suffix,
            compression_type=config.shard_format.beam,
        )
        self._config = config
        self._checkpoints = checkpoints
        self._plan = plan
        self._base = base

    def display_data(self) -> dict[str, str]:
        """Returns the settings that engines show."""
        return displayed(self._config, "name", "version", "compression", "decode", "verify")

    def expand(self, rows: PCollection[AssignedRows]) -> CheckedRows:
        """Adds a shuffle of references, and the writing of all shards, including empty ones."""
        settings = self._plan | "InitializeWrite" >> beam.Map(
            _initialize, self._checkpoints, self._config
        )
        # A shard without rows would not be an element of the grouping, but readers expect its file.
        planned = self._plan | "PlannedShards" >> beam.FlatMap(_planned_shards)
        write = _WriteShard(self._sink, self._checkpoints, self._config, self._base)
        written = (
            rows
            | "GroupByShard" >> GroupByShard(planned)
            | "WriteShard"
            >> beam.ParDo(write, AsSingleton(settings), AsSingleton(self._plan)).with_outputs(
                REJECTS, main="shards"
            )
        )
        return CheckedRows(written.shards, written[REJECTS])


def _planned_shards(plan: Plan) -> Iterator[ShardId]:
    """Yields every shard of the plan."""
    for split, count in plan.shards.items():
        for index in range(count):
            yield split, index


def _initialize(plan: Plan, checkpoints: Checkpoints, config: ConvertConfig) -> str:
    """Deletes finished shards that are not planned.

    Returns the settings fingerprint of all shards.
    """
    checkpoints.keep(
        {
            layout.shard_name(config.name, split, index, count, config.compression)
            for split, count in plan.shards.items()
            for index in range(count)
        }
    )
    # Create the folders only now, because deleting files also deletes empty folders.
    make_folders(checkpoints.dataset, layout.STAGING, layout.RECORDS)
    make_folders(checkpoints.directory)
    return settings_fingerprint(config, plan.resolved, versions())


@dataclass(frozen=True)
class ImageCheck:
    """The checks of images before they are stored that options ask for; it can be pickled."""

    config: ConvertConfig

    def __call__(self, image: StoredImage, mask: bytes | None, schema: Schema) -> None:
        """Checks an image.

        `mask` is its encoded mask; None if there is none. `schema`: states how images and masks are
        encoded. Raises RecordError if it has to be rejected.
        """
        if self.config.reject_quality:
            check_quality(image_shape(image), self.config.reject_quality)
        if self.config.verify == "decode":
            check_decodes(image, mask, schema)


class _WriteShard(TaskDoFn):
    """Writes one shard per element, in this thread or in writer processes.

    Holds one shard in memory; for writer processes, the encoded references of three shards each.
    """

    def __init__(
        self,
        sink: FileBasedSink,
        checkpoints: Checkpoints,
        config: ConvertConfig,
        base: Base | None,
    ) -> None:
        super().__init__()
        self._common = (sink, checkpoints, config, base)
        self._check = ImageCheck(config)
        self._task: ShardTask | None = None

    def process(
        self,
        element: tuple[ShardId, Iterable[EncodedRefs]],
        settings: str,
        plan: Plan,
    ) -> Iterator[tuple[WrittenShard, Plan] | TaggedOutput]:
        shard, rows = element
        if self._task is None or self._task.plan is not plan:
            self._task = ShardTask(*self._common, plan, settings, self._check)
            self._output = partial(_output, plan)
        processes = writers_for(plan)
        what = f"the process that writes shard {shard[1]} of split {shard[0]!r}"
        held = list(rows) if processes else rows
        return map(self._output, self.run(processes, what, self._task, shard, held))

    def finish_bundle(self) -> Iterator[WindowedValue | TaggedOutput]:
        return (windowed(self._output(found)) for found in self._answers.rest())


def _output(plan: Plan, found: WrittenShard | Reject) -> tuple[WrittenShard, Plan] | TaggedOutput:
    return rejected(found) if isinstance(found, Reject) else (found, plan)


# The counts of a planned shard, the number of its remote images, and its first references.
ShardForecast: TypeAlias = tuple[ShardCounts, int, Sequence[ImageRef]]


@dataclass(eq=False)
class ForecastShards(beam.PTransform):
    """Forecasts shards for a dry run: PCollection[AssignedRows] → CheckedRows(ShardForecast)."""

    plan: PCollection[Plan]
    sample: int  # the number of references to keep, over all shards, for building examples

    def expand(self, rows: PCollection[AssignedRows]) -> CheckedRows:
        """Adds the same grouping by shard as `WriteShards`, which brings duplicate keys together.

        Returns one forecast per shard that has rows, and the rejects of duplicate keys.
        """
        found = (
            rows
            | "GroupByShard" >> GroupByShard()
            | "Forecast"
            >> beam.FlatMap(_forecast, AsSingleton(self.plan), self.sample).with_outputs(
                REJECTS, main="shards"
            )
        )
        return CheckedRows(found.shards, found[REJECTS])


def _forecast(
    element: tuple[ShardId, Iterable[EncodedRefs]], plan: Plan, sample: int
) -> Iterator[ShardForecast | TaggedOutput]:
    """Yields the forecast of a shard and the rejects of its duplicate keys.

    `sample` is the number of references to keep, over all shards.
    """
    (split, index), rows = element
    refs, duplicates = arrange_shard(joined(rows), plan.resolved)
    schema = plan.resolved.schema
    classes = {name: Counter[int]() for name in plan.resolved.schema.class_features}
    seen = set[str]()
    for ref in refs:
        # The context features of a sequence are counted once, with its first frame.
        names = schema.frame_features if ref.record_key in seen else schema.features
        seen.add(ref.record_key)
        for name, value in zip(schema.features, ref.values, strict=True):
            if name in classes and name in names:
                classes[name].update(label_ids(value, schema.features[name]))
    share = -(-sample // sum(plan.shards.values()))  # rounded up
    remote = sum(is_url(ref.uri) for ref in refs)
    frames = len(refs) if schema.sequence else None
    counts = ShardCounts(
        split=split, index=index, records=len(seen), classes=classes, frames=frames
    )
    yield counts, remote, refs[:share]
    for reject in duplicates:
        yield rejected(replace(reject, split=split))
