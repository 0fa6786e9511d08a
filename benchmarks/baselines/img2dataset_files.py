"""img2dataset on file URLs: checks that images can be opened, and writes them to tars."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

from img2dataset import download  # type: ignore[import-not-found]

from benchmarks.baseline import Outcome, main
from benchmarks.rows import read_table


def convert(table: Path, output: Path) -> Outcome:
    """Writes the images as they are, with as many processes as there are cores."""
    urls = output / "urls.csv"
    with urls.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["url", "label"])
        writer.writerows((Path(row.image).as_uri(), row.label) for row in read_table(table))
    download(
        url_list=str(urls),
        input_format="csv",
        url_col="url",
        save_additional_columns=["label"],
        output_folder=str(output / "shards"),
        output_format="webdataset",
        processes_count=os.cpu_count(),
        disable_all_reencoding=True,
        number_sample_per_shard=1_000,
        enable_wandb=False,
    )
    statistics = (output / "shards").glob("*_stats.json")
    return Outcome(sum(json.loads(path.read_text())["successes"] for path in statistics))


if __name__ == "__main__":
    main(convert)
