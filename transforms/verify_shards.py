"""Verifies shards by re-reading their final files, and writes an index file for each valid one.

The index file lists the offset and size of each record, in the format that DALI and PyTorch readers
expect.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection, TaggedOutput
from apache_beam.utils.shared import Shared
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import ShardVerification, WrittenShard
from recordmill.schemas.plan import Plan
from recordmill.schemas.statistics import SplitTally
from recordmill.transforms.elements import displayed, windowed
from recordmill.transforms.functional.read_ahead import Pending
from recordmill.transforms.functional.reconcile import tally_of, without_tally
from recordmill.transforms.functional.records.index import index_lines
from recordmill.transforms.shards.build_examples import new_executor
from recordmill.transforms.storage.dataset import read_index
from recordmill.transforms.storage.files import write_checked
from recordmill.transforms.storage.shard_files import ShardFiles
from recordmill.transforms.verification import verifier_process
from recordmill.transforms.verification.verify_shard import Removed, find_removed
from recordmill.transforms.workers.process import num_cores
from recordmill.transforms.workers.progress import advance

# Shards per core that wait for verification while others are written.
_SHARDS_AHEAD = 4


class Verified(NamedTuple):
    """The verified shards of a dataset."""

    shards: PCollection[ShardVerification]  # the verification of each shard, without what is summed
    tallies: PCollection[tuple[str, SplitTally]]


@dataclass(eq=False)
class VerifyShards(beam.PTransform):
    """Re-reads all shards: PCollection[(WrittenShard, Plan)] → Verified."""

    config: ConvertConfig  # the name, the compression, and the level of verification
    directory: str

    def display_data(self) -> dict[str, str]:
        """Returns the settings that engines show."""
        return displayed(self.config, "verify")

    def expand(self, shards: PCollection[tuple[WrittenShard, Plan]]) -> Verified:
        """Adds the verification of each shard, and sums what grows with classes and images.

        Engines fuse it with the writing, as nothing is shuffled between them: the worker that
        writes a shard has it re-read while it writes the next one. After a failure, both run again.
        """
        verify = _VerifyShard(self.config, self.directory)
        verified = shards | "VerifyShard" >> beam.ParDo(verify)  # (WrittenShard, ShardVerification)
        tallies = verified | "TallyOfShard" >> beam.MapTuple(tally_of).with_output_types(
            tuple[str, SplitTally]
        )
        return Verified(
            verified | "CompareShard" >> beam.MapTuple(without_tally),
            tallies | "SumTallies" >> beam.CombinePerKey(SplitTally.sum_of),  # (split, SplitTally)
        )


class _ConcurrentDoFn(beam.DoFn):
    """Handles a few shards concurrently, and emits each result when it is ready."""

    def __init__(self) -> None:
        self._shared = Shared()

    def handle(self, element: Any) -> Any:
        """Returns the result of an element; called in a thread of the pool."""
        raise NotImplementedError

    def setup(self) -> None:
        self._executor = self._shared.acquire(new_executor)
        self._ahead = _SHARDS_AHEAD * num_cores()

    def emitted(self, result: Any) -> Any:
        """Returns a result; called in the thread of the step, to which metrics belong."""
        return result

    def start_bundle(self) -> None:
        self._running = Pending[Any]()

    def process(self, element: Any) -> Iterator[Any]:
        self._running.append(self._executor.submit(self.handle, element))
        # Waits for the oldest if there are many, so that it keeps up with the step before.
        return map(self.emitted, self._running.results(self._ahead))

    def finish_bundle(self) -> Iterator[WindowedValue | TaggedOutput]:
        return map(windowed, map(self.emitted, self._running.results(0)))


class _VerifyShard(_ConcurrentDoFn):
    """Verifies a shard: (WrittenShard, Plan) → (WrittenShard, ShardVerification)."""

    def __init__(self, config: ConvertConfig, directory: str) -> None:
        super().__init__()
        self._config = config
        self._directory = directory

    def setup(self) -> None:
        verifier_process.prepare(self._directory)
        super().setup()

    def handle(self, element: tuple[WrittenShard, Plan]) -> tuple[WrittenShard, ShardVerification]:
        written, plan = element
        split, index = written.split, written.index
        if written.entry:  # verified with the base version
            return written, ShardVerification(split, index, written.entry, written.index_crc32c)
        files = ShardFiles.planned(self._directory, self._config, plan, split, index)
        return written, verifier_process.verify(files, plan.resolved, self._config.verify)

    def emitted(
        self, result: tuple[WrittenShard, ShardVerification]
    ) -> tuple[WrittenShard, ShardVerification]:
        written, found = result
        if not written.entry:
            advance("verified", found.entry.converted)
        return result


@dataclass(eq=False)
class FindRemovedRecords(beam.PTransform):
    """Searches shards: PCollection[ShardVerification] → the same, with the problems found.

    Every record is read again: also those of shards that are linked from the base version.
    """

    directory: str
    removed: Removed

    def expand(self, shards: PCollection[ShardVerification]) -> PCollection[ShardVerification]:
        """Adds the search, which engines fuse with the verification; workers share the shards."""
        return shards | "FindInShard" >> beam.ParDo(_FindInShard(self.directory, self.removed))


class _FindInShard(_ConcurrentDoFn):
    def __init__(self, directory: str, removed: Removed) -> None:
        super().__init__()
        self._directory = directory
        self._removed = removed

    def handle(self, shard: ShardVerification) -> ShardVerification:
        if shard.problems:  # the shard may be unreadable, and is not published
            return shard
        found = find_removed(self._directory, shard.entry, self._removed)
        return replace(shard, problems=tuple(found))


@dataclass(eq=False)
class IndexShards(beam.PTransform):
    """Writes index files: PCollection[ShardVerification] → PCollection[(name, sha256)]."""

    directory: str

    def expand(self, shards: PCollection[ShardVerification]) -> PCollection[tuple[str, str]]:
        """Adds the writing; offsets come from the verified Parquet index in `records/`."""
        return shards | "WriteIndex" >> beam.FlatMap(_write_index, self.directory)


def _write_index(shard: ShardVerification, directory: str) -> Iterator[tuple[str, str]]:
    """Writes the index file of a shard, and yields its name and SHA-256."""
    if not shard.problems:  # with some, the Parquet index may be unreadable
        path = layout.join(directory, shard.entry.index_file)
        data = index_lines(read_index(path, ["offset", "length"]))
        name = layout.index_name(shard.entry.file)
        write_checked(layout.join(directory, name), data)
        yield name, hashlib.sha256(data).hexdigest()
