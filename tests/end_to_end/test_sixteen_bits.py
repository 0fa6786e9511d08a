"""Images of 16 bits keep them from the file to the tensor, or a warning says that they do not."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from recordmill.pipelines.dataset.load import load
from recordmill.pipelines.dataset.records import Records
from recordmill.schemas.errors import UsageError
from tests.corpus import tiff_of
from tests.end_to_end.command import published
from tests.images import pixels, png

DEEP = {
    name: np.random.default_rng(number).integers(0, 4096, (20, 30, channels), np.uint16)
    for number, (name, channels) in enumerate({"a/gray.tif": 1, "a/color.tif": 3}.items())
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deep")
    (folder / "a").mkdir()
    for name, samples in DEEP.items():
        photometric = 2 if samples.shape[2] == 3 else 1
        (folder / name).write_bytes(tiff_of(samples, photometric=photometric))
    (folder / "a" / "plain.png").write_bytes(png(30, 20, 1))
    return published(folder, tmp_path_factory.mktemp("out"), "--splits", "train=1")


def expected(key: str) -> np.ndarray:
    plain = pixels(30, 20, 1).astype(np.uint16) * 257
    return np.broadcast_to(DEEP.get(key, plain), (20, 30, 3))


def test_the_manifest_counts_them(dataset: Path) -> None:
    images = json.loads((dataset / "manifest.json").read_text())["images"]
    assert images == {"16 bits per sample": 2, "png kept": 1, "tiff to png": 2}


@pytest.mark.filterwarnings("error:.*16 bits per sample")
def test_both_readers_return_all_bits_on_request(dataset: Path) -> None:
    records = Records(dataset, dtype="uint16")
    loaded = list(load(dataset, dtype="uint16").as_numpy_iterator())
    keys = records.keys()
    for key, theirs in zip(keys, loaded, strict=True):
        ours = records[key]["image"]
        assert ours.dtype == theirs["image"].dtype == np.uint16
        np.testing.assert_array_equal(ours, expected(key))
        np.testing.assert_array_equal(theirs["image"], expected(key))
    (batch,) = load(dataset, dtype="uint16", batch_size=3, image_size=(20, 30)).as_numpy_iterator()
    np.testing.assert_array_equal(batch["image"], [expected(key) for key in keys])
    assert Records(dataset, dtype="uint16", channels=0)["a/gray.tif"]["image"].shape == (20, 30, 1)


@pytest.mark.parametrize("reader", [Records, load])
def test_8_bits_of_16_are_announced_once(dataset: Path, reader) -> None:
    with pytest.warns(UserWarning, match="2 images have 16 bits per sample") as found:
        records = list(reader(dataset))
    assert len(found) == 1
    assert f'{reader.__name__}(…, dtype="uint16")' in str(found[0].message)
    assert found[0].filename == __file__
    assert len(records) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(reader(dataset, decode=False))
        list(reader(dataset, features=["label"]))


def test_records_warn_where_the_first_image_is_decoded(dataset: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        records = Records(dataset)
        assert len(records.keys()) == len(records[:2]) + 1
    with pytest.warns(UserWarning, match="2 images have 16 bits per sample") as found:
        assert [records[0]["label"], *(one["label"] for one in records[1:])] == [0] * 3
    assert [one.filename for one in found] == [__file__]


@pytest.mark.parametrize("reader", [Records, load])
def test_other_types_are_usage_errors(dataset: Path, reader) -> None:
    with pytest.raises(UsageError, match="dtype='float': expected one of uint8, uint16"):
        reader(dataset, dtype="float")
