"""Arrow tables that take far more memory than their bytes are rejected before they are decoded."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.tables import Part, Projection, TableFile
from recordmill.transforms.functional.records import framing
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.sources import arrow

MB = 2**20
ITEMS = 5_000_000


def write(path: Path, batches: list[pa.RecordBatch], codec: str | None, is_file: bool) -> Path:
    options = pa.ipc.IpcWriteOptions(compression=codec, emit_dictionary_deltas=True)
    new = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with new(path, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return path


def read(path: Path) -> tuple[list[dict[str, Any]], list[Reject]]:
    """Returns the rows and the rejects of a table."""
    rows: list[dict[str, Any]] = []
    rejects: list[Reject] = []
    with path.open("rb") as stream:
        for found in arrow.read(stream, Part(TableFile(str(path), "arrow")), Projection()):
            if isinstance(found, RowBatch):
                rows += [dict(row.values) for row in found]
            else:
                assert isinstance(found, Reject)
                rejects.append(found)
    return rows, rejects


def views(number: int) -> pa.Array:
    """Returns views of one text of a megabyte."""
    one = np.zeros(number, [("size", "<i4"), ("prefix", "S4"), ("at", "<i4, <i4")])
    one["size"], one["prefix"] = MB, b"yyyy"
    buffers = [None, pa.py_buffer(one.tobytes()), pa.py_buffer(b"y" * MB)]
    return pa.Array.from_buffers(pa.string_view(), number, buffers)


def one_list(items: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(items)], pa.int32()), items)


def references(number: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(number, np.int8), pa.array(["x" * MB]))


@pytest.mark.parametrize("is_file", [True, False], ids=["file", "stream"])
@pytest.mark.parametrize(
    ("column", "problem"),
    [
        (pa.array(["a" * (80 * MB)]), "a buffer of 83,886,080 bytes in"),
        (one_list(pa.array(np.zeros(ITEMS, np.int8))), "'a': 5,000,000 values in"),
        (one_list(pa.nulls(ITEMS)), "'a': 5,000,000 values in"),
        (one_list(references(10_000)), "texts of 10,485,760,000 bytes in 1 rows"),
        (one_list(views(10_000)), "texts of 10,485,760,000 bytes in 1 rows"),
        (views(10_000), "texts of 10,485,760,000 bytes in 10,000 rows"),
    ],
    ids=["text", "integers", "nulls", "dictionary", "views in a list", "views"],
)
def test_what_takes_far_more_memory_than_its_bytes_is_not_read(
    column: pa.Array, problem: str, is_file: bool, tmp_path: Path
) -> None:
    batch = pa.RecordBatch.from_arrays([column], ["a"])
    path = write(tmp_path / "t.arrow", [batch], "zstd", is_file)
    assert path.stat().st_size < MB
    before = pa.total_allocated_bytes()
    rows, (reject,) = read(path)
    assert (rows, reject.reason) == ([], Reason.LOST_ROWS)
    assert problem in reject.detail
    assert pa.total_allocated_bytes() - before < MB


def test_the_batches_before_one_that_is_too_large_are_read(tmp_path: Path) -> None:
    batches = [pa.RecordBatch.from_pydict({"a": [text]}) for text in ("b", "c" * (80 * MB))]
    rows, (reject,) = read(write(tmp_path / "t.arrow", batches, "zstd", True))
    assert rows == [{"a": "b"}]
    assert reject.source.endswith("t.arrow:2")


TYPES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.string(): st.text(max_size=20),
    pa.string_view(): st.text(max_size=20),
    pa.list_(pa.int8()): st.lists(st.integers(-128, 127), max_size=5),
    pa.dictionary(pa.int8(), pa.string()): st.sampled_from(["a", "b"]),
    pa.list_(pa.string_view()): st.lists(st.text(max_size=20), max_size=5),
    pa.list_(pa.list_(pa.string())): st.lists(st.lists(st.text(max_size=9)), max_size=5),
}


@given(st.data(), st.sampled_from([None, "lz4", "zstd"]), st.booleans())
def test_valid_tables_are_read_in_full(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, codec: str | None, is_file: bool
) -> None:
    types = data.draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=4))
    schema = pa.schema([(f"c{i}", type_) for i, type_ in enumerate(types)])
    row = st.fixed_dictionaries(
        {f"c{i}": st.none() | TYPES[type_] for i, type_ in enumerate(types)}
    )
    batch = pa.RecordBatch.from_pylist(data.draw(st.lists(row, min_size=1, max_size=20)), schema)
    size = data.draw(st.integers(1, 20))
    batches = [batch.slice(start, size) for start in range(0, batch.num_rows, size)]
    path = tmp_path_factory.mktemp("valid") / "t.arrow"
    assert read(write(path, batches, codec, is_file)) == (batch.to_pylist(), [])


@pytest.mark.parametrize("is_file", [True, False])
def test_a_gzipped_table_far_larger_than_its_file_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_file: bool
) -> None:
    batch = pa.record_batch({"a": np.zeros(2**15, np.int64)})
    stored = write(tmp_path / "a", [batch], None, is_file).read_bytes()

    def found(most: int) -> list[Any]:
        monkeypatch.setattr(framing, "_RECORD_BYTES", most)
        part = Part(TableFile("a.gz", "arrow", gzipped=True))
        stream = framing.decompressed(io.BytesIO(gzip.compress(stored)))
        return [*arrow.read(stream, part, Projection())]

    assert sum(map(len, found(2**20))) == 2**15
    (reject,) = found(2**16)
    assert reject.reason is Reason.LOST_ROWS
    assert "expected at most 65,536 bytes when a file of this size is decompressed" in reject.detail
