"""Channel statistics, against values computed by hand."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
import tensorflow as tf
from PIL import Image

from recordmill.pipelines.dataset import channels
from recordmill.pipelines.dataset.channels import channel_statistics
from recordmill.schemas.features import Schema
from recordmill.schemas.statistics import ChannelStatistics
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.storage.dataset import DatasetFolder
from tests import images
from tests.unit.transforms.storage.test_dataset import put

RED, BLACK = (255, 0, 0), (0, 0, 0)


def example(image: bytes) -> bytes:
    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[image]))
    features = tf.train.Features(feature={"image": feature})
    serialized: bytes = tf.train.Example(features=features).SerializeToString()
    return serialized


def plain(color: int | tuple[int, int, int], width: int = 8, mode: str = "RGB") -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (width, 8), color).save(stream, "PNG")
    return stream.getvalue()


def dataset(folder: Path, train: list[bytes]) -> DatasetFolder:
    first, second, third = map(example, train)
    shards = {
        ("test", 0): {"a.png": example(plain((9, 9, 9)))},
        ("train", 0): {"b.png": first, "c.png": second},
        ("train", 1): {"d.png": third},
    }
    return DatasetFolder.open(put(folder, content=shards))


def test_each_image_of_train_counts_equally(tmp_path: Path) -> None:
    gray = plain(51, mode="L")  # 51 / 255 = 0.2
    found = channel_statistics(dataset(tmp_path, [plain(RED, width=500), plain(BLACK), gray]))
    # red: 1, 0, 0.2; mean 0.4, of squares 1.04 / 3; others: 0, 0, 0.2
    assert found == ChannelStatistics(
        images=3, mean=(0.4, 0.0667, 0.0667), std=(0.4320, 0.0943, 0.0943)
    )


def test_blocks_of_pixels_are_averaged_in_large_images(tmp_path: Path) -> None:
    stripes = Image.new("L", (2, 8), 255)
    stripes.paste(51, (1, 0, 2, 8))
    wide, small = Image.new("L", (2 * channels.SIDE, 8)), io.BytesIO()
    for left in range(0, wide.width, 2):
        wide.paste(stripes, (left, 0))
    large = io.BytesIO()
    wide.save(large, "PNG")
    wide.crop((0, 0, channels.SIDE, 8)).save(small, "PNG")
    black, found = plain(BLACK), []
    for number, image in enumerate((large, small)):
        made = dataset(tmp_path / str(number), [image.getvalue(), black, black])
        found.append(channel_statistics(made))
    # 1 and 0.2; mean 0.6 / 3, of squares (1 + 0.04) / 2 / 3, or 0.36 / 3 where they are averaged
    assert found == [
        ChannelStatistics(images=3, mean=(0.2,) * 3, std=(0.2828,) * 3),
        ChannelStatistics(images=3, mean=(0.2,) * 3, std=(0.3651,) * 3),
    ]


def test_images_count_as_training_reads_them(tmp_path: Path) -> None:
    clear, profiled = io.BytesIO(), io.BytesIO()
    Image.new("RGBA", (8, 8), (255, 0, 0, 0)).save(clear, "PNG")
    photo = Image.new("RGB", (8, 8), (200, 60, 30))
    photo.save(profiled, "PNG", icc_profile=images.SWAPPED)
    made = dataset(tmp_path, [clear.getvalue(), profiled.getvalue(), plain(BLACK)])
    found = channel_statistics(made)
    assert found is not None
    # (255 + 200) / 3 / 255, 60 / 3 / 255, 30 / 3 / 255: the color of clear pixels, no profile
    assert found.mean == (0.5948, 0.0784, 0.0392)


def test_the_sample_ends_in_the_first_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "IMAGES", 1)
    made = dataset(tmp_path, [plain(RED), plain(BLACK), plain(BLACK)])
    (tmp_path / "birds-train.tfrecord-00001-of-00002").unlink()
    assert channel_statistics(made) == ChannelStatistics(
        images=1, mean=(1.0, 0.0, 0.0), std=(0.0, 0.0, 0.0)
    )


def test_images_that_cannot_be_decoded_are_left_out(tmp_path: Path) -> None:
    damaged = images.jpeg(64, 64)[:300]  # --decode header accepts it
    made = dataset(tmp_path, [damaged, plain(RED), b"no image"])
    found = channel_statistics(made)
    assert found is not None
    assert (found.images, found.mean) == (1, (1.0, 0.0, 0.0))


def test_without_images_there_are_no_statistics(tmp_path: Path) -> None:
    made = dataset(tmp_path, [b"", b"", b""])
    assert channel_statistics(made) is None
    manifest = made.manifest.model_copy(update={"dataset_schema": preset("tabular")})
    assert channel_statistics(DatasetFolder(made.directory, manifest)) is None


def test_the_first_image_of_a_record_counts_whatever_the_names_are(tmp_path: Path) -> None:
    values = {"depth": plain(51, mode="L"), "left": plain(RED)}
    record = tf.train.Example(
        features=tf.train.Features(
            feature={
                name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[image]))
                for name, image in values.items()
            }
        )
    ).SerializeToString()
    put(tmp_path, content={("train", 0): {"a.png": record}})
    made = DatasetFolder.open(str(tmp_path))
    sources = {"left": "image:bytes", "depth": "image:depth/bytes"}
    features = {name: {"kind": "bytes", "from": source} for name, source in sources.items()}
    schema = Schema.model_validate({"features": features})
    manifest = made.manifest.model_copy(update={"dataset_schema": schema})
    found = channel_statistics(dataclasses.replace(made, manifest=manifest))
    assert found == ChannelStatistics(images=1, mean=(1.0, 0.0, 0.0), std=(0.0, 0.0, 0.0))
