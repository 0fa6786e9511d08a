"""Splits that an input states: no row is added to another split, and none is empty unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

import recordmill
from tests.end_to_end import readers
from tests.end_to_end.command import convert, published
from tests.images import jpeg

BOX = "0 0.5 0.5 0.25 0.25\n"


def put(root: Path, **images: str) -> Path:
    """Writes images by folder, with labels of YOLO in the same folders below labels/."""
    for number, (image, split) in enumerate(images.items()):
        for folder, suffix in (("images", "jpg"), ("labels", "txt")):
            path = root / folder / split / f"{image}.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg(seed=number) if suffix == "jpg" else BOX.encode())
    return root


def test_only_images_that_a_split_names_are_converted(tmp_path: Path) -> None:
    root = put(tmp_path / "in", a="one", b="two", c="three")
    yaml = "train: .\\images\\one\nval: images/two\ntest: images/none\nnames: [cat]\n"
    (root / "data.yaml").write_text(yaml)
    dataset = published(root, tmp_path / "out")
    found = {split: len(readers.keys(dataset, split)) for split in ("train", "val")}
    assert found == {"train": 1, "val": 1}
    shown = {f.kind: f for f in recordmill.open(dataset).findings if f.severity == "warning"}
    assert shown["empty_split"].splits == ("test",)
    left = "the input states the split 'test', but no row is left for it: it has none, or all were"
    assert shown["empty_split"].text == f"{left} rejected"
    assert any("1 image that no split of the source names" in f.text for f in shown.values())
    everything = published(root, tmp_path / "all", "--split_column", "none")
    assert len(readers.keys(everything, "train")) == 3


def test_a_split_whose_rows_are_left_out_says_so(tmp_path: Path) -> None:
    root = put(tmp_path / "in", a="train", b="val")
    (root / "classes.txt").write_text("cat\n")
    dataset = published(root, tmp_path / "out", "--where", "split == 'val'")
    (text,) = (f.text for f in recordmill.open(dataset).findings if f.kind == "empty_split")
    left = "the input states the split 'train', but no row is left for it: it has none, or all were"
    assert text == f"{left} rejected or outside of --where"


def test_an_input_without_splits_beside_one_with_splits_is_an_error(tmp_path: Path) -> None:
    root = put(tmp_path / "in", a="train", b="val")
    (root / "classes.txt").write_text("cat\n")
    other = put(tmp_path / "other", c="x", d="y")
    (other / "classes.txt").write_text("cat\n")
    ended = convert(root, tmp_path / "out", "--input", other)
    assert (ended.code, "/other: expected a split, because" in ended.err) == (2, True)
    ended = convert(root, tmp_path / "out", "--input", other, "--split_column", "none")
    assert ended.code == 0, ended.err


def test_an_empty_group_is_a_message_that_names_the_option(tmp_path: Path) -> None:
    (tmp_path / "1.jpg").write_bytes(jpeg())
    (tmp_path / "a.csv").write_text("image,label,patient\n1.jpg,cat,\n")
    ended = convert(tmp_path / "a.csv", tmp_path / "out", "--group_column", "patient")
    assert (
        "--group_column patient: empty; a row alone needs its own value, such as its key"
        in ended.err
    )
    assert "its key, whatever its default. Fill in" in ended.err


@pytest.mark.parametrize(
    ("train", "val", "shown"),
    [
        ("images/one", "images/two", 0),
        ("images/one", "images/one", 1),
        ("images/one", "images", 1),
        ("[images/one, images/two]", "images/two", 1),
        ("train.txt", "val.txt", 1),
    ],
)
def test_images_of_several_splits_are_counted(
    train: str, val: str, shown: int, tmp_path: Path
) -> None:
    root = put(tmp_path / "in", a="one", b="two")
    (root / "train.txt").write_text("images/one/a.jpg\nimages/two/b.jpg\n")
    (root / "val.txt").write_text("images/two/b.jpg\n")
    # The folder may be named by its own name, from above.
    (root / "data.yaml").write_text(f"path: ..\\in\ntrain: {train}\nval: {val}\nnames: [cat]\n")
    found = recordmill.open(published(root, tmp_path / "out")).findings
    texts = [f.text for f in found if "several splits" in f.text and f.severity == "warning"]
    assert [text.startswith("1 image that several") for text in texts] == [True] * shown


def table(tmp_path: Path, *rows: str) -> Path:
    for name in "abc":
        (tmp_path / f"{name}.jpg").write_bytes(jpeg(16, 12, ord(name)))
    (tmp_path / "t.csv").write_text("\n".join(("image,label,split", *rows)) + "\n")
    return tmp_path / "t.csv"


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("grouped")
    return published(table(folder, *ROWS[:2]), folder / "out", "--group_column", "split")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [(("--splits", "a=1,b=1"), ["lost_groups"]), (("--folds", "2"), ["lost_groups"]), ((), [])],
)
def test_groups_that_another_division_may_split_are_a_warning(
    flags: tuple[str, ...], expected: list[str], grouped: Path, tmp_path: Path
) -> None:
    dataset = published(grouped, tmp_path, *flags)
    found = [f.kind for f in recordmill.open(dataset).findings if f.severity == "warning"]
    assert [kind for kind in found if kind == "lost_groups"] == expected


ROWS = ("a.jpg,cat,train", "b.jpg,cat,test", "c.jpg,cat,")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), [("unused_splits", "warning")]),
        (("--split_column", "none"), []),
        (("--split_column", "split"), [("rows_without_split", "warning")]),
        (
            ("--split_column", "split", "--splits", "train=0.5,test=0.5"),
            [("rows_without_split", "note")],
        ),
    ],
    ids=str,
)
def test_rows_that_a_split_column_does_not_assign_are_findings(
    flags: tuple[str, ...], expected: list[tuple[str, str]], tmp_path: Path
) -> None:
    dataset = published(table(tmp_path, *ROWS), tmp_path / "out", *flags)
    found = recordmill.open(dataset).findings
    shown = [
        (f.kind, f.severity) for f in found if f.kind in ("unused_splits", "rows_without_split")
    ]
    assert shown == expected
