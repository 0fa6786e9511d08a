"""Increments: `--append` adds new rows to a base version, as one conversion of all rows would."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.api import convert as convert_rows
from recordmill.schemas.errors import UsageError
from tests.end_to_end import readers
from tests.end_to_end.command import Ended, convert, published, recordmill
from tests.images import jpeg, png
from tests.versions.increments import assert_is_one_conversion, manifest

FLAGS = ("--splits", "train=0.7,test=0.3", "--num_shards", "train=4,test=2", "--no_report")


def table(folder: Path, name: str, numbers: range, label: str = "{}") -> Path:
    """Writes a table of images, and draws missing images: JPEGs, PNGs and a duplicate."""
    lines = ["image,label"]
    for i in numbers:
        if not (folder / f"{i}.jpg").exists():
            data = png(16, 12, seed=i) if i % 5 == 0 else jpeg(16, 12, seed=i % 27)
            (folder / f"{i}.jpg").write_bytes(data)
        lines.append(f"{i}.jpg,{label.format('cd'[i % 2])}")
    (folder / name).write_text("\n".join(lines) + "\n")
    return folder / name


def append(day: Path, output: Path, version: str, base: str, *flags: object) -> Ended:
    folder = output / "birds" / base
    return convert(day, output, "--version", version, "--base", folder, "--append", *FLAGS, *flags)


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three days of rows, as increments in out/, and at once in full/."""
    folder = tmp_path_factory.mktemp("days")
    parts = (range(16), range(16, 22), range(22, 30))
    tables = [table(folder, f"{n}.csv", part) for n, part in enumerate(parts)]
    published(tables[0], folder / "out", *FLAGS)
    for n in (1, 2):
        ended = append(tables[n], folder / "out", f"1.{n}.0", f"1.{n - 1}.0")
        assert ended.code == 0, ended.err
    whole = table(folder, "all.csv", range(30))
    assert convert(whole, folder / "full", "--version", "1.2.0", *FLAGS).code == 0
    return folder


def test_increments_give_the_files_of_one_conversion(days: Path) -> None:
    assert_is_one_conversion(*(days / output / "birds" / "1.2.0" for output in ("full", "out")))


def test_shards_without_new_rows_are_links_and_the_others_are_rewritten(days: Path) -> None:
    old, new = (days / "out" / "birds" / version for version in ("1.0.0", "1.1.0"))
    linked = {p.name for p in new.glob("*.tfrecord-*") if p.samefile(old / p.name)}
    gained = {
        f"birds-{split}.tfrecord-{row['shard']:05d}-of-{count:05d}"
        for split, count in (("train", 4), ("test", 2))
        for row in readers.index_rows(new, split)
        if int(row["key"].partition(".")[0]) >= 16
    }
    shards = {p.name for p in new.glob("*.tfrecord-*")}
    assert linked
    assert linked == shards - gained
    of_base = manifest(new)["base"]
    assert sum(of_base["kept"].values()) == 16
    assert sum(of_base["new"].values()) == 6
    assert set(of_base["gone"].values()) == {0}
    assert of_base["shards_unchanged"] == len(linked)


def test_a_dry_run_states_what_happens_to_the_base_version(days: Path) -> None:
    ended = append(days / "1.csv", days / "out", "1.1.1", "1.0.0", "--dry_run", "--json")
    planned = json.loads(ended.out)
    changed = manifest(days / "out/birds/1.1.0")["base"]
    assert planned["base"] == {
        "version": "1.0.0",
        "records": 16,
        "linked": changed["shards_unchanged"],
        "rewritten": 6 - changed["shards_unchanged"],
    }
    assert planned["rows"] == 6
    new = {split: found["records"] for split, found in planned["splits"].items()}
    assert {split: count for split, count in new.items() if count} == changed["new"]
    ended = append(days / "1.csv", days / "out", "1.1.1", "1.0.0", "--dry_run")
    assert "base 1.0.0: 16 records stay; " in ended.out
    assert not (days / "out/birds/1.1.1").exists()


def test_the_same_day_again_changes_nothing(days: Path, tmp_path: Path) -> None:
    base = days / "out" / "birds" / "1.2.0"
    ended = convert(
        days / "2.csv", tmp_path, "--version", "1.2.0", "--base", base, "--append", *FLAGS
    )
    assert ended.code == 0, ended.err
    assert "has no rows" not in ended.out
    again = tmp_path / "birds" / "1.2.0"
    assert readers.shard_bytes(again) == readers.shard_bytes(base)
    counts = manifest(again)["input"]
    assert (counts["rows"], counts["records"], counts["unchanged"]) == (38, 30, 8)
    assert "unchanged" not in manifest(base)["input"]
    heads, *rows = (line.split() for line in ended.out.splitlines()[:3])
    counts = [dict(zip(heads, row, strict=True)) for row in rows]
    assert [int(c["rows"]) - int(c["records"]) - int(c["unchanged"]) for c in counts] == [0, 0]


def test_tables_that_repeat_rows_night_after_night_count_them(days: Path, tmp_path: Path) -> None:
    """The bytes of a shard, which its fingerprint states, are those of the night before."""
    tables = [table(days, f"to-{stop}.csv", range(stop)) for stop in (16, 16, 16, 22, 22, 30)]
    published(tables[0], tmp_path, *FLAGS)
    numbers = []
    for night, rows in enumerate(tables[1:], start=1):
        flags = ("--on_conflict", "update") if night == 2 else ()
        ended = append(rows, tmp_path, f"1.{night}.0", f"1.{night - 1}.0", *flags)
        assert ended.code == 0, ended.err
        found = manifest(tmp_path / f"birds/1.{night}.0")
        of_base = [sum(found["base"][kind].values()) for kind in ("kept", "new", "gone")]
        numbers.append((*of_base, found["input"]["unchanged"], found["input"]["rows"]))
        assert recordmill("verify", tmp_path / f"birds/1.{night}.0").code == 0
    assert numbers == [
        (16, 0, 0, 16, 32), (16, 0, 0, 16, 32), (16, 6, 0, 16, 38), (22, 0, 0, 22, 44),
        (22, 8, 0, 22, 52),
    ]  # fmt: skip
    last = tmp_path / "birds/1.5.0"
    assert readers.shard_bytes(last) == readers.shard_bytes(days / "full/birds/1.2.0")


def test_the_numbers_of_a_report_add_up(days: Path, tmp_path: Path) -> None:
    base, flags = days / "out" / "birds" / "1.2.0", FLAGS[:-1]
    target = ("--input", days / "2.csv", "--output", tmp_path, "--name", "birds", *flags)
    ended = recordmill("convert", *target, "--version", "1.3.0", "--base", base, "--append")
    assert ended.code == 0, ended.err
    html = (tmp_path / "birds" / "1.3.0" / "report.html").read_text(encoding="utf-8")
    found = {name: int(re.search(f'id="{name}">([0-9]+)<', html)[1]) for name in NUMBERS}
    assert found == {"rows": 38, "records": 30, "rejected": 0, "dropped": 0, "unchanged": 8}


NUMBERS = ("rows", "records", "rejected", "dropped", "unchanged")


def test_rows_without_a_path_or_a_key_are_no_increment(tmp_path: Path) -> None:
    def rows(first: int) -> list[dict[str, Any]]:
        numbers = (first, first + 1)
        return [{"image": jpeg(16, 12, seed=i), "label": "c", "id": i} for i in numbers]

    target = {"output": tmp_path, "name": "birds"}
    more = {**target, "version": "1.1.0", "base": tmp_path / "birds" / "1.0.0", "append": True}
    convert_rows(rows(0), **target, key_column="id")
    with pytest.raises(UsageError, match="without a path have the number of"):
        convert_rows(rows(7), **more)
    convert_rows(rows(7), **more, key_column="id")
    assert readers.splits(tmp_path / "birds" / "1.1.0") == {"train": {"0", "1", "7", "8"}}


def _parquet_without_rows() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({name: pa.array([], pa.string()) for name in ("image", "label")}), sink)
    return bytes(sink.getvalue())


QUIET_DAYS = {
    "header.csv": b"image,label\n",
    "empty.jsonl": b"",
    "blank.jsonl": b"\n",
    "no_rows.parquet": _parquet_without_rows(),
}
NOTE = "note: the input has no rows, so the records are those of 1.1.0\n"


@pytest.mark.parametrize("name", QUIET_DAYS)
def test_a_dry_run_of_a_day_without_rows_links_all_shards(
    name: str, days: Path, tmp_path: Path
) -> None:
    base, day = days / "out/birds/1.1.0", tmp_path / name
    day.write_bytes(QUIET_DAYS[name])
    asked = ("--base", base, "--append", *FLAGS, "--dry_run")
    planned = convert(day, tmp_path, "--version", "1.1.1", *asked)
    assert (planned.code, NOTE in planned.out) == (0, True), planned.err
    assert "6 of its shards would be linked, 0 rewritten" in planned.out


def test_a_day_without_rows_publishes_the_records_of_its_base(days: Path, tmp_path: Path) -> None:
    base = days / "out/birds/1.1.0"
    for name, content in QUIET_DAYS.items():
        (tmp_path / name).write_bytes(content)
    tables = [part for name in QUIET_DAYS for part in ("--input", tmp_path / name)]
    asked = ("--version", "1.1.1", "--base", base, "--append", *FLAGS)
    ended = convert(tables[1], tmp_path, *tables[2:], *asked)
    assert (ended.code, NOTE in ended.out) == (0, True), ended.err
    assert "base 1.1.0: 22 records kept, 0 new, 0 gone; 6 of 6 shards are unchanged" in ended.out
    quiet = tmp_path / "birds/1.1.1"
    assert all(shard.samefile(base / shard.name) for shard in quiet.glob("*.tfrecord-*"))
    assert recordmill("verify", quiet).code == 0
    # The next day continues on it, as if there had been no quiet day.
    ended = append(days / "2.csv", tmp_path, "1.2.0", "1.1.1")
    assert ended.code == 0, ended.err
    assert "has no rows" not in ended.out
    assert_is_one_conversion(days / "full/birds/1.2.0", tmp_path / "birds/1.2.0")


@pytest.mark.parametrize(
    "flags",
    [
        ("--on_conflict", "update", "--split_method", "exact", "--near_duplicates", "report"),
        (
            *("--on_conflict", "keep", "--schema", "tabular", "--key_column", "image"),
            *("--group_column", "label", "--sample", "50%"),
        ),
        (
            *("--labels", "labels.csv", "--join_on", "image"),
            *("--split_method", "stratified", "--classes", "classes.txt"),
        ),
    ],
    ids=" ".join,
)
def test_a_day_without_rows_succeeds_with_every_option(
    flags: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path, "0.csv", range(8))
    Path("classes.txt").write_text("d\nc\n")
    Path("labels.csv").write_text("image,n\n" + "".join(f"{i}.jpg,{i}\n" for i in range(8)))
    first = flags if flags[0] != "--on_conflict" else flags[2:]
    published("0.csv", tmp_path, *FLAGS, *first)
    Path("header.csv").write_text("image,label\n")
    ended = append(Path("header.csv"), tmp_path, "1.1.0", "1.0.0", *flags)
    assert ended.code == 0, ended.err
    before, after = (readers.shard_bytes(tmp_path / f"birds/1.{n}.0") for n in range(2))
    assert after == before


@pytest.mark.parametrize("flags", [(), ("--base", "out/birds/1.0.0")], ids=["first", "whole"])
def test_a_conversion_of_all_rows_needs_rows(
    flags: tuple[str, ...], days: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(days)
    for name, data in QUIET_DAYS.items():
        Path(name).write_bytes(data)
        ended = convert(name, Path("out"), *FLAGS, "--version", "1.1.1", *flags)
        assert ended.code == 2
        assert ended.err == f"recordmill: --input {name}: has no rows. Add some.\n"


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        ("days/*.csv", "--input days/*.csv: no such file"),
        ("empty.csv", "--input empty.csv: the file is empty; expected a table"),
        ("error.csv", "no columns 'image', 'label'; it has: ERROR: connection refused"),
    ],
)
def test_a_missing_or_failed_export_is_no_day_without_rows(
    day: str, expected: str, days: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(days)
    Path("empty.csv").touch()
    Path("error.csv").write_text("ERROR: connection refused\n")
    ended = append(Path(day), Path("out"), "1.1.1", "1.0.0")
    assert ended.code == 2
    assert expected in ended.err


def test_a_changed_row_fails_replaces_its_record_or_is_left_out(days: Path, tmp_path: Path) -> None:
    base = days / "out" / "birds" / "1.2.0"
    day = table(days, "changed.csv", range(3, 4), "new")
    asked = ("--version", "1.3.0", "--base", base, "--append", *FLAGS)
    ended = convert(day, tmp_path, *asked, "--max_rejects", "50%")
    assert ended.code == 4
    detail = "differs from the record with its key in --base in label: "
    assert f"changed.csv:2: changed_record: {detail}" in ended.err
    assert "choose --on_conflict update or keep" in ended.err
    labels = {}
    for choice in ("keep", "update"):
        ended = convert(day, tmp_path / choice, *asked, "--on_conflict", choice)
        assert ended.code == 0, ended.err
        dataset = tmp_path / choice / "birds" / "1.3.0"
        assert recordmill("verify", dataset).code == 0
        rows = [r for split in ("train", "test") for r in readers.index_rows(dataset, split)]
        labels[choice] = {row["key"]: row["class"] for row in rows}
    assert labels["update"] == {**labels["keep"], "3.jpg": "new"}
    assert labels["keep"]["3.jpg"] == "d"
    assert manifest(tmp_path / "update" / "birds" / "1.3.0")["classes"]["label"] == [
        "c",
        "d",
        "new",
    ]


def test_rejects_are_those_of_the_new_rows_and_the_budget_is_of_them(
    days: Path, tmp_path: Path
) -> None:
    base = days / "out" / "birds" / "1.2.0"
    day = table(days, "broken.csv", range(30, 34))
    (days / "30.jpg").write_bytes(b"no image")
    asked = ("--version", "1.3.0", "--base", base, "--append", *FLAGS)
    ended = convert(day, tmp_path, *asked, "--max_rejects", "20%")
    assert (ended.code, "1 of 4 new rows was rejected" in ended.err) == (4, True), ended.err
    ended = convert(day, tmp_path, *asked, "--max_rejects", "25%")
    assert ended.code == 0, ended.err
    (days / "30.jpg").write_bytes(jpeg(16, 12, seed=30))
    base, asked = tmp_path / "birds" / "1.3.0", asked[4:]
    again = ("--version", "1.4.0", "--base", base, *asked)
    ended = convert(day, tmp_path, *again)
    assert ended.code == 0, ended.err
    counts = manifest(tmp_path / "birds" / "1.4.0")["input"]
    assert (counts["records"], counts["unchanged"], counts["rejected"]) == (34, 3, 0)


def test_a_damaged_shard_that_gains_records_is_named(days: Path, tmp_path: Path) -> None:
    base = published(days / "0.csv", tmp_path, *FLAGS)
    for shard in base.glob("*.tfrecord-*"):
        data = shard.read_bytes()
        shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if data else data)
    ended = append(days / "1.csv", tmp_path, "1.1.0", "1.0.0")
    assert ended.code == 2
    assert "--base" in ended.err
    assert "Restore it from a backup, or convert the whole table without --append." in ended.err


def test_duplicates_are_not_dropped_in_an_increment(days: Path, tmp_path: Path) -> None:
    """The files of the images in the base version are not known."""
    flag = ("--deduplicate", "content")
    ended = append(days / "1.csv", days / "out", "1.1.1", "1.0.0", *flag)
    assert ended.code == 2
    assert "--base was written with --deduplicate 'none', but this run has 'content'" in ended.err
    published(days / "0.csv", tmp_path, *FLAGS, *flag)
    ended = append(days / "1.csv", tmp_path, "1.1.0", "1.0.0", *flag)
    assert ended.code == 2
    assert "--append: cannot be combined with --deduplicate content" in ended.err
    assert sum(manifest(days / "out/birds/1.2.0")["content"]["duplicates"].values()) > 0


def test_another_schema_is_rejected_by_the_setting_that_differs(days: Path, tmp_path: Path) -> None:
    base = days / "out" / "birds" / "1.0.0"
    asked = ("--version", "1.1.0", "--base", base, "--append", *FLAGS)
    ended = convert(days / "1.csv", tmp_path, *asked, "--image", "max_side=8")
    assert ended.code == 2
    assert "differs from --base in image > max_side: expected None, got 8" in ended.err
    ended = convert(days / "1.csv", tmp_path, *asked, "--schema", "tf_slim")
    assert ended.code == 2
    assert "is only in" in ended.err


MANY = ("--splits", "train=0.7,test=0.3", "--num_shards", "train=24,test=8", "--no_report")
OF_A_DAY = 20
SAMPLE = 256
"""Images of `train` whose channels are measured, however many are new."""

_opened: list[Counter[str]] = []


def _count_open(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _opened:
        path, mode = map(str, arguments[:2])
        # Images are opened by `os.open`, without a mode; other files by `open`, which may call it.
        if mode.startswith("r") or (mode == "None" and path.endswith(".jpg")):
            _opened[-1][path] += 1


@contextmanager
def reads() -> Iterator[Counter[str]]:
    """Counts how often this process opens each file to read it; the verifier is another one."""
    if "hook" not in vars(reads):
        vars(reads)["hook"] = sys.addaudithook(_count_open)  # no hook can be removed
    _opened.append(Counter())
    yield _opened[-1]
    _opened.pop()


def test_four_days_are_one_conversion_and_each_reads_its_images_and_shards_only(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    first = table(tmp_path, "0.csv", range(OF_A_DAY))
    assert convert(first, out, "--version", "1.0.0", *MANY).code == 0
    for n in range(1, 4):
        day = table(tmp_path, f"{n}.csv", range(n * OF_A_DAY, (n + 1) * OF_A_DAY))
        asked = ("--base", out / "birds" / f"1.{n - 1}.0", "--append", *MANY)
        with reads() as counts:
            ended = convert(day, out, "--version", f"1.{n}.0", *asked)
        assert ended.code == 0, ended.err
        assert_reads_of_day(counts, tmp_path, n)
    whole = table(tmp_path, "all.csv", range(4 * OF_A_DAY))
    assert convert(whole, tmp_path / "full", "--version", "1.3.0", *MANY).code == 0
    assert_is_one_conversion(tmp_path / "full/birds/1.3.0", out / "birds/1.3.0")


def assert_reads_of_day(counts: Counter[str], folder: Path, n: int) -> None:
    """Asserts that a day's images and the shards that gain records were read once, and no other.

    The first image is also read before the pipeline starts, and the shards with the first images of
    the new version at its end, for their channels.
    """
    base, new = (folder / "out/birds" / f"1.{version}.0" for version in (n - 1, n))
    images = {name: c for name, c in counts.items() if name.endswith(".jpg")}
    first = n * OF_A_DAY
    assert images == {
        str(folder / f"{i}.jpg"): 1 + (i == first) for i in range(first, first + OF_A_DAY)
    }
    shards = {name: c for name, c in counts.items() if re.search(r"tfrecord-[-\w]+$", name)}
    changed = {p.name for p in new.glob("*.tfrecord-*") if not p.samefile(base / p.name)}
    assert 10 < len(changed) < 20
    of_base = {name: c for name, c in shards.items() if name.startswith(str(base))}
    assert of_base == {str(base / name): 1 for name in changed}
    written = {Path(name).name: c for name, c in shards.items() if name not in of_base}
    assert written == {shard.name: 1 for shard in measured(new)}


def measured(dataset: Path) -> Iterator[Path]:
    """Yields the shards with the first images of `train`."""
    images = 0
    for shard, entry in zip(
        readers.shards(dataset, "train"),
        manifest(dataset)["splits"]["train"]["shards"],
        strict=True,
    ):
        if images < SAMPLE and entry["records"]:
            yield shard
        images += entry["records"]
