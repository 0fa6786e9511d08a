"""A folder of unusual images with unusual names: the expected records and rejects."""

from __future__ import annotations

import csv
import hashlib
import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import pytest
import tensorflow as tf

from tests.corpus import Specimen, corpus
from tests.end_to_end import readers
from tests.end_to_end.command import convert
from tests.images import jpeg, png

SCHEMA = """
features:
  image: {kind: bytes, from: "image:bytes"}
  format: {kind: bytes, from: "image:format"}
  height: {kind: int64, from: "image:height"}
  width: {kind: int64, from: "image:width"}
  channels: {kind: int64, from: "image:channels"}
  source: {kind: bytes, from: "image:source_format"}
  mode: {kind: bytes, from: "image:mode"}
  depth: {kind: int64, from: "image:bit_depth"}
  frames: {kind: int64, from: "image:frames"}
  orientation: {kind: int64, from: "image:orientation"}
  transcoded: {kind: int64, from: "image:transcoded"}
  label: {kind: int64, from: "column:label", classes: true}
"""
ACCEPTED = {
    # name: (mode, depth, frames, orientation) of the file
    "JPEG RGB progressive=True {}": ("RGB", 8, 1, 1),
    "JPEG with trailing junk": ("RGB", 8, 1, 1),
    "JPEG with orientation 6": ("RGB", 8, 1, 6),
    "JPEG CMYK": ("CMYK", 8, 1, 1),
    "JPEG YCCK": ("CMYK", 8, 1, 1),
    "JPEG lossless of 3": ("RGB", 8, 1, 1),
    "MPO": ("RGB", 8, 1, 1),
    "PNG type 0, 16 bits, interlaced=True": ("I;16", 16, 1, 1),
    "PNG with orientation 8": ("RGB", 8, 1, 8),
    "PNG that is animated": ("RGB", 8, 3, 1),
    "GIF animated on a larger canvas": ("P", 8, 3, 1),
    "BMP of 4 bits, top_down=True": ("P", 8, 1, 1),
    "WebP animated, opaque": ("RGB", 8, 3, 1),
    "WebP lossless with alpha": ("RGBA", 8, 1, 1),
    "TIFF of 3 pages": ("RGB", 8, 3, 1),
    "TIFF gray <u2": ("I;16", 16, 1, 1),
    "TIFF with orientation 6": ("RGB", 8, 1, 6),
    "AVIF with alpha": ("RGBA", 8, 1, 1),
    "JPEG 2000 of 16 bits": ("I;16", 16, 1, 1),
    "PNM P1": ("1", 1, 1, 1),
    "ICO of several": ("RGB", 8, 1, 1),
}
REJECTED = {
    **{"no bytes": "empty_file", "web page": "not_an_image", "HEIC": "unsupported_format"},
    **{"JPEG SOF1 of 12 bits": "unsupported_feature", "JPEG cut at 50 %": "truncated"},
    **{"PNG with a wrong CRC in IDAT": "corrupt", "PNG without IEND": "truncated"},
    **{"GIF cut at 75 %": "truncated", "bomb: PNG of type 2": "too_many_pixels"},
    **{"bomb: TIFF of compression 1": "too_many_pixels", "bomb: WebP canvas": "too_many_pixels"},
    **{"JPEG without width": "invalid_dimensions", "EPS": "unsupported_format"},
}
NAMES = (
    "new\nline.jpg",
    "a[1]*?.jpg",
    "{braces},comma.jpg",
    "\N{BIRD}\N{ZERO WIDTH JOINER}\N{RAINBOW}.png",
    unicodedata.normalize("NFC", "Übermut é.jpg"),
    unicodedata.normalize("NFD", "Übermut é.jpg"),
    "n" * 251 + ".jpg",
    "-rf .jpg",
    "'quote\" %s %00 #?.png",
    "trailing space.jpg ",
    "no extension",
)
ABSENT = {
    "x/" * 2048: "read_error",
    "n" * 256 + ".jpg": "read_error",
    "nowhere.jpg": "missing_file",
    "a\0b.jpg": "read_error",
    "": "missing_value",
}


@dataclass(frozen=True)
class Case:
    """A table, its files, and their expected outcomes."""

    table: Path
    schema: Path
    files: dict[str, Specimen]
    odd_names: dict[str, bytes]
    rejected: dict[str, str]

    @property
    def flags(self) -> tuple[object, ...]:
        """All flags except for the budget."""
        return ("--schema", self.schema, "--verify", "decode", "--splits", "train=1")


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("odd")
    by_name = {specimen.name: specimen for specimen in corpus()}
    files = {f"{i}.jpg": by_name[name] for i, name in enumerate([*ACCEPTED, *REJECTED])}
    for name, specimen in files.items():  # their extension is a lie, as in life
        (folder / name).write_bytes(specimen.data)
    odd_names = {
        name: (png if "png" in name else jpeg)(16, 12, seed) for seed, name in enumerate(NAMES)
    }
    for name, data in odd_names.items():
        (folder / name).write_bytes(data)
    rejected = {name: REJECTED[s.name] for name, s in files.items() if s.name in REJECTED}
    schema = folder / "attributes.yaml"
    schema.write_text(SCHEMA)
    table = folder / "labels.csv"
    with open(table, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["image", "label"])
        for i, name in enumerate([*files, *odd_names, *ABSENT]):
            writer.writerow([name, ["cat", "dog"][i % 2]])
    return Case(table, schema, files, odd_names, {**rejected, **ABSENT})


@pytest.fixture(scope="module")
def dataset(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("published")
    ended = convert(case.table, output, *case.flags, "--max_rejects", len(case.rejected))
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err
    return output / "birds" / "1.0.0"


@pytest.fixture(scope="module")
def records(dataset: Path) -> dict[str, dict]:
    keys, examples = readers.keys(dataset, "train"), readers.examples(dataset, "train")
    return dict(zip(keys, examples, strict=True))


def test_every_file_is_a_record_or_a_reject_with_its_reason(
    case: Case, dataset: Path, records: dict[str, dict]
) -> None:
    accepted = {name for name, specimen in case.files.items() if specimen.accepted}
    assert set(records) == accepted | set(case.odd_names)
    found = {key: reason for key, _, reason in readers.reject_reasons(dataset)}
    assert found == case.rejected


def test_records_describe_the_source_files(case: Case, records: dict[str, dict]) -> None:
    for name, specimen in case.files.items():
        if not specimen.accepted:
            continue
        record, attributes = records[name], ACCEPTED[specimen.name]
        found = [record[fact][0] for fact in ("mode", "depth", "frames", "orientation")]
        assert (found[0].decode(), *found[1:]) == attributes, specimen.name
        assert record["source"] == [specimen.format.encode()]
        assert record["transcoded"] == [int(specimen.outcome == "png")]
        assert (record["width"][0], record["height"][0]) == specimen.size
        expected = specimen.format if specimen.outcome == "kept" else specimen.outcome
        assert record["format"] == [expected.encode()]
        assert (record["image"] == [specimen.data]) == (specimen.outcome == "kept")


def test_tensorflow_reads_every_record_in_its_size(records: dict[str, dict]) -> None:
    for record in records.values():
        (data,), size = record["image"], (record["height"][0], record["width"][0])
        whole = tf.io.decode_image(data, expand_animations=False)
        assert whole.shape == (*size, record["channels"][0])
        for decode in (tf.io.decode_jpeg, tf.io.decode_png):
            assert decode(data, channels=3).shape == (*size, 3)


def test_files_with_unusual_names_are_stored_unchanged(
    case: Case, records: dict[str, dict]
) -> None:
    for name, data in case.odd_names.items():
        assert records[name]["image"] == [data]


def test_the_manifest_counts_treatments(case: Case, dataset: Path) -> None:
    images = json.loads((dataset / "manifest.json").read_bytes())["images"]
    expected = {
        "jpeg kept": 2 + sum("png" not in name for name in NAMES),
        "png kept": 2 + sum("png" in name for name in NAMES),
        "mpo kept": 1,
        "jpeg to png": 3,
        "jpeg to png, upright": 1,
        "png to png, upright": 1,
        "gif to png": 1,
        "bmp to png": 1,
        "webp to png": 2,
        "tiff to png": 2,
        "tiff to png, upright": 1,
        "avif to png": 1,
        "jpeg2000 to png": 1,
        "pnm to png": 1,
        "ico to png": 1,
        "16 bits per sample": 3,
        "first of several frames": 5,  # MPO and PNG, GIF, WebP and TIFF
    }
    assert images == expected


def test_one_reject_too_many_fails_the_run(case: Case, tmp_path: Path) -> None:
    ended = convert(case.table, tmp_path, *case.flags, "--max_rejects", len(case.rejected) - 1)
    assert ended.code == 4
    assert "Traceback" not in ended.err
    assert not (tmp_path / "birds" / "1.0.0" / "_SUCCESS").exists()


def test_a_second_run_gives_the_same_bytes(case: Case, dataset: Path, tmp_path: Path) -> None:
    ended = convert(case.table, tmp_path, *case.flags, "--max_rejects", len(case.rejected))
    assert ended.code == 0, ended.err
    again = tmp_path / "birds" / "1.0.0"
    digests = [
        {name: hashlib.sha256(data).hexdigest() for name, data in readers.shard_bytes(d).items()}
        for d in (dataset, again)
    ]
    assert digests[0] == digests[1]
