"""Rows that --where selects, in batches and one by one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.schemas.condition import Condition
from recordmill.schemas.records import OUTSIDE_WHERE, Row, SkippedInput
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.tables import Projection, TableFile
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.inputs.formats import FORMATS

WHERE = Condition("age >= 3 and age < 6")


@pytest.mark.parametrize("format_", ["csv", "parquet"])
@pytest.mark.parametrize("image", ["", "image"])
def test_rows_are_selected_and_the_others_counted(format_: str, image: str, tmp_path: Path) -> None:
    ages = [*range(8), None]
    path = tmp_path / f"t.{format_}"
    if format_ == "csv":
        path.write_text("image,age\n" + "".join(f"a.jpg,{age or 0}\n" for age in ages) + "b,x\n")
    else:
        pq.write_table(pa.table({"image": [b"jpeg"] * len(ages), "age": ages}), path)
    file, projection = TableFile(str(path), format_), Projection(image=image, pixels=True)
    reader = FORMATS[format_]
    (part,) = reader.parts(file)
    found = list(one_by_one(reader.read(part, Projection(**{**vars(projection), "where": WHERE}))))
    everything = list(one_by_one(reader.read(part, projection)))
    rows = [one for one in found if isinstance(one, Row)]
    assert rows == everything[3:6]
    skipped = [one for one in found if isinstance(one, SkippedInput)]
    names = [f"age == {(str if format_ == 'csv' else int)(age)!r}" for age in range(3)]
    assert skipped == [SkippedInput(OUTSIDE_WHERE, 6, tuple(names))]
    rejects = [one for one in found if isinstance(one, Reject)]
    assert len(rows) + 6 + len(rejects) == len(everything)
    expected = [(f"{path}:11", Reason.WRONG_TYPE)] if format_ == "csv" else []
    assert [(reject.source, reject.reason) for reject in rejects] == expected
