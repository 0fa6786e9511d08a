"""Tests of image paths without a suffix: it is that of the files, if all have the same one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.options import config_of, with_implied_options
from recordmill.transforms.inputs.first_rows import missing_suffix
from recordmill.transforms.inputs.input_tables import probe_tables

NAMES = ("1a", "2b", "3c")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = ["id_code,label", *(f"{name},0" for name in NAMES)]
    (tmp_path / "train.csv").write_text("\n".join(lines))
    (tmp_path / "photos").mkdir()
    return tmp_path


def options(folder: Path, **others: Any) -> dict[str, Any]:
    return {
        "input": [str(folder / "train.csv")],
        "output": "out",
        "name": "birds",
        "image_root": str(folder / "photos"),
        "columns": {"image": "id_code"},
        **others,
    }


def found(folder: Path, **others: Any) -> str:
    config = config_of(options(folder, **others))
    return missing_suffix(config, probe_tables(config))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (("1a.jpg", "2b.jpg", "3c.jpg"), ".jpg"),
        (("1a.PNG", "3c.PNG"), ".PNG"),
        (("1a.jpg", "2b.png"), ""),
        (("1a.jpg", "1a.png"), ""),
        (("1a.jpg", "2b"), ""),
        (("1a.txt",), ""),
        ((), ""),
    ],
    ids=str,
)
def test_the_suffix_is_that_of_all_files(
    folder: Path, files: tuple[str, ...], expected: str
) -> None:
    for name in files:
        (folder / "photos" / name).touch()
    assert found(folder) == expected


def test_a_stated_suffix_and_paths_with_a_suffix_are_kept(folder: Path) -> None:
    for name in NAMES:
        (folder / "photos" / f"{name}.jpg").touch()
    assert found(folder, image_suffix=".png") == ""
    (folder / "train.csv").write_text("id_code,label\n1a.png,0\n2b,0\n")
    assert found(folder) == ""


def test_tables_without_images_and_folders_have_none(folder: Path) -> None:
    assert found(folder, schema="tabular", columns={}) == ""
    (folder / "photos" / "1a.jpg").touch()
    assert found(folder, input=[str(folder / "photos")], image_root=None, columns={}) == ""


def test_nothing_outside_of_the_image_root_is_looked_for(folder: Path) -> None:
    (folder / "1a.jpg").touch()
    (folder / "train.csv").write_text("id_code,label\n../1a,0\n")
    assert found(folder) == ""
    assert found(folder, allow_outside_root=True) == ".jpg"


def test_the_suffix_is_an_implied_option(folder: Path) -> None:
    (folder / "photos" / "1a.jpg").touch()
    given = options(folder)
    config, tables = with_implied_options(given, probe_tables(config_of(given)))
    assert config.image_suffix == ".jpg"
    assert tables.recognized == (
        "image paths: .jpg is added, as in files; --image_suffix sets another",
    )


def test_a_note_states_that_files_have_another_unicode_form(folder: Path) -> None:
    (folder / "train.csv").write_text("id_code,label\n\xe9,0\ne,1\n")
    note = "image paths: files with names in another Unicode form (NFC, NFD) are read"
    for name, expected in (("\xe9.jpg", False), ("e\u0301.jpg", True)):
        (folder / "photos" / name).touch()
        config = config_of(options(folder))
        config, tables = with_implied_options(options(folder), probe_tables(config))
        assert config.image_suffix == ".jpg"
        assert (note in tables.recognized) is expected
        (folder / "photos" / name).unlink()
