"""Every file of the saved corpus is parsed or rejected as documented."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.transforms.inputs.formats import FORMATS
from tests.fuzz import CORPUS
from tests.fuzz.seeds import seeds
from tests.fuzz.targets import TARGETS, read_folder

FILES = sorted(path for path in CORPUS.rglob("*") if path.is_file())


def test_every_target_has_a_corpus() -> None:
    assert {path.parent.name for path in FILES} == TARGETS.keys()


@pytest.mark.parametrize("name", [n for n, f in FORMATS.items() if f.declared.is_folder])
def test_a_file_of_a_folder_is_read_as_a_row(name: str) -> None:
    contents = [path.read_bytes() for path in FILES if path.parent.name == name]
    assert any(read_folder(name, data) for data in contents)


def test_seeds_are_in_the_corpus() -> None:
    absent = [
        f"{target}/{name}" for target, name, _ in seeds() if not (CORPUS / target / name).exists()
    ]
    assert absent == [], "Run python -m tests.fuzz.seeds"


@pytest.mark.timeout(10)
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_files_of_the_corpus_end_as_documented(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())
