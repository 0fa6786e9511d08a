"""`recordmill diff`: compares datasets by key, and prints a table or JSON."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from recordmill.pipelines.console.terminal import Terminal, say_json
from recordmill.pipelines.dataset.diff import Difference, diff, key_of, shard_of, value_differences
from recordmill.schemas import layout
from recordmill.schemas.errors import UsageError, VerificationFailed
from recordmill.transforms.functional.compare import ComparedPair, ComparedRecord
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.published import published_versions

_SHOWN_TEXT = 60


def run(flags: argparse.Namespace) -> int:
    """Compares each dataset with the one before it, and prints the differences.

    Returns the exit code: 0 if the datasets are equal.
    """
    chain = _versions(flags.paths[0]) if len(flags.paths) == 1 else flags.paths
    differences = [diff(left, right, max(0, flags.n)) for left, right in pairwise(chain)]
    is_equal = all(difference.is_empty for difference in differences)
    code = 0 if is_equal else VerificationFailed.exit_code
    is_pair = len(flags.paths) == 2
    if flags.json:
        document = _as_json(differences[0]) if is_pair else _chain_as_json(differences)
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
    """Prints the counts of each dataset compared with the one before it, without examples."""
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


def _chain_as_json(differences: Sequence[Difference]) -> dict[str, Any]:
    """Returns the differences of a chain of datasets as a JSON document."""
    return {
        "equal": all(difference.is_empty for difference in differences),
        "steps": [_as_json(difference) for difference in differences],
    }


def _show_diff(terminal: Terminal, difference: Difference) -> None:
    """Prints the counts of equal and different records, with examples."""
    found = difference.comparison
    for name, side in (("left", difference.left), ("right", difference.right)):
        records = side.manifest.input.records
        terminal.line(f"{name:5}  {side.directory} ({records:,} records)")
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
    terminal.lines(_example_lines(difference, document["examples"]))


def _as_json(difference: Difference) -> dict[str, Any]:
    """Returns a difference as a JSON document."""
    found, left, right = difference.comparison, difference.left, difference.right
    splits, others = list(left.splits), list(right.splits)
    return {
        "equal": difference.is_empty,
        "left": _side(left),
        "right": _side(right),
        "same": found.same,
        "different": found.different,
        "features": _feature_counts(difference),
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


def _side(side: Dataset) -> dict[str, Any]:
    manifest = side.manifest
    return {
        "directory": side.directory,
        "name": manifest.name,
        "version": manifest.version,
        "records": manifest.input.records,
    }


def _feature_counts(difference: Difference) -> dict[str, int]:
    counts = difference.comparison.features
    return {difference.features[number]: counts[number] for number in sorted(counts)}


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


def _example_lines(difference: Difference, found: dict[str, Any]) -> list[str]:
    lines = []
    for what, examples in found.items():
        lines += ["", f"{what.replace('_', ' ')}:"] if examples else []
        for example in examples:
            lines.append(f"  {_where(example)}")
            changes = example.get("features", {}).items()
            lines += [f"    {name}: {_change(difference, name, v)}" for name, v in changes]
    return lines


def _change(difference: Difference, name: str, values: dict[str, Any]) -> str:
    """Returns the values of a feature on both sides, with class names after class ids."""
    shown = []
    for side, value in ((difference.left, values["left"]), (difference.right, values["right"])):
        classes = side.manifest.classes.get(name, ())
        known = isinstance(value, int) and 0 <= value < len(classes)
        shown.append(f"{value} ({classes[value]})" if known else str(value))
    return " → ".join(shown)


def _where(example: dict[str, Any]) -> str:
    if "split" in example:
        return f"{example['key']} ({example['split']})"
    splits = (example["left"]["split"], example["right"]["split"])
    return f"{example['left']['key']} ({' → '.join(dict.fromkeys(splits))})"


def _pair(difference: Difference, pair: ComparedPair) -> dict[str, Any]:
    values = value_differences(difference, pair).items()
    return {
        "left": _record_entry(difference.left, pair.left),
        "right": _record_entry(difference.right, pair.right),
        "features": {
            name: {"left": json_value(a), "right": json_value(b)} for name, (a, b) in values
        },
    }


def _record_entry(dataset: Dataset, location: ComparedRecord) -> dict[str, Any]:
    split, shard = shard_of(dataset, location)
    key = key_of(dataset, location)
    return {"key": key, "split": split, "file": shard.file, "index": location.row}


def json_value(value: list[Any] | None) -> Any:
    """Returns a feature value for JSON: bytes as text if possible, or else as size and digest."""
    if value is None:
        return None
    shown = [_text(item) if isinstance(item, bytes) else item for item in value]
    return shown[0] if len(shown) == 1 else shown


def _text(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if text.isprintable() and len(text) <= _SHOWN_TEXT and (text or not data):
        return text
    return f"{len(data):,} bytes, sha256 {hashlib.sha256(data).hexdigest()[:12]}…"
