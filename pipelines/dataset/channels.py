"""Mean and standard deviation of the color channels of a dataset, to normalize images with."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np
import numpy.typing as npt

from recordmill.schemas.rejects import RecordError
from recordmill.schemas.statistics import ChannelStatistics
from recordmill.transforms.functional.read_ahead import map_ahead
from recordmill.transforms.functional.records.examples import read_first_frame
from recordmill.transforms.functional.records.framing import Frame, read_frames
from recordmill.transforms.functional.rendering.drawing import is_cheap_to_draw, record_image
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.shard_files import uncompressed
from recordmill.transforms.workers.cores import num_cores

# Size of the sample. The means of photographs differ by about 0.15, so the standard error of a mean
# is about 0.01.
IMAGES = 256

# Images are averaged over blocks of pixels down to this longest side at least, as for most models.
SIDE = 224

# Limit of the bytes read, for datasets of very large images.
_MAX_BYTES = 256 * 2**20

_DIGITS = 4

_LEVELS = np.arange(256) / 255  # the values of 8-bit samples


def channel_statistics(dataset: Dataset) -> ChannelStatistics | None:
    """Returns the statistics of the first images of train, or else of the first split.

    Records are ordered by a salted hash of their keys, so the first ones are a fair sample. Of a
    sequence, the first frame counts. Images that cannot be decoded are left out.

    Args:
        dataset: the dataset, whose shards are complete.

    Returns:
        The statistics, or None if the schema has no image, or no image can be decoded.
    """
    if not dataset.manifest.dataset_schema.image_feature:
        return None
    cores = num_cores()
    with ThreadPoolExecutor(cores) as executor:  # decoding releases the GIL
        found = map_ahead(_moments, _first_records(dataset), executor, 2 * cores)
        moments = [both for both in found if both is not None]
    if not moments:
        return None
    mean, mean_of_squares = np.mean(moments, axis=0)
    std = np.sqrt(np.maximum(mean_of_squares - mean**2, 0))
    return ChannelStatistics(images=len(moments), mean=_rounded(mean), std=_rounded(std))


def _first_records(dataset: Dataset) -> Iterator[bytes]:
    splits = dataset.manifest.ordered_splits.values()
    shards = next((split.shards for split in splits if split.records), ())
    size = 0
    records = (
        frame.data
        for shard in shards
        if shard.records
        for frame in _frames(dataset.path(shard.file))
    )
    for record in islice(records, IMAGES):
        size += len(record)
        if size > _MAX_BYTES:
            return
        yield record


def _frames(path: str) -> Iterator[Frame]:
    with uncompressed(path) as stream:
        yield from read_frames(stream)


def _moments(record: bytes) -> npt.NDArray[np.float64] | None:
    """Returns the means of the channels and of their squares, with shape (2, 3); None if damaged.

    Args:
        record: a serialized example.
    """
    features = read_first_frame(record)
    try:
        if not is_cheap_to_draw(features):
            return None
        _, image = record_image(features, SIDE)
    except (RecordError, ValueError):  # found by verification, if it decodes
        return None
    counts = np.reshape(image.histogram(), (3, 256)) / (image.width * image.height)
    return np.stack([counts @ _LEVELS, counts @ np.square(_LEVELS)])


def _rounded(values: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    red, green, blue = (round(float(value), _DIGITS) for value in values)
    return red, green, blue
