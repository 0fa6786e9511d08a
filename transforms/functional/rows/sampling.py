"""Selects a sample of the rows by a hash of their keys: a larger sample contains a smaller one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.records import Embedded, Location, Row, SkippedInput
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.functional.rows.identities import record_key
from recordmill.transforms.functional.rows.placement import Positions, sample_position

# The kind of skipped input that rows outside of the sample are counted as.
OUTSIDE = "rows outside of --sample"

_POSITIONS = 2**64

# An element of a source.
Found = TypeVar("Found", bound="Row | Embedded | Reject | SkippedInput")


@dataclass(frozen=True)
class Sampler:
    """Selects the rows whose hash positions are before an end.

    Rows that are rejected before they have a key are sampled as well, so that the reject budget
    applies to a sample as to all rows.
    """

    binding: Binding
    seed: int  # the seed of the run; another seed gives another sample
    end: int = _POSITIONS  # the exclusive end of the positions in the sample, up to 2^64

    @classmethod
    def of(cls, config: ConvertConfig, binding: Binding) -> Sampler:
        """Returns the sampler of a percentage of the rows.

        A number of rows has all rows at first.
        """
        part = config.sample_part
        return cls(binding, config.seed, _POSITIONS if part is None else int(part * _POSITIONS))

    def position(self, found: Row | Embedded | Reject) -> int:
        """Returns the hash position of a row: by the key of its record, or else by its source."""
        if isinstance(found, Reject):
            return sample_position(found.source, self.seed)
        # The location of an embedded image is not part of a key, and not known yet.
        row = found.row._replace(image=Location("")) if isinstance(found, Embedded) else found
        try:
            return sample_position(record_key(row, self.binding), self.seed)
        except RecordError:  # the row is rejected when it is bound
            return sample_position(row.source, self.seed)

    def has(self, found: Row | Embedded | Reject) -> bool:
        """Returns whether a row is in the sample; a reject for lost rows always is."""
        if isinstance(found, Reject) and found.reason is Reason.LOST_ROWS:
            return True
        return self.position(found) < self.end

    def select(self, elements: Iterable[Found]) -> Iterator[Found | SkippedInput]:
        """Yields the elements in the sample, and the number of rows that are not."""
        outside = 0
        for found in elements:
            if isinstance(found, SkippedInput) or self.has(found):
                yield found
            else:
                outside += 1
        if outside:
            yield SkippedInput(OUTSIDE, outside)

    def ending_after(self, first: Positions, rows: int) -> Sampler:
        """Returns the sampler of a number of rows.

        `first` is the first distinct positions of all rows, sorted; as many as there are rows, or
        all of them.
        """
        return self if len(first) < rows else replace(self, end=int(first[rows - 1]) + 1)


def first_positions(parts: Iterable[Positions], number: int) -> Positions:
    """Returns the first distinct positions, sorted.

    >>> first_positions([np.array([7, 3], np.uint64), np.array([3, 5], np.uint64)], 2).tolist()
    [3, 5]
    """
    first = np.empty(0, np.uint64)
    for part in parts:
        first = np.unique(np.concatenate([first, part]))[:number]
    return first
