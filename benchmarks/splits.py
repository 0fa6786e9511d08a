"""Measures split methods: cost, memory, and how close each class comes to its share.

    python -m benchmarks.splits --rows 100000 1000000

Tables have no images, and 1,000 classes of Zipf sizes, or up to five labels in a row. Each dry run,
which assigns every row and writes nothing, is a process of its own. With scikit-learn installed,
`train_test_split(stratify=…)` splits the same labels; it rejects classes with a single row, which
therefore are left out there.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

CLASSES = 1_000
LABELS = 100
WEIGHTS = {"train": Fraction(8, 10), "validation": Fraction(1, 10), "test": Fraction(1, 10)}
KINDS = ("single", "multi")

# The number of rows of each class in each split.
Counts = Mapping[str, Mapping[str, int]]

_SCHEMA = """
features:
  id: {kind: bytes, from: key}
  label: {kind: int64, from: "column:label", classes: true}
"""


def zipf_labels(rows: int, classes: int) -> np.ndarray:
    """Returns a class for each row; class k has a share in proportion to 1 / (k + 1).

    Args:
        rows: the number of rows.
        classes: the number of classes.
    """
    shares = 1 / np.arange(1, classes + 1)
    return np.random.default_rng(0).choice(classes, rows, p=shares / shares.sum())


def write_table(path: Path, rows: int, kind: str) -> Path:
    """Writes a table of ids and labels; returns its path.

    Args:
        path: of the table.
        rows: the number of rows.
        kind: "single" for one label in each row, "multi" for one to five.
    """
    with path.open("w", encoding="utf-8") as stream:
        if kind == "single":
            stream.write("id,label\n")
            for number, label in enumerate(zipf_labels(rows, CLASSES)):
                stream.write(f"{number:08d},class {label}\n")
            return path
        for number, labels in enumerate(zipf_labels(5 * rows, LABELS).reshape(-1, 5)):
            several = [f"label {label}" for label in sorted({*labels[: 1 + number % 5]})]
            stream.write(json.dumps({"id": f"{number:08d}", "label": several}) + "\n")
    return path


def dry_run(table: Path, method: str, kind: str) -> dict[str, Any]:
    """Returns cost and counts of a dry run in this process.

    Args:
        table: the table.
        method: the split method.
        kind: the kind of its labels.
    """
    import recordmill

    schema = table.with_name(f"{kind}.yaml")
    shape = ", shape: []" if kind == "multi" else ""
    schema.write_text(_SCHEMA.replace("true}", f"true{shape}}}"), encoding="utf-8")
    began = _cpu_seconds()
    forecast = recordmill.dry_run(
        table,
        schema=schema,
        output=table.with_name("out"),
        name="d",
        key_column="id",
        splits={name: float(weight) for name, weight in WEIGHTS.items()},
        split_method=method,  # type: ignore[arg-type]
    )
    seconds = _cpu_seconds() - began
    names = forecast.plan.resolved.classes["label"]
    counts: dict[str, Counter[str]] = {name: Counter() for name in WEIGHTS}
    for shard in forecast.shards:
        counts[shard.split].update(
            {names[label]: count for label, count in shard.classes["label"].items()}
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sizes = {name: forecast.records(name) for name in WEIGHTS}
    return {"seconds": seconds, "mb": peak, "counts": counts, "sizes": sizes}


def _cpu_seconds() -> float:
    return time.process_time()


def largest_difference(counts: Counts) -> tuple[float, float]:
    """Returns the largest and the mean difference of a class from its share, in rows.

    Args:
        counts: the number of rows by split and class.
    """
    total = sum((Counter(found) for found in counts.values()), Counter[str]())
    differences = [
        abs(counts[split].get(label, 0) - float(weight) * number)
        for label, number in total.items()
        for split, weight in WEIGHTS.items()
    ]
    return max(differences), sum(differences) / len(differences)


def with_scikit_learn(labels: Sequence[int]) -> dict[str, Any]:
    """Returns cost and counts of two calls of `train_test_split`, as users make three splits.

    Args:
        labels: the class of each row.
    """
    from sklearn.model_selection import train_test_split  # type: ignore[import-not-found]

    began, every = _cpu_seconds(), np.asarray(labels)
    numbers = np.bincount(every)
    rows = np.flatnonzero(numbers[every] > 1)
    train, rest = train_test_split(rows, test_size=0.2, stratify=every[rows], random_state=0)
    shown: dict[str, Any] = {}
    try:
        halves = train_test_split(rest, test_size=0.5, stratify=every[rest], random_state=0)
    except ValueError as error:  # a class with a single row in the rest
        shown["error"] = str(error).partition(".")[0]
        kept = rest[np.bincount(every[rest])[every[rest]] > 1]
        halves = train_test_split(kept, test_size=0.5, stratify=every[kept], random_state=0)
    parts = dict(zip(WEIGHTS, (train, *halves), strict=True))
    counts = {name: Counter(every[found].tolist()) for name, found in parts.items()}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sizes = {name: len(found) for name, found in parts.items()}
    seconds = _cpu_seconds() - began
    return {**shown, "seconds": seconds, "mb": peak, "counts": counts, "sizes": sizes}


def _measured(*arguments: str) -> dict[str, Any]:
    """Returns the result of one measurement in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.splits", "--one", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def _line(what: str, rows: int, found: Mapping[str, Any]) -> str:
    largest, mean = largest_difference(found["counts"])
    sizes = " ".join(f"{size:,}" for size in found["sizes"].values())
    return (
        f"{what:<24} {rows:>10,} {found['seconds']:>8.1f} {found['mb']:>8.0f} "
        f"{largest:>9.2f} {mean:>7.3f}  {sizes}  {found.get('error', '')}"
    )


def main() -> int:
    """Runs all measurements, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--methods", nargs="+", default=["hash", "exact", "stratified"])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--one", nargs=3, metavar=("TABLE", "METHOD", "KIND"))
    flags = parser.parse_args()
    if flags.one:
        table, method, kind = flags.one
        if method == "scikit-learn":
            found = with_scikit_learn([*zipf_labels(int(table), CLASSES)])
        else:
            found = dry_run(Path(table), method, kind)
        print(json.dumps(found))
        return 0
    print(f"{'':<24} {'rows':>10} {'CPU s':>8} {'MB':>8} {'largest':>9} {'mean':>7}  sizes")
    with tempfile.TemporaryDirectory() as folder:
        for rows in flags.rows:
            for kind in flags.kinds:
                suffix = "csv" if kind == "single" else "jsonl"
                table = write_table(Path(folder) / f"{kind}.{suffix}", rows, kind)
                for method in flags.methods:
                    found = _measured(str(table), method, kind)
                    print(_line(f"{kind} {method}", rows, found), flush=True)
            if "single" in flags.kinds:
                try:
                    found = _measured(str(rows), "scikit-learn", "single")
                except subprocess.CalledProcessError:
                    print("scikit-learn: not installed, or failed")
                else:
                    print(_line("single scikit-learn", rows, found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
