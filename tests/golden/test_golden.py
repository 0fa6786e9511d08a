"""The committed images give the committed digests: the bytes of shards have not changed.

`digests.json` belongs to one format version. If a change of bytes is intended, raise
`schemas.config.FORMAT_VERSION` and write the digests that this test then shows. Independent code
checks the content of shards, so that wrong bytes cannot become golden.
"""

from __future__ import annotations

import csv
import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from recordmill.pipelines.command_line import main
from recordmill.schemas.config import FORMAT_VERSION

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE / "digests.json").read_bytes())
ROWS = list(csv.DictReader((HERE / "labels.csv").open(encoding="utf-8", newline="")))

FLAGS = {
    "slim": (
        *("--schema", "tf_slim", "--image_root", str(HERE / "images")),
        *("--splits", "train=0.6,test=0.4", "--num_shards", "train=3,test=1"),
    ),
    "seeded": (
        *("--image_root", str(HERE / "images"), "--seed", "42", "--group_column", "bird"),
        *("--splits", "train=0.5,test=0.5", "--num_shards", "2"),
    ),
    "tabular": ("--schema", "tabular", "--key_column", "image", "--num_shards", "2"),
}


@pytest.fixture(scope="module", params=FLAGS)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of the committed table and images; its name selects the flags."""
    output = tmp_path_factory.mktemp("golden")
    target = ("--input", str(HERE / "labels.csv"), "--output", str(output), "--name", request.param)
    assert main(["convert", *target, *FLAGS[request.param]]) == 0
    return output / request.param / "1.0.0"


def test_the_digests_belong_to_this_format_version() -> None:
    assert GOLDEN["format_version"] == FORMAT_VERSION


def test_the_images_match_the_digests() -> None:
    files = [HERE / "labels.csv", *(HERE / "images").iterdir()]
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    assert found == GOLDEN["input"]
    assert sum(path.stat().st_size for path in files) < 100_000


def test_every_shard_matches_its_digest(made: Path) -> None:
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in made.glob("*.tfrecord-*")
    }
    assert found == GOLDEN["shards"][made.parent.name]


def test_the_shards_contain_the_table_and_the_images(made: Path) -> None:
    found = [
        values_of(record)
        for path in sorted(made.glob("*.tfrecord-*"))
        for record in read_framed(path.read_bytes())
    ]
    expected = [EXPECTED[made.parent.name](row) for row in ROWS]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


CRC_TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC_TABLE.append(byte)


def masked_crc32c(data: bytes) -> int:
    """Returns the checksum of TFRecord, computed bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_framed(data: bytes) -> list[bytes]:
    """Returns the records of a shard, and checks their checksums."""
    records, position = [], 0
    while position < len(data):
        (length,) = struct.unpack_from("<Q", data, position)
        record = data[position + 12 : position + 12 + length]
        checksums = struct.unpack_from(f"<I{length}xI", data, position + 8)
        assert checksums == (masked_crc32c(data[position : position + 8]), masked_crc32c(record))
        records.append(record)
        position += 16 + length
    return records


def test_the_checksum_of_this_test_is_crc32c() -> None:
    """RFC 3720, B.4: CRC32C of 32 zeros, of 32 ones, and of 0 to 31; unmasked."""
    for data, crc in {
        bytes(32): 0x8A9136AA,
        b"\xff" * 32: 0x62A8AB43,
        bytes(range(32)): 0x46DD794E,
    }.items():
        assert masked_crc32c(data) == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def values_of(record: bytes) -> dict[str, list[Any]]:
    """Returns the features of an example, sorted by name."""
    features = tf.train.Example.FromString(record).features.feature
    return {
        name: list(getattr(features[name], features[name].WhichOneof("kind")).value)
        for name in sorted(features)
    }


def _image(row: dict[str, str]) -> bytes:
    return (HERE / "images" / row["image"]).read_bytes()


def _slim(row: dict[str, str]) -> dict[str, list[Any]]:
    image = _image(row)
    return {
        "image/class/label": [sorted({r["label"] for r in ROWS}).index(row["label"])],
        "image/class/text": [row["label"].encode()],
        "image/encoded": [image],
        "image/filename": [row["image"].encode()],
        "image/format": [b"png" if row["image"].endswith(".png") else b"jpeg"],
        "image/height": [16],
        "image/key/sha256": [hashlib.sha256(image).hexdigest().encode()],
        "image/source_id": [row["image"].encode()],
        "image/width": [16],
    }


def _seeded(row: dict[str, str]) -> dict[str, list[Any]]:
    return {
        "image": [_image(row)],
        "image/filename": [row["image"].encode()],
        "label": [sorted({r["label"] for r in ROWS}).index(row["label"])],
    }


def _tabular(row: dict[str, str]) -> dict[str, list[Any]]:
    return {
        "bird": [int(row["bird"])],
        "grams": [struct.unpack("<f", struct.pack("<f", float(row["grams"])))[0]],
        "image": [row["image"].encode()],
        "label": [row["label"].encode()],
        "note": [row["note"].encode()],
        "ringed": [int(row["ringed"] == "true")],
    }


EXPECTED = {"slim": _slim, "seeded": _seeded, "tabular": _tabular}
