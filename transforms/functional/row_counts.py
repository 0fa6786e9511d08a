"""What in a manifest does not add up, before any other file is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from recordmill.schemas.manifest import Manifest, SplitEntry


def wrong_sums(manifest: Manifest) -> Iterator[str]:
    """Yields every sum that is wrong, in words: rows, records and images, in all and by split."""
    books, splits = manifest.input, manifest.splits
    if books.rows != books.written + books.rejected + books.duplicates:
        yield "the rows do not add up"
    frames = [split.frames for split in splits.values() if split.frames is not None]
    if books.frames != (sum(frames) if frames else None):
        yield "the splits' frames do not add up to all frames"
    if books.records != sum(split.records for split in splits.values()):
        yield "the splits' records do not add up to all records"
    if books.rejected != books.unplaced + sum(split.rejected for split in splits.values()):
        yield "the splits' rejects do not add up to all rejects"
    if books.rejected != sum(books.reasons.values()):
        yield "the reasons do not add up to all rejects"
    if books.duplicates != sum(split.duplicates for split in splits.values()):
        yield "the splits' dropped rows do not add up to all of them"
    for name, split in splits.items():
        if split.rows != split.written + split.rejected + split.duplicates:
            yield f"the rows of split {name!r} do not add up"
        if split.frames is not None and split.frames != sum(s.frames or 0 for s in split.shards):
            yield f"the frames of split {name!r} do not add up"
        if split.records != sum(shard.records for shard in split.shards):
            yield f"the shards of split {name!r} do not add up"
    if manifest.images != _images_of(splits.values()):
        yield "the shards' images do not add up to all images"


def _images_of(splits: Iterable[SplitEntry]) -> Mapping[str, int]:
    total: Counter[str] = Counter()
    for split in splits:
        for shard in split.shards:
            total.update(shard.images)
    return total
