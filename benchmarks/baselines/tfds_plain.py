"""TFDS with a generator: copies image files into records without decoding them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds  # type: ignore[import-untyped, unused-ignore]

from benchmarks.baseline import Outcome, main
from benchmarks.rows import Row, read_table

NUM_SHARDS = 16


@dataclass(eq=False)
class TableConfig(tfds.core.BuilderConfig):  # type: ignore[misc, unused-ignore]
    """The table of a builder, in its config because TFDS re-creates builders from their config.

    Attributes:
        table: path of the table.
    """

    table: str = ""


class Photographs(tfds.core.GeneratorBasedBuilder):  # type: ignore[misc, unused-ignore]
    """A dataset of the photographs of a table."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        labels = sorted({row.label for row in self.rows()})
        features = tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(),
                "label": tfds.features.ClassLabel(names=labels),
                "id": tfds.features.Text(),
            }
        )
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Iterator[tuple[str, dict[str, str]]]:
        return map(keyed_example, self.rows())

    def rows(self) -> list[Row]:
        """Returns the rows of the table."""
        return read_table(Path(self.builder_config.table))


def keyed_example(row: Row) -> tuple[str, dict[str, str]]:
    """Returns the key and the features of a row, as TFDS expects them."""
    return row.id, row._asdict()


def build(builder: type[Photographs], table: Path, output: Path, **download: Any) -> int:
    """Builds a dataset from a table; returns the number of its examples.

    Args:
        builder: class of the dataset builder.
        table: path of the table.
        output: TFDS data folder.
        download: more arguments of `tfds.download.DownloadConfig`.
    """
    config = TableConfig(name="table", table=str(table))
    dataset_builder = builder(data_dir=str(output), config=config, file_format="tfrecord")
    shards = min(NUM_SHARDS, len(dataset_builder.rows()))  # TFDS rejects empty shards
    options = tfds.download.DownloadConfig(num_shards=shards, try_download_gcs=False, **download)
    dataset_builder.download_and_prepare(download_config=options)
    return int(dataset_builder.info.splits["train"].num_examples)


def convert(table: Path, output: Path) -> Outcome:
    """Builds the dataset in one process, with TFDS's on-disk shuffle."""
    return Outcome(build(Photographs, table, output))


if __name__ == "__main__":
    main(convert)
