"""Writes where each record begins, in the form that DALI and PyTorch readers take."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import ShardVerification
from recordmill.transforms.functional.records.index import index_lines
from recordmill.transforms.storage.dataset import read_index
from recordmill.transforms.storage.files import write_bytes


@dataclass(eq=False)
class IndexShards(beam.PTransform):
    """Writes an index for each shard: PCollection[ShardVerification] → PCollection[(name, sha256)].

    Attributes:
        directory: the dataset's folder.
    """

    directory: str

    def expand(self, shards: PCollection[ShardVerification]) -> PCollection[tuple[str, str]]:
        """Adds the writing, from the index in records/ that the verification has found correct."""
        return shards | "WriteIndex" >> beam.FlatMap(write_index, self.directory)


def write_index(shard: ShardVerification, directory: str) -> Iterator[tuple[str, str]]:
    """Writes the index of a shard, and yields its name below the folder and its digest.

    Nothing is written for a shard with problems: they keep the dataset from being published.
    """
    if shard.problems:
        return
    path = layout.join(directory, shard.entry.index_file)
    data = index_lines(read_index(path, ["offset", "length"]))
    name = layout.index_name(shard.entry.file)
    write_bytes(layout.join(directory, name), data)
    yield name, hashlib.sha256(data).hexdigest()
