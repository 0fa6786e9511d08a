"""TF-Slim's keys, read like TF-Slim's dataset decoder."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from tests.end_to_end import readers
from tests.end_to_end.command import published
from tests.images import image_bytes, jpeg, png

KEYS_TO_FEATURES = {  # slim/datasets/flowers.py
    "image/encoded": tf.io.FixedLenFeature((), tf.string, default_value=""),
    "image/format": tf.io.FixedLenFeature((), tf.string, default_value="png"),
    "image/class/label": tf.io.FixedLenFeature([], tf.int64, default_value=-1),
    "image/height": tf.io.FixedLenFeature([], tf.int64, default_value=0),
    "image/width": tf.io.FixedLenFeature([], tf.int64, default_value=0),
}
FLOWERS = ("daisy", "dandelion", "roses", "sunflowers", "tulips")


def test_flowers_as_slim_reads_them(tmp_path: Path) -> None:
    encoders = (jpeg, png, lambda w, h, seed: image_bytes("GIF", w, h, seed, "P"))
    rows = []
    for i, name in enumerate(FLOWERS):
        data = encoders[i % 3](20 + i, 10 + i, i)
        (tmp_path / f"{name}.jpg").write_bytes(data)  # whatever it is: TF-Slim goes by the format
        rows.append(f"{name}.jpg,{name}\n")
    table = tmp_path / "flowers.csv"
    table.write_text("image,label\n" + "".join(rows))
    dataset = published(table, tmp_path / "out", "--schema", "tf_slim", name="flowers")
    labels_to_names = dict(
        enumerate((dataset / "image.class.label.labels.txt").read_text().splitlines())
    )
    assert labels_to_names == dict(enumerate(FLOWERS))
    parsed = readers.parsed(dataset, "train", KEYS_TO_FEATURES)
    assert sorted(parsed["image/class/label"]) == [0, 1, 2, 3, 4]
    columns = [parsed[key] for key in KEYS_TO_FEATURES]
    for data, format_, label, height, width in zip(*columns, strict=True):
        assert format_ == (b"png", b"jpeg")[data.startswith(b"\xff\xd8")]
        decode = tf.io.decode_jpeg if format_ == b"jpeg" else tf.io.decode_png
        assert decode(data, channels=3).shape == (10 + label, 20 + label, 3) == (height, width, 3)
