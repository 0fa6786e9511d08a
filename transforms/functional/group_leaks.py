"""Which groups (`--group_column`) have rows in more than one split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from recordmill.schemas.duplicates import EXAMPLES, GroupLeaks


def splits_of(splits: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Returns the splits that occur in some lists of them, sorted.

    >>> splits_of([("train",), ("test", "train")])
    ('test', 'train')
    """
    return tuple(sorted({split for some in splits for split in some}))


def leaks_of(group: str, splits: tuple[str, ...]) -> Iterator[GroupLeaks]:
    """Yields that a group is in several splits, if it is."""
    if len(splits) > 1:
        yield GroupLeaks(groups=1, examples=((group, splits),))


def merge_group_leaks(leaks: Iterable[GroupLeaks]) -> GroupLeaks:
    """Returns the sum of what is known of different groups."""
    parts = list(leaks)
    examples = sorted(example for part in parts for example in part.examples)
    return GroupLeaks(
        groups=sum(part.groups for part in parts), examples=tuple(examples[:EXAMPLES])
    )
