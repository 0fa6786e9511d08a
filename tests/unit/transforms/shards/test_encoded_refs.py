"""Encoded references: they travel as bytes, or as the place of these bytes in a spill file."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.transforms.elements import OrderedRefsCoder
from recordmill.transforms.functional.rows.batches import OrderedRefs
from recordmill.transforms.shards import encoded_refs
from recordmill.transforms.shards.encoded_refs import (
    EncodedRefs,
    EncodedRefsCoder,
    GatheredRefs,
    Spilled,
    joined,
    spilled,
    spilling_to,
)
from tests.beam.direct import ref

ROWS = [(bytes([n]), ref(f"{n}.jpg", n)) for n in range(7)]


def encoded(*parts: slice) -> EncodedRefs:
    coder = OrderedRefsCoder()
    return EncodedRefs(tuple(coder.encode(OrderedRefs.of(ROWS[part])) for part in parts))


@pytest.mark.parametrize("parts", [(), (b"ab", b"c"), Spilled("/run/x", 5, 700)])
def test_encoded_references_travel_as_they_are(parts: tuple[bytes, ...] | Spilled) -> None:
    coder, refs = EncodedRefsCoder(), EncodedRefs(parts)
    found = coder.decode(coder.encode(refs))
    assert found == refs
    assert type(found.parts) is type(parts)


def test_the_references_of_a_shard_are_joined() -> None:
    assert (
        list(joined([encoded(slice(3), slice(3, 5)), EncodedRefs(), encoded(slice(5, 7))])) == ROWS
    )
    assert list(joined([])) == []


def test_references_are_decoded_from_a_spill_file(tmp_path: Path) -> None:
    refs = {("train", 0): encoded(slice(3), slice(3, 5)), ("test", 1): encoded(slice(5, 7))}
    assert spilled(refs) == refs  # without a folder
    with spilling_to(str(tmp_path / "run")):
        places = spilled(refs)
    assert places.keys() == refs.keys()
    assert all(isinstance(place.parts, Spilled) for place in places.values())
    assert list(joined(places.values())) == ROWS


def test_references_are_gathered_by_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = encoded(slice(2)), encoded(slice(2, 3), slice(3, 4)), encoded(slice(4, 7))
    sizes = [sum(map(len, part.read())) for part in parts]
    monkeypatch.setattr(encoded_refs, "_GATHERED_BYTES", sum(sizes))
    gathered = GatheredRefs()
    gathered.add(("train", 0), OrderedRefs.of(ROWS[:2]))
    gathered.add(("test", 1), parts[1])
    assert not gathered.are_many
    gathered.add(("train", 0), parts[2])
    assert gathered.are_many
    expected = {("train", 0): encoded(slice(2), slice(4, 7)), ("test", 1): parts[1]}
    assert gathered.take() == expected
    assert (gathered.are_many, gathered.take()) == (False, {})
