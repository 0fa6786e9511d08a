"""Describes images in the columns of the record index: their size, hash and quality."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from recordmill.schemas.image_quality import ISSUES, IssueName
from recordmill.schemas.records import ImageShape
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.images.measures import (
    Measures,
    find_issues,
    measure,
    values_of,
)

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
    """Returns one row of `IMAGE_COLUMNS` per image; unknown values are null.

    `shapes` are the images; None for a record without one.
    """
    measured = [i for i, shape in enumerate(shapes) if shape and shape.thumbnail]
    images = [shape for shape in shapes if shape and shape.thumbnail]
    found = _measured(images, hashed)
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
        parts.append(measure(b"".join(shape.thumbnail for shape in some), sides, hashed))
    return Measures(*map(np.concatenate, zip(*parts, strict=True)))


def check_quality(shape: ImageShape, rejected: Collection[IssueName]) -> None:
    """Checks that an image has none of some quality issues.

    Raises RecordError (low_quality) if it has one.
    """
    values = values_of(pa.Table.from_batches([describe([shape], hashed=False)]))
    for name, found in find_issues(values).items():
        if found[0] and name in rejected:
            raise RecordError(Reason.LOW_QUALITY, ISSUES[name].describe(float(values[name][0])))
