"""Tables beside images: which are metadata, and which command a message names for others."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.tables import SPLIT, TableFile
from recordmill.transforms.functional.sources import class_folder
from recordmill.transforms.inputs.file_tree import FileTree
from recordmill.transforms.inputs.formats import code_of
from recordmill.transforms.inputs.recognize import (
    _check_has_classes,
    _check_no_class_list,
    _metadata_files,
    _tables_beside,
    _unread_lists,
)


def folder(root: Path, files: dict[str, str]) -> FileTree:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return FileTree(str(root))


def images(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "")


def test_tables_are_searched_in_few_folders(tmp_path: Path) -> None:
    names = ["b.tsv", "a/c.csv.gz", "data/train/d.jsonl", "data/x/e.csv", "a/b/f.csv", "a/1.jpg"]
    tree = folder(tmp_path, images(*names))
    assert _tables_beside(tree) == ("b.tsv", "a/c.csv.gz", "data/train/d.jsonl")
    tree = folder(tmp_path, images(*(f"class{i}/g.csv" for i in range(8))))
    assert _tables_beside(tree) == ("b.tsv",)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("meta/train.txt", "meta/test.json"), ["meta/test.json", "meta/train.txt"]),
        (("train_val_list.txt", "Test-1.CSV"), ["Test-1.CSV", "train_val_list.txt"]),
        (("trainlist01.txt", "testlist01.txt"), ["testlist01.txt", "trainlist01.txt"]),
        (("train.txt",), []),
        (("meta/trainer.txt", "contest.txt", "latest.json", "train.py", "test.jpg"), []),
    ],
)
def test_lists_of_splits_that_class_folders_ignore(
    names: tuple[str, ...], found: list[str], tmp_path: Path
) -> None:
    tree, file = folder(tmp_path, images(*names, "cat/1.jpg")), TableFile(str(tmp_path), "folder")
    findings = [*_unread_lists(tree, file)]
    assert [(one.kind, [*one.examples]) for one in findings] == [("unused_splits", found)] * bool(
        found
    )
    options = class_folder.FolderOptions(split_level=1)
    assert not [*_unread_lists(tree, TableFile(str(tmp_path), "folder", options=options))]


@pytest.mark.parametrize(
    ("name", "text", "stops"),
    [
        ("classes.txt", "cat\ndog\n\n", ""),
        ("classes.txt", "cat\n", "Its lines are not the names of the folders"),
        ("labels.txt", "dog\ncat\n", "add --input_format folder --classes "),
        ("labels.txt", "background\ncat\ndog\n", "add --input_format folder --classes "),
        ("labels.txt", "cat \ndog\n", ""),
        ("labels.txt", "Cats\nDogs\n", ""),
        ("class_to_idx.json", '{"dog": 0, "cat": 1}', "add --input_format folder --classes "),
        ("class_to_idx.json", '{"cat": 0, "dog": 1}', ""),
        ("info.json", '{"cat": "a"', ""),
        ("map.pbtxt", "item {id: 1 name: 'dog'} item {id: 2 name: 'cat'}", "--classes "),
    ],
)
def test_lists_of_the_class_folders_in_another_order(
    name: str, text: str, stops: str, tmp_path: Path
) -> None:
    tree = folder(tmp_path, {**images("cat/1.jpg", "dog/1.jpg"), name: text})
    file = class_folder.sources_in(tree).files[0]
    said = f"got {name} with other names or another order.*{stops}"
    with pytest.raises(UsageError, match=said) if stops else nullcontext():
        _check_no_class_list(tree, file)


def test_a_long_list_of_the_class_folders_is_read_to_its_end(tmp_path: Path) -> None:
    names = [f"{number:03} a class with a long name" for number in range(99)]
    tree = folder(tmp_path, images(*(f"{name}/1.jpg" for name in names)))
    (tmp_path / "classes.txt").write_text("\n".join(names))
    _check_no_class_list(tree, class_folder.sources_in(tree).files[0])


@pytest.mark.parametrize(
    ("text", "labels", "what"),
    [
        ("ImageId,P\na,n01 1 2.5 3 -4 n02 5 6 7 8 \n", None, "labels with boxes in 'P'"),
        ("ImageId,P\na,n01 1 2.5 3 -4\n", {"P"}, "labels with boxes in 'P'"),
        ("ImageId,P\na,n01 1 2.5 3 -4\n", {"ImageId"}, ""),
        ("ImageId,P\na,1 1 2 3 4\n", {"P"}, ""),
        ("ImageId,P\na,n01 1 2 3\n", {"P"}, ""),
        ("name,cat,dog\na,0,1.0\n", None, "a column per class"),
        ("name,cat,dog\na,0,1.0\n", {"cat"}, ""),
    ],
)
def test_tables_with_something_else_than_labels(
    text: str, labels: set[str] | None, what: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(text)
    found, code = code_of(TableFile(str(tmp_path / "t.csv"), "csv"), labels)
    assert (found, bool(code)) == (what, bool(what))


def test_metadata_has_a_column_of_file_names_and_the_split_of_its_folder(tmp_path: Path) -> None:
    line = '{"file_name": "1.jpg"}\n'
    files = {"train/metadata.csv": "file_name\n1.jpg\n", "val/metadata.jsonl": line}
    tree = folder(tmp_path, {**files, "metadata.csv": "name\n1.jpg\n", "labels.csv": "file_name\n"})
    train, val = (f"{tmp_path}/{name}" for name in files)
    whole = str(tmp_path)
    assert _metadata_files(tree, (*files, "metadata.csv", "labels.csv")) == (
        TableFile(
            train, "csv", partition=((SPLIT, "train"),), key_prefix="train/", image_folder=whole
        ),
        TableFile(val, "jsonl", partition=((SPLIT, "val"),), key_prefix="val/", image_folder=whole),
    )


@pytest.mark.parametrize(
    "names",
    [
        ("cat/1.jpg", "dog/2.jpg"),
        ("cat/1.jpg", "train/2.jpg"),  # a class of trains
        ("photo_cats/1.jpg", "photo_dogs/2.jpg"),
    ],
)
def test_several_folders_are_classes(names: tuple[str, ...], tmp_path: Path) -> None:
    _check_has_classes(folder(tmp_path, images(*names, "a.csv")), ("a.csv",))


@pytest.mark.parametrize(
    ("files", "places", "options"),
    [
        (
            {"train.csv": "id,breed\n7,owl\n", "train/7.jpg": ""},
            "images in train/ beside train.csv",
            "--input {root}/train.csv --image_root {root}/train --columns image=id,label=breed",
        ),
        (
            {"train.csv": "image,label\n1.jpg,owl\n", "images/1.jpg": ""},
            "images in images/ beside train.csv",
            "--input {root}/train.csv --image_root {root}/images",
        ),
        (  # the image paths contain the folder
            {"labels.tsv": "age\tpath\tlabel\n3\tphotos/1.jpg\towl\n", "photos/1.jpg": ""},
            "images in photos/ beside labels.tsv",
            "--input {root}/labels.tsv --columns image=path",
        ),
        (  # as in an archive from macOS
            {"train.csv": "id,breed\n\xe9,owl\n", "train/e\u0301.jpg": ""},
            "images in train/ beside train.csv",
            "--input {root}/train.csv --image_root {root}/train --columns image=id,label=breed",
        ),
        (
            {"labels.jsonl": '{"file": 3, "name": "owl"}\n', "3.jpg": ""},
            "images beside labels.jsonl",
            "--input {root}/labels.jsonl --columns image=file,label=name",
        ),
        (  # several columns may be the label
            {"a.csv": "age,id,breed\n3,x/y,owl\n", "img/x/y": ""},
            "images in img/ beside a.csv",
            "--input {root}/a.csv --image_root {root}/img --columns image=id,label=COLUMN "
            "(columns: age, id, breed)",
        ),
        (  # the table without labels is not the one to read
            {
                "sample_submission.csv": "id,breed\n8,owl\n",
                "test.csv": "id\n8\n",
                "train.csv": "id,breed\n7,owl\n",
                "train_images/7.png": "",
                "test_images/8.png": "",
            },
            "images in test_images/ and train_images/ beside sample_submission.csv and test.csv "
            "and train.csv",
            "--input {root}/train.csv --image_root {root}/train_images "
            "--columns image=id,label=breed",
        ),
        (  # as GTSRB
            {"00000/GT-00000.csv": "Filename;ClassId\n0.png;7\n", "00000/0.png": ""},
            "images in 00000/ beside 00000/GT-00000.csv",
            "--input {root}/00000/GT-00000.csv --delimiter ';' "
            "--columns image=Filename,label=ClassId",
        ),
        (  # unreadable
            {"a.csv.gz": "x", "img 1/1.jpg": ""},
            "images in img 1/ beside a.csv.gz",
            "--input {root}/a.csv.gz --image_root '{root}/img 1' "
            "--columns image=COLUMN,label=COLUMN",
        ),
    ],
)
def test_the_message_names_the_options_that_read_the_table(
    files: dict[str, str], places: str, options: str, tmp_path: Path
) -> None:
    tree = folder(tmp_path, files)
    with pytest.raises(UsageError) as error:
        _check_has_classes(tree, _tables_beside(tree))
    assert str(error.value) == (
        f"{tmp_path}: expected a folder per class, got {places}. To read a table, use "
        f"{options.format(root=tmp_path)}. To make folders the classes, add --input_format folder."
    )
