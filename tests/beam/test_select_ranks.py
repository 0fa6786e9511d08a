"""SelectRanks: the same positions as in one sorted list, however rows are bundled."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pvalue import AsIter
from apache_beam.testing.util import assert_that, equal_to

from recordmill.transforms.functional.rows.placement import END
from recordmill.transforms.select_ranks import End, Hashes, SelectRanks
from tests.beam.direct import direct_pipeline


def encoded(positions: Mapping[str, list[int]]) -> Hashes:
    return {
        group: b"".join(position.to_bytes(8, "big") for position in found)
        for group, found in positions.items()
    }


def _chosen(counts: Mapping[str, int], given: Any, expected: Mapping[str, int]) -> Any:
    assert (dict(counts), list(given)) == (expected, ["given"])
    return {group: [0, 0, count // 3, count - 1, count] for group, count in counts.items()}


@pytest.mark.parametrize("seed", range(3))
def test_ranks_are_those_of_one_sorted_list(seed: int) -> None:
    random = Random(seed)
    batches = []
    for _ in range(9):
        some = {
            group: [random.getrandbits(64) for _ in range(random.randrange(40))] for group in "ab"
        }
        batches.append({**some, "one": [2**63]})
    batches += batches[:2]  # rows with one key have one position
    distinct = {
        group: sorted({position for batch in batches for position in batch[group]})
        for group in ("a", "b", "one")
    }
    counts = {group: len(found) for group, found in distinct.items()}
    expected = {
        group: [End(rank, found[rank]) for rank in (0, 0, len(found) // 3, len(found) - 1)]
        + [End(len(found), END)]
        for group, found in distinct.items()
    }
    with direct_pipeline() as p:
        given = p | "Given" >> beam.Create(["given"])
        hashes = p | beam.Create(list(map(encoded, batches))) | beam.Reshuffle()
        choose = partial(_chosen, expected=counts)
        found = hashes | SelectRanks(choose, AsIter(given))
        assert_that(found, equal_to([expected]))


def test_a_group_without_rows_has_no_position() -> None:
    with direct_pipeline() as p:
        found = p | beam.Create([{}]) | SelectRanks(lambda counts: {"none": [7], "nothing": []})
        assert_that(found, equal_to([{"none": [End(7, END)], "nothing": []}]))
