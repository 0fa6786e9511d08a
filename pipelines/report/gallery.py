"""Thumbnails of published records, read from their own shards by offset and length."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby

from recordmill.pipelines.report.dataset import Dataset, Place
from recordmill.schemas.rejects import RecordError
from recordmill.transforms.functional.read_ahead import map_ahead
from recordmill.transforms.functional.records.examples import read_first_frame
from recordmill.transforms.functional.rendering.drawing import (
    draw_record,
    fault_of,
    is_little_work,
    to_jpeg,
)
from recordmill.transforms.functional.rendering.overlays import BOX_LABEL_KEY
from recordmill.transforms.storage.files import open_binary, read_bytes
from recordmill.transforms.workers.sandbox import run_apart

THUMBNAIL_SIDE = 168
MAX_RECORD_BYTES = 64 * 2**20
MAX_UNZIPPED_BYTES = 256 * 2**20
"""How far into a gzipped shard thumbnails are looked for: there is no seeking in it."""

_QUALITY = 70
_SECONDS = 10.0
_THREADS = 8
"""For the latency of object stores, more than for cores."""


@dataclass(frozen=True)
class Thumbnail:
    """A small picture for a page.

    Attributes:
        url: a data: URL; "" if there is no picture.
        width: in pixels.
        height: in pixels.
        fault: why there is none, in words.
    """

    url: str = ""
    width: int = 0
    height: int = 0
    fault: str = ""

    @classmethod
    def of(cls, jpeg: bytes, size: tuple[int, int]) -> Thumbnail:
        """Returns the thumbnail that a JPEG is."""
        return cls("data:image/jpeg;base64," + base64.b64encode(jpeg).decode("ascii"), *size)


NO_THUMBNAIL = Thumbnail()


@dataclass
class Budget:
    """How many bytes of thumbnails a page still takes.

    Attributes:
        left: bytes.
        refused: thumbnails that it did not take.
    """

    left: int
    refused: int = field(default=0)

    def admit(self, thumbnail: Thumbnail) -> Thumbnail:
        """Returns a thumbnail, or one without a picture if there is no room for it."""
        if len(thumbnail.url) > self.left:
            self.refused += 1
            return Thumbnail(fault="left out, to keep this page small")
        self.left -= len(thumbnail.url)
        return thumbnail


def thumbnails(dataset: Dataset, places: Iterable[Place], budget: Budget) -> dict[Place, Thumbnail]:
    """Returns a thumbnail of each record, boxes and masks included; of a sequence's first frame."""
    if not dataset.manifest.dataset_schema.image_feature:
        return {}
    names = dataset.manifest.classes.get(BOX_LABEL_KEY, ())
    ordered = sorted(set(places), key=lambda p: (p.split, p.shard, p.record))
    with ThreadPoolExecutor(_THREADS) as executor:
        reads = _reads(dataset, ordered)
        drawn = map_ahead(lambda read: _draw(read(), names), reads, executor, _THREADS)
        return {place: budget.admit(drawn_) for place, drawn_ in zip(ordered, drawn, strict=True)}


def _draw(record: bytes | str, class_names: tuple[str, ...]) -> Thumbnail:
    """Returns a record's thumbnail; a record that is a text is why there is none."""
    if isinstance(record, str):
        return Thumbnail(fault=record)
    try:
        features = read_first_frame(record)
        if is_little_work(features):
            picture = draw_record(features, THUMBNAIL_SIDE, class_names)
        else:
            picture = run_apart(
                draw_record, features, THUMBNAIL_SIDE, class_names, timeout=_SECONDS
            )
    except (RecordError, ValueError) as error:
        return Thumbnail(fault=fault_of(error))
    return Thumbnail.of(to_jpeg(picture, _QUALITY), picture.size)


def _reads(dataset: Dataset, places: list[Place]) -> Iterator[Callable[[], bytes | str]]:
    """Yields for each record what reads its data; of a gzipped shard they are read already."""
    zipped = dataset.manifest.config.get("compression") == "gzip"
    for path, group in groupby(places, key=dataset.shard_path):
        for place, record in _unzipped(path, group) if zipped else ((p, None) for p in group):
            yield partial(_slice, path, place) if record is None else partial(_same, record)


def _same(record: bytes | str) -> bytes | str:
    return record


def _slice(path: str, place: Place) -> bytes | str:
    if place.length > MAX_RECORD_BYTES:
        return "the record is too large to draw"
    try:
        return read_bytes(path, place.offset, place.offset + place.length)
    except RecordError as error:
        return error.detail


def _unzipped(path: str, places: Iterable[Place]) -> Iterator[tuple[Place, bytes | str]]:
    """Yields records of a gzipped shard, of which each byte before them has to be read."""
    with open_binary(path) as stream, gzip.GzipFile(fileobj=stream) as unzipped:
        for place in places:
            if place.offset + place.length > MAX_UNZIPPED_BYTES:
                yield place, "lies too deep in a gzipped shard"
                continue
            unzipped.seek(place.offset)
            yield place, unzipped.read(place.length)
