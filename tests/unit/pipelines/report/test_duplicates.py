"""Groups of records with the same image."""

from __future__ import annotations

import hashlib
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.pipelines.report import image_issues
from recordmill.pipelines.report.image_issues import find_duplicates
from recordmill.schemas.errors import VerificationFailed
from recordmill.schemas.statistics import DuplicateStats, Leakage
from recordmill.transforms.storage.dataset import Dataset
from tests.unit.pipelines.report.index_only import CLASSES, dataset

RECORDS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), max_size=12)
SPLITS = st.fixed_dictionaries(
    {"test": st.lists(RECORDS, max_size=2), "train": st.lists(RECORDS, min_size=1, max_size=3)}
)


@settings(max_examples=40)
@given(SPLITS)
def test_duplicate_groups_equal_those_of_a_brute_force_search(tmp_path_factory, splits):
    found = find_duplicates(dataset(tmp_path_factory.mktemp("x"), splits))
    expected = defaultdict(list)
    for split, shards in splits.items():
        for i, records in enumerate(shards):
            for n, (label, image) in enumerate(records):
                digest = hashlib.sha256(str(image).encode()).hexdigest()
                expected[digest].append((split, CLASSES[label], f"{split}-{i}-{n}"))
    duplicated = {digest: copies for digest, copies in expected.items() if len(copies) > 1}
    assert {group.locations[0].sha256 for group in found} == duplicated.keys()
    for group in found:
        copies = duplicated[group.locations[0].sha256]
        assert group.records == len(copies)
        assert group.spans_splits == (len({split for split, _, _ in copies}) > 1)
        assert group.conflicting == (len({label for _, label, _ in copies}) > 1)
        shown = {(at.split, at.classes[0], at.key) for at in group.locations}
        assert shown <= set(copies)
        assert len(shown) == min(len(copies), image_issues.SHOWN_DUPLICATES)
        if group.spans_splits:
            assert len({split for split, _, _ in shown}) > 1
    ranks = [(not group.spans_splits, not group.conflicting) for group in found]
    assert ranks == sorted(ranks)


def test_a_share_of_too_many_records_is_compared_in_complete_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(image_issues, "MAX_RECORDS", 20)
    monkeypatch.setattr(image_issues, "SHOWN_GROUPS", 100)
    splits = {"train": [[(0, i) for i in range(40)]], "test": [[(0, i) for i in range(40)]]}
    found = find_duplicates(dataset(tmp_path, splits))
    digests = sorted(hashlib.sha256(str(i).encode()).hexdigest() for i in range(40))
    chosen = [d for d in digests if int(d[:16], 16) <= 2**64 / 4]
    assert sorted(group.locations[0].sha256 for group in found) == chosen
    assert all(group.records == 2 and group.spans_splits for group in found)


def test_no_index_is_read_if_there_are_no_duplicates(tmp_path):
    made = dataset(tmp_path, {"train": [[(0, 1)]]})
    plain = made.manifest.model_copy(update={"content": DuplicateStats()})
    (tmp_path / made.manifest.splits["train"].shards[0].index_file).unlink()
    assert find_duplicates(Dataset(str(tmp_path), plain)) == ()
    leaky = DuplicateStats(leaks=(Leakage(splits=("a", "b"), images=1, records=2),))
    with pytest.raises(VerificationFailed, match="is missing"):
        find_duplicates(Dataset(str(tmp_path), made.manifest.model_copy(update={"content": leaky})))


def test_duplicates_are_found_in_more_than_255_splits(tmp_path):
    splits = {f"s{i:03d}": [[(0, 1)]] for i in range(300)}
    (group,) = find_duplicates(dataset(tmp_path, splits))
    assert (group.records, group.spans_splits) == (300, True)
