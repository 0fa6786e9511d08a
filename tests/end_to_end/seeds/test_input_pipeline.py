"""The classic queue-runner input pipeline: each of its steps is an argument of `load`.

The old calls and their replacements:

    string_input_producer(files, num_epochs, shuffle)   load(path, split, epochs=…, shuffle=True)
    TFRecordReader.read, parse_single_example           done by `load`, with the schema of the
    dataset decode_raw, decode_jpeg                             decode=True
    resize_image_with_crop_or_pad, image / 255 - 0.5    .map(…) shuffle_batch(batch_size, capacity,
    …)              batch_size=…, shuffle_buffer=…
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from recordmill.pipelines.dataset.load import load
from tests.end_to_end.command import published
from tests.end_to_end.photos import Photo
from tests.end_to_end.tables import write_table

EPOCHS, BATCH, SIDE = 3, 4, 16


def preprocess(example: dict[str, Any]) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the image cropped or padded to a square, its values from -0.5 to 0.5."""
    image = tf.image.resize_with_crop_or_pad(example["image_raw"], SIDE, SIDE)
    return tf.cast(image, tf.float32) / 255 - 0.5, example["label"]


def test_files_shuffle_epochs_parse_decode_preprocess_batch(
    images: list[Photo], folder: Path, tmp_path: Path
) -> None:
    rows = [{"image": p.path, "label": n} for n, p in enumerate(images)]
    table = write_table(folder / "queue.csv", rows)
    dataset = published(table, tmp_path, "--schema", "tf_tutorial", "--num_shards", "3")

    pipeline = (
        load(dataset, "train", shuffle=True, shuffle_buffer=5, epochs=EPOCHS)
        .map(preprocess)
        .batch(BATCH)
    )

    batches = list(pipeline.as_numpy_iterator())
    assert [batch.shape for batch, _ in batches] == [(BATCH, SIDE, SIDE, 3)] * 9
    labels = np.concatenate([labels for _, labels in batches])
    assert Counter(labels.tolist()) == dict.fromkeys(range(12), EPOCHS)
    assert labels.tolist() != sorted(labels)
    expected = {n: by_hand(decoded.data) for n, decoded in enumerate(images)}
    for batch, numbers in batches:
        for image, number in zip(batch, numbers, strict=True):
            assert np.array_equal(image, expected[number])


def by_hand(data: bytes) -> np.ndarray:
    """Returns the expected result of `preprocess`: cropped and padded around the center."""
    pixels = tf.io.decode_image(data, 3, expand_animations=False).numpy()
    for axis in (0, 1):
        surplus = pixels.shape[axis] - SIDE
        if surplus > 0:
            pixels = pixels.take(range(surplus // 2, surplus // 2 + SIDE), axis)
        else:
            room = [(0, 0)] * 3
            room[axis] = (-surplus // 2, -surplus - -surplus // 2)
            pixels = np.pad(pixels, room)
    return pixels.astype(np.float32) / 255 - 0.5


def test_the_pipeline_trains_a_model(images: list[Photo], folder: Path, tmp_path: Path) -> None:
    rows = [{"image": p.path, "label": p.label} for p in images]
    dataset = published(write_table(folder / "train.csv", rows), tmp_path)
    tf.keras.utils.set_random_seed(1)
    pairs = load(
        dataset, batch_size=BATCH, image_size=SIDE, shuffle=True, seed=1, as_supervised=True
    )
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Rescaling(1 / 255, offset=-0.5),
            tf.keras.layers.Conv2D(4, 3),
            tf.keras.layers.GlobalAveragePooling2D(),
            tf.keras.layers.Dense(3),
        ]
    )
    model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = model.fit(pairs, epochs=4, verbose=0).history["loss"]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
