"""TFDS with a generator: image files are copied into records as they are, unseen."""

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
    """Which table a builder reads: TFDS makes builders again from their config.

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
        """Returns the table's rows."""
        return read_table(Path(self.builder_config.table))


def keyed_example(row: Row) -> tuple[str, dict[str, str]]:
    """Returns a row as TFDS takes it: its key, and its features."""
    return row.id, row._asdict()


def build(builder: type[Photographs], table: Path, output: Path, **download: Any) -> int:
    """Builds a dataset of a table; returns the number of its examples.

    Args:
        builder: which one.
        table: path of the table.
        output: where to.
        download: more of TFDS's `DownloadConfig`.
    """
    config = TableConfig(name="table", table=str(table))
    made = builder(data_dir=str(output), config=config, file_format="tfrecord")
    shards = min(NUM_SHARDS, len(made.rows()))  # TFDS leaves no shard empty
    options = tfds.download.DownloadConfig(num_shards=shards, try_download_gcs=False, **download)
    made.download_and_prepare(download_config=options)
    return int(made.info.splits["train"].num_examples)


def convert(table: Path, output: Path) -> Outcome:
    """Builds the dataset in one process, with TFDS's own shuffle on disk."""
    return Outcome(build(Photographs, table, output))


if __name__ == "__main__":
    main(convert)
