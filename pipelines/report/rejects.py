"""Shows examples of rejected rows per reason, with what can be decoded of the image."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from recordmill.pipelines.report.samples import (
    NO_THUMBNAIL,
    THUMBNAIL_SIDE,
    Thumbnail,
    ThumbnailBudget,
)
from recordmill.schemas.masking import is_masked
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.rendering.drawing import thumbnail_of_damaged
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.files import read_bytes
from recordmill.transforms.storage.local_files import UNRESTRICTED, ImageRootGuard
from recordmill.transforms.workers.sandbox import run_in_subprocess

SHOWN_PER_REASON = 6

_MAX_IMAGE_BYTES = 32 * 2**20
_SECONDS = 10.0


@dataclass(frozen=True)
class ShownReject:
    """One rejected row."""

    key: str
    uri: str  # the path or URL of the image, or ""
    source: str
    detail: str  # the message: what was expected, and what was found
    thumbnail: Thumbnail = NO_THUMBNAIL  # the part of the image that can be decoded


@dataclass(frozen=True)
class RejectGroup:
    """The rejects of one reason."""

    reason: str  # the value of a `Reason`
    meaning: str
    count: int
    shown: tuple[ShownReject, ...]


def reject_groups(
    dataset: Dataset, budget: ThumbnailBudget, guard: ImageRootGuard = UNRESTRICTED
) -> list[RejectGroup]:
    """Returns the rejects of a run by reason, most frequent first."""
    chosen = _choose(dataset.rejects())
    ranked = sorted(dataset.manifest.input.reasons.items(), key=lambda item: (-item[1], item[0]))
    return [
        RejectGroup(
            reason,
            Reason(reason).meaning,
            count,
            tuple(_shown(reject, budget, guard) for reject in chosen.get(reason, [])),
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


def _shown(reject: dict[str, Any], budget: ThumbnailBudget, guard: ImageRootGuard) -> ShownReject:
    thumbnail = _thumbnail(reject, guard)
    return ShownReject(
        reject["key"],
        reject["uri"],
        reject["source"],
        reject["detail"],
        budget.admit(thumbnail) if thumbnail else NO_THUMBNAIL,
    )


def _thumbnail(reject: dict[str, Any], guard: ImageRootGuard) -> Thumbnail | None:
    """Returns a thumbnail of the part of a rejected image that can be decoded, or None."""
    if not (_has_image(reject) and Reason(reject["reason"]).has_pixels):
        return None
    # Images in archives have a byte range; others are whole files, read up to a limit.
    start, stop = reject.get("start", 0), reject.get("stop", _MAX_IMAGE_BYTES)
    try:
        guard.check(reject["uri"])
        data = read_bytes(reject["uri"], start, min(stop, start + _MAX_IMAGE_BYTES))
        return Thumbnail.of(
            *run_in_subprocess(thumbnail_of_damaged, data, THUMBNAIL_SIDE, timeout=_SECONDS)
        )
    except RecordError:
        return None


def _has_image(reject: dict[str, Any]) -> bool:
    """Returns whether the image can be read again: it is not embedded, and its URL not masked."""
    uri = reject["uri"]
    # An image embedded in a table has no byte range, and its staging file has been deleted.
    embedded = "start" not in reject and reject["source"].rpartition(":")[0] == uri
    return bool(uri) and not embedded and not is_masked(uri)
