"""Spill files: elements are read back from where they were written, if there is a folder at all."""

from __future__ import annotations

import pickle
from pathlib import Path

from recordmill.schemas import layout
from recordmill.transforms.shards.encoded_refs import spill, spilling_to

ELEMENTS = [b"first", b"", b"\0third" * 9]


def test_elements_are_read_back_from_one_file_of_the_run(tmp_path: Path) -> None:
    with spilling_to(str(tmp_path / "run")):
        places = spill(ELEMENTS)
        others = spill(ELEMENTS[:1])
    files = list((tmp_path / "run" / layout.STAGING).iterdir())
    # So a later run deletes them if this one is killed.
    assert all(layout.is_temporary(f"{layout.STAGING}/{file.name}") for file in files)
    assert len(files) == 2
    assert {place.path for place in places} != {place.path for place in others}
    sent = pickle.loads(pickle.dumps(places))  # noqa: S301 - as to a writer process
    assert [place.read() for place in sent] == ELEMENTS


def test_elements_stay_in_memory_without_a_folder(tmp_path: Path) -> None:
    unmade = iter(ELEMENTS)
    with spilling_to(""):
        assert spill(unmade) == []
    with spilling_to(str(tmp_path)):
        pass
    assert spill(unmade) == []
    assert list(unmade) == ELEMENTS
    assert list(tmp_path.iterdir()) == []
