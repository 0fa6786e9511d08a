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
from apache_beam.utils.shared import Shared
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import WrittenShard
from recordmill.schemas.layout import is_url
from recordmill.schemas.manifest import Base
from recordmill.schemas.plan import Plan
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reject
from recordmill.schemas.row_counts import ShardCounts
from recordmill.transforms import elements
from recordmill.transforms.functional.read_ahead import Pending
from recordmill.transforms.functional.records.index import label_ids
from recordmill.transforms.functional.rows.placement import arrange_shard
from recordmill.transforms.shards import writer_processes
from recordmill.transforms.shards.build_examples import Pools
from recordmill.transforms.shards.checkpoints import Checkpoints, settings_fingerprint, versions
from recordmill.transforms.shards.shard_task import ShardTask
from recordmill.transforms.storage.files import make_folders

_Encoded: TypeAlias = tuple[elements.ShardId, elements.EncodedRefs]


@dataclass(eq=False)
class GroupByShard(beam.PTransform):
    """Groups references: PCollection[AssignedRows] → PCollection[(ShardId, [EncodedRefs])]."""

    scratch: str  # the folder of files in which they wait; "" to keep them in memory
    # Shards that are elements of the result even without a row; None if there are none.
    planned: PCollection[elements.ShardId] | None = None

    def expand(self, rows: PCollection[elements.AssignedRows]) -> PCollection[Any]:
        """Adds the shuffle of references."""
        encode = beam.ParDo(_EncodeRefs(self.scratch)).with_output_types(_Encoded)
        encoded = rows | "EncodeRefs" >> encode
        if self.planned is not None:
            empty = self.planned | "NoRefs" >> beam.Map(_without_refs).with_output_types(_Encoded)
            encoded = (encoded, empty) | "WithPlanned" >> beam.Flatten()
        return encoded | "GroupByKey" >> beam.GroupByKey()


def _without_refs(shard: elements.ShardId) -> _Encoded:
    return shard, elements.EncodedRefs()


class _EncodeRefs(beam.DoFn):
    """Encodes references, and gathers those of a shard from several batches."""

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch

    def start_bundle(self) -> None:
        self._gathered = elements.GatheredRefs()

    def process(self, assigned: elements.AssignedRows) -> Iterator[_Encoded]:
        self._gathered.add(*assigned)
        if self._gathered.are_many:
            yield from self._gathered.take(self._scratch)

    def finish_bundle(self) -> Iterator[WindowedValue | TaggedOutput]:
        # The rest stays in memory: it is small, and all of a small table.
        return map(elements.windowed, self._gathered.take())


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
        scratch: str = "",
    ) -> None:
        """Creates the transform.

        `checkpoints` also have the folder of the dataset. Unchanged shards of `base` are linked.
        `scratch` is the folder of the run on the one machine that runs all steps; "" for several.
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
        self._scratch = scratch

    def display_data(self) -> dict[str, str]:
        """Returns the settings that engines show."""
        return elements.displayed(
            self._config, "name", "version", "compression", "decode", "verify"
        )

    def expand(self, rows: PCollection[elements.AssignedRows]) -> elements.CheckedRows:
        """Adds a shuffle of references, and the writing of all shards, including empty ones."""
        # For `--verify decode`, shards need the verifier process, which only this process has.
        writers = "" if self._config.verify == "decode" else self._scratch
        settings = self._plan | "InitializeWrite" >> beam.Map(
            _initialize, self._checkpoints, self._config, writers
        )
        # A shard without rows would not be an element of the grouping, but readers expect its file.
        planned = self._plan | "PlannedShards" >> beam.FlatMap(_planned_shards)
        common = (self._sink, self._checkpoints, self._config, self._base)
        write = _WriteShard(writers, *common)
        written = (
            rows
            | "GroupByShard" >> GroupByShard(self._scratch, planned)
            | "WriteShard"
            >> beam.ParDo(write, AsSingleton(settings), AsSingleton(self._plan)).with_outputs(
                elements.REJECTS, main="shards"
            )
        )
        return elements.CheckedRows(written.shards, written[elements.REJECTS])


def _planned_shards(plan: Plan) -> Iterator[elements.ShardId]:
    for split, count in plan.shards.items():
        for index in range(count):
            yield split, index


def _initialize(plan: Plan, checkpoints: Checkpoints, config: ConvertConfig, scratch: str) -> str:
    """Deletes finished shards that are not planned, and has writer processes started.

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
    if not plan.resolved.schema.has_image:
        writer_processes.start_writers(scratch, plan)
    return settings_fingerprint(config, plan.resolved, versions())


class _WriteShard(beam.DoFn):
    """Writes one shard per element, in this process or in writer processes.

    Holds one shard in memory; for writer processes, the encoded references of three shards each.
    """

    def __init__(
        self,
        scratch: str,
        sink: FileBasedSink,
        checkpoints: Checkpoints,
        config: ConvertConfig,
        base: Base | None,
    ) -> None:
        self._scratch = scratch
        self._decides = bool(scratch)  # whether the first images are still to be looked at
        self._common = (sink, checkpoints, config, base)
        self._task: ShardTask | None = None
        self._shared = Shared()

    def setup(self) -> None:
        self._pools = self._shared.acquire(Pools)  # all instances share the threads

    def start_bundle(self) -> None:
        self._awaited = Pending[writer_processes.Answer]()

    def process(
        self,
        element: tuple[elements.ShardId, Iterable[elements.EncodedRefs]],
        settings: str,
        plan: Plan,
    ) -> Iterator[tuple[WrittenShard, Plan] | TaggedOutput]:
        shard, rows = element
        if self._task is None or self._task.plan is not plan:
            self._task = ShardTask(*self._common, plan, settings)
            self._output = partial(_output, plan)
        if self._decides and (first := next((found for found in rows if found.parts), None)):
            self._decides = False
            if plan.resolved.schema.has_image:
                writer_processes.start_writers(self._scratch, plan, elements.joined([first]).refs)
        processes = writer_processes.writers_of(self._scratch)
        if processes and writer_processes.are_enough(plan, processes.number):
            self._awaited.append(processes.submit(self._task, shard, list(rows)))
            yield from self._answers(3 * processes.number)
        else:
            pools = processes.pools if processes else self._pools
            yield from map(self._output, self._task.run(shard, rows, pools))

    def _answers(self, awaited: int) -> Iterator[tuple[WrittenShard, Plan] | TaggedOutput]:
        """Yields the oldest results: those that are ready, and until so few are awaited."""
        for answer in self._awaited.results(awaited):
            # Reported by the step's own thread, to which metrics belong.
            yield from map(self._output, answer.reported())

    def finish_bundle(self) -> Iterator[WindowedValue | TaggedOutput]:
        return map(elements.windowed, self._answers(0))


def _output(plan: Plan, found: WrittenShard | Reject) -> tuple[WrittenShard, Plan] | TaggedOutput:
    return elements.rejected(found) if isinstance(found, Reject) else (found, plan)


# The counts of a planned shard, the number of its remote images, and its first references.
ShardForecast: TypeAlias = tuple[ShardCounts, int, Sequence[ImageRef]]


@dataclass(eq=False)
class ForecastShards(beam.PTransform):
    """Forecasts shards for a dry run: PCollection[AssignedRows] → CheckedRows(ShardForecast)."""

    plan: PCollection[Plan]
    sample: int  # the number of references to keep, over all shards, for building examples
    scratch: str  # the folder of files in which references wait

    def expand(self, rows: PCollection[elements.AssignedRows]) -> elements.CheckedRows:
        """Adds the same grouping by shard as `WriteShards`, which brings duplicate keys together.

        Returns one forecast per shard that has rows, and the rejects of duplicate keys.
        """
        found = (
            rows
            | "GroupByShard" >> GroupByShard(self.scratch)
            | "Forecast"
            >> beam.FlatMap(_forecast, AsSingleton(self.plan), self.sample).with_outputs(
                elements.REJECTS, main="shards"
            )
        )
        return elements.CheckedRows(found.shards, found[elements.REJECTS])


def _forecast(
    element: tuple[elements.ShardId, Iterable[elements.EncodedRefs]], plan: Plan, sample: int
) -> Iterator[ShardForecast | TaggedOutput]:
    """Yields the forecast of a shard and the rejects of its duplicate keys."""
    (split, index), rows = element
    refs, duplicates = arrange_shard(elements.joined(rows), plan.resolved)
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
        yield elements.rejected(replace(reject, split=split))
