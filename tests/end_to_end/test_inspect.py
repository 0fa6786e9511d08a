"""`recordmill inspect` shows any TFRecord files, intact or damaged, as text and as an image."""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.pipelines.record_files import RecordSource
from recordmill.schemas.shard_format import SHARD_FORMATS, ShardFormat
from recordmill.transforms.functional.rendering.drawing import TILE_SIDE
from tests.end_to_end import readers
from tests.end_to_end.command import published, recordmill
from tests.end_to_end.photos import Photo
from tests.end_to_end.tables import write_table
from tests.images import jpeg, png
from tests.shard_formats import every_compression, packed


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def dataset(folder: Path, images: list[Photo], tmp_path_factory: Any) -> Path:
    rows = [{"image": image.path, "label": image.label} for image in images]
    table = write_table(folder / "inspect.csv", rows)
    flags = ("--splits", "train=0.7,test=0.3", "--num_shards", "train=2,test=1")
    return published(table, tmp_path_factory.mktemp("inspect"), *flags)


def features(**values: Any) -> bytes:
    """Returns an example as TensorFlow serializes it."""
    lists = {
        bytes: lambda v: tf.train.Feature(bytes_list=tf.train.BytesList(value=v)),
        float: lambda v: tf.train.Feature(float_list=tf.train.FloatList(value=v)),
        int: lambda v: tf.train.Feature(int64_list=tf.train.Int64List(value=v)),
    }
    made = {name: lists[type(v[0])](v) if v else tf.train.Feature() for name, v in values.items()}
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def write(path: Path, records: list[bytes], compression: str = "") -> Path:
    with tf.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)
    return path


FOREIGN = [
    features(img=[jpeg(40, 30, 1)], name=[b"first"], score=[0.5, -1.0], none=[]),
    features(img=[png(20, 10, 2)], name=["zweite ü".encode()], score=[], n=[7]),
]


def test_a_dataset_shows_records_of_each_split_with_keys_and_class_names(
    dataset: Path, images: list[Photo]
) -> None:
    ended = recordmill("inspect", dataset, "-n", "4")
    assert (ended.code, ended.err) == (0, "")
    for split in ("test", "train"):
        for key in readers.keys(dataset, split)[:2]:
            (line,) = [text for text in ended.out.splitlines() if f" {key} " in text]
            (image,) = [image for image in images if image.path == key]
            expected = f"{image.format.upper()} {image.width}×{image.height}"
            assert line.split()[1] == split
            assert expected in line
            assert 0 < line.index(f" {image.label} ") < line.index(expected)
    assert "birds 1.0.0: 12 records in 3 files, schema image_classification" in ended.out
    shown = [line.split()[:2] for line in ended.out.splitlines() if line[:1].isdigit()]
    assert shown == [["0", "train"], ["1", "train"], ["0", "test"], ["1", "test"]]
    for number, splits in ((5, [3, 2]), (9, [6, 3]), (99, [9, 3])):
        records = RecordSource.of([str(dataset)]).first(number)
        assert [*Counter(record.split for record in records).values()] == splits


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
def test_foreign_files_of_any_compression_are_shown(compression: str, tmp_path: Path) -> None:
    path = write(tmp_path / "theirs", FOREIGN, compression)
    ended = recordmill("inspect", path)
    assert (ended.code, ended.err) == (0, "")
    sheet, table = ended.out.split("\n\n")[1:]
    assert [line.split(maxsplit=2)[:2] for line in sheet.splitlines()[1:]] == [
        ["img", "bytes"],
        ["n", "int64"],
        ["name", "bytes"],
        ["none", "empty"],
        ["score", "float"],
    ]
    assert "JPEG image, PNG image" in sheet
    assert "JPEG 40×30" in table
    assert "zweite ü" in table


@pytest.mark.parametrize("number", [0, 3, 4, 11])
def test_a_record_by_number_is_the_one_that_tensorflow_reads(number: int, dataset: Path) -> None:
    splits = [(key, i) for s in ("test", "train") for i, key in enumerate(readers.keys(dataset, s))]
    ended = recordmill("inspect", dataset, "--record", number)
    assert ended.code == 0
    assert f"key {splits[number][0]}, split" in ended.out


@pytest.mark.parametrize("compression", SHARD_FORMATS)
def test_one_record_by_its_key_in_full(
    compression: str, folder: Path, images: list[Photo], tmp_path: Path
) -> None:
    rows = [{"image": image.path, "label": image.label} for image in images]
    table = write_table(folder / f"inspect-{compression}.csv", rows)
    dataset = published(table, tmp_path, "--compression", compression, "--schema", "tf_slim")
    for image in images[::5]:
        ended = recordmill("inspect", dataset, "--key", image.path)
        assert ended.code == 0, ended.err
        assert f"key {image.path}, split train" in ended.out
        assert f"sha256 {image.sha256}" in ended.out
        height = re.search(r"image/height int64\n  (\d+)", ended.out)
        assert height
        assert int(height[1]) == image.height
    ended = recordmill("inspect", dataset, "--key", "nobody")
    assert ended.code == 2
    assert "has no record with this key" in ended.err
    assert images[0].path.partition("/")[0] in ended.err
    ended = recordmill("inspect", dataset, "--key", images[0].path.rpartition("/")[2])
    assert f"keys that end with it are {images[0].path}" in ended.err


def test_a_foreign_record_is_found_by_its_text(tmp_path: Path) -> None:
    path = write(tmp_path / "theirs.tfrecord", FOREIGN)
    assert "record 1 at byte" in recordmill("inspect", path, "--key", "zweite ü").out
    assert recordmill("inspect", path, "--key", "third").code == 2


def test_every_value_of_a_record_is_shown(tmp_path: Path) -> None:
    values = [0.1, float("nan"), 3.4028234663852886e38]
    record = features(f=values, i=[-(2**63), 5], b=[b"\0\xff", "a\u202eb".encode()])
    out = recordmill("inspect", write(tmp_path / "x.tfrecord", [record]), "--record", "0").out
    lines = [line.strip() for line in out.splitlines()]
    for shown in ("0.1", "nan", "3.4028235e+38", "-9223372036854775808", "5", "a\\u202eb"):
        assert any(line.startswith(shown) for line in lines), shown
    assert "\u202e" not in out


def test_a_sheet_goes_to_the_working_folder_by_its_bare_name(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = recordmill("inspect", dataset, "-n", "2", "--sheet", "sheet.png")
    assert (ended.code, ended.err) == (0, "")
    assert Image.open("sheet.png").format == "PNG"


def test_the_sheet_shows_each_image_with_its_boxes(tmp_path: Path) -> None:
    gray = io.BytesIO()
    Image.new("RGB", (200, 100), (90, 90, 90)).save(gray, "PNG")
    box = {f"image/object/bbox/{k}": [v] for k, v in (("xmin", 0.25), ("xmax", 0.75))}
    box |= {f"image/object/bbox/{k}": [v] for k, v in (("ymin", 0.2), ("ymax", 0.8))}
    boxed = features(
        **{"image/encoded": [gray.getvalue()], "image/object/class/text": [b"x"], **box}
    )
    damaged = features(image=[jpeg(99, 99)[:900]], label=[3])
    path = write(tmp_path / "x.tfrecord", [boxed, damaged, b"no example", FOREIGN[0]])
    ended = recordmill("inspect", path, "--sheet", tmp_path / "sheet.png")
    assert (ended.code, ended.err) == (0, "")
    sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
    grey_pixels = (sheet == 90).all(axis=2)
    ys, xs = np.nonzero(grey_pixels)
    assert (xs.max() - xs.min(), ys.max() - ys.min()) == (199, 99)
    assert 17_000 < grey_pixels.sum() <= 20_000 - 2 * (100 + 60)
    empty = (sheet == (241, 243, 244)).all(axis=2).sum()
    assert empty > 1.8 * TILE_SIDE**2


def test_the_sheet_shows_the_boxes_and_masks_that_the_schema_declares(tmp_path: Path) -> None:
    """Boxes with y first, and a mask named depth, of a dataset without the usual keys."""
    Image.new("RGB", (200, 100), (90, 90, 90)).save(tmp_path / "0.png")
    mask = np.zeros((100, 200), np.uint8)
    mask[:20, :50] = 1
    Image.fromarray(mask).save(tmp_path / "m.png")
    (tmp_path / "s.yaml").write_text(
        """
        features:
          image: {kind: bytes, from: "image:bytes"}
          box: {kind: float, from: "box:yxyx", shape: [null, 4]}
          depth: {kind: bytes, from: "mask:depth"}
        boxes: {column: bbox, order: yxyx, units: pixel}
        """
    )
    rows = [{"image": "0.png", "bbox": [[40, 50, 90, 150]], "depth": "m.png"}]
    table = write_table(tmp_path / "t.jsonl", rows)
    flags = ("--schema", tmp_path / "s.yaml", "--num_shards", "1")
    dataset = published(table, tmp_path / "out", *flags)
    shard = next(dataset.glob("*.tfrecord*"))
    for arguments in ((dataset,), (shard, "--schema", tmp_path / "s.yaml")):
        ended = recordmill("inspect", *arguments, "--sheet", tmp_path / "sheet.png")
        assert (ended.code, ended.err) == (0, "")
        sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
        left = np.nonzero((sheet == 90).all(axis=2))[1].min()
        top = np.nonzero((sheet == 90).all(axis=2))[0].min()
        shown = sheet[top : top + 100, left : left + 200]
        is_gray = (shown == 90).all(axis=2)
        assert not is_gray[:20, :50].any()  # the mask
        assert is_gray[60, 60:140].all()
        for y, x in ((40, 100), (90, 100), (65, 50), (65, 150)):  # the edges of the box
            assert not is_gray[y - 2 : y + 3, x - 2 : x + 3].all()


DAMAGE = {
    "cut within a record": (lambda data: data[:-20], "record 1 at byte {second}: the file ends"),
    "a flipped bit": (
        lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
        "record 1 at byte {second}: the checksum of the record's data does not match",
    ),
    "no TFRecord": (lambda data: b"id,label\n" * 99, "record 0 at byte 0: the checksum"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_reported_with_record_and_byte_after_the_records_before_it(
    case: str, tmp_path: Path
) -> None:
    damage, message = DAMAGE[case]
    path = write(tmp_path / "x.tfrecord", FOREIGN)
    path.write_bytes(damage(path.read_bytes()))
    ended = recordmill("inspect", path)
    assert ended.code == 3
    assert f"{path}: {message.format(second=len(FOREIGN[0]) + 16)}" in ended.err
    assert "Traceback" not in ended.err
    assert ("first" in ended.out) == ("record 1" in message)


@every_compression
def test_a_damaged_stream_is_reported(found: ShardFormat, tmp_path: Path) -> None:
    path = write(tmp_path / "x", FOREIGN)
    path.write_bytes(packed(found, path.read_bytes())[:-30])
    ended = recordmill("inspect", path)
    assert ended.code == 3
    assert "the compressed stream is damaged or truncated" in ended.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{folder}/nothing",), "no such file or folder"),
        (("{folder}/empty",), "contains no file named *tfrecord*"),
        (("{folder}/x", "-n", "0"), "-n 0: expected"),
        (("{folder}/x", "--record", "-1"), "--record -1: expected"),
        (("{folder}/x", "--record", "2"), "--record 2: there are 2 records"),
        (("{folder}/x", "--sheet", "{folder}/no/folder.png"), ""),
        (("{folder}/words", "--sheet", "{folder}/s.png"), "none of the 1 records has an image"),
        (("{folder}/x", "--schema", "no_such"), "no_such"),
        (("{folder}/x", "--what"), "unknown flag --what"),
    ],
)
def test_invalid_requests_are_reported(
    arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    write(tmp_path / "x", FOREIGN)
    write(tmp_path / "words", [features(a=[b"text"])])
    (tmp_path / "empty").mkdir()
    ended = recordmill("inspect", *(text.format(folder=tmp_path) for text in arguments))
    assert ended.code == (2 if message else 0)
    assert message in ended.err


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "x.tfrecord").write_bytes(b"")
    ended = recordmill("inspect", tmp_path)
    assert (ended.code, ended.err, ended.out) == (0, "", "1 file, no records\n")


def test_a_table_is_shown_by_another_command(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("image,label\n1.jpg,cat\n2.jpg,dog\n")
    ended = recordmill("inspect", table)
    assert ended.code == 3
    assert f"For a table, run: recordmill schema --infer {table}" in ended.err
