"""Rows in memory become the Parquet file that a user would have written of them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from recordmill.pipelines.api import _rows_in_file
from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import source_of
from recordmill.transforms.functional.sources.dicts import is_rows

PIXELS = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
ROWS = [{"image": f"{n}.jpg", "label": "cat", "size": n / 2} for n in range(3)]


def options(folder: Path) -> dict[str, Any]:
    return {"output": str(folder / "out"), "name": "a"}


def read(rows: Any, folder: Path) -> list[dict[str, Any]]:
    """Returns the rows of the file that a conversion reads."""
    with _rows_in_file(rows, options(folder)) as named:
        found: list[dict[str, Any]] = pq.read_table(named["input"][0]).to_pylist()
    assert not (folder / "out").exists()
    return found


class OnlyArrow:
    """A table of a library that gives Arrow data, such as polars."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.Table.from_pylist(ROWS).__arrow_c_stream__(requested_schema)


class Selected:
    """A dataset of Hugging Face: its table has other rows than it selects."""

    def with_format(self, name: str) -> dict[slice, pa.Table]:
        assert name == "arrow"
        return self  # type: ignore[return-value]

    def __getitem__(self, rows: slice) -> pa.Table:
        return pa.Table.from_pylist(ROWS)[rows]


@pytest.mark.parametrize(
    "rows",
    [ROWS, tuple(ROWS), pd.DataFrame(ROWS), pa.Table.from_pylist(ROWS), OnlyArrow(), Selected()],
    ids=["list", "tuple", "pandas", "arrow", "stream", "dataset"],
)
def test_rows_of_any_library_are_the_same(rows: Any, tmp_path: Path) -> None:
    assert is_rows(rows)
    assert read(rows, tmp_path) == ROWS


@pytest.mark.parametrize("paths", ["a.csv", Path("a.csv"), ["a.csv", Path("b.csv")], []])
def test_paths_are_not_rows(paths: Any) -> None:
    assert not is_rows(paths)


@pytest.mark.parametrize("made", [list, pd.DataFrame])
def test_images_of_pillow_and_arrays_become_png(made: Any, tmp_path: Path) -> None:
    images = [Image.fromarray(PIXELS), PIXELS, PIXELS[:, :, :1], PIXELS[:, :, 0]]
    found = read(made([{"image": one} for one in images]), tmp_path)
    shapes = [np.asarray(Image.open(io.BytesIO(row["image"]))) for row in found]
    gray = PIXELS[:, :, 0]
    for pixels, expected in zip(shapes, [PIXELS, PIXELS, gray, gray], strict=True):
        np.testing.assert_array_equal(pixels, expected)


@pytest.mark.parametrize(
    ("pixels", "format_"),
    [
        (np.array([[0, 65535]], np.int32), "PNG"),
        (np.array([[0, 70000]], np.int32), "TIFF"),
        (np.array([[-1, 5]], np.int32), "TIFF"),
        (np.array([[0.5, -2]], np.float32), "TIFF"),
    ],
)
def test_samples_of_pillow_are_not_clipped(pixels: Any, format_: str, tmp_path: Path) -> None:
    (row,) = read([{"image": Image.fromarray(pixels)}], tmp_path)
    found = Image.open(io.BytesIO(row["image"]))
    assert found.format == format_
    np.testing.assert_array_equal(np.asarray(found), pixels)


def test_other_values_are_those_of_python(tmp_path: Path) -> None:
    rows = [{"a": np.float32(0.5), "b": np.array([1.5, 2]), "path": Path("x/y.jpg")}]
    assert read(rows, tmp_path) == [{"a": 0.5, "b": [1.5, 2.0], "path": "x/y.jpg"}]


def test_columns_that_the_first_row_lacks_are_kept(tmp_path: Path) -> None:
    assert read([{"a": 1}, {"b": 2}], tmp_path) == [{"a": 1, "b": None}, {"a": None, "b": 2}]


def test_missing_values_of_pandas_are_missing(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": ["x", None], "b": [1.5, float("nan")]})
    assert read(frame, tmp_path)[1] == {"a": None, "b": None}


@pytest.mark.parametrize("table", [list, pd.DataFrame])
def test_nan_within_a_list_is_a_value_as_in_parquet(tmp_path: Path, table: Any) -> None:
    rows = table([{"a": [1.5, float("nan")]}, {"a": float("nan")}])
    first, second = read(rows, tmp_path)
    assert (str(first["a"]), second["a"]) == ("[1.5, nan]", None)


def test_the_same_rows_are_in_the_same_file_whose_rows_are_named_by_number(tmp_path: Path) -> None:
    paths = []
    for _ in range(2):
        with _rows_in_file(ROWS, options(tmp_path)) as named:
            paths += named["input"]
    assert paths[0] == paths[1]
    assert source_of(paths[0], 17) == "row 17"
    assert source_of(paths[0], 0) == "rows"
    assert source_of("data/rows.parquet", 17) == "data/rows.parquet:17"


def test_paths_of_images_are_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with _rows_in_file(ROWS, options(tmp_path)) as named:
        assert (named["image_root"], named["allow_outside_root"]) == (str(tmp_path), True)
    with _rows_in_file(ROWS, {**options(tmp_path), "image_root": "photos"}) as named:
        assert named["image_root"] == "photos"
        assert "allow_outside_root" not in named


def test_errors_name_the_rows_and_not_the_file(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"^rows: has no column 'x'$"),
        _rows_in_file(ROWS, options(tmp_path)) as named,
    ):
        raise UsageError(f"{named['input'][0]}: has no column 'x'")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"a": 1}, "b.csv"], "row 2: expected a dict with a value for each column, got 'b.csv'"),
        ([{1: 2}], "row 1: expected a dict"),
        ({"a": [1]}, "row 1: expected a dict"),
        (17, "row 1: expected a dict"),
        ([{"a": 1}, {"a": "x"}], "^row 2: column 'a': "),
        ([{"a": 1}, {"a": 2}, {"a": 2**63}, {"a": "x"}], "^row 3: column 'a': "),
        ([{"a": np.zeros(2)}, {"a": np.zeros((2, 2))}], "^row 2: column 'a': "),
        ([{"a": object()}], "^row 1: column 'a': "),
        ([{"a": np.zeros((4, 3, 5), np.uint8)}], "^row 1: column 'a': Cannot handle this data"),
        ([{"a": Image.new("HSV", (1, 1))}], "^row 1: column 'a': cannot write mode HSV as PNG"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns of the DataFrame have the same"),
    ],
)
def test_what_is_not_rows_is_a_usage_error(rows: Any, said: str, tmp_path: Path) -> None:
    assert is_rows(rows)
    with pytest.raises(UsageError, match=said):
        read(rows, tmp_path)


def test_options_are_checked_before_the_rows_are_written(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="--name"),
        _rows_in_file(ROWS, {"output": str(tmp_path), "name": "../a"}),
    ):
        pass
    assert not [*tmp_path.iterdir()]
