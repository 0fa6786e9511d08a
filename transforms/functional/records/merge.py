"""Merges the records of a base version's shard with those of new rows, in their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from recordmill.schemas.config import OnConflict
from recordmill.schemas.records import CopiedRecord, SerializedExample, Unchanged
from recordmill.schemas.rejects import Reason, Reject

# What a shard is written from; rejects and unchanged rows are counted.
Merged: TypeAlias = "CopiedRecord | SerializedExample | Unchanged | Reject"

# The treatment of copied images, if it is not known.
COPIED = "copied"


def merge_records(
    old: Iterable[CopiedRecord],
    new: Iterable[SerializedExample | Reject],
    order: Callable[[str], bytes],
    on_conflict: OnConflict = "fail",
    removed: Collection[str] = frozenset(),
) -> Iterator[Merged]:
    """Yields the records of a shard in order, and the outcome of each new row.

    Records with one key are the same if their bytes are. Of two that differ, `on_conflict` keeps
    one. All old records are yielded, those that are left out as `is_removed`. `old` is the records
    of the base's shard, in order. `new` is the records of new rows in order, and their rejects.
    `order`: returns the order hash of a key. `on_conflict`: which of two different records with one
    key is written; "fail" rejects the new row.
    """
    remaining = (r._replace(is_removed=r.key in removed) for r in old)
    waiting = next(remaining, None)
    for record in new:
        if isinstance(record, Reject):  # an old record with its key stays
            yield record
            continue
        key = record.ref.key
        # Different keys can have one order hash: references, too, are sorted by hash and key.
        position = (order(key), key)
        while waiting and (order(waiting.key), waiting.key) < position:
            yield waiting
            waiting = next(remaining, None)
        if waiting and waiting.key == key:
            yield from _resolved(waiting, record, on_conflict)
            waiting = next(remaining, None)
        else:
            yield record
    if waiting:
        yield waiting
    yield from remaining


def _resolved(
    old: CopiedRecord, new: SerializedExample, on_conflict: OnConflict
) -> Iterator[Merged]:
    """Yields the outcome of two records with one key."""
    if old.is_removed:
        yield old
        yield new
        return
    split = old.row["split"]
    moves = new.ref.split not in ("", split)
    if on_conflict == "keep" or (old.data == new.data and not moves):
        yield old
        yield Unchanged(new.rows)
    elif on_conflict == "update" and not moves:
        yield old._replace(is_removed=True)
        yield new
    else:
        detail = "has other values or another image than the record with its key in --base"
        if moves:
            detail = (
                f"states the split {new.ref.split!r}; expected {split!r}, as in --base. Fix it."
            )
        yield old
        for row in new.frames or (new,):
            yield Reject.of(row.ref, Reason.CHANGED_RECORD, detail)


def copied_images(images: Mapping[str, int], records: int, removed: int) -> Counter[str]:
    """Returns the number of copied images by treatment.

    `images`: those of the base's shard. `removed`: how many of them are not copied, whose
    treatments are not known.

    >>> copied_images({"jpeg kept": 3}, 3, 1), copied_images({"jpeg kept": 2, "png kept": 1}, 3, 1)
    (Counter({'jpeg kept': 2}), Counter({'copied': 2}))
    """
    if not removed or not images:
        return Counter(images)
    if len(images) == 1 and images.get(next(iter(images))) == records:
        return Counter({name: records - removed for name in images if records > removed})
    return Counter({COPIED: records - removed} if records > removed else {})
