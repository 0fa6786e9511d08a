"""Tests of folders of tables: what is a table, what is not, and partitions as columns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Row, SkippedInput
from recordmill.schemas.tables import Projection
from recordmill.transforms.inputs.formats import _with_partition, is_spark_json
from recordmill.transforms.inputs.paths import (
    _MARKER,
    _check_no_log,
    _root_of_partitions,
    _tables_below,
    partition_of,
)


class Folder:
    """A folder with some files, all of which are empty."""

    root = "out"

    def __init__(self, *names: str) -> None:
        self.names = names
        self.walked = 0

    def walk(self, folder: str = "") -> Iterator[str | SkippedInput]:
        for name in self.names:
            self.walked += 1
            is_hidden = any(part.startswith(".") for part in name.split("/"))
            yield SkippedInput("hidden") if is_hidden else name

    def has(self, name: str) -> bool:
        return any(f"{other}/".startswith(f"{name}/") for other in self.names)


PARTS = ("split=test/part-1.parquet", "split=train/part-0.parquet")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((*PARTS, "_SUCCESS", "._SUCCESS.crc", "split=test/.part-1.parquet.crc"), PARTS),
        (("part-0.csv.gz", "part-1.csv.gz", "_committed_1"), ("part-0.csv.gz", "part-1.csv.gz")),
        (("part-00000-5d.c000.json", "_SUCCESS"), ("part-00000-5d.c000.json",)),
        (("_temporary/0/part-0.parquet", "part-0.parquet"), ("part-0.parquet",)),
        (("README.md", "data/a.parquet", "LICENSE"), ("data/a.parquet",)),
        (("data-0.arrow", "state.json", "dataset_info.json"), ("data-0.arrow",)),
        (("labels.csv", "photos/1.jpg"), ()),
        (("cats/1.jpg",), ()),
        (("annotations.json",), ()),
        (("lost.jsonl",), ()),
        (("lost.jsonl", "lost.csv"), ("lost.csv",)),
        (("notes.txt",), ()),
        (("b/1.tar", "a/0.TAR", "README.md"), ("a/0.TAR", "b/1.tar")),
        (("0.tar", "0.parquet"), ()),
        (("0.tar", "1.jpg"), ()),
        ((), ()),
    ],
    ids=str,
)
def test_a_folder_with_only_tables_is_its_tables(names, expected):
    assert _tables_below(Folder(*names)) == list(expected)


def test_a_folder_of_images_is_not_listed_to_its_end():
    folder = Folder("1.jpg", *(f"{i}.jpg" for i in range(1000)))
    assert _tables_below(folder) == []
    assert folder.walked == 1


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("Delta", ("part-0.parquet", "_delta_log/00000000000000000000.json")),
        ("Iceberg", ("data/part-0.parquet", "metadata/00001-5d.metadata.json")),
        ("Hudi", (".hoodie/hoodie.properties", "part-0.parquet")),
    ],
)
def test_tables_with_a_log_are_rejected(kind, names):
    with pytest.raises(UsageError, match=rf"^out: is a table of {kind}; .* deleted rows.*\.$"):
        _check_no_log(Folder(*names))


def test_folders_that_only_have_such_names_are_accepted():
    folder = Folder("metadata/a.parquet", "data/b.parquet")
    _check_no_log(folder)
    assert _tables_below(folder) == ["data/b.parquet", "metadata/a.parquet"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("part-0.parquet", ()),
        ("a=1/part-0.parquet", (("a", "1"),)),
        ("x/a=1/b=/c=d=e/y/f=g.parquet", (("a", "1"), ("b", ""), ("c", "d=e"))),
        ("a=__HIVE_DEFAULT_PARTITION__/p.parquet", (("a", None),)),
        ("a%20b=%2F%C3%BC/p.parquet", (("a b", "/ü"),)),
        ("=1/p.parquet", ()),
    ],
)
def test_partitions_are_in_the_names_of_folders(name, expected):
    assert partition_of(name) == expected


def test_the_folder_of_a_partitioned_table():
    assert _root_of_partitions("s3://b/t/a=1/b=2/part-0.parquet") == "s3://b/t"
    assert _root_of_partitions("part-0.parquet") == ""


def test_markers_and_json_of_spark():
    names = ["a/_SUCCESS", "_metadata", ".part-0.csv.crc", "_started_12", "_annotations.coco.json"]
    assert [bool(_MARKER.search(name)) for name in names] == [True, True, True, True, False]
    assert [is_spark_json(name) for name in ("t/part-0-c000.json.gz", "parts.json")] == [
        True,
        False,
    ]


PARTITION = (("split", "train"), ("year", None))


@pytest.mark.parametrize(
    ("columns", "is_text", "values", "untyped"),
    [
        (None, False, {"x": 1, "split": "train", "year": None}, {"split", "year"}),
        (("x", "split"), False, {"x": 1, "split": "train"}, {"split"}),
        (("x",), frozenset({"x"}), {"x": 1}, {"x"}),
        (("split", "x"), True, {"x": 1, "split": "train"}, {"split", "x"}),
    ],
)
def test_rows_have_the_projected_columns_of_their_partition(columns, is_text, values, untyped):
    row = Row({"x": 1}, "t.parquet", 1, is_text=is_text)
    skipped = SkippedInput("hidden")
    rows = list(
        _with_partition([row, row._replace(image=b"x"), skipped], PARTITION, Projection(columns))
    )
    assert rows[1:] == [rows[0]._replace(image=b"x"), skipped]
    assert rows[0].values == values
    assert {name for name in values if rows[0].untyped(name)} == untyped
