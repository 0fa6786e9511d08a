"""Hugging Face Datasets: embeds image files in Parquet, without decoding them."""

from __future__ import annotations

from pathlib import Path

from datasets import ClassLabel, Dataset, Features, Image, Value  # type: ignore[import-not-found]
from datasets.table import embed_table_storage  # type: ignore[import-not-found]

from benchmarks.baseline import Outcome, main
from benchmarks.rows import read_table

_BATCH_ROWS = 100


def convert(table: Path, output: Path) -> Outcome:
    """Writes the table and its images to Parquet files."""
    rows = read_table(table)
    features = Features(
        id=Value("string"),
        image=Image(decode=False),
        label=ClassLabel(names=sorted({row.label for row in rows})),
    )
    columns = {name: [getattr(row, name) for row in rows] for name in features}
    dataset = Dataset.from_dict(columns, features=features).with_format("arrow")
    # What push_to_hub does with files, which to_parquet alone would only refer to.
    embedded = dataset.map(
        embed_table_storage,
        batched=True,
        batch_size=_BATCH_ROWS,
        cache_file_name=str(output / "embedded.arrow"),
    )
    embedded.with_format(None).to_parquet(str(output / "data.parquet"), batch_size=_BATCH_ROWS)
    return Outcome(len(embedded))


if __name__ == "__main__":
    main(convert)
