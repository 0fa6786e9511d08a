"""Folders as sources: every image once, other files counted, no name or link lost."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import UNMATCHED_FILES, Location, Row, SkippedInput
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.tables import (
    DeclaredClasses,
    Exclusion,
    Part,
    Probe,
    Projection,
    TableFile,
)
from recordmill.transforms.functional.sources import class_folder, tree, voc, yolo
from recordmill.transforms.functional.sources.tree import SHARED_LABELS, Unlisted
from recordmill.transforms.inputs.file_tree import HIDDEN, LOOPS, FileTree, unused_patterns
from recordmill.transforms.inputs.formats import FORMATS
from tests.images import image_bytes, jpeg, png


def put(root: Path, *names: str, data: bytes = b"") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data or jpeg())


def walked(root: Path) -> list[str]:
    return sorted(found for found in FileTree(str(root)).walk() if isinstance(found, str))


def read(
    root: Path,
    format_: str,
    projection: Projection = Projection(),  # noqa: B008
) -> list[Row | Reject | SkippedInput]:
    file = TableFile(str(root), format_)
    found = []
    for part in FORMATS[format_].parts(file):
        found += FORMATS[format_].read(part, projection) if isinstance(part, Part) else [part]
    return found


def skipped_inputs(found: list[Row | Reject | SkippedInput]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in found:
        if isinstance(one, SkippedInput):
            total[one.kind] += one.number
    return {what: number for what, number in total.items() if number}


NAMES = (
    "서울/남대문 시장/1.JPG",
    "a [1]/*.png",
    "b/😀.gif",
    "c.jpeg",
    "d/e/f/g/h.webp",
    " x /%20.jpg",
)


def test_files_at_any_depth_are_found(tmp_path: Path) -> None:
    put(tmp_path, *NAMES)
    assert walked(tmp_path) == sorted(NAMES)


def test_entries_are_those_directly_in_a_folder(tmp_path: Path) -> None:
    put(tmp_path, "b/1.jpg", "a/c/2.jpg", "3.jpg", ".git/x", "a/.hidden", "Thumbs.db")
    tree = FileTree(str(tmp_path))
    assert tree.entries() == (("a", "b"), ("3.jpg",))
    assert tree.entries("a") == (("c",), ())
    assert tree.entries("none") == tree.entries("3.jpg") == ((), ())


def test_trees_deeper_than_half_the_recursion_limit_are_walked(tmp_path: Path) -> None:
    folder, here = os.open(tmp_path, os.O_RDONLY), tmp_path
    depth = 600  # one frame a level is enough for pytest to delete it, and too much for two
    try:
        for _ in range(depth):  # deeper than a single path could be made at once
            os.mkdir("d", dir_fd=folder)
            below = os.open("d", os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = below
        with open(os.open("x.jpg", os.O_CREAT | os.O_WRONLY, dir_fd=folder), "wb"):
            pass
    finally:
        os.close(folder)
    assert walked(here) == ["d/" * depth + "x.jpg"]


def test_links_are_followed_except_in_cycles(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere", "1.jpg")
    put(tmp_path / "root", "a/2.jpg")
    (tmp_path / "root/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "root/a/up").symlink_to(tmp_path / "root")
    (tmp_path / "root/a/self").symlink_to(tmp_path / "root/a")
    (tmp_path / "root/broken.jpg").symlink_to(tmp_path / "nowhere")
    found = list(FileTree(str(tmp_path / "root")).walk())
    assert sorted(f for f in found if isinstance(f, str)) == ["a/2.jpg", "broken.jpg", "link/1.jpg"]
    assert [f for f in found if isinstance(f, SkippedInput)] == [
        SkippedInput(LOOPS, 1, ("a/self",)),
        SkippedInput(LOOPS, 1, ("a/up",)),
    ]


def test_the_number_of_paths_through_links_is_limited(
    tmp_path: Path,
) -> None:
    put(tmp_path / "0", "x.jpg")
    for level in range(1, 17):
        (tmp_path / f"{level}").mkdir()
        for name in "ab":
            (tmp_path / f"{level}" / name).symlink_to(tmp_path / f"{level - 1}")
    found = list(FileTree(str(tmp_path / "16")).walk())
    paths = [name for name in found if isinstance(name, str)]
    others = [name for name in found if isinstance(name, Unlisted)]
    assert (len(paths), len(set(paths)), min(paths)) == (64, 64, "a/" * 16 + "x.jpg")
    assert len(paths) + len(others) < 64 * 17
    assert {other.why for other in others} == {
        "links make over 64 paths to this folder. Remove some of them."
    }
    assert list(FileTree(str(tmp_path / "16")).walk()) == found


def test_a_folder_is_read_once_per_link(tmp_path: Path) -> None:
    put(tmp_path / "all", "1.jpg")
    for fold in range(64):
        (tmp_path / f"root/{fold}").mkdir(parents=True)
        (tmp_path / f"root/{fold}/cat").symlink_to(tmp_path / "all")
    assert walked(tmp_path / "root") == sorted(f"{fold}/cat/1.jpg" for fold in range(64))


def test_hidden_files_and_folders_are_skipped_and_counted(tmp_path: Path) -> None:
    put(tmp_path, ".git/1.jpg", ".2.jpg", "a/.DS_Store", "__MACOSX/3.jpg", "a/4.jpg")
    found = list(FileTree(str(tmp_path)).walk())
    hidden = [".2.jpg", ".git", "__MACOSX", "a/.DS_Store"]
    skipped = [SkippedInput(HIDDEN, 1, (name,)) for name in hidden]
    assert sorted(map(str, found)) == sorted(map(str, [*skipped, "a/4.jpg"]))


def test_a_name_of_invalid_utf8_is_reported_readably(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with open(os.fsencode(tmp_path / "a") + b"/b\xff.jpg", "wb"):
        pass
    unlisted = Unlisted(r"a/b\xff.jpg", "the name is not valid UTF-8. Rename it.")
    assert list(FileTree(str(tmp_path)).walk()) == [unlisted]
    (reject,) = read(tmp_path, "folder")
    expected = Reject("", "", rf"{tmp_path}/a/b\xff.jpg", Reason.READ_ERROR, unlisted.why)
    assert reject == expected


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list everything")
def test_an_unreadable_folder_is_reported(tmp_path: Path) -> None:
    put(tmp_path, "a/1.jpg")
    (tmp_path / "a").chmod(0)
    (reject,) = read(tmp_path, "folder")
    (tmp_path / "a").chmod(0o700)
    assert (reject.source, reject.reason) == (f"{tmp_path}/a", Reason.READ_ERROR)


def test_a_class_folder_gives_one_row_per_image(tmp_path: Path) -> None:
    put(tmp_path, "cat/tabby/1.b.jpg", "7/2.JPEG", "3.png")
    put(tmp_path, "cat/no_suffix", data=image_bytes("GIF"))
    put(tmp_path, "cat/damaged.jpg", data=b"not an image, but named so")
    put(tmp_path, "cat/BM notes.txt", data=b"BM begins this text, as it begins a bitmap")
    put(tmp_path, "x.csv", data=b"a,b\n")
    put(tmp_path, "P1 notes", data=b"P1 is the first of the plans")
    found = read(tmp_path, "folder")

    def row(name: str, id_: str, label: str | None) -> Row:
        values = {"image": name, **({"label": label} if label else {}), "id": id_}
        uri = f"{tmp_path}/{name}"
        return Row(values, uri, 0, is_text=True, image=Location(uri))

    rows = {f.values["image"]: f for f in found if isinstance(f, Row)}
    expected = [
        row("cat/tabby/1.b.jpg", "1.b", "cat"),
        row("7/2.JPEG", "2", "7"),
        row("3.png", "3", None),
        row("cat/no_suffix", "no_suffix", "cat"),
        row("cat/damaged.jpg", "damaged", "cat"),
    ]
    assert rows == {r.values["image"]: r for r in expected}
    names = ("P1 notes", "cat/BM notes.txt", "x.csv")
    assert [f for f in found if isinstance(f, SkippedInput)] == [
        SkippedInput(class_folder.NO_IMAGE, 3, names)
    ]


def test_large_folders_are_read_in_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "PART_FILES", 3)
    put(tmp_path, *(f"{i}.jpg" for i in range(8)))
    parts = list(FORMATS["folder"].parts(TableFile(str(tmp_path), "folder")))
    assert [len(part.names) for part in parts] == [3, 3, 2]
    assert sorted(name for part in parts for name in part.names) == [f"{i}.jpg" for i in range(8)]


def test_a_folder_without_images_is_rejected(tmp_path: Path) -> None:
    put(tmp_path, "a/x.txt", data=b"text")
    with pytest.raises(UsageError, match="the folder contains no image"):
        FORMATS["folder"].probe(TableFile(str(tmp_path), "folder"))


def test_files_of_other_image_formats_are_counted_by_name(tmp_path: Path) -> None:
    dicom = bytes(128) + b"DICM"
    for name, data in {"a/1.dcm": dicom, "a/2": dicom, "b/3.svg": b"<svg/>", "b/x": b"x"}.items():
        put(tmp_path, name, data=data)
    folder = TableFile(str(tmp_path), "folder")
    with pytest.raises(UsageError, match=r"no image but 2 DICOM files, 1 SVG files; .*pydicom\."):
        FORMATS["folder"].probe(folder)
    put(tmp_path, "b/4.png", data=png())
    assert skipped_inputs(read(tmp_path, "folder")) == {
        "DICOM files": 2,
        "SVG files": 1,
        "files that are not images": 1,
    }


VOC = b"""<annotation><filename>%s</filename><object><name>cat</name><bndbox><xmin>1</xmin>
<ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox></object></annotation>"""


@pytest.mark.parametrize("images", ["JPEGImages", "images", "Annotations"])
@pytest.mark.parametrize("root", ["", "Annotations"])
def test_voc_finds_its_images(images: str, root: str, tmp_path: Path) -> None:
    put(tmp_path, f"{images}/1.jpg")
    put(tmp_path, "Annotations/1.xml", data=VOC % b"1.jpg")
    (row,) = read(tmp_path / root, "voc", Projection(("image", "id", "labels")))
    source = f"{tmp_path}/Annotations/1.xml"
    image = Location(f"{tmp_path}/{images}/1.jpg")
    values = {"image": "1.jpg", "id": "1", "labels": ["cat"]}
    assert row == Row(values, source, 0, image=image)


def test_voc_paths_are_relative_to_the_image_root(tmp_path: Path) -> None:
    put(tmp_path, "1.xml", data=VOC % b"1.jpg")
    (row,) = read(tmp_path, "voc", Projection(image_root="/elsewhere"))
    assert (row.values["image"], row.image) == ("1.jpg", None)


def test_damaged_voc_files_are_reported(tmp_path: Path) -> None:
    put(tmp_path, "1.xml", data=b"<annotation>")
    put(tmp_path, "2.xml", data=VOC % b"")
    found = read(tmp_path, "voc")
    expected = {(f"{tmp_path}/{i}.xml", Reason.MALFORMED_ROW) for i in (1, 2)}
    assert {(f.source, f.reason) for f in found} == expected


def test_voc_without_xml_is_rejected(tmp_path: Path) -> None:
    put(tmp_path, "1.jpg")
    with pytest.raises(UsageError, match="has no XML file"):
        FORMATS["voc"].probe(TableFile(str(tmp_path), "voc"))


def test_yolo_finds_labels_next_to_images_and_in_their_own_folder(tmp_path: Path) -> None:
    put(tmp_path, "images/train/1.jpg", "images/val/2.png", "beside/3.jpg", "images/val/4.jpg")
    put(tmp_path, "labels/train/1.txt", data=b"1 0.5 0.5 1 1\n")
    put(tmp_path, "labels/val/2.txt", data=b"\n")
    put(tmp_path, "beside/3.txt", data=b"0 0.5 0.5 0.5 0.5\n")
    put(tmp_path, "labels/val/ghost.txt", data=b"0 0.5 0.5 0.5 0.5\n")
    put(tmp_path, "data.yaml", data=b"names: [cat, dog]")
    put(tmp_path, "notes.md", data=b"x")
    found = read(tmp_path, "yolo", Projection(("image", "labels", "xmin")))
    rows = {f.values["image"]: f for f in found if isinstance(f, Row)}
    assert {name: row.values["labels"] for name, row in rows.items()} == {
        "images/train/1.jpg": ["dog"],
        "images/val/2.png": [],
        "beside/3.jpg": ["cat"],
        "images/val/4.jpg": [],
    }
    assert rows["images/train/1.jpg"].file == f"{tmp_path}/labels/train/1.txt"
    assert {row.image for row in rows.values()} == {Location(f"{tmp_path}/{name}") for name in rows}
    assert {f for f in found if isinstance(f, SkippedInput)} == {
        SkippedInput.named(UNMATCHED_FILES, ["labels/val/ghost.txt"]),
        SkippedInput.named(yolo.UNLABELED, ["images/val/4.jpg"]),
        SkippedInput.named(class_folder.NO_IMAGE, ["notes.md"]),
    }


def test_images_of_one_name_share_their_label_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they are in different parts, beside a label file without an image."""
    monkeypatch.setattr("recordmill.transforms.functional.sources.tree.PART_FILES", 1)
    put(tmp_path, "images/1.jpg", "images/1.png", "images/2.png")
    for name in ("1", "2", "3"):
        put(tmp_path, f"labels/{name}.txt", data=b"0 0.5 0.5 1 1\n")
    put(tmp_path, "classes.txt", data=b"cat\n")
    found = read(tmp_path, "yolo", Projection(("image", "labels")))
    assert [f.values["labels"] for f in found if isinstance(f, Row)] == [["cat"]] * 3
    assert {f for f in found if isinstance(f, SkippedInput)} == {
        SkippedInput.named(SHARED_LABELS, ["images/1.png"]),
        SkippedInput.named(UNMATCHED_FILES, ["labels/3.txt"]),
    }


def test_invalid_yolo_labels_are_reported_with_their_line(tmp_path: Path) -> None:
    put(tmp_path, "images/1.jpg")
    put(tmp_path, "labels/1.txt", data=b"0 1 1 1 1\n7 1 1 1 1\n")
    put(tmp_path, "classes.txt", data=b"cat\ndog\n")
    reject = next(f for f in read(tmp_path, "yolo") if isinstance(f, Reject))
    detail = "line 2: class id '7' is not one of the 2 declared classes"
    places = ("images/1.jpg", f"{tmp_path}/images/1.jpg", f"{tmp_path}/labels/1.txt")
    assert reject == Reject(*places, Reason.UNKNOWN_LABEL, detail)


def test_yolo_without_class_names_is_rejected(tmp_path: Path) -> None:
    put(tmp_path, "images/1.jpg", data=png())
    with pytest.raises(UsageError, match="no class names"):
        FORMATS["yolo"].probe(TableFile(str(tmp_path), "yolo"))


def test_probes_return_the_columns(tmp_path: Path) -> None:
    put(tmp_path, "images/1.jpg")
    put(tmp_path, "1.xml", data=VOC)
    put(tmp_path, "classes.txt", data=b"cat\n")
    found = {n: FORMATS[n].probe(TableFile(str(tmp_path), n)) for n in ("folder", "voc", "yolo")}
    assert found == {
        "folder": Probe(
            ("image", "label", "id"), True, classes={"label": DeclaredClasses((), are_names=True)}
        ),
        "voc": Probe(voc.COLUMNS, True, preset="object_detection"),
        "yolo": Probe(
            yolo.COLUMNS,
            True,
            classes={"labels": DeclaredClasses(((0, "cat"),))},
            preset="object_detection",
        ),
    }


@pytest.mark.parametrize(
    ("patterns", "kept", "left_out"),
    [
        (("*_mask.png",), ["a/1.jpg", "b/c/2.jpg", "bad/3.jpg"], {"*_mask.png": ["a/1_mask.png"]}),
        (("bad/",), ["a/1.jpg", "a/1_mask.png", "b/c/2.jpg"], {"bad/": ["bad"]}),
        (("/a/*.jpg", "c"), ["a/1_mask.png", "bad/3.jpg"], {"/a/*.jpg": ["a/1.jpg"], "c": ["b/c"]}),
        (("*.jpg",), ["a/1_mask.png"], {"*.jpg": ["a/1.jpg", "b/c/2.jpg", "bad/3.jpg"]}),
        (("c/*.jpg",), ["a/1.jpg", "a/1_mask.png", "b/c/2.jpg", "bad/3.jpg"], {}),
        (("**/c/*.jpg",), ["a/1.jpg", "a/1_mask.png", "bad/3.jpg"], {"**/c/*.jpg": ["b/c/2.jpg"]}),
        (("*.jpg", "!1.jpg"), ["a/1.jpg", "a/1_mask.png"], {"*.jpg": ["b/c/2.jpg", "bad/3.jpg"]}),
    ],
)
def test_patterns_leave_files_out(tmp_path: Path, patterns, kept, left_out) -> None:
    for name in ("a/1.jpg", "a/1_mask.png", "b/c/2.jpg", "bad/3.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    tree = FileTree(str(tmp_path), Exclusion(str(tmp_path), patterns))
    found = list(tree.walk())
    assert sorted(one for one in found if isinstance(one, str)) == kept
    skipped = [one for one in found if isinstance(one, SkippedInput)]
    by_pattern = {
        pattern: sorted(n for one in skipped if one.kind.endswith(f" {pattern}") for n in one.names)
        for pattern in patterns
    }
    assert {pattern: names for pattern, names in by_pattern.items() if names} == left_out
    assert unused_patterns(tree) == [p for p in patterns if p not in left_out and p[0] != "!"]
    assert tree.has("bad/3.jpg") == ("bad/3.jpg" in kept)
    assert ("bad" in tree.entries().folders) == ("bad/" not in patterns)
    assert tree.at(tree.path("a")).has("1.jpg") == ("a/1.jpg" in kept)


def test_a_folder_is_walked_until_each_pattern_was_used(tmp_path: Path) -> None:
    walked = []

    class Tree(FileTree):
        def walk(self, folder: str = "") -> Iterator[str | Unlisted | SkippedInput]:
            for found in super().walk(folder):
                walked.append(found)
                yield found

    put(tmp_path, "1.jpg", "a/1.tmp", "b/2.jpg", "c/3.jpg")
    tree = Tree(str(tmp_path), Exclusion(str(tmp_path), ("*.tmp", "!2.tmp", "1.jpg")))
    assert unused_patterns(tree) == []
    assert len(walked) == 2


@pytest.mark.parametrize("pattern", ["", " ", "# x", "!"])
def test_an_invalid_pattern_stops(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(UsageError, match="is not a pattern"):
        FileTree(str(tmp_path), Exclusion(str(tmp_path), (pattern,))).has("a")


def test_workers_get_no_listings(tmp_path: Path) -> None:
    put(tmp_path, *(f"{number}.jpg" for number in range(1000)))
    tree = FileTree(str(tmp_path))
    assert len(tree.entries().files) == 1000
    assert len(pickle.dumps(tree)) < 1000
    assert pickle.loads(pickle.dumps(tree)) == tree  # noqa: S301 - made here
