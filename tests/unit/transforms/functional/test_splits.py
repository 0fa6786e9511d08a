"""Compares the parsing of split specifications with TFDS."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from tensorflow_datasets.core import splits as tfds_splits

from recordmill.schemas.errors import UsageError
from recordmill.transforms.functional.splits import (
    RecordRange,
    SplitSlice,
    parse_split,
    record_ranges,
    share_of,
)

LENGTHS = {"train": [3, 0, 5, 2], "test": [4]}

lengths = st.dictionaries(
    st.sampled_from(["train", "test", "validation"]),
    st.lists(st.integers(0, 50), min_size=1, max_size=5).filter(any),
    min_size=1,
)


def by_tfds(spec, counts):
    """Returns (split, start, stop) of each part of a specification, as parsed by TFDS."""
    infos = {
        name: tfds_splits.SplitInfo(name=name, shard_lengths=list(shards), num_bytes=0)
        for name, shards in counts.items()
    }
    parts = tfds_splits.AbstractSplit.from_spec(spec).to_absolute(infos)
    return [
        (p.splitname, p.from_ or 0, infos[p.splitname].num_examples if p.to is None else p.to)
        for p in parts
    ]


@st.composite
def slices(draw):
    unit = draw(st.sampled_from(["", "%"]))
    bound = st.none() | st.integers(-100, 100)
    start, stop = draw(bound), draw(bound)
    assume(start is not None or stop is not None)
    return ":".join("" if b is None else f"{b}{unit}" for b in (start, stop))


@st.composite
def specs(draw):
    counts = draw(lengths)
    part = st.builds(
        lambda split, bounds: f"{split}[{bounds}]" if bounds else split,
        st.sampled_from(sorted(counts)),
        st.none() | slices(),
    )
    return "+".join(draw(st.lists(part, min_size=1, max_size=3))), counts


@given(specs())
@example(("train[:50%]+train[50%:]", {"train": [5]}))  # half a record, rounded to an even number
def test_slices_agree_with_tfds(given_):
    spec, counts = given_
    try:
        expected = by_tfds(spec, counts)
    except ValueError:
        with pytest.raises(UsageError):
            parse_split(spec, counts)
        return
    expected = [(split, start, max(start, stop)) for split, start, stop in expected]
    assert [tuple(part) for part in parse_split(spec, counts)] == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("train", [("train", 0, 10)]),
        ("all", [("train", 0, 10), ("test", 0, 4)]),
        ("test + train", [("test", 0, 4), ("train", 0, 10)]),
        ("train[10%:20%]", [("train", 1, 2)]),
        ("train[:100%]", [("train", 0, 10)]),
        ("train[:12.5%]", [("train", 0, 1)]),
        ("train[-3:-1]", [("train", 7, 9)]),
        ("train[:1_0]", [("train", 0, 10)]),
        ("train[5:2]", [("train", 5, 5)]),
        ("train[0shard]", [("train", 0, 3)]),
        ("train[-1shard]", [("train", 8, 10)]),
        ("train[2shard:]", [("train", 3, 10)]),
        ("train[:-1shard]", [("train", 0, 8)]),
    ],
)
def test_slices(spec, expected):
    assert [tuple(part) for part in parse_split(spec, LENGTHS)] == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "'' is not a valid split; expected as in train,"),
        ("train+", "'' is not a valid split"),
        ("valid", "unknown split 'valid'; available: train, test"),
        ("train[", "'train[' is not a valid split"),
        ("train[]", "[] is not a valid slice"),
        ("train[:]", "[:] is not a valid slice"),
        ("train[3]", "only a shard can be selected by one number"),
        ("train[a:b]", "[a:b] is not a valid slice"),
        ("train[1:2:3]", "[1:2:3] is not a valid slice"),
        ("train[1:20%]", "two units"),
        ("train[:1.5]", "1.5 is not an integer"),
        ("train[:101%]", "101% is not within -100% to 100%"),
        ("train[:11]", "[:11] exceeds the 10 records of the split"),
        ("train[-11:]", "[-11:] exceeds the 10 records"),
        ("train[4shard]", "[4shard] exceeds the 4 shards"),
        ("all[:5]", "all splits together cannot be sliced"),
    ],
)
def test_invalid_split_specifications_are_reported(spec, message):
    with pytest.raises(UsageError) as rejected:
        parse_split(spec, LENGTHS)
    assert str(rejected.value).startswith(f"split {spec!r}: ")
    assert message in str(rejected.value)


def records_of(parts):
    """Returns the records one by one: (split, number)."""
    return [(part.split, n) for part in parts for n in range(part.start, part.stop)]


def records_in(found, counts):
    """Returns the records of shard parts one by one: (split, number over all shards)."""
    return [
        (part.split, sum(counts[part.split][: part.shard]) + n)
        for part in found
        for n in range(part.skip, part.skip + part.take)
    ]


@st.composite
def parted(draw):
    counts = draw(lengths)
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        split = draw(st.sampled_from(sorted(counts)))
        bound = st.integers(0, sum(counts[split]))
        parts.append(SplitSlice(split, *sorted([draw(bound), draw(bound)])))
    return parts, counts


@given(parted())
def test_record_ranges_contain_exactly_the_records(given_):
    parts, counts = given_
    found = record_ranges(parts, counts)
    assert records_in(found, counts) == records_of(parts)
    assert all(0 < p.take <= counts[p.split][p.shard] - p.skip for p in found)


@given(parted(), st.integers(1, 7))
def test_shares_divide_all_records_evenly(given_, count):
    parts, _ = given_
    shares = [records_of(share_of(parts, index, count)) for index in range(count)]
    assert [record for share in shares for record in share] == records_of(parts)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_record_ranges_of_slices():
    parts = parse_split("train[2:9]+test[:1]", LENGTHS)
    assert record_ranges(parts, LENGTHS) == [
        RecordRange("train", 0, 2, 1),
        RecordRange("train", 2, 0, 5),
        RecordRange("train", 3, 0, 1),
        RecordRange("test", 0, 0, 1),
    ]
