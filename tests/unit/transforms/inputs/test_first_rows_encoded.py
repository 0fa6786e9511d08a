"""Tables whose images are text: what is read of them, and when they are recognized."""

from __future__ import annotations

import base64
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.options import config_of, with_implied_options
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.tables import Projection
from recordmill.transforms.inputs.formats import FORMATS
from recordmill.transforms.inputs.input_tables import probe_tables
from tests.images import jpeg, png

IMAGES = [jpeg(4, 4, 1), png(8, 8)]
TEXTS = [f"data:image/jpeg;base64,{base64.b64encode(IMAGES[0]).decode()}"]
TEXTS += [base64.b64encode(IMAGES[1]).decode()]


def write(path, texts):
    rows = [{"image": text, "label": "cat"} for text in texts]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        lines = ("\t".join(row.values()) for row in rows)
        path.write_text("image\tlabel\n" + "".join(f"{line}\n" for line in lines))
    return path


def opened(path):
    options = {"input": [str(path)], "output": "out", "name": "birds"}
    return with_implied_options(options, probe_tables(config_of(options)))[1]


def rows_of(tables, pixels):
    projection = Projection(("image", "label"), "image", pixels=pixels)
    (file,) = tables.files
    return list(FORMATS[file.format].rows(file, projection))


@pytest.mark.parametrize("suffix", ["tsv", "jsonl", "parquet"])
def test_images_that_are_text_are_embedded(suffix, tmp_path):
    path = write(tmp_path / f"t.{suffix}", [*TEXTS, "1.jpg", "data:;base64,*"])
    tables = opened(path)
    assert tables.embedded == {"image"}
    (note,) = (finding for finding in tables.findings if finding.kind == "encoded_images")
    assert note.text == f"{path}: the images are text in the column 'image' (base64)"
    one, two, by_path, damaged = rows_of(tables, pixels=True)
    assert [(row.image, row.values) for row in (one, two)] == [
        (i, {"label": "cat"}) for i in IMAGES
    ]
    assert isinstance(by_path, Row)
    assert by_path.values["image"] == "1.jpg"
    assert isinstance(damaged, Reject)
    assert damaged.reason is Reason.MALFORMED_ROW
    assert damaged.detail.startswith("column 'image': the base64 'data:;base64,*' is not valid")
    estimates = rows_of(tables, pixels=False)[:2]
    assert [row.image.stop for row in estimates] == [3 * len(text) // 4 for text in TEXTS]
    assert [row.values for row in estimates] == [{"label": "cat"}] * 2


def test_paths_are_not_images_as_text(tmp_path):
    assert opened(write(tmp_path / "t.tsv", ["1.jpg", "2.jpg"])).embedded == frozenset()


def test_a_path_that_exists_is_a_path(tmp_path):
    name = base64.urlsafe_b64encode(png(1, 1)).decode()
    name = name[:200]
    tables = write(tmp_path / "t.tsv", [name])
    assert opened(tables).embedded == {"image"}
    (tmp_path / name).touch()
    assert opened(tables).embedded == frozenset()


def test_objects_of_json_have_images_as_text(tmp_path):
    images = [{"bytes": TEXTS[1], "path": "a.png"}, {"bytes": TEXTS[0], "path": None}]
    path = write(tmp_path / "t.jsonl", images)
    found = rows_of(opened(path), pixels=True)
    assert [one.image for one in found] == IMAGES[::-1]
    assert [one.values.get("image") for one in found] == ["a.png", None]
