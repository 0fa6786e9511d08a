"""Encoded references: they travel as bytes, or as the place of these bytes in a spill file."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from recordmill.schemas import layout
from recordmill.transforms import elements
from recordmill.transforms.elements import (
    EncodedRefs,
    GatheredRefs,
    OrderedRefsCoder,
    PickleCoder,
    Spilled,
    joined,
)
from recordmill.transforms.functional.rows.batches import OrderedRefs
from tests.beam.direct import ref

ROWS = [(bytes([n]), ref(f"{n}.jpg", n)) for n in range(7)]


def encoded(*parts: slice) -> EncodedRefs:
    coder = OrderedRefsCoder()
    return EncodedRefs(tuple(coder.encode(OrderedRefs.of(ROWS[part])) for part in parts))


@pytest.mark.parametrize("parts", [(), (b"ab", b"c"), Spilled("/run/x", 5, 700)])
def test_encoded_references_travel_as_they_are(parts: tuple[bytes, ...] | Spilled) -> None:
    coder, refs = PickleCoder(), EncodedRefs(parts)
    found = coder.decode(coder.encode(refs))
    assert found == refs
    assert type(found.parts) is type(parts)


def test_the_references_of_a_shard_are_joined() -> None:
    assert (
        list(joined([encoded(slice(3), slice(3, 5)), EncodedRefs(), encoded(slice(5, 7))])) == ROWS
    )
    assert list(joined([])) == []


def test_references_are_decoded_from_a_file_of_the_run(tmp_path: Path) -> None:
    gathered = GatheredRefs()
    for shard, part in ((("train", 0), slice(3)), (("test", 1), slice(3, 7))):
        gathered.add(shard, OrderedRefs.of(ROWS[part]))
    places = dict(gathered.take(str(tmp_path / "run")))
    (file,) = (tmp_path / "run" / layout.STAGING).iterdir()
    # So a later run deletes it if this one is killed.
    assert layout.is_temporary(f"{layout.STAGING}/{file.name}")
    assert list(places) == [("train", 0), ("test", 1)]
    assert all(isinstance(place.parts, Spilled) for place in places.values())
    sent = pickle.loads(pickle.dumps(places))  # noqa: S301 - as to a writer process
    assert list(joined(sent.values())) == ROWS


def test_references_are_gathered_by_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [encoded(part).read()[0] for part in (slice(2), slice(2, 4), slice(4, 7))]
    monkeypatch.setattr(elements, "_GATHERED_BYTES", sum(map(len, parts)))
    gathered = GatheredRefs()
    gathered.add(("train", 0), OrderedRefs.of(ROWS[:2]))
    gathered.add(("test", 1), OrderedRefs.of(ROWS[2:4]))
    assert not gathered.are_many
    gathered.add(("train", 0), OrderedRefs.of(ROWS[4:]))
    assert gathered.are_many
    expected = {("train", 0): encoded(slice(2), slice(4, 7)), ("test", 1): encoded(slice(2, 4))}
    assert dict(gathered.take()) == expected
    assert (gathered.are_many, list(gathered.take())) == (False, [])
