"""Unusual keys, paths and names are preserved exactly."""

from __future__ import annotations

import json
import unicodedata
from itertools import chain
from pathlib import Path

import pytest

from recordmill.schemas.tables import Projection, TableFile
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.inputs.formats import FORMATS
from tests.end_to_end import readers
from tests.end_to_end.command import convert, published, recordmill
from tests.end_to_end.tables import write_table
from tests.images import jpeg

NAMES = [
    "새/참새.jpg",
    "🐦‍⬛.jpg",
    unicodedata.normalize("NFC", "Möwe é.jpg"),
    unicodedata.normalize("NFD", "Möwe é.jpg"),
    "a[1].jpg",
    "a1.jpg",
    "star*.jpg",
    "what?.jpg",
    "{a,b}.jpg",
    " leading and trailing .jpg ",
    "two\nlines.jpg",
    "carriage\rreturn.jpg",
    "tab\tseparated.jpg",
    'quote "d".jpg',
    "comma, semicolon; pipe|.jpg",
    "100%25.jpg",
    "back\\slash.jpg",
    "-dash.jpg",
    "~.jpg",
    "#1.jpg",
    "d.i.r/../dots.jpg",
    "deep/" * 12 + "x.jpg",
    "long" * 50 + ".jpg",
    "\u202eright to left.jpg",
    "zero\u200bwidth.jpg",
]


SUFFIXES = ("csv", "jsonl", "parquet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with different bytes, in a folder with an unusual name."""
    folder = tmp_path_factory.mktemp("keys") / "My [images] 사진"
    for number, name in enumerate(NAMES):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (folder / "d.i.r").mkdir(exist_ok=True)
        path.write_bytes(jpeg(seed=number))
    return folder


@pytest.fixture(scope="module")
def dataset(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The images in tables of three formats, each with a third of the names."""
    rows = [{"image": name, "label": f"class of {i}"} for i, name in enumerate(NAMES)]
    for i, suffix in enumerate(SUFFIXES):
        write_table(folder / f"labels.{suffix}", rows[i :: len(SUFFIXES)])
    output = tmp_path_factory.mktemp("out")
    others = [word for suffix in SUFFIXES[1:] for word in ("--input", folder / f"labels.{suffix}")]
    return published(folder / "labels.csv", output, "--num_shards", "3", *others)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_table_format_preserves_every_name(suffix: str, tmp_path: Path) -> None:
    table = write_table(tmp_path / f"t.{suffix}", [{"image": name} for name in NAMES])
    file = TableFile(str(table), suffix)
    parts = FORMATS[suffix].parts(file)
    read = (FORMATS[suffix].read(part, Projection(("image",))) for part in parts)
    rows = list(one_by_one(chain.from_iterable(read)))
    assert [row.values["image"] for row in rows] == NAMES


def test_every_key_is_kept_exactly(dataset: Path) -> None:
    keys = readers.keys(dataset, "train")
    assert len(keys) == len(NAMES)
    assert set(keys) == set(NAMES)


def test_every_record_has_the_name_and_the_bytes_of_its_own_file(
    dataset: Path, folder: Path
) -> None:
    examples = readers.examples(dataset, "train")
    found = {e["image/filename"][0].decode(): e["image"] for e in examples}
    assert found == {name: [(folder / name).read_bytes()] for name in NAMES}


def test_the_dataset_is_verified(dataset: Path) -> None:
    assert recordmill("verify", dataset).code == 0


def test_rejects_name_keys_and_lines_exactly(tmp_path: Path) -> None:
    table = write_table(tmp_path / "labels.csv", [{"image": n, "label": "a"} for n in NAMES])
    assert convert(table, tmp_path / "out", "--max_rejects", "100%").code == 4  # none is left
    dataset = tmp_path / "out" / "birds" / "1.0.0"
    found = {(r["key"], r["uri"], r["source"], r["reason"]) for r in readers.rejects(dataset)}
    lines, line = {}, 2
    for name in NAMES:  # a row begins where the one before it ends
        lines[name] = line
        line += 1 + name.count("\n") + name.count("\r")
    assert found == {
        (name, f"{tmp_path}/{name}", f"{table}:{lines[name]}", "missing_file") for name in NAMES
    }


def test_the_output_may_be_in_nearly_any_folder(folder: Path, tmp_path: Path) -> None:
    table = folder / "labels.csv"
    write_table(table, [{"image": name, "label": "a"} for name in (*NAMES, "nowhere.jpg")])
    output = tmp_path / "Ausgabe *für? {새}"
    dataset = published(table, output, "--max_rejects", "1", "--num_shards", "2")
    ended = recordmill("verify", dataset)
    assert (ended.code, ended.err) == (0, "")
    assert set(readers.keys(dataset, "train")) == set(NAMES)


def test_an_output_that_looks_like_a_pattern_to_beam_is_rejected(
    folder: Path, tmp_path: Path
) -> None:
    table = folder / "labels.csv"
    write_table(table, [{"image": NAMES[0], "label": "a"}])
    ended = convert(table, tmp_path / "out [1]")
    assert (ended.code, "contains '['" in ended.err) == (2, True)
    assert not (tmp_path / "out [1]").exists()


def test_unusual_class_names_are_kept(tmp_path: Path) -> None:
    labels = ["a b", "Ö", "새", "a,b", "a|b", 'q"', "A", "a", "10", "9", "🐦"]
    (tmp_path / "x.jpg").write_bytes(jpeg())
    rows = [{"image": "x.jpg", "label": name, "id": f"k{i}"} for i, name in enumerate(labels)]
    table = write_table(tmp_path / "labels.csv", rows)
    dataset = published(table, tmp_path / "out", "--key_column", "id")
    names = (dataset / "label.labels.txt").read_text(encoding="utf-8").split("\n")
    assert names == [*sorted(labels), ""]
    examples = readers.examples(dataset, "train")
    found = {
        key: names[example["label"][0]]
        for key, example in zip(readers.keys(dataset, "train"), examples, strict=True)
    }
    assert found == {f"k{i}": name for i, name in enumerate(labels)}
    builder, _ = readers.loaded(dataset, "train")
    assert builder.info.features["label"].names == sorted(labels)


@pytest.fixture
def coco(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Two COCO files, each beside an image `1.jpg`; returns the flags that name both."""
    monkeypatch.chdir(tmp_path)
    flags = ()
    for id_, split in enumerate(("train", "val")):
        file = Path("coco", split, "instances.json")
        file.parent.mkdir(parents=True)
        (file.parent / "1.jpg").write_bytes(jpeg(seed=id_))
        document = {
            "images": [{"id": id_, "file_name": "1.jpg"}],
            "annotations": [{"id": 1, "image_id": id_, "category_id": 1, "bbox": [0, 0, 2, 2]}],
            "categories": [{"id": 1, "name": "wren"}],
        }
        file.write_text(json.dumps(document))
        flags += ("--input", str(file))
    return flags


def test_equal_file_names_of_two_coco_files_are_rejected_with_a_remedy(
    coco: tuple[str, ...], tmp_path: Path
) -> None:
    schema = ("--schema", "object_detection")
    ended = recordmill("convert", *coco, "--output", "out", "--name", "birds", *schema)
    assert ended.code == 4
    assert (
        "coco/val/instances.json:1: duplicate_key: duplicate key, first seen at "
        "coco/train/instances.json:1; only the first row is kept. Remove one of the two, or give "
        "its image another name.\n"
    ) in ended.err


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--key_column", "id"), {"0", "1"}),
        (("--input", "coco"), {"train/1.jpg", "val/1.jpg"}),
    ],
)
def test_images_of_two_coco_files_have_keys_of_their_own_by_id_and_in_one_folder(
    flags: tuple[str, ...], expected: set[str], coco: tuple[str, ...]
) -> None:
    given = flags if "--input" in flags else (*coco, *flags)
    target = ("--output", "out", "--name", "birds", "--schema", "object_detection", "--no_report")
    ended = recordmill("convert", *given, *target)
    assert ended.code == 0, ended.err
    dataset = Path("out/birds/1.0.0")
    splits = [name for name in ("train", "val") if list(dataset.glob(f"birds-{name}.*"))]
    assert {key for split in splits for key in readers.keys(dataset, split)} == expected
