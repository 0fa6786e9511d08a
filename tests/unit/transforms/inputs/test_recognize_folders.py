"""The layouts of folders as torchvision, Ultralytics, Roboflow, COCO and others write them."""

from __future__ import annotations

import json
import posixpath
from pathlib import Path

import pytest

from recordmill.pipelines.options import config_of
from recordmill.schemas.errors import UsageError
from recordmill.schemas.findings import lines
from recordmill.schemas.tables import SPLIT, Part, Projection, Sources, TableFile
from recordmill.transforms.functional.sources import coco
from recordmill.transforms.functional.sources.annotated import AnnotatedOptions
from recordmill.transforms.functional.sources.class_folder import FolderOptions
from recordmill.transforms.functional.sources.coco import CocoOptions
from recordmill.transforms.functional.sources.yolo import YoloOptions
from recordmill.transforms.inputs import file_tree
from recordmill.transforms.inputs.file_tree import FileTree
from recordmill.transforms.inputs.input_tables import probe_tables
from recordmill.transforms.inputs.recognize import sources_of

COCO = json.dumps({"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": []})
YAML = "names: [cat]\n"


def found(root: Path, *names: str) -> Sources:
    """Writes files, whose content follows from their names, and returns the layout."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        text = {".json": COCO, ".yaml": YAML}.get(Path(name).suffix, "x")
        (root / name).write_text(text)
    return sources_of(str(root), "auto", has_images=True)


@pytest.mark.parametrize(
    ("images", "folder"),
    [
        (["photos/1.jpg"], "photos"),
        (["photos/a/1.jpg", "photos/a/11.jpg"], "photos/a"),
        (["photos/1.jpg", "thumbnails/1.jpg"], ""),
        (["photos/11.jpg"], ""),
    ],
    ids=str,
)
def test_images_of_coco_may_be_in_any_folder_if_only_one_has_them(
    images: list[str], folder: str, tmp_path: Path
) -> None:
    (file,) = found(tmp_path, "a.json", *images).files
    assert file.options_of(CocoOptions).images == str(tmp_path / folder)


@pytest.mark.parametrize(
    ("images", "folder", "is_shared"),
    [
        (["train_images/1.jpg", "val_images/1.jpg"], "train_images", True),
        (["Training/x/1.jpg", "validation/x/1.jpg"], "Training/x", True),
        (["photos/1.jpg", "photos_val/1.jpg", "photos_train/2.jpg"], "photos", True),
        (["train_images/1.jpg", "train_masks/1.jpg", "val_images/1.jpg"], "", False),
        (["train_images/2.jpg", "val_images/1.jpg"], "", False),
        (["val_images/1.jpg"], "val_images", False),
    ],
    ids=str,
)
def test_images_of_a_split_of_coco_are_not_those_of_other_splits(
    images: list[str], folder: str, is_shared: bool, tmp_path: Path
) -> None:
    (file,) = found(tmp_path, "train.json", *images).files
    options = file.options_of(CocoOptions)
    assert (options.images, options.is_shared) == (f"{tmp_path}/{folder}".rstrip("/"), is_shared)
    with (tmp_path / "train.json").open("rb") as stream:
        notes = [f.text for f in coco.probe(stream, file).findings if f.severity == "note"]
    why = "folders of other splits have images of these names"
    expected = f"{file.path}: {why}; its images are read from {options.images}"
    assert notes == [expected] * is_shared


@pytest.mark.parametrize("has_root", [True, False])
def test_the_folder_of_images_is_no_finding_if_image_root_names_another(
    has_root: bool, tmp_path: Path
) -> None:
    found(tmp_path, "train.json", "train_images/1.jpg", "val_images/1.jpg")
    root = {"image_root": str(tmp_path / "val_images")} if has_root else {}
    config = config_of({"input": [str(tmp_path)], "output": "out", "name": "birds", **root})
    kinds = [finding.kind for finding in probe_tables(config).findings]
    assert kinds == ["images_in_other_folder"] * (not has_root) + ["no_annotations"]


@pytest.mark.parametrize(
    ("images", "expected"),
    [
        (["photos/1.jpg"], ("photos", "a/b/")),
        (["1.jpg"], ("", "a/b/")),
        (["photos/b/1.jpg", "thumbnails/1.jpg"], ("photos", "a/")),
        (["photos/1.jpg", "thumbnails/1.jpg"], ("", "")),
        (["photos/1.jpg", "a/b/2.jpg"], ("", "")),
        (["photos/2.jpg"], ("", "")),
    ],
    ids=str,
)
def test_the_only_image_with_the_end_of_a_path_in_coco_is_read_if_its_beginning_is_no_folder(
    images: list[str], expected: tuple[str, str], tmp_path: Path
) -> None:
    found(tmp_path, "c.json", *images)
    path = tmp_path / "c.json"
    path.write_text(COCO.replace("1.jpg", "a/b/1.jpg"))
    (file,) = sources_of(str(tmp_path), "auto", has_images=True).files
    options = file.options_of(CocoOptions)
    folder, prefix = expected
    assert (options.images, options.replaced) == (f"{tmp_path}/{folder}".rstrip("/"), prefix)
    with path.open("rb") as stream:
        (row,) = coco.read(stream, Part(file), Projection())
        address = posixpath.join(tmp_path, folder, "a/b/1.jpg".removeprefix(prefix))
        assert (row.image.uri, [*coco.named_images(stream, file)]) == (address, [address])
        notes = [note for note in coco.probe(stream, file).findings if note.severity == "note"]
    assert [*lines(notes)] == [
        f"note: {path}: {prefix} is no folder; its images are read from {options.images}",
        "      (--image_root DIR names another)",
    ] * bool(prefix)


@pytest.mark.parametrize(
    ("name", "image"),
    [
        ("/home/ann/a/1.jpg", "a/1.jpg"),
        (r"a\1.jpg", "a/1.jpg"),
        (r"C:\data\a\1.jpg", "a/1.jpg"),
        (r"..\..\media\upload\4\1.jpg", "images/1.jpg"),
        (r"C:\data\1.jpg", "1.jpg"),
        (r"data\b\1.jpg", "a/1.jpg"),
        (r"a\1.jpg", r"a\1.jpg"),
    ],
)
@pytest.mark.parametrize("is_folder", [True, False])
def test_the_paths_of_another_machine_in_coco_are_found_by_their_end(
    name: str, image: str, is_folder: bool, tmp_path: Path
) -> None:
    found(tmp_path, "c.json", image)
    path = tmp_path / "c.json"
    path.write_text(COCO.replace('"1.jpg"', json.dumps(name)))
    (file,) = sources_of(str(tmp_path if is_folder else path), "auto", has_images=True).files
    address = str(tmp_path / image)
    with path.open("rb") as stream:
        (row,) = coco.read(stream, Part(file), Projection())
        assert row.values["image"] == name
        assert [*coco.named_images(stream, file)] == [address]
    if file.options.images:  # or else a path relative to the file
        assert row.image.uri == address


def test_a_path_of_this_machine_in_coco_is_kept(tmp_path: Path) -> None:
    found(tmp_path / "in", "c.json", "a/1.jpg")
    (tmp_path / "1.jpg").touch()
    name, path = str(tmp_path / "1.jpg"), tmp_path / "in/c.json"
    path.write_text(COCO.replace('"1.jpg"', json.dumps(name)))
    (file,) = sources_of(str(tmp_path / "in"), "auto", has_images=True).files
    with path.open("rb") as stream:
        assert [*coco.named_images(stream, file)] == [name]


@pytest.mark.parametrize(
    ("names", "has_splits", "text"),
    [
        (["train/cat/1.jpg", "val/dog/2.jpg"], True, "class folders within split folders"),
        (
            ["training/a/1.jpg", "training/b/1.jpg", "Test/1.jpg"],
            True,
            "class folders within split folders",
        ),
        (["cat/1.jpg", "dog/a/2.jpg", ".git/train/x"], False, ""),
        (["1.jpg"], False, ""),
    ],
)
def test_class_folders(names: list[str], has_splits: bool, text: str, tmp_path: Path) -> None:
    file = TableFile(
        str(tmp_path), "folder", options=FolderOptions(int(has_splits), int(has_splits))
    )
    assert found(tmp_path, *names) == Sources((file,), text)


def test_a_class_named_like_a_split_is_a_note(tmp_path: Path) -> None:
    (note,) = found(tmp_path, "train/cat/1.jpg", "car/2.jpg").findings
    assert note.severity == "note"
    assert note.text.endswith(
        "train: a class, not a split, because 'car' is not the name of a split"
    )


def test_a_table_of_labels_that_are_joined_is_not_read_twice(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train/1.jpg").write_text("x")
    (tmp_path / "metadata.csv").write_text("file_name,label\ntrain/1.jpg,owl\n")
    path, whole = f"{tmp_path}/metadata.csv", str(tmp_path)
    metadata = TableFile(path, "csv", size=32, image_folder=whole)
    note = "metadata.csv; train: not splits, because they have no metadata file"
    tree = FileTree(str(tmp_path))
    assert sources_of(tree.root, "auto", has_images=True) == Sources(
        (metadata,), f"Hugging Face ImageFolder ({note})"
    )
    (file,) = sources_of(tree.root, "auto", has_images=True, has_labels=True).files
    assert file == TableFile(str(tmp_path), "folder", options=FolderOptions())


@pytest.mark.parametrize(
    "names",
    [
        ["Annotations/1.xml", "JPEGImages/1.jpg"],
        ["VOC2007/Annotations/1.xml", "VOC2007/ImageSets/Main/train.txt"],
        ["annotations/1.xml", "images/1.png"],
        ["annotations/xmls/1.xml", "images/1.jpg"],
    ],
)
def test_voc(names: list[str], tmp_path: Path) -> None:
    expected = Sources((TableFile(str(tmp_path), "voc", options=AnnotatedOptions()),), "Pascal VOC")
    assert found(tmp_path, *names) == expected


@pytest.mark.parametrize(
    ("names", "yaml"),
    [
        (["data.yaml", "images/train/1.jpg", "labels/train/1.txt"], "data.yaml"),
        (["coco8.yaml", "train/images/1.jpg", "train/labels/1.txt"], "coco8.yaml"),
        (["classes.txt", "1.jpg", "1.txt"], ""),
        (["images/1.jpg", "labels/1.txt"], ""),
        (["train/images/1.jpg", "train/labels/1.txt"], ""),
    ],
)
def test_yolo(names: list[str], yaml: str, tmp_path: Path) -> None:
    (file,) = found(tmp_path, *names).files
    has_splits = any("train" in name for name in names)
    assert file == TableFile(str(tmp_path), "yolo", options=YoloOptions(yaml, has_splits))


def test_folders_named_images_and_labels_without_text_are_no_classes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"masks beside their images \(labels/1.png, …\)"):
        found(tmp_path, "images/1.jpg", "labels/1.png")


@pytest.mark.parametrize(
    ("annotations", "image", "split", "folder"),
    [
        ("annotations/instances_train2017.json", "train2017/1.jpg", "train", "train2017"),
        ("annotations/instances_val2017.json", "images/val2017/1.jpg", "val", "images/val2017"),
        ("annotations/train.json", "images/train/1.jpg", "train", "images/train"),
        ("annotations/instances_default.json", "images/1.jpg", "", "images"),
        ("valid/_annotations.coco.json", "valid/1.jpg", "valid", "valid"),
        ("labels.json", "data/1.jpg", "", "data"),
        ("instances.json", "1.jpg", "", ""),
        ("test/labels.json", "test/data/1.jpg", "test", "test/data"),
    ],
)
def test_coco(annotations: str, image: str, split: str, folder: str, tmp_path: Path) -> None:
    (tmp_path / image).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / image).touch()
    (file,) = found(tmp_path, annotations).files
    images = FileTree(str(tmp_path)).path(folder)
    partition = ((SPLIT, split),) if split else ()
    path = str(tmp_path / annotations)
    stated = {"partition": partition, "image_folder": str(tmp_path)}
    assert file == TableFile(path, "coco", **stated, options=CocoOptions(images))


def test_of_the_kinds_of_coco_annotations_instances_are_read(tmp_path: Path) -> None:
    names = ["captions_val2017", "instances_train2017", "instances_val2017", "panoptic_val2017"]
    layout = found(tmp_path, *(f"annotations/{name}.json" for name in names))
    assert [Path(file.path).stem for file in layout.files] == names[1:3]
    assert layout.text == (
        "COCO (annotations/instances_train2017.json, annotations/instances_val2017.json; "
        "not read: annotations/captions_val2017.json, annotations/panoptic_val2017.json)"
    )


@pytest.mark.parametrize(
    ("images", "prefixes"),
    [
        (["train/1.jpg", "val/1.jpg"], ["train/", "val/"]),
        (["images/train/1.jpg", "images/val/1.jpg"], ["train/", "val/"]),
        (["images/1.jpg"], ["", ""]),
    ],
)
def test_keys_of_several_coco_files_begin_with_the_folder_of_their_images(
    images: list[str], prefixes: list[str], tmp_path: Path
) -> None:
    names = [f"annotations/instances_{split}.json" for split in ("train", "val")]
    layout = found(tmp_path, *images, *names)
    assert [file.key_prefix for file in layout.files] == prefixes


def test_a_coco_file_without_a_split_is_not_read_beside_those_of_splits(tmp_path: Path) -> None:
    layout = found(tmp_path, *(f"annotations/{name}.json" for name in ("all", "train", "val")))
    assert [Path(file.path).stem for file in layout.files] == ["train", "val"]
    assert layout.text.endswith("; not read: annotations/all.json)")


@pytest.mark.parametrize(
    ("names", "warned"),
    [
        (("instances_minitrain", "instances_minival"), "instances_minitrain, instances_minival"),
        (("instances_minitrain", "instances_val2017"), "instances_minitrain"),
        (("minitrain", "train", "val"), ""),
        (("trainval", "test"), "trainval"),
        (("trainval", "train", "val"), ""),
        (("minitrain_1", "minitrain_2"), ""),
        (("minival",), ""),
        (("a", "b"), ""),
    ],
)
def test_coco_files_with_other_words_for_splits_are_a_warning(
    names: tuple[str, ...], warned: str, tmp_path: Path
) -> None:
    layout = found(tmp_path, *(f"{name}.json" for name in names))
    shown = ", ".join(f"{name}.json" for name in warned.split(", "))
    assert [*lines(layout.findings)] == [
        f"warning: {tmp_path}: {shown}: not splits, because their names have other words",
        "      (if they are splits, rename them, as to train.json and val.json)",
    ] * bool(warned)


def test_other_json_files_are_not_coco(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text('{"images": 3}')
    (file,) = found(tmp_path, "cat/1.jpg", "dog/2.jpg").files
    assert file.format == "folder"


def test_a_folder_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a store, each listing is a request."""
    asked, listed = list[str](), file_tree.entries

    def counting(path: str) -> tuple[list[str], list[str]]:
        asked.append(path)
        return listed(path)

    monkeypatch.setattr(file_tree, "entries", counting)
    assert found(tmp_path, "cat/1.jpg", "dog/2.jpg").files[0].format == "folder"
    assert asked == [str(tmp_path), f"{tmp_path}/cat", f"{tmp_path}/dog"]
