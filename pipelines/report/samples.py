"""Samples the records of each class and the rejects of each reason, and draws thumbnails.

Records are read by byte range.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import Any

from recordmill.pipelines.report import statistics
from recordmill.schemas.errors import VerificationFailed
from recordmill.schemas.features import Schema
from recordmill.schemas.manifest import Manifest, ShardEntry
from recordmill.schemas.masking import is_masked
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.statistics import RecordExample
from recordmill.transforms.functional.read_ahead import map_in_threads
from recordmill.transforms.functional.records.examples import read_first_frame
from recordmill.transforms.functional.rendering import drawing
from recordmill.transforms.storage.dataset import DatasetFolder, RecordLocation
from recordmill.transforms.storage.files import read_bytes
from recordmill.transforms.storage.local_files import ImageRootGuard
from recordmill.transforms.storage.shard_files import uncompressed
from recordmill.transforms.workers.sandbox import run_in_subprocess

# Side of the square that a thumbnail fits into, in pixels.
THUMBNAIL_SIDE = 168

# Limit of the size of a record that is drawn.
MAX_RECORD_BYTES = 64 * 2**20

# Limit of the offset of records in compressed shards: all bytes before a record are decompressed.
MAX_UNZIPPED_BYTES = 256 * 2**20

# Index files that a search for rare classes may read per split.
MAX_INDEXES = 256

# Target number of samples on a page.
SAMPLES = 180

SAMPLES_PER_CLASS = 4

_QUALITY = 70
_SECONDS = 10.0

# Concurrent reads, which hide the latency of object stores; independent of the cores.
_THREADS = 8


@dataclass(frozen=True)
class Thumbnail:
    """A small image embedded in a page."""

    url: str = ""  # a data: URL; "" if there is no image
    width: int = 0  # the width in pixels
    height: int = 0  # the height in pixels
    error: str = ""  # the reason why there is no image

    @classmethod
    def of(cls, jpeg: bytes, size: tuple[int, int]) -> Thumbnail:
        """Returns the thumbnail of an encoded image of (width, height) pixels."""
        return cls("data:image/jpeg;base64," + base64.b64encode(jpeg).decode("ascii"), *size)


NO_THUMBNAIL = Thumbnail()


@dataclass
class ThumbnailBudget:
    """The limit of the size of all thumbnails on a page."""

    remaining: int  # the remaining bytes
    omitted: int = field(default=0)

    def admit(self, thumbnail: Thumbnail) -> Thumbnail:
        """Returns a thumbnail, or one without an image if it exceeds the remaining bytes."""
        if len(thumbnail.url) > self.remaining:
            self.omitted += 1
            return Thumbnail(error="omitted to limit the size of this page")
        self.remaining -= len(thumbnail.url)
        return thumbnail


def _thumbnails(
    dataset: DatasetFolder, locations: Iterable[RecordLocation], budget: ThumbnailBudget
) -> dict[RecordLocation, Thumbnail]:
    """Returns the thumbnails of records, with their objects and masks.

    For sequences, of the first frame.
    """
    schema = dataset.manifest.dataset_schema
    if not schema.image_feature:
        return {}
    names = dataset.manifest.classes.get(drawing.box_label_of(schema) or "", ())
    # In file order, because compressed shards are read sequentially.
    ordered = sorted(set(locations), key=lambda at: (at.split, at.shard, at.record))
    # Records with the same image are drawn once, unless boxes, masks or other images make them look
    # different.
    alike = schema.encoded_image and not (schema.has_annotations or schema.image_names)
    images = {at: at.sha256 if alike and at.sha256 else at for at in ordered}
    firsts: dict[str | RecordLocation, RecordLocation] = {}
    for at, image in images.items():
        firsts.setdefault(image, at)
    reads = _reads(dataset, list(firsts.values()))
    # Reads overlap with drawing.
    results = map_in_threads(lambda read: _draw(read(), schema, names), reads, _THREADS)
    drawn = dict(zip(firsts, results, strict=True))
    return {at: budget.admit(drawn[image]) for at, image in images.items()}


def example_images(
    dataset: DatasetFolder, budget: ThumbnailBudget
) -> dict[RecordExample, tuple[RecordLocation, Thumbnail]]:
    """Returns the examples of duplicate, similar and low-quality images of a dataset."""
    manifest, shards = dataset.manifest, dataset.shards()
    near, quality = manifest.near_duplicates, manifest.quality
    examples = [
        example
        for group in (*manifest.content.groups, *(near.examples if near else ()))
        for example in group.examples
    ]
    issues = quality.issues.values() if quality else ()
    examples += [example for issue in issues for _, example in issue.examples]
    located, shard_of = dict[RecordExample, RecordLocation](), attrgetter("split", "shard")
    for shard_id, group in groupby(sorted(examples, key=shard_of), key=shard_of):
        found = {at.index: at for at in group}
        locations = dataset.located(shards[shard_id], list(found))  # each index is read once
        located.update(zip(found.values(), locations, strict=True))
    drawn = _thumbnails(dataset, located.values(), budget)
    return {at: (found, drawn.get(found, NO_THUMBNAIL)) for at, found in located.items()}


def _draw(record: bytes | str, schema: Schema, class_names: tuple[str, ...]) -> Thumbnail:
    """Returns the thumbnail of a serialized record; an error text replaces the image."""
    if isinstance(record, str):
        return Thumbnail(error=record)
    try:
        features = drawing.with_drawn_keys(schema, read_first_frame(record))
        # The sandbox handles decoders that crash, hang or need too much memory.
        if drawing.is_cheap_to_draw(features):
            image = drawing.draw_record(features, THUMBNAIL_SIDE, class_names)
        else:
            image = run_in_subprocess(
                drawing.draw_record, features, THUMBNAIL_SIDE, class_names, timeout=_SECONDS
            )
    except (RecordError, ValueError) as error:
        return Thumbnail(error=drawing.error_detail(error))
    return Thumbnail.of(drawing.to_jpeg(image, _QUALITY), image.size)


def _reads(
    dataset: DatasetFolder, locations: list[RecordLocation]
) -> Iterator[Callable[[], bytes | str]]:
    """Yields a function per record, which returns the record, or an error text if it is skipped."""
    shards = dataset.shards()
    for shard_id, group in groupby(locations, key=lambda at: (at.split, at.shard)):
        if dataset.shard_format.seekable:
            yield from (partial(_read, dataset, shards[shard_id], location) for location in group)
        else:
            yield from _reads_in_order(dataset.path(shards[shard_id].file), group)


def _read(dataset: DatasetFolder, shard: ShardEntry, location: RecordLocation) -> bytes | str:
    if location.length > MAX_RECORD_BYTES:
        return "the record is too large to draw"
    try:
        return dataset.record(shard, location.record, (location.offset, location.length))
    except VerificationFailed as error:
        return str(error)


def _reads_in_order(
    path: str, locations: Iterable[RecordLocation]
) -> Iterator[Callable[[], bytes | str]]:
    """Yields functions that return the records of a shard that is not seekable, read in one pass.

    `locations` are in the order of their offsets, as seeking backwards would decompress again.
    """
    with uncompressed(path) as stream:
        for location in locations:
            record: bytes | str = "too far into a compressed shard to be read"
            if location.offset + location.length <= MAX_UNZIPPED_BYTES:
                stream.seek(location.offset)
                record = stream.read(location.length)
            yield partial(_identity, record)


def _identity(record: bytes | str) -> bytes | str:
    return record


def samples(
    dataset: DatasetFolder, tables: list[statistics.ClassTable], budget: ThumbnailBudget
) -> dict[str, dict[str, list[tuple[RecordLocation, Thumbnail]]]]:
    """Returns sample records with their thumbnails, by class (or "", without classes) and split."""
    manifest = dataset.manifest
    rows = _sampled_rows(tables, manifest)
    # One cell per class and split; a single class gets four times as many samples.
    cells = max(1, len(rows) * len(manifest.splits))
    each = min(
        4 * SAMPLES_PER_CLASS if len(rows) == 1 else SAMPLES_PER_CLASS, max(1, SAMPLES // cells)
    )
    numbers = {
        split: {row.name: min(each, row.counts[i]) for row in rows}
        for i, split in enumerate(manifest.ordered_splits)
    }
    locations = _sample_locations(dataset, numbers)
    drawn = _thumbnails(dataset, chain.from_iterable(locations.values()), budget)
    return {
        row.name: {
            split: [
                (at, drawn.get(at, NO_THUMBNAIL)) for at in locations.get((split, row.name), [])
            ]
            for split in manifest.ordered_splits
        }
        for row in rows
    }


def _sampled_rows(
    tables: list[statistics.ClassTable], manifest: Manifest
) -> tuple[statistics.ClassRow, ...]:
    # The index files have the class names of the first feature.
    feature = next(iter(manifest.dataset_schema.class_features), None)
    table = next((table for table in tables if table.feature == feature), None)
    # Without a class feature, all records form one row. Empty classes have no samples.
    if table is None:
        counts = tuple(split.records for split in manifest.ordered_splits.values())
        return (statistics.ClassRow("", 0, counts),) if feature is None else ()
    return statistics.most_and_least_frequent(table.present, statistics.SAMPLED_CLASSES)


def _sample_locations(
    dataset: DatasetFolder, numbers: Mapping[str, Mapping[str, int]]
) -> dict[tuple[str, str], list[RecordLocation]]:
    """Returns the locations of the first records of each class and split.

    Records are ordered by a salted hash of their keys, so the first ones are a fair sample, the
    same in every run. `numbers` is the number of records by class name, by split; the class ""
    stands for all records.
    """
    # {(split, class name): [RecordLocation]}
    found: dict[tuple[str, str], list[RecordLocation]] = {}
    for split, counts in numbers.items():
        missing = {name: n for name, n in counts.items() if n > 0}
        shards = (shard for shard in dataset.manifest.splits[split].shards if shard.records)
        for shard in islice(shards, MAX_INDEXES):
            if missing:
                _collect(dataset, shard, split, missing, found)
    return found


def _collect(
    dataset: DatasetFolder,
    shard: ShardEntry,
    split: str,
    missing: dict[str, int],
    found: dict[tuple[str, str], list[RecordLocation]],
) -> None:
    """Adds the locations in one shard to `found`, and subtracts them from `missing`."""
    for location in dataset.locations(shard, missing.keys() - {""}):
        # A record can have several boxes of a class, and is one sample of it.
        for name in dict.fromkeys(location.classes or ("",)):
            if name in missing:
                found.setdefault((split, name), []).append(location)
                missing[name] -= 1
                # A class with enough samples is not searched in later shards.
                if not missing[name]:
                    del missing[name]
        if not missing:
            return


SHOWN_PER_REASON = 6

_MAX_IMAGE_BYTES = 32 * 2**20


@dataclass(frozen=True)
class RejectGroup:
    """The rejects of one reason."""

    reason: str  # the value of a `Reason`
    meaning: str
    count: int
    # Some of them, each with the part of its image that can be decoded.
    shown: tuple[tuple[dict[str, Any], Thumbnail], ...]


def reject_groups(
    dataset: DatasetFolder, budget: ThumbnailBudget, guard: ImageRootGuard
) -> list[RejectGroup]:
    """Returns the rejects of a run by reason, most frequent first."""
    chosen = _choose(dataset.rejects())
    ranked = sorted(dataset.manifest.input.reasons.items(), key=lambda item: (-item[1], item[0]))
    return [
        RejectGroup(
            reason,
            Reason(reason).meaning,
            count,
            tuple((one, budget.admit(_thumbnail(one, guard))) for one in chosen.get(reason, [])),
        )
        for reason, count in ranked
    ]


def _choose(rejects: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Returns a few rejects of each reason, independent of their order in the file."""
    # Per reason, a heap of the rejects with the smallest digests: bounded memory, and the same
    # choice in every run. {reason: [(rank, number, reject)]}
    kept: dict[str, list[tuple[int, int, dict[str, Any]]]] = {}
    for number, reject in enumerate(rejects):  # the number breaks ties: dicts cannot be compared
        rank = -int.from_bytes(_digest(reject)[:8], "big")  # negative, for heapq's min-heap
        heap = kept.setdefault(reject["reason"], [])
        entry = (rank, number, reject)
        if len(heap) < SHOWN_PER_REASON:
            heapq.heappush(heap, entry)
        elif rank > heap[0][0]:
            heapq.heapreplace(heap, entry)
    return {
        reason: sorted((reject for _, _, reject in heap), key=lambda r: (r["source"], r["key"]))
        for reason, heap in kept.items()
    }


def _digest(reject: dict[str, Any]) -> bytes:
    text = "\0".join(reject[name] for name in ("key", "source", "detail"))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).digest()


def _thumbnail(reject: dict[str, Any], guard: ImageRootGuard) -> Thumbnail:
    """Returns a thumbnail of the part of a rejected image that can be decoded."""
    if not (_has_image(reject) and Reason(reject["reason"]).has_pixels):
        return NO_THUMBNAIL
    # Images in archives have a byte range; others are whole files, read up to a limit.
    start, stop = reject.get("start", 0), reject.get("stop", _MAX_IMAGE_BYTES)
    try:
        guard.check(reject["uri"])
        data = read_bytes(reject["uri"], start, min(stop, start + _MAX_IMAGE_BYTES))
        return Thumbnail.of(
            *run_in_subprocess(drawing.thumbnail_of_damaged, data, THUMBNAIL_SIDE, timeout=_SECONDS)
        )
    except RecordError:
        return NO_THUMBNAIL


def _has_image(reject: dict[str, Any]) -> bool:
    """Returns whether the image can be read again: it is not embedded, and its URL not masked."""
    uri = reject["uri"]
    # An image embedded in a table has no byte range, and its staging file has been deleted.
    embedded = "start" not in reject and reject["source"].rpartition(":")[0] == uri
    return bool(uri) and not embedded and not is_masked(uri)
