"""Verifies shards by re-reading their final files, and writes an index file for each valid one.

The index file lists the offset and size of each record, in the format that DALI and PyTorch readers
expect.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.shared import Shared
from apache_beam.utils.windowed_value import WindowedValue

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import ShardVerification, WrittenShard
from recordmill.schemas.plan import Plan
from recordmill.schemas.statistics import SplitTally
from recordmill.transforms.elements import displayed
from recordmill.transforms.functional.reconcile import tally_of, without_tally
from recordmill.transforms.functional.records.index import index_lines
from recordmill.transforms.shards.build_examples import new_executor
from recordmill.transforms.storage.dataset import read_index
from recordmill.transforms.storage.files import write_bytes
from recordmill.transforms.storage.shard_files import ShardFiles
from recordmill.transforms.verification import verifier_process
from recordmill.transforms.workers.cores import num_cores
from recordmill.transforms.workers.progress import advance

# Shards per core that wait for verification while others are written.
_SHARDS_AHEAD = 4


class Verified(NamedTuple):
    """The verified shards of a dataset.

    Attributes:
        shards: the verification of each shard, without what is summed.
        tallies: (split, sums over its shards).
    """

    shards: PCollection[ShardVerification]
    tallies: PCollection[tuple[str, SplitTally]]


@dataclass(eq=False)
class VerifyShards(beam.PTransform):
    """Re-reads all shards: PCollection[(WrittenShard, Plan)] → Verified.

    Attributes:
        config: the name, the compression, and the level of verification.
        directory: the dataset's folder.
    """

    config: ConvertConfig
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


class _VerifyShard(beam.DoFn):
    """Verifies a few shards concurrently, and emits each when it is done."""

    def __init__(self, config: ConvertConfig, directory: str) -> None:
        self._config = config
        self._directory = directory
        self._shared = Shared()

    def setup(self) -> None:
        verifier_process.prepare(self._directory)
        self._executor = self._shared.acquire(new_executor)
        self._ahead = _SHARDS_AHEAD * num_cores()

    def start_bundle(self) -> None:
        self._running: deque[tuple[WrittenShard, Future[ShardVerification]]] = deque()

    def process(
        self, element: tuple[WrittenShard, Plan]
    ) -> Iterator[tuple[WrittenShard, ShardVerification]]:
        written, plan = element
        if written.entry:  # verified with the base version
            yield (
                written,
                ShardVerification(
                    written.split, written.index, written.entry, written.index_crc32c
                ),
            )
            return
        files = ShardFiles.planned(
            self._directory, self._config, plan, written.split, written.index
        )
        verification = self._executor.submit(
            verifier_process.verify, files, plan.resolved, self._config.verify
        )
        self._running.append((written, verification))
        # Waits for the oldest if there are many, so that verification keeps up with writing.
        while self._running and (len(self._running) > self._ahead or self._running[0][1].done()):
            yield self._next()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        # Outside of `process` an element has no window to inherit, so it needs an explicit one.
        while self._running:
            yield GlobalWindows.windowed_value(self._next())

    def _next(self) -> tuple[WrittenShard, ShardVerification]:
        written, verification = self._running.popleft()
        found = verification.result()
        advance("verified", found.entry.converted)
        return written, found


@dataclass(eq=False)
class IndexShards(beam.PTransform):
    """Writes index files: PCollection[ShardVerification] → PCollection[(name, sha256)].

    Attributes:
        directory: the dataset's folder.
    """

    directory: str

    def expand(self, shards: PCollection[ShardVerification]) -> PCollection[tuple[str, str]]:
        """Adds the writing; offsets come from the verified Parquet index in `records/`."""
        return shards | "WriteIndex" >> beam.FlatMap(write_index, self.directory)


def write_index(shard: ShardVerification, directory: str) -> Iterator[tuple[str, str]]:
    """Writes the index file of a shard; yields its name, relative to the folder, and its SHA-256.

    Args:
        shard: the shard's verification.
        directory: the dataset's folder.
    """
    if not shard.problems:  # with some, the Parquet index may be unreadable
        path = layout.join(directory, shard.entry.index_file)
        data = index_lines(read_index(path, ["offset", "length"]))
        name = layout.index_name(shard.entry.file)
        write_bytes(layout.join(directory, name), data)
        yield name, hashlib.sha256(data).hexdigest()
