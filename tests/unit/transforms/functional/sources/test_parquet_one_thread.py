from __future__ import annotations

import ast
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.transforms.functional.sources.parquet import (
    open_parquet,
    read_table,
    table_batches,
)

ROOT = Path(__file__).parents[5]
ALLOWED = {
    "transforms/functional/sources/parquet.py": {"pq.ParquetFile"},
    "transforms/functional/records/index.py": {"pq.ParquetWriter", "pa.PythonFile"},
    "transforms/functional/sources/arrow.py": {
        "pa.PythonFile",
        "pa.memory_map",
    },  # IPC is read by its caller
}
"""Which modules open files with Arrow, and how."""

OPENING = {
    "ParquetFile",
    "ParquetWriter",
    "PythonFile",
    "read_metadata",
    "read_table",
    "dataset",
    "memory_map",
}


def test_no_other_module_opens_a_file_with_arrow() -> None:
    found = {}
    for package in ("pipelines", "schemas", "transforms"):
        for path in (ROOT / package).rglob("*.py"):
            nodes = list(ast.walk(ast.parse(path.read_text())))
            called = [node.func for node in nodes if isinstance(node, ast.Call)]
            bases = [
                base for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases
            ]
            uses = {
                ast.unparse(used)
                for used in (*called, *bases)
                if isinstance(used, ast.Attribute) and used.attr in OPENING
            }
            if uses:
                found[str(path.relative_to(ROOT))] = uses
    assert found == ALLOWED


@pytest.fixture
def data() -> bytes:
    stream = io.BytesIO()
    table = pa.table({"key": ["a", "b", "c"], "n": [1, 2, 3], "x": [0.5, 1.5, 2.5]})
    pq.write_table(table, stream, row_group_size=2)
    return stream.getvalue()


def test_a_table_has_the_columns_asked_for_in_that_order(data: bytes) -> None:
    assert read_table(data, ["n", "key"]).to_pydict() == {"n": [1, 2, 3], "key": ["a", "b", "c"]}
    assert read_table(data).column_names == ["key", "n", "x"]
    with pytest.raises(KeyError):
        read_table(data, ["other"])


def test_batches_are_those_of_the_row_groups_asked_for(data: bytes) -> None:
    def rows(*arguments: object) -> list[list[dict[str, object]]]:
        batches = open_parquet(io.BytesIO(data)).iter_batches(*arguments)
        return [batch.to_pylist() for batch in batches]

    assert rows(9, [1], ["key"]) == [[{"key": "c"}]]
    assert [len(batch) for batch in rows(1)] == [1, 1, 1]


def test_no_thread_of_arrow_is_started(data: bytes) -> None:
    """Arrow's pools start threads when they have something to do, and keep them."""

    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    before = threads()
    for _ in range(20):
        read_table(data)
        list(open_parquet(io.BytesIO(data)).iter_batches(1))
    assert threads() == before


def repeated(text: str, rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), [text])


@pytest.mark.parametrize("nested", [False, True])
def test_texts_that_are_much_larger_than_the_file_are_not_decoded(nested: bool) -> None:
    texts = repeated("x" * 2**20, 200)
    if nested:
        texts = pa.ListArray.from_arrays(pa.array([0, 100, 200], pa.int32()), texts)
    sink = io.BytesIO()
    pq.write_table(pa.table({"key": texts}), sink, store_schema=False)
    before = pa.total_allocated_bytes()
    with pytest.raises(ValueError, match="exceed 67,108,864 bytes"):
        read_table(sink.getvalue())
    assert pa.total_allocated_bytes() - before < 2**25


def test_a_table_with_another_number_of_rows_is_not_read() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"key": ["a", "b"], "class": [["c"], ["c", "d"]]}), sink)
    (batch,) = table_batches(sink.getvalue(), ["class"], 2)
    assert batch.to_pydict() == {"class": [["c"], ["c", "d"]]}
    with pytest.raises(ValueError, match="expected 3 rows, got 2"):
        next(table_batches(sink.getvalue(), ["key"], 3))
