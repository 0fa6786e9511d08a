"""Mean and standard deviation of the color channels of a dataset, to normalize images with."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

import numpy as np
import numpy.typing as npt
from PIL import Image

from recordmill.schemas.rejects import RecordError
from recordmill.schemas.statistics import ChannelStatistics
from recordmill.transforms.functional.images.codecs import MAX_WORK, examine_in_process
from recordmill.transforms.functional.images.pixels import reduced
from recordmill.transforms.functional.read_ahead import map_in_threads
from recordmill.transforms.functional.records.example_reader import decode_reduced, reshape_raw
from recordmill.transforms.functional.records.examples import read_first_frame
from recordmill.transforms.functional.rendering.infer_features import Features, is_image, raw_shape
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.shard_files import frames_in
from recordmill.transforms.workers.process import num_cores

# Size of the sample. The means of photographs differ by about 0.15, so the standard error of a mean
# is about 0.01.
IMAGES = 256

# Images are averaged over blocks of pixels down to this longest side at least, as for most models.
SIDE = 224

# Limit of the bytes read, for datasets of very large images.
_MAX_BYTES = 256 * 2**20

_DIGITS = 4

_LEVELS = np.arange(256) / 255  # the values of 8-bit samples


def channel_statistics(dataset: DatasetFolder) -> ChannelStatistics | None:
    """Returns the statistics of the first images of train, or else of the first split, if any.

    Records are ordered by a salted hash of their keys, so the first ones are a fair sample. Of a
    sequence, the first frame counts. Images that cannot be decoded are left out. Pixels are those
    of `Dataset.load`: color profiles are ignored, and alpha is dropped.
    """
    key = dataset.manifest.dataset_schema.image_feature
    if key is None:
        return None
    # Decoding releases the GIL.
    found = map_in_threads(partial(_histograms, key), _first_records(dataset), num_cores())
    histograms = [channels for channels in found if channels is not None]
    if not histograms:
        return None
    shares = np.mean(histograms, axis=0)
    mean = shares @ _LEVELS
    std = np.sqrt(np.maximum(shares @ _LEVELS**2 - mean**2, 0))
    return ChannelStatistics(images=len(histograms), mean=_rounded(mean), std=_rounded(std))


def _first_records(dataset: DatasetFolder) -> Iterator[bytes]:
    splits = dataset.manifest.ordered_splits.values()
    shards = next((split.shards for split in splits if split.records), ())
    size = 0
    records = (
        frame.data
        for shard in shards
        if shard.records
        for frame in frames_in(dataset.path(shard.file))
    )
    for record in islice(records, IMAGES):
        size += len(record)
        if size > _MAX_BYTES:
            return
        yield record


def _histograms(key: str, record: bytes) -> npt.NDArray[np.float64] | None:
    """Returns the share of the pixels with each level, (3, 256); None if there are no pixels."""
    try:
        image = _pixels(read_first_frame(record), key)
    except (RecordError, ValueError):  # found by verification, if it decodes
        return None
    if image is None:
        return None
    return np.array(image.histogram()).reshape(3, 256) / (image.width * image.height)


def _pixels(features: Features, key: str) -> Image.Image | None:
    """Returns an image in RGB, reduced; None if there is none, or decoding it may take long."""
    if not features.get(key):
        return None
    data = features[key][0]
    if is_image(data):
        source = examine_in_process(data)
        return decode_reduced(data, source, SIDE) if source and source.work <= MAX_WORK else None
    raw = raw_shape(features, key)
    return reduced(Image.fromarray(reshape_raw(data, raw.height, raw.width)), SIDE) if raw else None


def _rounded(values: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    red, green, blue = (round(float(value), _DIGITS) for value in values)
    return red, green, blue
