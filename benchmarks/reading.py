"""Compares the speed of `load` with bare `tf.data`: `python -m benchmarks.reading DATASET`.

All readers read and parse the same records and decode their images, without batching. They take
turns in one process, so that other load on the machine affects all of them. Only ratios are
meaningful; on a busy machine, compare CPU time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from recordmill.pipelines.dataset.load import load
from recordmill.pipelines.dataset.records import Records
from recordmill.schemas.features import Feature
from recordmill.schemas.origins import Kind
from recordmill.transforms.storage.dataset import DatasetFolder

Baseline = Callable[[], int]
"""Reads all records once; returns their number."""


class Score(NamedTuple):
    """The speed of a reader.

    Attributes:
        rate: records per second of wall time.
        cpu_rate: records per second of CPU time.
    """

    rate: float
    cpu_rate: float


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the rate of each reader and its ratio to bare `tf.data`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reading", description=__doc__)
    parser.add_argument("dataset", type=Path, help="DIR/NAME/VERSION, with JPEG images only")
    parser.add_argument("--split", default="train")
    parser.add_argument(
        "--turns",
        type=int,
        default=5,
        help="number of turns, of which medians are shown; default: 5",
    )
    flags = parser.parse_args(argv)
    scores = race(baselines_of(flags.dataset, flags.split), flags.turns)
    bare = scores["bare tf.data"]
    print(f"{'':24} {'records/s':>10} {'× bare':>7} {'per CPU s':>10} {'× bare':>7}")
    for name, score in scores.items():
        rate, cpu = score.rate / bare.rate, score.cpu_rate / bare.cpu_rate
        print(f"{name:24} {score.rate:10,.0f} {rate:7.2f} {score.cpu_rate:10,.0f} {cpu:7.2f}")
    return 0


def baselines_of(dataset: Path, split: str) -> dict[str, Baseline]:
    """Returns the readers by name.

    Args:
        dataset: folder of a published dataset.
        split: of the dataset.
    """
    records = Records(dataset, split)
    pipelines = {
        "bare tf.data": bare(dataset, split),
        "load": load(dataset, split),
        "load, shuffled": load(dataset, split, shuffle=True),
        "load, shuffled by a seed": load(dataset, split, shuffle=True, seed=1),
    }
    counting = {name: partial(_count, data) for name, data in pipelines.items()}
    return counting | {"Records, one thread": lambda: sum(1 for _ in records)}


def bare(dataset: Path, split: str) -> Any:
    """Returns a hand-written `tf.data` pipeline: files, parse, decode, prefetch.

    Args:
        dataset: folder of a published dataset.
        split: of the dataset.
    """
    manifest = DatasetFolder.open(dataset).manifest
    spec = {name: _spec(feature) for name, feature in manifest.resolved.schema.features.items()}
    image = manifest.dataset_schema.encoded_image

    def parse(record: Any) -> Any:
        example = tf.io.parse_single_example(record, spec)
        example[image] = tf.io.decode_jpeg(example[image], channels=3)
        return example

    files = [str(dataset / shard.file) for shard in manifest.splits[split].shards]
    records = tf.data.TFRecordDataset(files)
    return records.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _spec(feature: Feature) -> Any:
    """Returns the spec that a hand-written reader gives for a feature."""
    dtype = {Kind.INT64: tf.int64, Kind.FLOAT: tf.float32, Kind.BYTES: tf.string}[feature.kind]
    is_value = feature.shape is None and not feature.optional
    return tf.io.FixedLenFeature([], dtype) if is_value else tf.io.VarLenFeature(dtype)


def race(baselines: dict[str, Baseline], turns: int) -> dict[str, Score]:
    """Returns the median score of each reader; a first turn warms up and is not counted.

    Args:
        baselines: readers by name, which take turns.
        turns: number of turns.
    """
    found: dict[str, list[Score]] = {name: [] for name in baselines}
    for _ in range(turns + 1):
        for name, run in baselines.items():
            clock, cpu = time.perf_counter(), time.process_time()
            records = run()
            seconds, cpu_seconds = time.perf_counter() - clock, time.process_time() - cpu
            found[name].append(Score(records / seconds, records / cpu_seconds))
    return {
        name: Score(*(statistics.median(rates) for rates in zip(*scores[1:], strict=True)))
        for name, scores in found.items()
    }


def _count(data: Any) -> int:
    return int(data.reduce(tf.constant(0, tf.int64), lambda count, _: count + 1).numpy())


if __name__ == "__main__":
    sys.exit(main())
