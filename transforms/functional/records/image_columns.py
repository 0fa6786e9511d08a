"""Describes images in the columns of the record index: their size, hash and quality.

The hash is PDQ (Meta, "The TMK+PDQF Video-Hashing Algorithm and the PDQ Image-Hashing Algorithm",
2019) on a smaller gray image: the signs of the 256 lowest frequencies of a 64 x 64 thumbnail,
relative to their median. The measures of quality are those of cleanvision 0.3.7.

Thumbnails are measured many at a time, which takes a third of the time. All sums are of integers,
so the measures of an image are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.schemas import statistics
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.records import ImageShape, StoredImage
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.images.pixels import MIN_HASHED_SIDE, THUMBNAIL_SIDE

# The columns that describe an image; for sequences, each is a list with one item per frame.
IMAGE_COLUMNS = pa.schema(
    [
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("phash", pa.string()),
        ("luma_p5", pa.uint8()),
        ("luma_p99", pa.uint8()),
        ("luma_std", pa.float32()),
        ("entropy", pa.float32()),
        ("sharpness", pa.float32()),
    ]
)

# Thumbnails of 4 KiB that are measured together. With 64, the arrays of intermediate results would
# be so large that the allocator maps new memory for each, and an image would take twice as long.
_MEASURED_IMAGES = 32

# Images that are described together: building the columns takes as long as measuring 25 images.
_BATCH_IMAGES = 256


class ImageColumns:
    """Collects the descriptions of images."""

    def __init__(self, hashed: bool = True) -> None:
        """Starts without images."""
        self._hashed = hashed
        self._pending: list[ImageShape | None] = []
        self._described: list[pa.RecordBatch] = []

    def add(self, shape: ImageShape | None) -> None:
        """Adds an image; None for a record without one."""
        self._pending.append(shape)
        if len(self._pending) >= _BATCH_IMAGES:
            self._describe()

    def add_described(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Adds images whose descriptions are known, by column."""
        self._describe()
        self._described.append(pa.RecordBatch.from_pydict(dict(columns), IMAGE_COLUMNS))

    def take(self) -> pa.Table:
        """Returns the descriptions of all images since the last call, in their order."""
        self._describe()
        table = pa.Table.from_batches(self._described, IMAGE_COLUMNS)
        self._described = []
        return table.combine_chunks()

    def _describe(self) -> None:
        if self._pending:
            self._described.append(describe(self._pending, self._hashed))
            self._pending = []


def describe(shapes: list[ImageShape | None], hashed: bool = True) -> pa.RecordBatch:
    """Returns one row of `IMAGE_COLUMNS` per image, with nulls for what is unknown."""
    measured = [i for i, shape in enumerate(shapes) if shape and shape.thumbnail]
    found = _measured([shape for shape in shapes if shape and shape.thumbnail], hashed)
    # The row of each image in the measures, and in the hashes; null where there is none.
    rows = np.full(len(shapes), -1, np.int64)
    rows[measured] = np.arange(len(measured))
    hash_rows = rows.copy()
    hash_rows[measured] = np.where(found.hashed, rows[measured], -1)
    hashes = pa.array([phash.tobytes().hex() for phash in found.phash], pa.string())
    columns = [
        pa.array([shape and shape.width for shape in shapes], pa.int32()),
        pa.array([shape and shape.height for shape in shapes], pa.int32()),
        hashes.take(pa.array(hash_rows, mask=hash_rows < 0)),
    ]
    for name in IMAGE_COLUMNS.names[len(columns) :]:
        values = pa.array(getattr(found, name)).cast(IMAGE_COLUMNS.field(name).type)
        columns.append(values.take(pa.array(rows, mask=rows < 0)))
    return pa.RecordBatch.from_arrays(columns, schema=IMAGE_COLUMNS)


def _measured(images: list[ImageShape], hashed: bool) -> Measures:
    """Returns the measures of images that have thumbnails."""
    parts = []
    for at in range(0, len(images) or 1, _MEASURED_IMAGES):  # once if there are none
        some = images[at : at + _MEASURED_IMAGES]
        sides = np.array([min(shape.width, shape.height) for shape in some], np.int64)
        parts.append(_measure(b"".join(shape.thumbnail for shape in some), sides, hashed))
    return Measures(*map(np.concatenate, zip(*parts, strict=True)))


def check_image(image: StoredImage, config: ConvertConfig) -> None:
    """Checks an image as options ask for; RecordError rejects it."""
    if config.reject_quality:
        _check_quality(image.shape, config.reject_quality)


def _check_quality(shape: ImageShape, rejected: Collection[statistics.IssueName]) -> None:
    values = _values_of(pa.Table.from_batches([describe([shape], hashed=False)]))
    for name, found in _find_issues(values).items():
        if found[0] and name in rejected:
            raise RecordError(
                Reason.LOW_QUALITY, statistics.ISSUES[name].describe(float(values[name][0]))
            )


# Frequencies per side that are hashed, as by PDQ.
_FREQUENCIES = MIN_HASHED_SIDE // 2
_SIDE, _PIXELS = THUMBNAIL_SIDE, THUMBNAIL_SIDE**2

# Bytes of a perceptual hash.
HASH_BYTES = _FREQUENCIES * _FREQUENCIES // 8

# Standard deviation of the luma below which the hash would describe noise: artifacts of JPEG reach
# it in a uniform area.
_MIN_STRUCTURE = 4.0

# Above this share, the levels of an image concentrate as in graphics, which have few edges but are
# not blurred: `color_threshold` of cleanvision.
_CONCENTRATED = 0.18

_LEVELS = np.arange(256)

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def _basis() -> Floats:
    """Returns the rows of the DCT-II without the constant one, (frequencies, pixels).

    They are rounded to integers. With pixels of 8 bits, every product and sum of the transform is
    an integer below 2^53, hence exact in whatever order a BLAS library adds.
    """
    frequencies = np.arange(1, _FREQUENCIES + 1)[:, None]
    cosines: Floats = np.cos(np.pi / _SIDE * frequencies * (np.arange(_SIDE) + 0.5))
    return np.rint(2**12 * cosines)


def _entropies() -> Integers:
    """Returns the bits that a level with a number of pixels adds to the entropy, times 2^20."""
    shares = np.arange(1, _PIXELS + 1) / _PIXELS
    bits = np.rint(-shares * np.log2(shares) * 2**20).astype(np.int64)
    return np.concatenate([np.zeros(1, np.int64), bits])


_DCT, _ENTROPIES = _basis(), _entropies()


class Measures(NamedTuple):
    """What some images look like."""

    phash: Bytes  # the perceptual hashes, (images, 32); (0, 32) if they are not computed
    hashed: npt.NDArray[np.bool_]  # whether an image has enough structure to be hashed, (images,)
    luma_p5: Bytes  # the 5th percentile of the luma of the pixels, 0 to 255, (images,)
    luma_p99: Bytes  # the 99th percentile, (images,)
    luma_std: Floats
    entropy: Floats  # the entropy of the histogram of the luma, in bits, 0 to 8, (images,)
    sharpness: Floats  # cleanvision's score, from 0 to 1 for a sharp image, (images,)


def _measure(thumbnails: bytes, sides: Integers, hashed: bool = True) -> Measures:
    """Measures images, given their shorter sides in pixels; only with hashes if `hashed`."""
    pixels = np.frombuffer(thumbnails, np.uint8).reshape(-1, _SIDE, _SIDE)
    images = len(pixels)
    # One histogram over (image, level): the levels of the n-th image are counted from 256 n.
    numbered = pixels.reshape(images, _PIXELS) + 256 * np.arange(images, dtype=np.int32)[:, None]
    counts = np.bincount(numbered.ravel(), minlength=256 * images).reshape(images, 256)
    below = np.cumsum(counts, axis=1)
    luma_std = _std(counts @ _LEVELS, counts @ _LEVELS**2, _PIXELS)
    return Measures(
        phash=_perceptual_hashes(pixels if hashed else pixels[:0]),
        hashed=hashed & (sides >= MIN_HASHED_SIDE) & (luma_std >= _MIN_STRUCTURE),
        luma_p5=np.argmax(below >= 0.05 * _PIXELS, axis=1).astype(np.uint8),
        luma_p99=np.argmax(below >= 0.99 * _PIXELS, axis=1).astype(np.uint8),
        luma_std=luma_std,
        entropy=_ENTROPIES[counts].sum(axis=1) / 2**20,
        sharpness=_sharpness(pixels, counts),
    )


def _perceptual_hashes(pixels: Bytes) -> Bytes:
    """Returns the hashes of thumbnails, (images, 32): similar images share most bits."""
    coefficients = (_DCT @ pixels.astype(np.float64) @ _DCT.T).reshape(len(pixels), 8 * HASH_BYTES)
    middle = 8 * HASH_BYTES // 2
    medians = np.partition(coefficients, middle, axis=1)[:, middle, None]
    return np.packbits(coefficients > medians, axis=1)


def _sharpness(pixels: Bytes, counts: Integers) -> Floats:
    """Returns the `blurry` scores of cleanvision: the deviation of the edges of thumbnails."""
    # Pillow's FIND_EDGES: 9 times the center minus the sum of 3 x 3, clipped to 8 bits. The pixels
    # of all images are one row, since numpy adds long rows twice as fast; then the border is left
    # out, where the sums contain pixels of the other side, and which the filter copies.
    wide = pixels.ravel().astype(np.int16)
    rows = wide[: -2 * _SIDE] + wide[_SIDE:-_SIDE] + wide[2 * _SIDE :]
    edges = 9 * wide
    edges[_SIDE + 1 : -_SIDE - 1] -= rows[:-2] + rows[1:-1] + rows[2:]
    edges = edges.reshape(pixels.shape)[:, 1:-1, 1:-1]
    # The sums of 62 x 62 squares of 8 bits fit in 32 bits, which takes half the time of 64.
    flat = edges.clip(0, 255).reshape(len(pixels), (_SIDE - 2) ** 2).astype(np.int32)
    sums, squares = flat.sum(axis=1, dtype=np.int32), np.einsum("ij,ij->i", flat, flat)
    score = _score(_std(sums.astype(np.int64), squares.astype(np.int64), flat.shape[1]))
    spread = _score(_std(counts.sum(axis=1), (counts**2).sum(axis=1), counts.shape[1]))
    added = np.where(spread > _CONCENTRATED, spread, 0.0)
    # Rounded, because the exponentials of two C libraries differ in their last digits.
    scores: Floats = np.minimum(score + added, 1.0).round(3)
    return scores


def _score(deviations: Floats) -> Floats:
    scores: Floats = 1 - np.exp(-deviations / 100)
    return scores


def _std(sums: Integers, squares: Integers, number: int) -> Floats:
    """Returns standard deviations of integers, from their sums and the sums of their squares."""
    deviations: Floats = np.sqrt(squares * number - sums * sums) / number
    return deviations


# The columns of `records/` that the issues are found by.
MEASURES = ("width", "height", "luma_p5", "luma_p99", "luma_std", "entropy", "sharpness")


def _values_of(images: pa.Table) -> dict[statistics.IssueName, Floats]:
    """Returns the measure of each issue of images; NaN where it is unknown."""
    columns = {
        name: pc.cast(images[name], pa.float64()).to_numpy(zero_copy_only=False)
        for name in MEASURES
    }
    shorter = np.minimum(columns["width"], columns["height"])
    longer = np.maximum(columns["width"], columns["height"])
    columns |= {"aspect": shorter / longer, "side": shorter}
    return {name: columns[issue.measure] for name, issue in statistics.ISSUES.items()}


def _find_issues(
    values: Mapping[statistics.IssueName, Floats],
) -> dict[statistics.IssueName, npt.NDArray[np.bool_]]:
    return {
        # Comparisons with NaN are false: an unknown measure is no issue.
        name: values[name] > issue.limit if issue.above else values[name] < issue.limit
        for name, issue in statistics.ISSUES.items()
    }


def quality_of_shard(
    split: str, shard: int, images: pa.Table, keys: pa.Array, records: Integers
) -> statistics.ImageQuality:
    """Returns the statistics of the images of one shard."""
    values = _values_of(images)
    issues = {}
    for name, found in _find_issues(values).items():
        if found.any():
            at = np.flatnonzero(found)
            # The worst first; images with equal measures in the order of the shard.
            order = np.argsort(statistics.ISSUES[name].severity(values[name][at]), kind="stable")
            worst = at[order[: statistics.EXAMPLES]]
            shown = [
                (round(float(values[name][i]), 4), keys[records[i]].as_py(), int(records[i]))
                for i in worst
            ]
            examples = tuple(
                (value, statistics.RecordExample(key=key, split=split, shard=shard, index=record))
                for value, key, record in shown
            )
            issues[name] = statistics.QualityIssue(images={split: len(at)}, examples=examples)
    return statistics.ImageQuality(
        measured=len(images) - images["luma_std"].null_count, issues=issues
    )
