"""AssignShards and RejectDuplicateKeys: split, shard and order of each row; one row per key."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from itertools import pairwise

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.plan import SplitRanges
from recordmill.schemas.records import ImageRef
from recordmill.transforms.assign_shards import (
    AssignShards,
    RejectDuplicateKeys,
    keys_may_span_shards,
)
from recordmill.transforms.functional.rows.batches import RefBatch
from tests.beam.direct import TABLE, as_tuples, config, direct_pipeline, flat, plan, ref, single

SHARDS = {"train": 5, "test": 2}
RANGES = SplitRanges.from_weights({"train": Decimal(3), "test": Decimal(1)})
REFS = [ref(f"{i}.jpg", line=i + 2) for i in range(40)]


def digest(seed: int, purpose: str, text: str) -> bytes:
    """Returns the documented hash: sha256 of seed, purpose and text, separated by NUL."""
    return hashlib.sha256(f"{seed}\0{purpose}\0{text}".encode()).digest()


def expected(refs: list[ImageRef], seed: int) -> list[tuple[object, ...]]:
    """Computes the assignment independently: a quarter of all hashes is for "test"."""
    assigned = []
    for one in refs:
        position = int.from_bytes(digest(seed, "split", one.group or one.key)[:8], "big")
        split = one.split or ("train" if position < 2**64 * 3 // 4 else "test")
        order = digest(seed, "order", one.key)[:16]
        shard = int.from_bytes(order, "big") * SHARDS[split] // 2**128
        assigned.append(((split, shard), (order, one)))
    return assigned


def assignment(p: beam.Pipeline, refs: list[ImageRef], seed: int = 0) -> beam.PCollection:
    plans = p | "Plan" >> beam.Create([plan(len(refs), **SHARDS)])
    batches = [RefBatch.of(some) for some in (refs[:7], refs[7:])]
    return p | "Refs" >> beam.Create(batches) | AssignShards(plans, RANGES, seed)


@pytest.mark.parametrize("seed", [0, 3])
def test_the_key_decides_split_shard_and_order(seed: int) -> None:
    with direct_pipeline() as p:
        assert_that(single(assignment(p, REFS, seed)), equal_to(expected(REFS, seed)))


def test_the_split_column_wins_over_the_group_and_the_group_over_the_key() -> None:
    own = [one._replace(split="test", group="g") for one in REFS[:10]]
    grouped = [one._replace(group="g") for one in REFS[10:20]]
    refs = own + grouped + REFS[20:]
    assigned = expected(refs, seed=0)
    splits = [split for (split, _), _ in assigned]
    assert set(splits[:10]) == {"test"}
    assert all(a == b for a, b in pairwise(splits[10:20]))
    assert set(splits[20:]) == {"train", "test"}
    with direct_pipeline() as p:
        assert_that(single(assignment(p, refs)), equal_to(assigned))


@pytest.mark.parametrize(
    "options",
    [{"split_column": "split"}, {"group_column": "place"}, {"deduplicate": "content"}],
    ids=str,
)
def test_only_the_first_row_with_a_key_is_kept(options: dict[str, str]) -> None:
    first = ref("twice.jpg", line=3)
    later = [ref("twice.jpg", line=line)._replace(split="test") for line in (10, 7)]
    with direct_pipeline() as p:
        refs = p | beam.Create([[later[0], first], [REFS[0], later[1]]])
        found = refs | RejectDuplicateKeys(config(**options), sequences=False)
        assert_that(flat(found.good), equal_to([first, REFS[0]]), label="Kept")
        rejects = [
            ("twice.jpg", "/images/twice.jpg", f"{TABLE}:{line}", "duplicate_key", "")
            for line in (7, 10)
        ]
        assert_that(as_tuples(found.rejects, "ToTuples"), equal_to(rejects), label="Rejects")


def test_rows_that_meet_in_a_shard_need_no_shuffle_for_their_keys() -> None:
    assert not keys_may_span_shards(config())
    assert not keys_may_span_shards(config(split_method="exact"))
    assert keys_may_span_shards(config(split_method="stratified"))


def test_sequences_in_several_splits_are_rejected_as_a_whole() -> None:
    def frame(sequence: str, line: int, split: str) -> ImageRef:
        frame = ref(f"{line}.jpg", line)
        return frame._replace(split=split, frame=(sequence, str(line), "", ""))

    whole = [frame("a", 2, "train"), frame("a", 3, "train")]
    spanning = [frame("b", 4, "train"), frame("b", 5, "test")]
    with direct_pipeline() as p:
        refs = p | beam.Create([[*spanning, *whole]])
        found = refs | RejectDuplicateKeys(config(split_column="split"), sequences=True)
        assert_that(flat(found.good), equal_to(whole), label="Kept")
        rejects = [
            (f"{line}.jpg", f"/images/{line}.jpg", f"{TABLE}:{line}", "context_differs", "")
            for line in (4, 5)
        ]
        assert_that(as_tuples(found.rejects, "ToTuples"), equal_to(rejects), label="Rejects")


def test_a_split_that_the_analyze_pass_did_not_see_fails_the_run() -> None:
    stray = REFS[0]._replace(split="validation")
    p = direct_pipeline()
    assignment(p, [stray] * 8)
    with pytest.raises(Exception, match="the table changed while it was read"):
        p.run()
