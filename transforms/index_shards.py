"""Writes where each record begins, in the form that DALI and PyTorch readers take."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.pvalue import PCollection

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import ShardAudit
from recordmill.transforms.functional.records.index import index_lines
from recordmill.transforms.storage.dataset import read_index
from recordmill.transforms.storage.files import write_bytes


@dataclass(eq=False)
class IndexShards(beam.PTransform):
    """Writes an index for each shard: PCollection[ShardAudit] → PCollection[(name, sha256)].

    Attributes:
        directory: the dataset's folder.
    """

    directory: str

    def expand(self, audits: PCollection[ShardAudit]) -> PCollection[tuple[str, str]]:
        """Adds the writing, from the index in records/ that the audit has found true."""
        return audits | "WriteIndex" >> beam.FlatMap(write_index, self.directory)


def write_index(audit: ShardAudit, directory: str) -> Iterator[tuple[str, str]]:
    """Writes the index of a shard, and yields its name below the folder and its digest.

    Of a shard that is not proven nothing is written: it keeps the dataset from being published.
    """
    if audit.problems:
        return
    path = layout.join(directory, audit.index_file)
    data = index_lines(read_index(path, ["offset", "length"]))
    name = layout.index_name(audit.file)
    write_bytes(layout.join(directory, name), data)
    yield name, hashlib.sha256(data).hexdigest()
