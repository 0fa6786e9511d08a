"""The coder of references: compact, and lossless for boxes and outlines as well."""

from __future__ import annotations

import hashlib

import pytest
from apache_beam import coders
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.dataset_info import ShardVerification
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.records import ImageRef
from recordmill.transforms.elements import (
    CompressedBatchCoder,
    ImageRefCoder,
    OrderedRefsCoder,
    VerificationBatch,
)
from recordmill.transforms.functional.rows.batches import OrderedRefs

PLAIN = ImageRef("k", "t.csv", 2, "a.jpg", None, None, (None, b"x", 7, [1.5], []), "train", "g")


@pytest.mark.parametrize(
    "ref",
    [
        PLAIN,
        PLAIN._replace(start=0, stop=2**40),
        PLAIN._replace(boxes=("pixel", [1.0, 2.5, 1e300, float("-inf")], (640.0, 480.0))),
        PLAIN._replace(others=(("s3://b/m.png", None, None, b""), ("", 0, 2, b"at hand"))),
        PLAIN._replace(
            outlines=(
                "pixel",
                [(1, [[0.5, 1, 2, 3, 4, 5]]), (2, {"size": [2, 2], "counts": "04"})],
                None,
            )
        ),
    ],
)
def test_references_survive_a_round_trip(ref: ImageRef) -> None:
    coder = ImageRefCoder()
    assert coder.decode(coder.encode(ref)) == ref


FIELDS = {
    "key": st.text(max_size=3),
    "file": st.sampled_from(["t.csv", "u.csv"]),
    "line": st.integers(0, 3),
    "uri": st.sampled_from(["", "a.jpg"]),
    "start": st.none() | st.integers(0, 1),
    "values": st.tuples(st.sampled_from([0.0, -0.0, 1, None, b"", [1.5]])),
    "split": st.sampled_from(["", "train"]),
}


@given(st.lists(st.fixed_dictionaries(FIELDS).map(lambda fields: PLAIN._replace(**fields))))
def test_batches_of_references_survive_a_round_trip(refs: list[ImageRef]) -> None:
    coder = OrderedRefsCoder()
    batch = OrderedRefs.of((bytes([i]), ref) for i, ref in enumerate(refs))
    found = coder.decode(coder.encode(batch))
    assert type(found) is OrderedRefs
    assert repr(list(found)) == repr(list(batch))  # unlike ==, distinguishes 0.0 and -0.0


def test_a_reference_in_a_batch_takes_no_more_bytes_than_alone() -> None:
    refs = [PLAIN._replace(key=f"k{i}", line=i + 300) for i in range(100)]
    alone = sum(len(ImageRefCoder().encode(ref)) for ref in refs)
    ordered = OrderedRefs.of((bytes(16), ref) for ref in refs)
    assert len(OrderedRefsCoder().encode(ordered)) < 0.7 * (alone + 100 * 18)
    one = OrderedRefsCoder().encode(ordered[:1])
    assert len(one) <= len(ImageRefCoder().encode(refs[0])) + 18 + 2 * len(PLAIN) + 8


def test_the_encoded_size_is_a_few_bytes_per_box_coordinate() -> None:
    coder = ImageRefCoder()
    plain = len(coder.encode(PLAIN))
    assert plain < 80
    assert len(coder.encode(PLAIN._replace(boxes=("pixel", [1.0] * 40)))) < plain + 40 * 9 + 20


def test_verifications_of_shards_take_under_200_bytes_each() -> None:
    def verification(index: int) -> ShardVerification:
        digests = [hashlib.sha256(f"{name}{index}".encode()).hexdigest() for name in "abc"]
        name = f"birds-train.tfrecord-{index:05}-of-99999"
        entry = ShardEntry(
            file=name,
            records=10,
            payload=1000 + index,
            bytes=1160 + index,
            sha256=digests[0],
            crc32c=index * 7919,
            index_file=f"records/{name}",
            index_sha256=digests[1],
            images={},
        )
        return ShardVerification("train", index, entry, 9000 + index, fingerprint=digests[2])

    batch = VerificationBatch(map(verification, range(256)))
    coder = coders.registry.get_coder(VerificationBatch)
    assert isinstance(coder, CompressedBatchCoder)
    found = coder.decode(coder.encode(batch))
    assert type(found) is VerificationBatch
    assert found == batch
    assert len(coder.encode(batch)) < 200 * len(batch)
