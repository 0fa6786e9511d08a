"""The order of references within a shard, where rows with the same key meet."""

from __future__ import annotations

from collections.abc import Iterable

from recordmill.schemas.masking import masked_source
from recordmill.schemas.records import ImageRef, source_of
from recordmill.schemas.rejects import Reason, Reject


def in_order(placed: Iterable[tuple[bytes, ImageRef]]) -> tuple[list[ImageRef], list[Reject]]:
    """Returns a shard's references in their order, and the rejects of those that repeat a key.

    Of rows with one key the first counts: the one whose file and line come first.
    """
    kept: list[ImageRef] = []
    repeated: list[Reject] = []
    for _, ref in sorted(placed):
        if kept and kept[-1].key == ref.key:
            repeated.append(duplicate_of(ref, kept[-1].file, kept[-1].line))
        else:
            kept.append(ref)
    return kept, repeated


def duplicate_of(ref: ImageRef, file: str, line: int) -> Reject:
    """Returns the reject of a row whose key stands in an earlier one."""
    first = masked_source(source_of(file, line))
    detail = f"the key stands in {first}, too; only the first row counts"
    return Reject.of(ref, Reason.DUPLICATE_KEY, detail)
