"""`--dry_run` predicts every row of a run and writes nothing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from recordmill.pipelines.dry_run import _findings
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.plan import Forecast, Plan, RejectSum, ResolvedSchema, SampleEstimate
from recordmill.schemas.records import ImageRef
from recordmill.schemas.row_counts import ShardCounts
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.elements import EncodedRefs, OrderedRefsCoder
from recordmill.transforms.functional.rows import feature_values
from recordmill.transforms.functional.rows.batches import OrderedRefs
from recordmill.transforms.functional.sources import text_ranges
from recordmill.transforms.write_shards import _forecast
from tests.end_to_end import readers
from tests.end_to_end.command import convert, published
from tests.end_to_end.photos import Photo
from tests.end_to_end.tables import write_table

FLAGS = ("--splits", "train=0.7,test=0.3", "--num_shards", "train=3,test=1")


@pytest.fixture(scope="module")
def good(images: list[Photo], folder: Path) -> Path:
    rows = [{"image": p.path, "label": p.label} for p in images]
    return write_table(folder / "good.csv", rows)


@pytest.fixture(scope="module")
def faulty(images: list[Photo], folder: Path) -> Path:
    """Nine rows: four valid ones, and five faults of three kinds."""
    (folder / "text.jpg").write_text("no image")
    rows = [{"image": p.path, "label": p.label} for p in images[:4]]
    rows += [rows[0], rows[1] | {"label": "dog"}, rows[2] | {"label": ""}]
    rows += [{"image": "text.jpg", "label": "cat"}, {"image": "nowhere.jpg", "label": "cat"}]
    return write_table(folder / "faulty.csv", rows)


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Returns the modification time and content of every file in a folder."""
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in [folder, *folder.rglob("*")]
    }


def planned(table: Path, output: Path, *flags: object) -> dict[str, Any]:
    ended = convert(table, output, "--dry_run", "--json", *flags)
    assert (ended.code, ended.err) == (0, "")
    document: dict[str, Any] = json.loads(ended.out)
    return document


def test_the_forecast_matches_the_run(good: Path, tmp_path: Path) -> None:
    plan = planned(good, tmp_path, *FLAGS)
    assert list(tmp_path.iterdir()) == []
    dataset = published(good, tmp_path, *FLAGS)
    manifest = json.loads((dataset / "manifest.json").read_bytes())
    shards = {
        name: [(shard["records"], shard["bytes"]) for shard in split["shards"]]
        for name, split in manifest["splits"].items()
    }
    assert plan["directory"] == str(dataset)
    assert plan["rows"] == manifest["input"]["rows"] == 12
    assert {name: split["shard_records"] for name, split in plan["splits"].items()} == {
        name: [records for records, _ in found] for name, found in shards.items()
    }
    size = sum(size for found in shards.values() for _, size in found)
    reported = sum(size for split in plan["splits"].values() for size in split["shard_bytes"])
    assert abs(reported - size) <= 4  # each shard is rounded to a byte
    assert plan["classes"]["label"]["names"] == manifest["classes"]["label"]
    classes = Counter[str]()
    for split in manifest["splits"].values():
        classes.update(split["classes"]["label"])
    assert plan["classes"]["label"]["counts"] == dict(classes)
    assert plan["tried"] == {"rows": 12, "rejected": [], "images": manifest["images"]}
    assert plan["requests"] == {"get": 0, "put": 0}
    assert plan["rejected"] == {}


def test_the_forecast_lists_every_reject_of_the_run(faulty: Path, tmp_path: Path) -> None:
    plan = planned(faulty, tmp_path, "--max_rejects", "5")
    dataset = published(faulty, tmp_path, "--max_rejects", "5")
    reported = [r for found in plan["rejected"].values() for r in found["examples"]]
    reported += plan["tried"]["rejected"]
    expected = [
        {name: reject[name] for name in ("key", "source", "reason", "detail")}
        for reject in readers.rejects(dataset)
    ]
    assert sorted(reported, key=lambda reject: reject["source"]) == expected
    assert {reason: found["rows"] for reason, found in plan["rejected"].items()} == {
        "duplicate_key": 2,
        "missing_value": 1,
    }


def test_groups_in_several_splits_are_reported_as_in_the_run(
    images: list[Photo], folder: Path, tmp_path: Path
) -> None:
    rows = [{"image": p.path, "label": p.label, "s": "ab"[n % 2]} for n, p in enumerate(images)]
    table = write_table(folder / "parted.csv", [*rows, rows[0] | {"s": "b"}])
    flags = ("--split_column", "s", "--max_rejects", "1")
    plan = planned(table, tmp_path, *flags)
    dataset = published(table, tmp_path, *flags)
    assert {name: split["records"] for name, split in plan["splits"].items()} == {
        name: len(readers.keys(dataset, name)) for name in ("a", "b")
    }
    assert plan["rejected"]["duplicate_key"]["rows"] == 1


def test_an_exceeded_budget_gives_the_exit_code_of_the_run(faulty: Path, tmp_path: Path) -> None:
    ended = convert(faulty, tmp_path / "out", "--dry_run", "--max_rejects", "4")
    assert ended.code == 4
    assert "at least 5 of 9 rows would be rejected, --max_rejects allows 4" in ended.err
    lines = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert "would be rejected: 2 duplicate_key" in lines
    assert (
        f"{faulty}:8: missing_value: column 'label': empty; the schema requires a value. Fill in "
        "the value, or declare a default in the schema."
    ) in lines
    assert f"{faulty}:9: not_an_image: begins with b'no image'. Replace the file." in lines
    assert lines[-1] == (
        f"dry run: nothing was written; a run would write {tmp_path}/out/birds/1.0.0"
    )
    assert not (tmp_path / "out").exists()


def test_no_file_is_touched(good: Path, folder: Path, tmp_path: Path) -> None:
    there = published(good, tmp_path)
    unfinished = tmp_path / "birds" / "2.0.0"
    (unfinished / "records").mkdir(parents=True)
    (unfinished / "birds-train.tfrecord-00000-of-00001").write_bytes(b"cut")
    (unfinished / "run.json").write_bytes((there / "run.json").read_bytes())
    before = tree(tmp_path), tree(folder)

    assert convert(good, tmp_path, "--dry_run").code == 5
    assert convert(good, tmp_path, "--dry_run", "--if_exists", "skip").code == 0
    assert convert(good, tmp_path, "--dry_run", "--if_exists", "replace").code == 0
    assert convert(good, tmp_path, "--dry_run", "--version", "2.0.0").code == 0
    assert convert(good, tmp_path, "--dry_run", "--version", "3.0.0").code == 0
    assert (tree(tmp_path), tree(folder)) == before
    assert there.exists()


def test_usage_errors_are_the_same_in_a_dry_run(good: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for output in (tmp_path / "file", tmp_path / "file" / "below"):
        ended = convert(good, output, "--dry_run")
        assert (ended.code, ended.out) == (2, "")
        assert "cannot be created" in ended.err
    (tmp_path / "birds" / "1.0.0").mkdir(parents=True)
    (tmp_path / "birds" / "1.0.0" / "thesis.doc").write_text("")
    ended = convert(good, tmp_path, "--dry_run")
    assert ended.code == 2
    assert "thesis.doc" in ended.err
    assert convert(tmp_path / "nowhere.csv", tmp_path, "--dry_run").code == 2
    assert convert(good, tmp_path, "--dry_run", "--columns", "label=lable").code == 2


def test_requests_to_object_stores_are_counted() -> None:
    resolved = ResolvedSchema(preset("image_classification"), {"label": ("cat", "dog")})
    plan = Plan(resolved, {"train": 2}, rows=3)
    uris = ("s3://b/1.jpg", "gs://b/2.jpg", "3.jpg")
    refs = [
        ImageRef(uri, "t", n, uri, None, None, (None, b"", n % 2)) for n, uri in enumerate(uris)
    ]
    ordered = OrderedRefs.of((b"%d" % n, ref) for n, ref in enumerate(refs))
    encoded = EncodedRefs((OrderedRefsCoder().encode(ordered),))
    ((counts, remote, first),) = _forecast((("train", 1), [encoded]), plan, 2)
    classes = {"label": Counter({0: 2, 1: 1})}
    assert counts == ShardCounts(split="train", index=1, records=3, classes=classes)
    assert (remote, first) == (2, refs[:1])


def test_a_large_gzipped_table_is_listed_with_its_remedy(
    images: list[Photo], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"image": p.path, "label": p.label} for p in images]
    table = write_table(folder / "large.csv.gz", rows)
    assert planned(table, tmp_path)["findings"] == []
    monkeypatch.setattr(text_ranges, "LARGE_BYTES", table.stat().st_size - 1)
    (found,) = planned(table, tmp_path)["findings"]
    assert (found["kind"], found["examples"]) == ("gzipped_table", [str(table)])
    out = " ".join(convert(table, tmp_path, "--dry_run").out.split())
    assert (
        f"{table}: one core reads this table, because gzip cannot be read in byte ranges "
        "(Decompress it, or split it into several files)"
    ) in out


def test_known_rejects_and_rows_add_up() -> None:
    plan = Plan(ResolvedSchema(preset("image_classification")), {"train": 1}, rows=5)
    shard = ShardCounts(split="train", index=0, records=3, classes={})
    found = Forecast(
        plan, (shard,), {"wrong_type": RejectSum(2)}, SampleEstimate(1, 9, 1.0, (), Counter())
    )
    assert (found.rows, found.rejected, found.records("train"), found.records("test")) == (
        5,
        2,
        3,
        0,
    )


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("0.5", "1.5"), {"numeric_class_names": "warning"}),
        (("Cat", "cat"), {"alike_classes": "note"}),
        (("cat", "nan"), {"missing_value_classes": "note"}),
        (("cat", "[cat, owl]"), {"list_classes": "warning"}),
    ],
)
def test_doubtful_class_names_are_found_before_a_run(
    names: tuple[str, ...], expected: dict[str, str]
) -> None:
    resolved = ResolvedSchema(preset("image_classification"), {"label": names})
    estimate = SampleEstimate(1, 9, 1.0, (), Counter())
    forecast = Forecast(Plan(resolved, {"train": 1}, rows=5), (), {}, estimate)
    options = SimpleNamespace(classes=None, num_classes=None, columns={}, near_duplicates="off")
    found = {
        each.kind: each.severity for each in _findings(forecast, cast("ConvertConfig", options))
    }
    assert found == expected


@pytest.mark.parametrize("flags", [(), ("--dry_run",)])
def test_too_many_classes_are_one_line_with_a_remedy(
    flags: tuple[str, ...], good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_values, "MAX_CLASSES", 1)
    ended = convert(good, tmp_path, *flags)
    assert ended.code == 2
    assert ended.err == (
        "recordmill: feature 'label': expected at most 1 classes with 64 Mi characters of names, "
        "got more, such as 'cat', 'horse'. Map a column that holds classes with --columns, or use "
        "a schema in which this feature is a plain value, without classes: true.\n"
    )
