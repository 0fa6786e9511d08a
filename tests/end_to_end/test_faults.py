"""Each fault becomes one reject with its reason, key and line; all other rows are written."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

from recordmill.schemas.plan import SplitRanges
from recordmill.transforms.functional.rows.placement import split_of
from tests.end_to_end import readers
from tests.end_to_end.command import convert
from tests.images import jpeg, png

HEADER = ["image", "label", "split", "place"]
GOOD = [
    ["1.jpg", "cat", "train", "p1"],
    ["2.png", "dog", "train", "p2"],
    ["3.jpg", "cat", "test", "p1"],
]
EIGHTHS = "abcdefgh"
LINE = 5
"""The line of the faulty row: below the header and the good ones."""


@dataclass(frozen=True)
class Fault:
    """A faulty fifth line, and the expected reject."""

    name: str
    reason: str
    key: str
    row: list[str] | bytes
    image: bytes | None = None
    flags: tuple[str, ...] = ()

    @property
    def line(self) -> bytes:
        """The line in the table."""
        return self.row if isinstance(self.row, bytes) else _line(self.row)


def _line(fields: list[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(fields)
    return text.getvalue().encode("utf-8")


def _image_fault(name: str, reason: str, image: bytes | None, file: str = "bad.jpg") -> Fault:
    return Fault(name, reason, file, [file, "cat", "", ""], image)


FAULTS = [
    _image_fault("missing file", "missing_file", None),
    _image_fault("truncated JPEG", "truncated", jpeg(64, 48)[:-600]),
    _image_fault("truncated PNG", "truncated", png(64, 48)[:-600], "bad.png"),
    _image_fault("damaged PNG", "corrupt", png(64, 48).replace(b"IDAT", b"IDAU"), "bad.png"),
    _image_fault("text named .jpg", "not_an_image", b"<html>404 Not Found</html>"),
    _image_fault("empty file", "empty_file", b""),
    Fault("unknown label", "unknown_label", "1b.jpg", ["1b.jpg", "cow", "", ""], jpeg()),
    Fault("duplicate key", "duplicate_key", "1.jpg", ["1.jpg", "cat", "train", "p1"]),
    Fault(
        "duplicate key in another split",
        "duplicate_key",
        "1.jpg",
        ["1.jpg", "cat", "test", "p1"],
        flags=("--split_column", "split"),
    ),
    Fault(
        "duplicate key in another group",
        "duplicate_key",
        "1.jpg",
        ["1.jpg", "cat", "", "p9"],
        flags=("--group_column", "place", "--splits", ",".join(f"{s}=1" for s in EIGHTHS)),
    ),
    Fault(
        "unknown split",
        "unknown_split",
        "1b.jpg",
        ["1b.jpg", "cat", "tset", ""],
        jpeg(),
        flags=("--split_column", "split", "--splits", "train=0.5,test=0.5"),
    ),
    Fault("missing label", "missing_value", "1b.jpg", ["1b.jpg", "", "", ""], jpeg()),
    Fault("missing image", "missing_value", "", ["", "cat", "", ""]),
    Fault("too many fields", "malformed_row", "", b"1b.jpg,cat,train,p1,what\r\n"),
    Fault("stray quote", "malformed_row", "", b'1b.jpg,"c"at",train,p1\r\n'),
    Fault("not UTF-8", "malformed_row", "", "1b.jpg,Käse,train,p1\r\n".encode("latin-1")),
]


@pytest.fixture
def lay(tmp_path: Path) -> Callable[[Fault], tuple[Path, tuple[str, ...]]]:
    """Writes the valid rows and one fault; returns the table and the flags to convert it."""

    def write(fault: Fault) -> tuple[Path, tuple[str, ...]]:
        _good_images(tmp_path)
        if fault.image is not None:
            (tmp_path / str(fault.row[0])).write_bytes(fault.image)
        (tmp_path / "classes.txt").write_text("cat\ndog\n")
        table = tmp_path / "labels.csv"
        table.write_bytes(b"".join(map(_line, [HEADER, *GOOD])) + fault.line)
        return table, ("--classes", str(tmp_path / "classes.txt"), *fault.flags)

    return write


def _good_images(folder: Path) -> None:
    for number, (file, *_) in enumerate(GOOD):
        data = jpeg(seed=number) if file.endswith("jpg") else png(seed=number)
        (folder / file).write_bytes(data)


def _written(dataset: Path) -> dict[str, tuple[str, bytes]]:
    """Returns the class and image of every record by key."""
    written = {}
    for split in readers.splits(dataset):
        rows, examples = readers.index_rows(dataset, split), readers.examples(dataset, split)
        for row, example in zip(rows, examples, strict=True):
            written[row["key"]] = (row["class"], example["image"][0])
    return written


def _good_records(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Returns the result of `_written` if exactly the valid rows are written."""
    return {file: (label, (folder / file).read_bytes()) for file, label, *_ in GOOD}


def _counts(dataset: Path) -> tuple[int, ...]:
    """Returns the rows, records, rejects and duplicates of a dataset."""
    counts = json.loads((dataset / "manifest.json").read_bytes())["input"]
    return tuple(counts[name] for name in ("rows", "records", "rejected", "duplicates"))


@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS if fault.flags], ids=lambda fault: fault.name
)
def test_within_the_budget_the_fault_is_one_reject_and_the_rest_is_published(
    fault: Fault, lay: Callable[[Fault], tuple[Path, tuple[str, ...]]], tmp_path: Path
) -> None:
    """Faults without flags share one run below."""
    table, flags = lay(fault)
    ended = convert(table, tmp_path / "out", *flags, "--max_rejects", "1")
    assert ended.code == 0, ended.err
    dataset = tmp_path / "out" / "birds" / "1.0.0"
    assert readers.reject_reasons(dataset) == [(fault.key, f"labels.csv:{LINE}", fault.reason)]
    assert readers.rejects(dataset)[0]["uri"] == (str(tmp_path / fault.key) if fault.key else "")
    assert _written(dataset) == _good_records(tmp_path)
    assert _counts(dataset) == (4, 3, 1, 0)
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    assert manifest["input"]["reasons"] == {fault.reason: 1}


def test_the_two_groups_above_are_in_different_splits() -> None:
    ranges = SplitRanges.from_weights(dict.fromkeys(EIGHTHS, Decimal(1)))
    assert split_of("p1", ranges, seed=0) != split_of("p9", ranges, seed=0)


STRICT = ("not UTF-8", "duplicate key in another split", "truncated JPEG")
"""One of the table, one of the placing, one of the images."""


@pytest.mark.parametrize(
    "fault", [f for f in FAULTS if f.name in STRICT], ids=lambda fault: fault.name
)
def test_by_default_one_fault_anywhere_publishes_nothing(
    fault: Fault, lay: Callable[[Fault], tuple[Path, tuple[str, ...]]], tmp_path: Path
) -> None:
    table, flags = lay(fault)
    ended = convert(table, tmp_path / "out", *flags)
    assert ended.code == 4
    assert fault.reason in ended.err
    assert "--max_rejects" in ended.err
    assert "Traceback" not in ended.err
    dataset = tmp_path / "out" / "birds" / "1.0.0"
    assert readers.reject_reasons(dataset) == [(fault.key, f"labels.csv:{LINE}", fault.reason)]
    for mark in ("_SUCCESS", "dataset_info.json", "manifest.json"):
        assert not (dataset / mark).exists()
    run = json.loads((dataset / "run.json").read_bytes())
    assert (run["state"], run["exit_code"], run["rows"], run["rejected"]) == ("failed", 4, 4, 1)


ALL_REASONS = {
    "missing_file": 1,
    "truncated": 2,
    "corrupt": 1,
    "not_an_image": 1,
    "empty_file": 1,
    "unknown_label": 1,
    "duplicate_key": 1,
    "missing_value": 2,
    "malformed_row": 3,
}
TOTAL = sum(ALL_REASONS.values())


AllFaults = tuple[Path, tuple[str, ...], list[tuple[str, str, str]]]


@pytest.fixture
def all_faults(tmp_path: Path) -> AllFaults:
    """A table with every fault that needs no flags, its flags, and the expected rejects."""
    _good_images(tmp_path)
    lines = [_line(fields) for fields in [HEADER, *GOOD]]
    rejects = []
    for number, fault in enumerate(fault for fault in FAULTS if not fault.flags):
        key, line = fault.key, fault.line
        if fault.image is not None:
            key = f"{number}-{fault.key}"
            (tmp_path / key).write_bytes(fault.image)
            line = _line([key, *fault.row[1:]])
        lines.append(line)
        rejects.append((key, f"labels.csv:{len(lines)}", fault.reason))
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    (tmp_path / "labels.csv").write_bytes(b"".join(lines))
    return tmp_path / "labels.csv", ("--classes", str(tmp_path / "classes.txt")), rejects


@pytest.mark.parametrize(
    ("budget", "code"),
    [
        (str(TOTAL - 1), 4),
        ("81.25%", 0),  # 13 of 16 rows
    ],
)
def test_the_budget_counts_exactly(
    budget: str, code: int, all_faults: AllFaults, tmp_path: Path
) -> None:
    assert (TOTAL, len(GOOD)) == (13, 3)
    table, flags, expected = all_faults
    ended = convert(table, tmp_path / "out", *flags, "--max_rejects", budget)
    assert ended.code == code, ended.err
    dataset = tmp_path / "out" / "birds" / "1.0.0"
    found = readers.reject_reasons(dataset)
    assert found == sorted(expected, key=lambda reject: reject[1])
    reasons = [reason for _, _, reason in found]
    assert {reason: reasons.count(reason) for reason in reasons} == ALL_REASONS
    assert (dataset / "_SUCCESS").exists() == (code == 0)
    assert (dataset / "dataset_info.json").exists() == (code == 0)
    for reject in readers.rejects(dataset):
        assert reject["uri"] == (str(tmp_path / reject["key"]) if reject["key"] else "")
    if code == 0:
        assert _written(dataset) == _good_records(tmp_path)
        assert _counts(dataset) == (16, 3, 13, 0)
        manifest = json.loads((dataset / "manifest.json").read_bytes())
        assert manifest["input"]["reasons"] == ALL_REASONS


def test_a_wrong_type_is_a_reject_and_never_another_number(tmp_path: Path) -> None:
    schema = tmp_path / "typed.yaml"
    schema.write_text("features:\n  n: {kind: int64, from: column:n}\n")
    table = tmp_path / "typed.jsonl"
    values = ["0", "1.5", "true", '"7"', "9223372036854775807", "9223372036854775808", "null", "[]"]
    table.write_text("".join(f'{{"n": {value}, "id": {i}}}\n' for i, value in enumerate(values)))
    flags = ("--schema", schema, "--key_column", "id", "--max_rejects", "5")
    ended = convert(table, tmp_path / "out", *flags)
    assert ended.code == 0, ended.err
    dataset = tmp_path / "out" / "birds" / "1.0.0"
    keys, examples = readers.keys(dataset, "train"), readers.examples(dataset, "train")
    assert dict(zip(keys, (example["n"] for example in examples), strict=True)) == {
        "0": [0],
        "2": [1],
        "4": [2**63 - 1],
    }
    assert readers.reject_reasons(dataset) == [
        ("1", "typed.jsonl:2", "wrong_type"),
        ("3", "typed.jsonl:4", "wrong_type"),
        ("5", "typed.jsonl:6", "wrong_type"),
        ("6", "typed.jsonl:7", "missing_value"),
        ("7", "typed.jsonl:8", "wrong_type"),
    ]


def test_lines_that_are_not_json_objects_are_rejected_with_their_line(tmp_path: Path) -> None:
    table = tmp_path / "rows.jsonl"
    table.write_bytes(b'{"a": 1}\n[1, 2]\n{"a": 2\n\n{"a": 3}\n{"a": "\xff"}\n{"a": 4, "a": 5}\n')
    flags = ("--schema", "tabular", "--max_rejects", "4")
    ended = convert(table, tmp_path / "out", *flags)
    assert ended.code == 0, ended.err
    dataset = tmp_path / "out" / "birds" / "1.0.0"
    found = sorted(example["a"] for example in readers.examples(dataset, "train"))
    assert found == [[1], [3]]
    assert readers.reject_reasons(dataset) == [
        ("", f"rows.jsonl:{line}", "malformed_row") for line in (2, 3, 6, 7)
    ]


def test_nothing_is_published_if_every_row_is_rejected(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text("image,label\nnowhere/1.jpg,cat\nnowhere/2.jpg,dog\n")
    ended = convert(table, tmp_path / "out", "--max_rejects", "100%", "--no_report")
    assert ended.code == 4
    assert "2 of 2 rows were rejected (2 missing_file), and no record is left" in ended.err
    dataset = tmp_path / "out" / "birds" / "1.0.0"
    assert not (dataset / "_SUCCESS").exists()
    assert readers.reject_reasons(dataset) == [
        ("nowhere/1.jpg", "labels.csv:2", "missing_file"),
        ("nowhere/2.jpg", "labels.csv:3", "missing_file"),
    ]
