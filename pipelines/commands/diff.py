"""`recordmill diff`: compares datasets by key, and prints a table or JSON."""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError

from recordmill.pipelines.console.terminal import Terminal, say_json
from recordmill.schemas import layout
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.schemas.findings import counted, some
from recordmill.schemas.manifest import Manifest, ShardEntry
from recordmill.schemas.shard_format import DAMAGED_STREAM
from recordmill.transforms.functional import compare
from recordmill.transforms.functional.read_ahead import map_in_threads
from recordmill.transforms.functional.records.framing import FrameError, read_frames
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.published import published_versions
from recordmill.transforms.storage.shard_files import uncompressed
from recordmill.transforms.workers.process import num_cores

# 64 partitions: at 100 bytes per record, ten million records make partitions of 16 MB.
_PARTITION_BITS = 6

_BATCH_ROWS = 1024

_Ids: TypeAlias = Mapping[str, Mapping[int, int]]  # as for `value_digests`

# Class names that are shown of those that only one dataset has.
_SHOWN_CLASSES = 5


@dataclass(frozen=True)
class Difference:
    """The result of comparing two datasets."""

    left: DatasetFolder
    right: DatasetFolder
    features: tuple[str, ...]  # the feature names of both; `comparison` refers to them by index
    comparison: compare.Comparison  # the counts and examples of equal and different records
    notes: tuple[str, ...]  # the differences of schemas and class names, as text

    @property
    def is_empty(self) -> bool:
        """Whether records, splits, schemas and class names are equal."""
        found = self.comparison
        in_both = found.different + found.moved.total()
        return not (in_both + found.only_left.total() + found.only_right.total() or self.notes)


def _diff(left: str, right: str, shown: int = 5) -> Difference:
    """Returns the differences between two published datasets.

    `shown` is the number of examples per kind of difference. Raises UsageError if a folder is not a
    published dataset. Raises VerificationFailed if a shard is damaged.
    """
    one, other = DatasetFolder.named(left), DatasetFolder.named(right)
    # Features of both are numbered: a row has one value digest per feature, by its number.
    features = (side.manifest.dataset_schema.features for side in (one, other))
    names = tuple(dict.fromkeys(name for named in features for name in named))
    lists, others = one.manifest.classes, other.manifest.classes
    ids = {n: compare.other_ids(lists[n], others[n]) for n in lists.keys() & others.keys()}
    ids = {name: found for name, found in ids.items() if found}
    # Shards with equal checksums have equal values: only their keys are read.
    shared = set() if ids else _checksums(one) & _checksums(other)
    with tempfile.TemporaryDirectory(prefix="recordmill-diff-") as folder:
        left_rows = _Spill(Path(folder), "left", len(names))
        right_rows = _Spill(Path(folder), "right", len(names))
        _read(one, names, shared, left_rows, {})
        _read(other, names, shared, right_rows, ids)
        comparison = compare.Comparison.sum_of(
            compare.compare(left_rows.partition(number), right_rows.partition(number), shown)
            for number in range(2**_PARTITION_BITS)
        ).first(shown)
    return Difference(one, other, names, comparison, tuple(_notes(one.manifest, other.manifest)))


class _Spill:
    """The rows of one dataset in temporary files, partitioned by key."""

    def __init__(self, folder: Path, name: str, features: int) -> None:
        self._files = [folder / f"{name}-{number}" for number in range(2**_PARTITION_BITS)]
        self._type = compare.row_dtype(features)
        self._lock = threading.Lock()

    def add(self, rows: np.ndarray) -> None:
        """Appends rows; locked, because shards are read concurrently."""
        # Keys are digests, so their first bits distribute rows evenly.
        partitions = rows["key"][:, 0] >> np.uint64(64 - _PARTITION_BITS)
        with self._lock:
            for number in np.unique(partitions):
                with self._files[number].open("ab") as stream:
                    stream.write(rows[partitions == number].tobytes())

    def partition(self, number: int) -> np.ndarray:
        """Returns the rows of a partition in the order in which they were added."""
        file = self._files[number]
        return np.fromfile(file, self._type) if file.exists() else np.zeros(0, self._type)


def _shard_of(dataset: DatasetFolder, location: compare.ComparedRecord) -> tuple[str, ShardEntry]:
    name = list(dataset.splits)[location.split]
    return name, dataset.shard(name, location.shard)


def _checksums(dataset: DatasetFolder) -> set[str]:
    return set(map(_checksum, dataset.shards().values()))


def _checksum(shard: ShardEntry) -> str:
    return shard.sha256 + shard.index_sha256


def _read(
    dataset: DatasetFolder, names: Sequence[str], shared: set[str], spill: _Spill, ids: _Ids
) -> None:
    """Spills the rows of a dataset; skips the values of shards that both datasets have."""
    numbers = {name: number for number, name in enumerate(dataset.splits)}

    def read(item: tuple[tuple[str, int], ShardEntry]) -> None:
        (split, number), shard = item
        first = compare.ComparedRecord(numbers[split], number, 0)
        is_shared = _checksum(shard) in shared
        try:
            for rows in _rows(dataset, first, shard, () if is_shared else names, len(names), ids):
                spill.add(rows)
        except (FrameError, DecodeError, OSError, *DAMAGED_STREAM) as error:
            problem = f"{error}; run recordmill verify for details"
            raise VerificationFailed(f"{dataset.path(shard.file)}: {problem}") from error

    for _ in map_in_threads(read, dataset.shards().items(), num_cores()):
        pass  # raises the error of a shard, if any


def _rows(
    dataset: DatasetFolder,
    first: compare.ComparedRecord,
    shard: ShardEntry,
    names: Sequence[str],
    features: int,
    ids: _Ids,
) -> Iterator[np.ndarray]:
    """Yields the rows of a shard in batches; without value digests if `names` is empty."""
    index = dataset.index(shard, ["key"])
    with uncompressed(dataset.path(shard.file)) as stream:
        frames, row = read_frames(stream), 0
        for batch in index.to_batches(_BATCH_ROWS):
            keys = batch.column("key").to_pylist()
            values = None  # no names: both datasets have this shard
            if names:
                records = [frame.data for frame in islice(frames, len(keys))]
                digests = [compare.value_digests(data, names, ids) for data in records]
                _check_number(row + len(digests), row + len(keys))
                values = b"".join(digests)
            yield compare.digest_rows(first._replace(row=row), keys, values, features)
            row += len(keys)  # the first row of the next batch, counted from the start of the shard
        if names:
            _check_number(row + len(list(frames)), row)


def _check_number(records: int, keys: int) -> None:
    if records != keys:
        raise FrameError(keys, 0, "the shard has other records than its index in records/")


def _notes(left: Manifest, right: Manifest) -> Iterator[str]:
    one, other = left.dataset_schema.features, right.dataset_schema.features
    for name in dict.fromkeys([*one, *other]):
        if name not in one or name not in other:
            yield f"feature {name!r}: only {'left' if name in one else 'right'}"
        elif one[name].kind is not other[name].kind:
            yield f"feature {name!r}: {one[name].kind.value} left, {other[name].kind.value} right"
    for name in dict.fromkeys([*left.classes, *right.classes]):
        yield from _class_notes(name, left.classes.get(name, ()), right.classes.get(name, ()))


def _class_notes(feature: str, left: Sequence[str], right: Sequence[str]) -> Iterator[str]:
    if tuple(left) == tuple(right):
        return
    gone, new = sorted(set(left) - set(right)), sorted(set(right) - set(left))
    parts = [("only left", gone), ("only right", new)]
    if any(names for _, names in parts):
        ids = compare.other_ids(left, right).items()
        parts.append(("with another id", [right[n] for n, of_left in ids if of_left >= 0]))
    changes = [f"{what} {some(names, shown=_SHOWN_CLASSES)}" for what, names in parts if names]
    yield f"classes of {feature!r}: {'; '.join(changes) or 'in another order, with other ids'}"


def run(flags: argparse.Namespace) -> int:
    """Compares each dataset with the one before it; the exit code is 0 if they are equal."""
    chain = _versions(flags.paths[0]) if len(flags.paths) == 1 else flags.paths
    differences = [_diff(left, right, max(0, flags.n)) for left, right in pairwise(chain)]
    is_equal = all(difference.is_empty for difference in differences)
    code = 0 if is_equal else VerificationFailed.exit_code
    is_pair = len(flags.paths) == 2
    if flags.json:
        steps = [*map(_as_json, differences)]
        document = steps[0] if is_pair else {"equal": is_equal, "steps": steps}
        state = "equal" if is_equal else "different"
        say_json({"state": state, "exit_code": code, "message": "", **document})
    elif is_pair:
        _show_diff(Terminal(), differences[0])
    else:
        _show_chain(Terminal(), differences)
    return code


def _versions(folder: str) -> list[str]:
    """Returns the folders of the versions of a dataset, oldest first."""
    names = published_versions(folder)
    if len(names) < 2:
        raise UsageError(
            f"{folder}: expected two datasets, or a folder DIR/NAME with two or more published "
            f"versions, got {len(names)}. Name the dataset to compare it with."
        )
    return [layout.join(folder, name) for name in names]


def _show_chain(terminal: Terminal, differences: Sequence[Difference]) -> None:
    first = differences[0].left
    rows = [(first.directory, f"{first.manifest.input.records:,}", *[""] * 5)]
    for difference in differences:
        found, right = difference.comparison, difference.right
        gone, new = found.only_left.total(), found.only_right.total()
        counts = (found.same, found.different, found.moved.total(), gone, new)
        numbers = (right.manifest.input.records, *counts)
        rows.append((right.directory, *(f"{number:,}" for number in numbers)))
    heads = ("dataset", "records", "same", "different", "moved", "gone", "new")
    terminal.table(heads, rows, right=range(1, len(heads)), whole=True)
    for difference in differences:
        terminal.lines(f"{difference.right.directory}: {note}" for note in difference.notes)


def _show_diff(terminal: Terminal, difference: Difference) -> None:
    found = difference.comparison
    for name, side in (("left", difference.left), ("right", difference.right)):
        records = counted(side.manifest.input.records, "record")
        terminal.line(f"{name:5}  {side.directory} ({records})")
    document = _as_json(difference)
    details = _details(document)
    counts = (
        ("same", found.same),
        ("different", found.different),
        ("moved", found.moved.total()),
        ("only left", found.only_left.total()),
        ("only right", found.only_right.total()),
    )
    rows = [(what, f"{count:,}", details.get(what, "")) for what, count in counts]
    terminal.table(("", "", ""), rows, right=(1,), show_header=False)
    terminal.lines(difference.notes)
    terminal.lines(_example_lines(document["examples"]))


def _as_json(difference: Difference) -> dict[str, Any]:
    found, left, right = difference.comparison, difference.left, difference.right
    splits, others, names = list(left.splits), list(right.splits), difference.features
    return {
        "equal": difference.is_empty,
        "left": _side(left),
        "right": _side(right),
        "same": found.same,
        "different": found.different,
        "features": {names[number]: count for number, count in sorted(found.features.items())},
        "moved": [
            {"from": splits[a], "to": others[b], "records": count}
            for (a, b), count in sorted(found.moved.items())
        ],
        "only_left": {splits[n]: count for n, count in sorted(found.only_left.items())},
        "only_right": {others[n]: count for n, count in sorted(found.only_right.items())},
        "notes": list(difference.notes),
        "examples": {
            "different": [_pair(difference, pair) for pair in found.different_examples],
            "moved": [_pair(difference, pair) for pair in found.moved_examples],
            "only_left": [_record_entry(left, location) for location in found.left_examples],
            "only_right": [_record_entry(right, location) for location in found.right_examples],
        },
    }


def _side(side: DatasetFolder) -> dict[str, Any]:
    manifest = side.manifest
    return {
        "directory": side.directory,
        "name": manifest.name,
        "version": manifest.version,
        "records": manifest.input.records,
    }


def _details(document: dict[str, Any]) -> dict[str, str]:
    moved = (f"{m['from']} → {m['to']} {m['records']:,}" for m in document["moved"])
    return {
        "different": _counted(document["features"].items()),
        "moved": ", ".join(moved),
        "only left": _counted(document["only_left"].items()),
        "only right": _counted(document["only_right"].items()),
    }


def _counted(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts)


def _example_lines(found: dict[str, Any]) -> list[str]:
    lines = []
    for what, examples in found.items():
        lines += ["", f"{what.replace('_', ' ')}:"] if examples else []
        for example in examples:
            lines.append(f"  {_where(example)}")
            changes = example.get("features", {}).items()
            lines += [f"    {name}: {compare.change_text(values)}" for name, values in changes]
    return lines


def _where(example: dict[str, Any]) -> str:
    if "split" in example:
        return f"{example['key']} ({example['split']})"
    splits = (example["left"]["split"], example["right"]["split"])
    return f"{example['left']['key']} ({' → '.join(dict.fromkeys(splits))})"


def _pair(difference: Difference, pair: compare.ComparedPair) -> dict[str, Any]:
    sides = (difference.left, pair.left), (difference.right, pair.right)
    # Only the few shown records are read again, instead of keeping the values of all.
    one, other = (
        (side.record(_shard_of(side, at)[1], at.row), side.manifest.classes) for side, at in sides
    )
    left, right = (_record_entry(*side) for side in sides)
    names = [difference.features[number] for number in pair.features]
    return {"left": left, "right": right, "features": compare.both_values(names, one, other)}


def _record_entry(dataset: DatasetFolder, location: compare.ComparedRecord) -> dict[str, Any]:
    split, shard = _shard_of(dataset, location)
    key = dataset.index(shard, ["key"])["key"][location.row]
    return {"key": key.as_py(), "split": split, "file": shard.file, "index": location.row}
