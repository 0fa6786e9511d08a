"""Tests of references as columns: they are the same references, keys and groups as one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.records import ImageRef
from recordmill.transforms.functional.rows.batches import OrderedRefs, RefBatch

TEXT = st.sampled_from(["", "a", "b"])
REFS = st.lists(
    st.builds(
        ImageRef,
        key=TEXT,
        file=st.sampled_from(["t.csv", "u.csv"]),
        line=st.integers(0, 3),
        uri=TEXT,
        start=st.none() | st.integers(0, 1),
        stop=st.none(),
        values=st.sampled_from([(), (0.0, None), (-0.0, [1])]),  # () of a broken frame
        split=TEXT,
        group=TEXT,
        boxes=st.none() | st.just(("pixel", [0.5], None)),
        others=st.sampled_from([None, (("a", None, None, b""),), (("a", 0, 1, b"s"),)]),
        outlines=st.none(),
        frame=st.sampled_from([None, ("s", "1", "", ""), ("r", "2", "", "")]),
        staged=st.sampled_from([b"", b"s"]),
        cluster=TEXT,
    ),
    max_size=6,
)


@given(REFS)
def test_references_have_the_keys_of_their_records(refs: list[ImageRef]) -> None:
    batch = RefBatch.of(refs)
    assert [*batch] == refs
    assert [*batch.records] == [ref.record_key for ref in refs]
    assert [*batch.entities] == [r.cluster or r.group or r.record_key for r in refs]


@given(REFS, st.data())
def test_references_are_ordered(refs: list[ImageRef], data: st.DataObject) -> None:
    orders = [bytes([i]) for i in range(len(refs))]
    pairs = list(zip(orders, refs, strict=True))
    for batch in (OrderedRefs.of(pairs), OrderedRefs.of_refs(orders, RefBatch.of(refs))):
        assert [*batch] == pairs
        assert batch == pairs
        assert [*batch.column("order")] == orders
        assert batch.refs == refs
        assert OrderedRefs.of(batch) is batch
        assert [batch[i] for i in range(len(pairs))] == pairs
        some = data.draw(st.slices(len(pairs)))
        assert batch[some] == pairs[some]
        assert OrderedRefs.joined([batch, pairs]) == pairs * 2
