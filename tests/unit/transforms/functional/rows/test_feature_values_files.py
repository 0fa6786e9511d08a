"""Names of classes in files: the order of their ids, and the first id."""

from __future__ import annotations

import pytest

from recordmill.pipelines.options import config_of
from recordmill.schemas.rejects import RecordError
from recordmill.transforms.functional.rows.columns import missing_column
from recordmill.transforms.functional.rows.feature_values import names_in
from recordmill.transforms.functional.values.typed import to_number

MAP = 'item {\n  name: "dog"\n  id: 2\n  display_name: "Dog"\n}\nitem { id: 1 name: \'cat\' }\n'


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("a.txt", "cat\ndog\n\n", (["cat", "dog"], 0)),
        ("a", '["cat"]', (['["cat"]'], 0)),
        ("label_map.pbtxt", MAP, (["cat", "dog"], 1)),
        ("a.PBTXT", "item { id: 0 name: 'x' }", (["x"], 0)),
        ("https://host/a.json?key=1.txt", '["cat", "dog"]', (["cat", "dog"], 0)),
        ("a.json", '{"cat": 1, "dog": 0}', (["dog", "cat"], 0)),
        ("a.json", '{"1": "cat", "2": "dog"}', (["cat", "dog"], 1)),
        ("a.pbtxt", "", ([], 0)),
        ("a.txt", "1 euro\n2 euro\n", (["1 euro", "2 euro"], 0)),
        ("a.txt", "level:0\nlevel:1", (["level:0", "level:1"], 0)),
        ("a.txt", "0 cat\n7 dog", (["0 cat", "7 dog"], 0)),
        ("a.txt", "class 0\nother 1", (["class 0", "other 1"], 0)),
    ],
)
def test_names_are_in_the_order_of_their_ids(path, text, expected):
    assert names_in(text, path) == expected


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("a.pbtxt", "item { id: 1 name: 'a' } item { id: 3 name: 'b' }", r"gaps, got \[1, 3"),
        ("a.pbtxt", "item { id: 2 name: 'a' }", "ids from 0 or 1"),
        ("a.pbtxt", f"{MAP}item {{\n  id: 1 name: 'ox' }}", "^1 occurs twice, .* lines 6 and 7"),
        ("a.pbtxt", f"{MAP}item {{ id: 3 name: 'cat' }}", "'cat' occurs .* lines 6 and 7"),
        ("a.json", '{"a": "cat"}', "expected a list of names"),
        ("a.json", '[1]', "expected a list of names"),
        ("a.json", '[]', "expected a list of names"),
        ("a.json", '["cat"', "end|delimiter|Expecting|parse"),
        ("a.json", '7', "expected a list of names"),
        ("a.json", '{"cat": 1, "dog": 1}', "expected a list of names"),
        ("data.YAML", "names:\n- cat\n", "^is YAML$"),
        ("a.txt", "0 cat\n1 dog", "has an id in each line. Order the names by id"),
        ("a.csv", "dog,1\ncat,0\n", "an id in each line"),
        ("a.csv", "id,name\n1,dog\n2,polar bear\n", "an id in each line"),
        ("a.csv", "name;id\ndog;0\ncat;1\n", "an id in each line"),
    ],
)  # fmt: skip
def test_files_without_an_id_per_name_are_an_error(path, text, message):
    with pytest.raises(ValueError, match=message):
        names_in(text, path)


@pytest.mark.parametrize(("first", "offset"), [(1, 1), (0, 0)])
def test_ids_from_1_are_an_offset(first, offset, tmp_path):
    path = tmp_path / "map.pbtxt"
    path.write_text(f"item {{ id: {first} name: 'cat' }}")
    options = {"input": ["x"], "output": "out", "name": "d", "classes": str(path)}
    config = config_of(options)
    assert config.classes == ("cat",)
    assert config.dataset_schema.features["label"].label_offset == offset
    assert config.dataset_schema.features["label"].first_label == first
    counted = config_of({**options, "classes": None, "num_classes": 2, "first_label": first})
    assert counted.class_names == (("0", "1"), ("1", "2"))[first]
    stated = config_of({**options, "label_offset": "0"}).dataset_schema.features["label"]
    assert (stated.label_offset, stated.first_label) == (0, first)


def test_a_line_of_excel_pixels_and_decimal_commas_are_named():
    assert "(the line 'sep=;' is of Excel: remove it, and set --delimiter ';')" in missing_column(
        "label", ["sep=;"], "t.csv"
    )
    for names in (["label", "pixel0", "pixel1"], ["emotion", "pixels", "Usage"]):
        rows = ("table['pixels'].str.split()", "table.filter(like='pixel').to_numpy()")
        code = f"reshape(HEIGHT, WIDTH) for row in {rows['pixel0' in names]}]; recordmill.convert("
        assert code in missing_column("image", names, "t.csv")
    assert "pixel" not in missing_column("image", ["a"], "t.csv")
    for text in ("0,5", "1.308,06", "-1.234.567,8"):
        with pytest.raises(RecordError) as error:
            to_number(text, is_text=True)
        expected = "a float within float32's range with a decimal point, not a comma"
        assert error.value.detail == f"expected {expected}, got {text!r}"


def test_several_names_in_one_line_are_not_one_class() -> None:
    with pytest.raises(ValueError, match="several names in one line"):
        names_in("cat,dog,owl\n", "classes.txt")
    assert names_in("cat,dog\n", "classes.txt") == (["cat,dog"], 0)  # may be a name
