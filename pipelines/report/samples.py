"""Samples of the records of each class, with thumbnails; read by their byte ranges."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby

from recordmill.pipelines.report.statistics import SAMPLED_CLASSES, ClassRow, ClassTable, ends_of
from recordmill.schemas.errors import VerificationFailed
from recordmill.schemas.manifest import Manifest, ShardEntry
from recordmill.schemas.rejects import RecordError
from recordmill.transforms.functional.read_ahead import map_ahead
from recordmill.transforms.functional.records.examples import read_first_frame
from recordmill.transforms.functional.rendering.drawing import (
    BOX_LABEL_KEY,
    draw_record,
    error_detail,
    is_cheap_to_draw,
    to_jpeg,
)
from recordmill.transforms.storage.dataset import Dataset, RecordLocation
from recordmill.transforms.storage.shard_files import uncompressed
from recordmill.transforms.workers.sandbox import run_apart

THUMBNAIL_SIDE = 168
MAX_RECORD_BYTES = 64 * 2**20
MAX_UNZIPPED_BYTES = 256 * 2**20
"""How far into a gzipped shard records are read: all bytes before them are decompressed, too."""

MAX_INDEXES = 256
"""Indexes that a search for rare classes may read in one split."""

SAMPLES = 180
SAMPLES_EACH = 4

_QUALITY = 70
_SECONDS = 10.0
_THREADS = 8
"""For the latency of object stores, more than for cores."""


@dataclass(frozen=True)
class Thumbnail:
    """A small image for a page.

    Attributes:
        url: a data: URL; "" if there is no image.
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
        rejected: thumbnails that it did not take.
    """

    left: int
    refused: int = field(default=0)

    def admit(self, thumbnail: Thumbnail) -> Thumbnail:
        """Returns a thumbnail, or one without an image if there is no room for it."""
        if len(thumbnail.url) > self.left:
            self.refused += 1
            return Thumbnail(fault="left out, to keep this page small")
        self.left -= len(thumbnail.url)
        return thumbnail


def thumbnails(
    dataset: Dataset, locations: Iterable[RecordLocation], budget: Budget
) -> dict[RecordLocation, Thumbnail]:
    """Returns a thumbnail of each record, boxes and masks included; of a sequence's first frame.

    Args:
        dataset: the dataset.
        locations: the records.
        budget: of the page's thumbnails.
    """
    if not dataset.manifest.dataset_schema.image_feature:
        return {}
    names = dataset.manifest.classes.get(BOX_LABEL_KEY, ())
    ordered = sorted(set(locations), key=lambda found: (found.split, found.shard, found.record))
    with ThreadPoolExecutor(_THREADS) as executor:
        reads = _reads(dataset, ordered)
        drawn = map_ahead(lambda read: _draw(read(), names), reads, executor, _THREADS)
        return {found: budget.admit(one) for found, one in zip(ordered, drawn, strict=True)}


def _draw(record: bytes | str, class_names: tuple[str, ...]) -> Thumbnail:
    """Returns a record's thumbnail; a text says why there is no record."""
    if isinstance(record, str):
        return Thumbnail(fault=record)
    try:
        features = read_first_frame(record)
        if is_cheap_to_draw(features):
            image = draw_record(features, THUMBNAIL_SIDE, class_names)
        else:
            image = run_apart(draw_record, features, THUMBNAIL_SIDE, class_names, timeout=_SECONDS)
    except (RecordError, ValueError) as error:
        return Thumbnail(fault=error_detail(error))
    return Thumbnail.of(to_jpeg(image, _QUALITY), image.size)


def _reads(
    dataset: Dataset, locations: list[RecordLocation]
) -> Iterator[Callable[[], bytes | str]]:
    """Yields for each record what reads its data, or says why it cannot be drawn."""
    shards = dataset.shards()
    for place, group in groupby(locations, key=lambda found: (found.split, found.shard)):
        if dataset.manifest.config.get("compression") == "gzip":
            yield from _reads_of_gzip(dataset.path(shards[place].file), group)
        else:
            yield from (partial(_read, dataset, shards[place], found) for found in group)


def _read(dataset: Dataset, shard: ShardEntry, found: RecordLocation) -> bytes | str:
    if found.length > MAX_RECORD_BYTES:
        return "the record is too large to draw"
    try:
        return dataset.record(shard, found.record, (found.offset, found.length))
    except VerificationFailed as error:
        return str(error)


def _reads_of_gzip(
    path: str, locations: Iterable[RecordLocation]
) -> Iterator[Callable[[], bytes | str]]:
    """Yields the records of a gzipped shard in one pass: its bytes are decompressed in order."""
    with uncompressed(path) as stream:
        for found in locations:
            record: bytes | str = "lies too deep in a gzipped shard"
            if found.offset + found.length <= MAX_UNZIPPED_BYTES:
                stream.seek(found.offset)
                record = stream.read(found.length)
            yield partial(_same, record)


def _same(record: bytes | str) -> bytes | str:
    return record


@dataclass(frozen=True)
class Sheet:
    """Some records of one class, or of all.

    Attributes:
        name: the class; "" for all.
        splits: split to (location, thumbnail) of its records.
    """

    name: str
    splits: dict[str, list[tuple[RecordLocation, Thumbnail]]]


def samples(dataset: Dataset, tables: list[ClassTable], budget: Budget) -> list[Sheet]:
    """Returns samples of each class, and within it of each split.

    Args:
        dataset: the dataset.
        tables: the classes of each feature.
        budget: of the page's thumbnails.
    """
    manifest = dataset.manifest
    rows = _sampled_rows(tables, class_feature(manifest), manifest)
    cells = max(1, len(rows) * len(manifest.splits))
    each = min(4 * SAMPLES_EACH if len(rows) == 1 else SAMPLES_EACH, max(1, SAMPLES // cells))
    numbers = {
        split: {row.name: min(each, row.counts[i]) for row in rows}
        for i, split in enumerate(manifest.splits)
    }
    found = sample(dataset, numbers)
    drawn = thumbnails(dataset, chain.from_iterable(found.values()), budget)
    return [
        Sheet(
            row.name,
            {
                split: [(p, drawn.get(p, NO_THUMBNAIL)) for p in found.get((split, row.name), [])]
                for split in manifest.splits
            },
        )
        for row in rows
    ]


def _sampled_rows(
    tables: list[ClassTable], feature: str | None, manifest: Manifest
) -> tuple[ClassRow, ...]:
    table = next((table for table in tables if table.feature == feature), None)
    if table is None:
        counts = tuple(split.records for split in manifest.splits.values())
        return (ClassRow("", 0, counts),) if feature is None else ()
    return ends_of(table.present, SAMPLED_CLASSES)


def sample(
    dataset: Dataset, numbers: Mapping[str, Mapping[str, int]]
) -> dict[tuple[str, str], list[RecordLocation]]:
    """Returns the first records of each class in each split, by (split, class name).

    Records are in the order of a salted hash of their keys, so that the first are a fair sample,
    and the same in every run.

    Args:
        dataset: the dataset.
        numbers: split to class name to how many; the class "" means all records.
    """
    found: dict[tuple[str, str], list[RecordLocation]] = {}
    for split, counts in numbers.items():
        missing = {name: n for name, n in counts.items() if n > 0}
        read = 0
        for shard in dataset.manifest.splits[split].shards:
            sought = missing.keys() & _names_in(shard, dataset.manifest)
            if sought and read < MAX_INDEXES:
                read += 1
                _collect(dataset, shard, split, missing, found)
    return found


def _collect(
    dataset: Dataset,
    shard: ShardEntry,
    split: str,
    missing: dict[str, int],
    found: dict[tuple[str, str], list[RecordLocation]],
) -> None:
    """Moves what one shard has from `missing` to `found`."""
    sought = set(missing) & _names_in(shard, dataset.manifest)
    for location in dataset.locations(shard, sought - {""}):
        for name in location.classes or ("",):
            if name in sought:
                found.setdefault((split, name), []).append(location)
                missing[name] -= 1
                if not missing[name]:
                    del missing[name]
                    sought.discard(name)
        if not sought:
            return


def _names_in(shard: ShardEntry, manifest: Manifest) -> set[str]:
    """Returns the names of the classes that a shard holds; {""} without classes."""
    feature = class_feature(manifest)
    if feature is None:
        return {""} if shard.records else set()
    names = manifest.resolved
    held = shard.classes.get(feature, {}).items()
    return {names.class_name(feature, label) for label, count in held if count}


def class_feature(manifest: Manifest) -> str | None:
    """Returns the feature whose classes are in the indexes, if any."""
    return next(iter(manifest.dataset_schema.class_features), None)
