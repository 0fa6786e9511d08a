"""Beam's file sinks for a dataset: one for the shards of each split, one for their indexes.

They open temporary files and rename them in the end, numbered in the order of their names; what is
written to them, and in which order, is for others.
"""

from __future__ import annotations

from dataclasses import dataclass

from apache_beam.coders import BytesCoder
from apache_beam.io.filebasedsink import FileBasedSink
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.tfrecordio import _TFRecordSink

from recordmill.schemas import layout
from recordmill.transforms.shards.metered_file import MeteredFile

COMPRESSION = {"none": CompressionTypes.UNCOMPRESSED, "gzip": CompressionTypes.GZIP}


class _MeteredTFRecordSink(_TFRecordSink):
    """Beam's TFRecord sink, with a handle that knows the uncompressed stream's checksum."""

    def open(self, temp_path: str) -> MeteredFile:
        return MeteredFile(super().open(temp_path))


class _RecordsSink(FileBasedSink):
    """Beam's file sink, for the indexes of records: opened, renamed, never written by record."""

    def open(self, temp_path: str) -> MeteredFile:
        return MeteredFile(super().open(temp_path))


@dataclass(frozen=True)
class Sinks:
    """The Beam sinks of a dataset: two a split, since a sink numbers its files from 0.

    Attributes:
        directory: the dataset's folder.
        name: the dataset's name.
        compression: "none" or "gzip".
    """

    directory: str
    name: str
    compression: str

    def shards(self, split: str) -> _MeteredTFRecordSink:
        """Returns the sink of a split's shards."""
        return _MeteredTFRecordSink(
            layout.join(self.directory, layout.shard_stem(self.name, split)),
            BytesCoder(),
            layout.shard_suffix(self.compression),
            num_shards=0,
            shard_name_template=None,
            compression_type=COMPRESSION[self.compression],
        )

    def records(self, split: str) -> _RecordsSink:
        """Returns the sink of the indexes of a split's shards."""
        return _RecordsSink(
            layout.join(self.directory, layout.RECORDS, f"records-{split}"),
            BytesCoder(),
            ".parquet",
            compression_type=CompressionTypes.UNCOMPRESSED,
        )
