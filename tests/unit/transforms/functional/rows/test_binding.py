"""Tests of the column mapping of a table."""

from __future__ import annotations

import pytest

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.tables import TableFile
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.rows.binding import Binding, _table_names, common_folder


def test_the_binding_of_options_and_tables():
    config = ConvertConfig(
        inputs=("d/a/t.csv", "d/b/t.csv"),
        output="out",
        name="birds",
        columns={"image": "file"},
        image_root="photos",
        key_column="id",
        split_column="part",
        splits={"train": 0.8, "test": 0.2},
    )
    files = [
        TableFile("https://h/d/a/t.csv", "csv"),
        TableFile("https://h/d/b/t.csv?sig=x", "csv"),
        TableFile("https://h/d/b/t.csv?sig=y", "csv", key_prefix="b/"),
    ]
    schema = config.dataset_schema
    found = Binding.of(config, schema, files)
    assert found == Binding(
        resolved=ResolvedSchema(schema),
        columns={"image": "file"},
        image_root="photos",
        key_column="id",
        split_column="part",
        splits=frozenset({"train", "test"}),
        key_root="https://h/d/",
        table_names={"https://h/d/b/t.csv?sig=y": "https://h/d/b/t.csv;2"},
        key_prefixes={"https://h/d/b/t.csv?sig=y": "b/"},
        guard=config.guard,
    )
    assert found.table_column("image") == "file"
    assert found.table_column("label") == "label"


@pytest.mark.parametrize(
    ("guard", "uri", "is_inside"),
    [
        (None, "s3://other/a.jpg", True),
        ("s3://b/photos", "", True),
        ("s3://b/photos", "s3://b/photos/a.jpg", True),
        ("s3://b/photos", "s3://b/a.jpg", False),
        ("s3://b/photos", "/etc/passwd", False),
    ],
)
def test_images_outside_the_guard_are_rejected(guard, uri, is_inside):
    binding = Binding(ResolvedSchema(preset("tabular")), {}, guard=guard)
    if is_inside:
        assert binding.check_image(uri) is None
        return
    with pytest.raises(RecordError) as raised:
        binding.check_image(uri)
    assert raised.value.reason is Reason.OUTSIDE_ROOT


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], ""),
        (["t.csv"], ""),
        (["d/t.csv"], "d/"),
        (["d/part-1.csv", "d/part-2.csv"], "d/"),
        (["d/a/t.csv", "d/b/t.csv"], "d/"),
        (["https://h/x/t.csv?sig=1/2", "https://h/x/t.csv?sig=1/3"], "https://h/x/"),
    ],
)
def test_the_common_folder_of_tables(files, expected):
    assert common_folder(files) == expected


def test_tables_that_differ_in_secrets_have_unique_names():
    files = [
        "https://h/a.csv?sig=1",
        "https://h/a.csv?sig=2",
        "https://h/b.csv?sig=1",
        "https://h/a.csv?sig=3",
    ]
    assert _table_names(files) == {
        "https://h/a.csv?sig=2": "https://h/a.csv;2",
        "https://h/a.csv?sig=3": "https://h/a.csv;3",
    }
