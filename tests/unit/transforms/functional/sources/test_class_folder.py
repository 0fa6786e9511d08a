"""Class folders: classes and splits of random trees are those of an independent walk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.schemas.errors import UsageError
from recordmill.schemas.findings import Finding
from recordmill.schemas.records import Row, SkippedInput
from recordmill.schemas.tables import Part, Projection, TableFile
from recordmill.transforms.functional.rows.feature_values import merged_class_names
from recordmill.transforms.functional.sources import class_folder
from recordmill.transforms.functional.sources.tree import NO_IMAGE, NO_SPLIT, is_hidden, parts_of
from recordmill.transforms.inputs.file_tree import FileTree
from recordmill.transforms.inputs.recognize import sources_of
from tests.images import jpeg

# As they are written on disks; the list of the product is in lower case.
SYSTEM = (
    *("@eaDir", "#recycle", "#snapshot", "$RECYCLE.BIN", "lost+found", "System Volume Information"),
    *("__MACOSX", ".Trash-1000", ".Trashes", ".Spotlight-V100", ".fseventsd", ".AppleDouble"),
    *(".thumbnails", ".git", ".dvc", ".svn", "__pycache__", ".ipynb_checkpoints", "@Recycle"),
    *("~snapshot", ".@__thumb", "Thumbs.db", "Desktop.ini", ".DS_Store"),
)
CLASSES = ("bird", "cat", "dog", "10", "9", "Recycled", "thumbnails", "date")
IMAGE = jpeg()

names = st.sampled_from(("1.jpg", "2.JPEG", "3.png", "notes.md", "a/4.jpg", "a/b/readme"))
folders = st.dictionaries(
    st.sampled_from(CLASSES),
    st.tuples(st.sets(names, max_size=3), st.sets(st.sampled_from(SYSTEM), max_size=2)),
    min_size=1,
)


def make(root: Path, tree: dict[str, tuple[set[str], set[str]]]) -> None:
    for folder, (files, system) in tree.items():
        (root / folder).mkdir(parents=True)
        for name in (*files, *(f"{name}/{folder}.jpg" for name in system)):
            (root / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (root / folder / name).write_bytes(IMAGE)


def converted(
    root: Path, file: TableFile | None = None
) -> tuple[tuple[str, ...], dict[str, tuple[str | None, str | None]]]:
    """Returns the classes of a folder, and label and split of each image."""
    tree = FileTree(str(root))
    if file is None:
        (file,) = class_folder.sources_in(tree).files
    declared = class_folder.probe(tree, file).classes["label"]
    rows = {}
    for part in parts_of(tree, file):
        if isinstance(part, Part):
            for row in class_folder.read(tree, part, Projection()):
                if isinstance(row, Row):
                    rows[row.values["image"]] = (row.values.get("label"), row.values.get("split"))
    labels = {label for label, _ in rows.values() if label is not None}
    return merged_class_names(labels, None, declared), rows


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(("", "train", "val", "Test")), folders, min_size=1))
def test_classes_and_splits_are_those_of_an_independent_walk(splits):
    splits = {"": splits[""]} if "" in splits else splits
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for split, tree in splits.items():
            make(root / split, tree)
        for name in SYSTEM[:3]:
            make(root, {name: ({"1.jpg"}, set())})
        expected, classes = {}, set()
        for split, tree in splits.items():
            for label, (files, _) in tree.items():
                found = []
                for top, below, names in os.walk(root / split / label):
                    below[:] = [n for n in below if n not in SYSTEM]
                    found += [os.path.join(top, n) for n in names if n not in SYSTEM]
                images = {os.path.relpath(path, root): (label, split or None) for path in found}
                # Every file that this test writes is an image by its first bytes.
                expected |= images
                if images or not files:
                    classes.add(label)
        if not expected:
            return
        found_classes, rows = converted(root)
        assert rows == expected
        assert found_classes == tuple(sorted(classes))


@pytest.mark.parametrize("name", SYSTEM)
def test_files_of_systems_and_tools_are_hidden_in_any_case(name: str) -> None:
    assert is_hidden(name)
    assert is_hidden(name.upper())
    assert not is_hidden(f"x{name}")


def test_images_beside_split_folders_are_skipped_and_counted(tmp_path: Path) -> None:
    make(tmp_path, {"train/cat": ({"1.jpg"}, set()), "val/cat": ({"2.JPEG"}, set())})
    (tmp_path / "cover.jpg").write_bytes(IMAGE)
    (tmp_path / "notes.md").write_text("notes")
    tree = FileTree(str(tmp_path))
    (file,) = class_folder.sources_in(tree).files
    (part,) = [s for s in parts_of(tree, file) if isinstance(s, Part)]
    skipped = [f for f in class_folder.read(tree, part, Projection()) if not isinstance(f, Row)]
    assert skipped == [
        SkippedInput(NO_IMAGE, 1, ("notes.md",)),
        SkippedInput(NO_SPLIT, 1, ("cover.jpg",)),
    ]


def found_in(tmp_path, *names, level=None):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            (tmp_path / name).write_bytes(b"text" if name.endswith(".md") else IMAGE)
    return sources_of(str(tmp_path), "auto", has_images=True, class_level=level)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("pets/cat/1.jpg", "pets/dog/2.jpg"), "in pets/, which would be the only class: cat, dog"),
        (("train/ds/cat/1.jpg", "val/ds/dog/1.jpg"), "in ds/, .*: cat, dog.*_level 3; .*_level 2"),
        (("a/b/c/cat/1.jpg", "a/b/c/dog/2.jpg", "a/b/x.md"), "in a/, .*: cat, dog.*_level 4; .* 1"),
        (
            tuple(f"{one}_set/{n}/1.jpg" for one in ("test", "train") for n in ("cat", "dog")),
            "test_set, train_set: would be classes, and are named like splits",
        ),
        (
            ("a/a/cat/1.jpg", "a/a/dog/2.jpg", "b/b/cat/3.jpg", "b/b/dog/4.jpg"),
            "in folders of the class folders: cat, dog.*_level 3; .*_level 1",
        ),
        (
            (*(f"site{n}/{name}/1.jpg" for n in range(12) for name in "ab"), "site99/a/1.jpg"),
            "in folders of the class folders: a, b.*_level 2; .*_level 1",
        ),
        (
            ("a/a/train/cat/1.jpg", "a/a/val/dog/1.jpg"),
            "only class: cat, dog.*_level 4; .*_level 1",
        ),
        (("cat/a/1.jpg", "dog/b/2.jpg"), "in folders of the class folders: a, b.*_level 2; .* 1"),
        (("c/siam/1.jpg", "c/manx/1.jpg", "d/pug/1.jpg"), "manx, pug, siam.*_level 2; .*_level 1"),
        (("cat/x/a/1.jpg", "dog/x/b/2.jpg"), "class folders: a, b.*_level 3; .*_level 1"),
        (("images/1.jpg", "images/2.jpg"), "in images/, which .*--image_root .*--class_level 1"),
        (("data/images/1.jpg", "docs/a.md"), "in images/, which would .*--class_level 2"),
        (("images/cat/1.jpg", "more/dog/2.jpg"), "cat, dog.*--class_level 2; .*--class_level 1"),
        (("images/1.png", "depth/1.png"), "images/ would be a class; .*--class_level 1"),
        (("train/img/1.png", "train/depth/1.png"), "train/img/ would be a class; .*_level 2"),
        (("images/train/1.png", "depth/train/1.png"), "images/ would be a class; .*_level 1"),
        (
            ("rgb/1.jpg", "rgb/2.jpg", "depth/1.png", "depth/2.png"),
            "depth, rgb: would be classes, and have images of the same names, as pairs have. If "
            "they are not, list them in a table with a column for each. .*--class_level 1",
        ),
        (
            tuple(
                f"{name}.jpg" for name in ("train/lr_x2/1", "train/hr/1", "val/hr/2", "val/lr_x2/2")
            ),
            "hr, lr_x2: would be .* pairs .*_level 2",
        ),
        (
            ("H10_part_1/1.jpg", "H10_part_2/2.jpg"),
            "H10_part_1, H10_part_2: would be classes, and have names that differ only in their "
            "numbers, as parts and sequences have. If they are not, merge .*--class_level 1",
        ),
        (("MOT17-02/img1/1.jpg", "MOT17-04/img1/1.jpg"), "MOT17-02, MOT17-04: .* numbers, as"),
        (
            ("archive/cat/1.jpg", "archive/dog/2.jpg", "cat/1.jpg", "dog/2.jpg"),
            "archive: would be classes, and have the names of other classes in it. If they are "
            "not, leave it out with --exclude archive/. To make them the classes, .* 1",
        ),
        (("trainA/1.png", "trainB/1.png", "testA/2.png"), "testA, trainA: would be classes, and"),
        (
            ("a/abbey/1.jpg", "a/attic/2.jpg", "b/bar/3.jpg", "b/barn/4.jpg"),
            "all images are in folders of the class folders: abbey, attic.*_level 2; .*_level 1",
        ),
        (
            ("img_celeba/1.jpg", "list_attr.txt"),
            "all images are in img_celeba/, which would be the only class; .*--class_level 1",
        ),
        (
            ("WIDER_train/a/1.jpg", "WIDER_val/a/2.jpg", "more/b/1.jpg"),
            "WIDER_train, WIDER_val: would be classes, and are named like splits. .* Name them .*"
            "To make them the classes, add --class_level 1. /.*: all images are in folders",
        ),
        (("train/1.jpg", "test1/2.jpg"), "test1, train: would be classes, and are named like"),
        (
            ("train/cat/1.jpg", "train/dog/2.jpg", "unlabeled/3.jpg"),
            "train: a class, not a split, because 'unlabeled' is not the name of a split. If it is "
            "one, with the classes cat, dog, leave out the other folders with --exclude unlabeled/",
        ),
    ],
)
def test_folders_of_several_levels_that_may_be_the_classes_stop(tmp_path, names, message):
    with pytest.raises(UsageError, match=message):
        found_in(tmp_path, *names)


def test_few_of_many_folders_in_the_class_folders_are_searched(tmp_path, monkeypatch):
    searched, has_file = list[str](), class_folder.has_file
    monkeypatch.setattr(
        class_folder, "has_file", lambda *of: searched.append(of[1]) or has_file(*of)
    )
    with pytest.raises(UsageError, match=r"0, 1, 10, …\. If these are the classes, "):
        found_in(tmp_path, *(f"{label}/{i}/1.jpg" for label in "ab" for i in range(120)))
    assert len(searched) < 120


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("images/cat/1.jpg", "images/dog/2.jpg"), "class folders in images/"),
        (("images/cat/1.jpg", "images/dog/2.jpg", "docs/a.md", "e/"), "class folders in images/"),
        (("data/images/cat/1.jpg", "data/images/dog/2.jpg"), "class folders in data/images/"),
        (("data/train/cat/1.jpg", "data/val/dog/1.jpg"), "within split folders in data/"),
        (("cat/1.jpg", "cat/x/1.jpg", "cat/y/1.jpg", "dog/x/1.jpg", "dog/y/2.jpg"), ""),
        (("cat/images/1.jpg", "dog/images/2.jpg", "dog/notes/a.md"), ""),
        (("cat/cat/1.jpg", "dog/dog/2.jpg"), ""),
        (("class_1/images/1.jpg", "class_2/images/2.jpg"), ""),
        (("n01443537/images/1.jpg", "n01629819/images/2.jpg"), ""),
        (("class1/1.jpg", "class2/2.jpg"), ""),
        (("n01443537/1.jpg", "n01629819/2.jpg"), ""),
        (("low/1.jpg", "high/2.jpg"), ""),
        (("shallow/1.jpg", "depth_charge/1.jpg"), ""),
        (("photo/1.jpg", "sketch/1.jpg", "README.md"), ""),
        (("test_tube/1.jpg", "train_station/1.jpg"), ""),
        (("cat/1.jpg", "dog/2.jpg"), ""),
    ],
)
def test_the_level_of_classes_is_found(tmp_path, names, text):
    found = found_in(tmp_path, *names)
    assert found.text.endswith(text)
    assert bool(found.text) == bool(text)
    assert found.findings == ()
    classes, rows = converted(tmp_path)
    expected = {name: name.split("/")[text.count("/") + ("split" in text)] for name in rows}
    assert {name: label for name, (label, _) in rows.items()} == expected
    assert {split for _, split in rows.values()} == (
        {"train", "val"} if "split" in text else {None}
    )
    assert set(classes) == {*expected.values()}


@pytest.mark.parametrize(
    "names", [("birds/img1/1.jpg",), ("train/birds/1.jpg", "test/birds/2.jpg")]
)
def test_one_class_is_a_note(tmp_path, names):
    (found,) = found_in(tmp_path, *names).findings
    assert found.line == f"note: {tmp_path}: all images are in birds/, the only class"
    assert found.hint == "labels in a table are read with --input TABLE --image_root DIR"


def test_equal_names_of_many_images_are_a_note(tmp_path):
    folders = ("train/photo", "train/sketch", "val/photo", "val/sketch")
    names = [f"{folder}/{n}.jpg" for folder in folders for n in range(10)]
    (found,) = found_in(tmp_path, *names).findings
    assert found.line == (
        f"note: {tmp_path}: photo, sketch: are read as classes, and have images of the same names, "
        "as pairs have"
    )
    assert found.hint == (
        "If they are not, list them in a table with a column for each. To confirm classes, "
        "add --class_level 2"
    )
    assert found_in(tmp_path, level=2).findings == ()
    assert found_in(tmp_path, "val/sketch/a.jpg").findings == ()


@pytest.mark.parametrize("names", [("0", "1"), ("cat_1", "cat_2"), ("2024-01-02", "2024-01-03")])
def test_classes_that_are_numbered_are_a_note(tmp_path, names):
    (found,) = found_in(tmp_path, *(f"{name}/{n}.jpg" for name in names for n in range(2))).findings
    assert (found.kind, found.severity, found.text) == (
        "parts_as_classes",
        "note",
        f"{tmp_path}: {', '.join(names)}: are read as classes, and have names that differ only in "
        "their numbers, as parts and sequences have",
    )
    assert found.hint.startswith("If they are not, merge their images into one folder per class")
    assert found_in(tmp_path, level=1).findings == ()


def test_splits_without_classes_stop(tmp_path):
    message = "test, train: would be classes, not splits, because they contain no folders"
    with pytest.raises(UsageError, match=message):
        found_in(tmp_path, "test/1.jpg", "train/1.jpg")
    (found,) = sources_of(str(tmp_path), "folder", has_images=True).findings
    assert found.text.endswith(message)
    assert found_in(tmp_path, level=1).findings == ()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("train/cat.0.jpg",), "train: a class, not a split, because it contains no folders. For"),
        (
            ("train/cat.0.jpg", "test1/1.jpg"),
            "test1, train: would be classes, and are named like splits. For labels in a table",
        ),
    ],
)
def test_a_folder_of_all_training_images_is_not_taken_for_a_class(tmp_path, names, message):
    with pytest.raises(UsageError, match=message):
        found_in(tmp_path, *names)


@pytest.mark.parametrize(
    ("names", "level", "expected"),
    [
        (("2023/a/1.jpg", "2024/b/1.jpg"), 1, {("2023", None), ("2024", None)}),
        (("2023/a/1.jpg", "2024/b/1.jpg"), 2, {("a", None), ("b", None)}),
        (("x/train/a/1.jpg", "x/test/b/1.jpg"), 3, {("a", "train"), ("b", "test")}),
        (("x/train/a/1.jpg", "x/test/b/1.jpg"), 2, {("train", None), ("test", None)}),
        (("2023/a/1.jpg", "2024/1.jpg"), 2, {("a", None), (None, None)}),
        (("train/a/1.jpg", "test/b/2.jpg", "docs/a.md"), 2, {("a", "train"), ("b", "test")}),
        (("x/train/a/1.jpg", "y/test/b/1.jpg", "y/e/a.md"), 3, {("a", "train"), ("b", "test")}),
        (("train/a/1.jpg", "b/c/1.jpg"), 2, {("a", None), ("c", None)}),
    ],
)
def test_the_level_of_classes_is_stated(tmp_path, names, level, expected):
    (file,), _, _, findings = found_in(tmp_path, *names, level=level)
    _, rows = converted(tmp_path, file)
    assert set(rows.values()) == expected
    assert findings == ()


@pytest.mark.parametrize("format_", ["auto", "folder"])
def test_images_beside_splits_at_a_stated_level_are_a_warning(tmp_path, format_):
    found_in(tmp_path, "test/a/1.jpg", "train/a/2.jpg", "docs/a.md", "my own/b/3.jpg", level=2)
    found = sources_of(str(tmp_path), format_, has_images=True, class_level=2)
    _, rows = converted(tmp_path, found.files[0])
    assert set(rows.values()) == {("a", None), ("b", None)}
    assert found.findings == (
        Finding(
            kind="splits_as_folders",
            severity="warning",
            text=f"{tmp_path}: test, train: not splits, because 'my own' has images and is not "
            "the name of a split",
            hint="If they are splits, leave out the other folders, as with --exclude 'my own/'",
            examples=("test", "train"),
        ),
    )


@pytest.mark.parametrize(
    ("names", "level", "text"),
    [
        (("cat/train/1.jpg", "cat/val/2.jpg", "dog/train/3.jpg", "e/"), None, "class folders with"),
        (("images/cat/train/1.jpg", "images/dog/val/2.jpg", "images/cat/a.md"), None, "in images/"),
        (("cat/train/1.jpg", "cat/val/2.jpg"), 1, "class folders of level 1 with"),
        (("cat/train/x/1.jpg", "cat/val/y/2.jpg", "dog/val/y/2.jpg"), 1, "of level 1 with"),
        (("a/cat/train/1.jpg", "b/dog/val/2.jpg"), 2, "of level 2 with split folders in them"),
    ],
)
def test_splits_in_class_folders_are_found(tmp_path, names, level, text):
    found = found_in(tmp_path, *names, level=level)
    assert text in found.text
    assert "with split folders in them" in found.text
    assert found.findings == ()
    _, rows = converted(tmp_path, found.files[0])
    split_of = {name: "train" if "train" in name else "val" for name in rows}
    class_of = {name: "cat" if "cat" in name else "dog" for name in rows}
    assert rows == {name: (class_of[name], split_of[name]) for name in rows}
    assert len(rows) == sum(name.endswith(".jpg") for name in names)
    probe = class_folder.probe(FileTree(str(tmp_path)), found.files[0])
    assert sorted(probe.splits) == ["train", "val"]


def test_one_folder_with_splits_is_not_taken_for_a_class(tmp_path):
    with pytest.raises(UsageError, match=r"only class: train, val\..*_level 2; .*_level 1\."):
        found_in(tmp_path, "cat/train/1.jpg", "cat/val/2.jpg")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("cat/3.jpg", "images are beside them"),
        ("dog/3.jpg", "the images in 'dog' are in none"),
        ("dog/more/3.jpg", "'dog/more' has images and is not the name of a split"),
    ],
)
def test_images_beside_splits_in_class_folders_are_a_warning(tmp_path, name, why):
    (found,) = found_in(tmp_path, "cat/train/1.jpg", "cat/val/2.jpg", name, level=1).findings
    assert found.text == f"{tmp_path}: train, val: not splits, because {why}"


@pytest.mark.parametrize(
    ("names", "ending"),
    [
        (
            ("cat/train/1.jpg", "cat/val/2.jpg", "dog/train/3.jpg", "my zoo/1.jpg"),
            "the images in 'my zoo' are in none. If they are splits, leave out the other folders, "
            "as with --exclude 'my zoo/' --class_level 1. If they are not, add --class_level 1.",
        ),
        (
            ("images/cat/train/1.jpg", "images/dog/val/2.jpg", "images/cat/3.jpg"),
            "images are beside them. If they are splits, move the images into them. "
            "If they are not, add --class_level 2.",
        ),
    ],
)
def test_images_beside_splits_in_class_folders_stop_a_run(tmp_path, names, ending):
    with pytest.raises(UsageError) as error:
        found_in(tmp_path, *names)
    assert str(error.value) == f"{tmp_path}: train, val: not splits, because {ending}"


def test_the_command_that_leaves_out_folders_beside_splits_works(tmp_path):
    found_in(tmp_path, "cat/train/1.jpg", "cat/val/2.jpg", "zoo/3.jpg", level=1)
    found = sources_of(str(tmp_path), "auto", True, exclude=("zoo/",), class_level=1)
    assert found.findings == ()
    assert found.text == "class folders of level 1 with split folders in them"


def test_folders_at_three_levels_are_offered_as_the_classes(tmp_path):
    with pytest.raises(UsageError) as error:
        found_in(
            tmp_path, "pets/animals/cat/1.jpg", "pets/animals/dog/2.jpg", "pets/plants/x/3.jpg"
        )
    assert str(error.value) == (
        f"{tmp_path}: all images are in pets/, which would be the only class: animals, plants. "
        "If these are the classes, add --class_level 2; if those in them are, add --class_level 3; "
        "if the folders above are, add --class_level 1. Folders named train, test, … directly "
        "above the classes, or in them, are splits."
    )
    found = sources_of(str(tmp_path), "auto", has_images=True, class_level=3)
    _, rows = converted(tmp_path, found.files[0])
    assert sorted(rows.values()) == [("cat", None), ("dog", None), ("x", None)]


def test_folders_whose_files_are_all_skipped_are_a_warning(tmp_path):
    names = ("train/a/1.md", "train/b/1.jpg", "train/c/1.md", "train/c/2.md", "val/c/3.md")
    found = found_in(tmp_path, *names, "train/d/1.md", "val/d/1.jpg")
    (tmp_path / "val/e").mkdir()
    probe = class_folder.probe(FileTree(str(tmp_path)), found.files[0])
    assert probe.classes["label"].unused == ("e",)
    assert [(one.severity, one.text, one.hint) for one in probe.findings] == [
        (
            "warning",
            f"{tmp_path}: 3 folders beside the classes have no image, and are no classes "
            "(train/a/: 1 file, such as train/a/1.md; train/c/: 2 files, such as train/c/1.md; "
            "val/c/: 1 file, such as val/c/3.md)",
            "--classes with all names keeps their ids; "
            "--exclude train/a/ leaves out one that is none",
        )
    ]


def test_a_level_without_images_stops(tmp_path):
    with pytest.raises(UsageError, match="no images in folders of level 2"):
        found_in(tmp_path, "cat/1.jpg", level=2)


def test_a_folder_without_images_does_not_make_split_folders_classes(tmp_path: Path) -> None:
    make(tmp_path, {"train/cat": ({"1.jpg"}, set()), "val/cat": ({"2.JPEG"}, set())})
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/notes.md").write_text("notes")
    classes, rows = converted(tmp_path)
    assert classes == ("cat",)
    assert sorted(rows.values()) == [("cat", "train"), ("cat", "val")]
