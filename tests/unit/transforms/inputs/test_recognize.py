"""Tests of the recognition of files and folders."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.tables import SPLIT, TableFile
from recordmill.transforms.functional.sources.annotated import AnnotatedOptions
from recordmill.transforms.functional.sources.coco import CocoOptions
from recordmill.transforms.functional.sources.yolo import YoloOptions
from recordmill.transforms.inputs.recognize import sources_of

COCO = json.dumps({"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": []})


def message_of(path: Path | str, input_format: str = "auto") -> str:
    with pytest.raises(UsageError) as error:
        sources_of(str(path), input_format, has_images=True)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "data", "input_format", "gzipped"),
    [
        ("a.csv", b"a\n1\n", "csv", False),
        ("a.csv.gz", gzip.compress(b"a\n1\n", mtime=0), "csv", True),
        ("b.csv", b"PAR1", "parquet", False),
        ("c.tfrecord", b"", "tfrecord", False),  # a shard without records
        ("c.jsonl", b"", "jsonl", False),
    ],
)
def test_the_format_of_a_file_is_in_its_bytes_or_its_name(
    tmp_path: Path, name: str, data: bytes, input_format: str, gzipped: bool
) -> None:
    (tmp_path / name).write_bytes(data)
    (file,), text, *_ = sources_of(f"{tmp_path}/{name}", "auto", has_images=True)
    assert (file.format, file.gzipped, text) == (input_format, gzipped, "")


def test_files_without_a_known_format_are_named(tmp_path: Path) -> None:
    (tmp_path / "labels.xlsx").write_bytes(b"PK\x03\x04")
    assert message_of(tmp_path / "labels.xlsx") == (
        f"{tmp_path}/labels.xlsx: is an Excel workbook. Save the sheet as CSV (UTF-8)."
    )
    (tmp_path / "labels.foo").write_bytes(b"a")
    assert message_of(tmp_path / "labels.foo") == (
        f"{tmp_path}/labels.foo: unknown format. Set --input_format."
    )
    for name in ("labels.csv", "labels.parquet", "labels.jsonl.gz"):
        (tmp_path / name).touch()
        assert (
            message_of(tmp_path / name) == f"{tmp_path}/{name}: the file is empty; expected a table"
        )


def test_files_and_folders_have_formats_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n")
    assert message_of(tmp_path / "a.csv", "voc") == (
        f"{tmp_path}/a.csv: is a file; expected a folder of format voc"
    )
    assert message_of(tmp_path, "csv") == (
        f"{tmp_path}: is a folder; expected a file of format csv, or a pattern of them"
    )
    assert sources_of(f"{tmp_path}/", "voc", has_images=True)[:2] == (
        (TableFile(str(tmp_path), "voc", options=AnnotatedOptions()),),
        "",
    )


def test_images_of_a_coco_file_are_located_unless_it_has_labels(tmp_path: Path) -> None:
    for name, text in (("annotations/instances_val2017.json", COCO), ("val2017/1.jpg", "x")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    path = f"{tmp_path}/annotations/instances_val2017.json"
    assert sources_of(path, "auto", has_images=True)[:2] == (
        (
            TableFile(
                path,
                "coco",
                partition=((SPLIT, "val"),),
                options=CocoOptions(f"{tmp_path}/val2017"),
            ),
        ),
        f"COCO, with images in {tmp_path}/val2017",
    )
    assert sources_of(path, "auto", has_images=False)[:2] == ((TableFile(path, "coco"),), "")


def test_a_data_yaml_is_read_as_its_folder(tmp_path: Path) -> None:
    for name in ("images/train/1.jpg", "labels/train/1.txt"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    (tmp_path / "data.yaml").write_text("path: .\ntrain: images/train\nnames: [cat]\n")
    assert sources_of(f"{tmp_path}/data.yaml", "auto", has_images=True)[:2] == (
        (TableFile(str(tmp_path), "yolo", options=YoloOptions("data.yaml", True)),),
        f"YOLO, with images and labels in {tmp_path}",
    )
