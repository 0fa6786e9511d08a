"""Images with annotations beside them are read as what they are, or end with a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.tables import SPLIT, Part, Projection, TableFile
from recordmill.transforms.functional.sources.annotated import AnnotatedOptions
from recordmill.transforms.functional.sources.tree import NO_SPLIT
from recordmill.transforms.inputs.file_tree import FileTree
from recordmill.transforms.inputs.formats import FORMATS
from recordmill.transforms.inputs.recognize import sources_of
from tests.images import jpeg

XML = (
    "<annotation><filename>{}</filename><object><name>cat</name><bndbox><xmin>1</xmin>"
    "<ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox></object></annotation>"
)
BOX = "0 0.5 0.5 0.25 0.25\n"


def put(root: Path, files: dict[str, str]) -> FileTree:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        data = jpeg() if name.endswith((".jpg", ".png")) else text.encode()
        (root / name).write_bytes(data)
    return FileTree(str(root))


def rows_of(file: TableFile) -> tuple[dict[str, str | None], dict[str, int]]:
    """Returns the part of each image, and the number of skipped inputs by kind."""
    rows, skipped = {}, {}
    for part in FORMATS[file.format].parts(file):
        if not isinstance(part, Part):
            skipped[part.kind] = skipped.get(part.kind, 0) + part.number
            continue
        for found in FORMATS[file.format].read(part, Projection()):
            if hasattr(found, "values"):
                rows[found.values["image"]] = found.values[SPLIT]
            else:
                skipped[found.kind] = skipped.get(found.kind, 0) + found.number
    return rows, {kind: number for kind, number in skipped.items() if number}


def test_xml_beside_images_is_voc_with_the_splits_of_its_folders(tmp_path: Path) -> None:
    names = ("train/1", "train/2", "test/1")
    files = {f"{name}.jpg": "" for name in names}
    files |= {f"{name}.xml": XML.format(f"{name[-1]}.jpg") for name in names}
    files |= {"other/9.xml": XML.format("9.jpg"), "README.txt": "notes"}
    (file,), text, *_ = sources_of(put(tmp_path, files).root, "auto", has_images=True)
    assert file == TableFile(str(tmp_path), "voc", options=AnnotatedOptions(has_split_folders=True))
    assert text == "Pascal VOC (test/1.xml, …)"
    assert FORMATS["voc"].probe(file).splits == ("test", "train")
    rows, skipped = rows_of(file)
    assert rows == {"train/1.jpg": "train", "train/2.jpg": "train", "test/1.jpg": "test"}
    assert skipped == {NO_SPLIT: 1, "files that are not images": 1}
    (explicit,) = sources_of(str(tmp_path), "voc", has_images=True).files
    assert explicit == file


@pytest.mark.parametrize(
    ("files", "splits"),
    [
        ({"obj.names": "cat\n", "obj_train_data/1.jpg": "", "obj_train_data/1.txt": BOX}, None),
        (
            {
                "obj.data": "classes = 1\ntrain = data/train.txt\nvalid = data/valid.txt\n"
                "names = data/obj.names\n",
                "obj.names": "cat\n",
                "train.txt": "data/obj_train_data/1.jpg\n",
                "valid.txt": "data/obj_valid_data/1.jpg\n",
                "obj_train_data/1.jpg": "",
                "obj_train_data/1.txt": BOX,
                "obj_valid_data/1.jpg": "",
                "obj_valid_data/1.txt": "",
                "obj_other/1.jpg": "",
            },
            {"obj_train_data/1.jpg": "train", "obj_valid_data/1.jpg": "valid"},
        ),
        (  # labelImg
            {
                **{f"{split}/classes.txt": "cat\n" for split in ("train", "test")},
                **{f"{split}/1.txt": BOX for split in ("train", "test")},
                **{f"{split}/1.jpg": "" for split in ("train", "test")},
            },
            {"train/1.jpg": "train", "test/1.jpg": "test"},
        ),
    ],
)
def test_text_beside_images_is_yolo_with_its_class_names(tmp_path, files, splits):
    (file,), text, *_ = sources_of(put(tmp_path, files).root, "auto", has_images=True)
    assert (file.format, text[:4]) == ("yolo", "YOLO")
    probe = FORMATS["yolo"].probe(file)
    assert probe.classes["labels"].names == ((0, "cat"),)
    rows, skipped = rows_of(file)
    if splits is None:
        assert (probe.splits, rows) == ((), {"obj_train_data/1.jpg": None})
    else:
        assert set(probe.splits) == set(splits.values())
        assert rows == splits
        assert skipped.get(NO_SPLIT, 0) == sum("other" in name for name in files)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"cat/1.jpg": "", "cat/1.xml": "<x/>"}, r"XML files beside the images \(cat/1.xml"),
        ({"a/1.jpg": "", "a/1.txt": BOX}, r"YOLO \(a/1.txt, …\) without .*Add .*/classes"),
        ({"a/1.jpg": "", "a/1.txt": "a cat"}, r"captions.*a/1.txt.*--input samples.tar"),
        ({"a/1.jpg": "", "a/1.txt": ""}, r"captions.*a/1.txt"),
        ({"a/1.jpg": "", "a/1.json": '{"shapes": []}'}, r"JSON .*\(a/1.json, …\).*to COCO"),
        ({"a/1.jpg": "", "a/1.json": "{}"}, r"JSON files beside the images .*samples.tar"),
        ({"img/1.jpg": "", "ann/1.jpg.json": "{}"}, r"JSON files with .*\(ann/1.jpg.json"),
        ({"a/b/c/1.jpg": "", "a/b/annotations.xml": ""}, r"of CVAT .*--input /.*/a/b\. "),
        ({"a/b/1.jpg": "", "a/b/_annotations.coco.json": "[]"}, r"COCO .*--input /.*/a/b\. "),
        ({"ds/images/1.jpg": "", "ds/labels/1.txt": BOX, "ds/data.yaml": "x"}, r"--input .*/data"),
        ({"ds/1.jpg": "", "ds/obj.names": "cat"}, r"--input .*/ds --input_format yolo\."),
        ({"img/1.jpg": "", "lbl/1.txt": BOX}, r"YOLO in another folder \(lbl/1.txt, …\)"),
        ({"a/V/xml/1.xml": XML.format("1.jpg"), "a/V/x/1.jpg": ""}, r"Add --input_format voc\."),
        ({"cat/1.jpg": "", "classes.txt": "dog\ncat\n"}, r"classes.txt with .*--classes /"),
    ],
)  # fmt: skip
def test_annotations_that_are_not_read_are_named_with_the_way_on(tmp_path, files, message):
    tree = put(tmp_path, files)
    with pytest.raises(UsageError, match=message) as raised:
        sources_of(tree.root, "auto", has_images=True)
    assert "add --input_format folder" in str(raised.value)
    for options in ({"input_format": "folder"}, {"input_format": "auto", "has_labels": True}):
        (file,) = sources_of(str(tmp_path), has_images=True, **options).files
        assert file.format == "folder"


@pytest.mark.parametrize(
    "files",
    [
        {"cat/1.jpg": "", "cat/notes.txt": "notes", "README.md": "x", "index.json": "{}"},
        {"cat/1.jpg": "", "dog/2.jpg": "", "classes.txt": "cat\ndog\n"},
        {"cat/1.jpg": "", "dog/1.txt": "a text that is not of an image in its folder"},
        {"metadata.csv": "file_name,text\n1.jpg,x\n", "1.jpg": "", "1.txt": "x"},
    ],
)
def test_other_files_do_not_matter(tmp_path, files):
    assert sources_of(put(tmp_path, files).root, "auto", has_images=True).files[0].format in (
        "folder",
        "csv",
    )


def test_splits_of_yolo_that_do_not_exist_are_a_message(tmp_path: Path) -> None:
    files = {"images/1.jpg": "", "labels/1.txt": BOX}
    put(tmp_path, files | {"data.yaml": "train: C:\\a\\b\nval: nowhere\nnames: [cat]\n"})
    (file,) = sources_of(str(tmp_path), "auto", has_images=True).files
    with pytest.raises(
        UsageError, match=r"data.yaml do not exist \(train: C:\\a\\b; val: nowhere\)"
    ):
        FORMATS["yolo"].probe(file)
