"""Tests of images embedded in Parquet and Arrow: sizes in the analyze pass, bytes in the second."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import Location, Row
from recordmill.schemas.rejects import Reason
from recordmill.schemas.tables import DeclaredClasses, Part, Projection, TableFile
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.functional.sources import arrow, parquet
from recordmill.transforms.inputs.formats import FORMATS

ANALYZE = Projection(("image", "label"), "image")
WHOLE = Projection(("image", "label"), "image", pixels=True)

IMAGES = [b"first", None, b"", b"fourth" * 50]
STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
PATHS = ["1.jpg", "2.jpg", None, ""]
COLUMNS = {
    "struct": pa.array(
        [{"bytes": b, "path": p} for b, p in zip(IMAGES, PATHS, strict=True)], STRUCT
    ),
    "binary": pa.array(IMAGES, pa.binary()),
    "large": pa.array(IMAGES, pa.large_binary()),
    "view": pa.array(IMAGES, pa.binary_view()),
}
VIEWS = pa.struct([("bytes", pa.binary_view()), ("path", pa.string_view())])
COLUMNS["struct of views"] = pa.array(COLUMNS["struct"].to_pylist(), VIEWS)
PATHS_OF = {
    name: ["1.jpg", "2.jpg", None, None] if "struct" in name else [None] * 4 for name in COLUMNS
}


def table(column):
    extra = pa.array(["unused"] * 4)
    return pa.table({"unused": extra, "image": COLUMNS[column], "label": [10, 11, 12, 13]})


def in_parquet(column, projection):
    data = io.BytesIO()
    # pyarrow 25 cannot write slices of views that are fields.
    pq.write_table(table(column), data, row_group_size=4 if column == "struct of views" else 3)
    file = TableFile("t.parquet", "parquet")
    return [
        row
        for part in parquet.parts(io.BytesIO(data.getvalue()), file)
        for row in one_by_one(parquet.read(io.BytesIO(data.getvalue()), part, projection))
    ]


def in_arrow(path, projection):
    with open(path, "rb") as stream:
        return list(one_by_one(arrow.read(stream, Part(TableFile(str(path), "arrow")), projection)))


def write_arrow(path, column, form):
    made = table(column)
    if form == "stream":
        with pa.ipc.new_stream(str(path), made.schema) as writer:
            writer.write_table(made, max_chunksize=3)
    else:
        feather.write_feather(made, str(path), compression=form, chunksize=3)


def image_of(found):
    """Returns the bytes of the image of a row, or None."""
    if found.image is None or isinstance(found.image, bytes):
        return found.image
    with open(found.image.uri, "rb") as file:
        file.seek(found.image.start)
        return file.read(found.image.stop - found.image.start)


@pytest.mark.parametrize("column", COLUMNS)
def test_parquet_gives_every_image_with_its_row(column):
    found = in_parquet(column, WHOLE)
    assert [image_of(f) for f in found] == IMAGES
    assert [f.line for f in found] == [1, 2, 3, 4]
    expected = [{"image": p, "label": 10 + i} for i, p in enumerate(PATHS_OF[column])]
    assert [f.values for f in found] == expected


@pytest.mark.parametrize("column", COLUMNS)
def test_the_first_pass_over_parquet_gives_the_same_rows_without_images(column):
    found = in_parquet(column, ANALYZE)
    assert [row.values for row in found] == [f.values for f in in_parquet(column, WHOLE)]
    assert all(isinstance(f, Row) and f.image.uri == "t.parquet" for f in found)


def test_the_first_pass_over_parquet_reads_no_image():
    images = pa.array([{"bytes": bytes([i]) * 50_000, "path": f"{i}.jpg"} for i in range(40)])
    data = io.BytesIO()
    made = pa.table({"image": images.cast(STRUCT), "label": list(range(40))})
    pq.write_table(made, data, compression="none", use_dictionary=False)
    raw = bytearray(data.getvalue())
    chunk = pq.read_metadata(data).row_group(0).column(0)
    assert chunk.path_in_schema == "image.bytes"
    raw[chunk.data_page_offset : chunk.data_page_offset + chunk.total_compressed_size] = bytes(
        chunk.total_compressed_size
    )
    split = Part(TableFile("t.parquet", "parquet"), 0, 1)
    found = list(one_by_one(parquet.read(io.BytesIO(bytes(raw)), split, ANALYZE)))
    assert [row.values["image"] for row in found] == [f"{i}.jpg" for i in range(40)]
    assert found[0].image == Location("t.parquet", 0, found[0].image.stop)
    assert found[0].image.stop == pytest.approx(50_000, rel=0.01)


@pytest.mark.parametrize("form", ["stream", "uncompressed", "lz4", "zstd"])
@pytest.mark.parametrize("column", COLUMNS)
def test_arrow_gives_every_image_with_its_row(tmp_path, column, form):
    path = tmp_path / "t.arrow"
    write_arrow(path, column, form)
    found = in_arrow(path, WHOLE)
    assert [image_of(f) for f in found] == IMAGES
    assert [f.line for f in found] == [1, 2, 3, 4]
    expected = [{"image": p, "label": 10 + i} for i, p in enumerate(PATHS_OF[column])]
    assert [f.values for f in found] == expected
    analyzed = in_arrow(path, ANALYZE)
    assert [row.values for row in analyzed] == expected
    sizes = [row.image and row.image.stop - row.image.start for row in analyzed]
    assert sizes == [p if p is None else len(p) for p in IMAGES]


@pytest.mark.parametrize("form", ["stream", "uncompressed"])
def test_images_that_lie_in_the_file_are_not_copied(tmp_path, form):
    path = tmp_path / "t.arrow"
    write_arrow(path, "struct", form)
    found = in_arrow(path, WHOLE)
    assert all(isinstance(f, Row) for f in found)
    assert {f.image.uri for f in found if f.image} == {str(path)}


@pytest.mark.parametrize("form", ["stream", "lz4"])
def test_every_cut_of_an_arrow_file_is_reported(tmp_path, form):
    path = tmp_path / "t.arrow"
    write_arrow(path, "struct", form)
    whole = path.read_bytes()
    complete = [f.values for f in in_arrow(path, WHOLE)]
    for cut in range(0, len(whole) - 9, 97):
        path.write_bytes(whole[:cut])
        *rows, last = in_arrow(path, WHOLE)
        assert [f.values for f in rows] == complete[: len(rows)]
        assert (last.source, last.reason) == (f"{path}:{len(rows) + 1}", Reason.LOST_ROWS)
        assert "cannot be read" in last.detail


def test_an_arrow_table_of_paths_is_a_table():
    made = pa.table({"image": ["1.jpg", "2.jpg"], "label": [1, 2]})
    data = io.BytesIO()
    with pa.ipc.new_file(data, made.schema) as writer:
        writer.write_table(made)
    stream = io.BufferedReader(io.BytesIO(data.getvalue()))
    found = list(one_by_one(arrow.read(stream, Part(TableFile("t.arrow", "arrow")), WHOLE)))
    assert [row.values for row in found] == made.to_pylist()
    assert {row.image for row in found} == {None}


def test_the_first_version_of_feather_is_rejected():
    with pytest.raises(UsageError, match="Rewrite it as version 2"):
        arrow.probe(io.BufferedReader(io.BytesIO(b"FEA1".ljust(64))), TableFile("t", "arrow"))


def test_probes_detect_columns_that_can_be_images(tmp_path):
    data = io.BytesIO()
    made = table("struct").append_column("b", COLUMNS["binary"])
    pq.write_table(made, data)
    found = parquet.probe(data, TableFile("t", "parquet"))
    assert found.embedded == {"image", "b"}
    assert found.unsupported == {"image": str(STRUCT)}
    path = tmp_path / "t.arrow"
    feather.write_feather(made, str(path))
    with open(path, "rb") as stream:
        assert arrow.probe(stream, TableFile(str(path), "arrow")) == found


@pytest.mark.parametrize("ordered", [True, False])
def test_dictionaries_of_text_are_declared_classes(tmp_path, ordered):
    values = pa.array(["owl", "cat", "ant"], pa.string() if ordered else pa.string_view())
    label = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), values, ordered=ordered)
    number = pa.DictionaryArray.from_arrays(pa.array([0, 0, 0]), pa.array([7]))
    table = pa.table({"label": label, "number": number, "text": ["a", "b", "c"]})
    path = str(tmp_path / "t.arrow")
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    found = FORMATS["arrow"].probe(TableFile(path, "arrow"))
    assert found.classes == {"label": DeclaredClasses(((0, "owl"), (1, "cat"), (2, "ant")))}
