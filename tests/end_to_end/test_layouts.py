"""Each folder as a tool leaves it gives the rows that its users mean, or stops with a message."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError
from recordmill.schemas.input_formats import UNREAD_TOOLS
from recordmill.schemas.records import NOTED, Row, SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.schemas.tables import Part, Projection, TableFile
from recordmill.transforms.functional.images.sniffing import has_image_suffix, tool_of
from recordmill.transforms.functional.rows.batches import one_by_one
from recordmill.transforms.functional.sources.text_ranges import TEXT_FORMATS
from recordmill.transforms.functional.sources.tree import is_hidden
from recordmill.transforms.inputs.formats import FORMATS, unnamed_images
from recordmill.transforms.inputs.input_tables import probe_tables
from tests.end_to_end.layouts import LAYOUTS, Layout
from tests.images import jpeg

IMAGE = jpeg(8, 8)
_IMAGES = ("image", "file_name", "filename")


def _read(files: Sequence[TableFile], projection: Projection) -> Iterator[tuple[TableFile, Any]]:
    for file in files:
        known = FORMATS[file.format]
        for part in known.parts(file):
            is_part = isinstance(part, Part)
            for found in one_by_one(known.read(part, projection)) if is_part else [part]:
                yield file, found
    if files[0].image_folder:
        others = unnamed_images(files, _IMAGES, lambda row: [_address(row)])
        yield from ((files[0], found) for found in others)


def _address(row: Row) -> str:
    if row.image:
        return row.image.uri
    return f"{Path(row.file).parent}/{_image(row)}"


def _image(row: Row) -> str:
    return next(str(row.values[name]) for name in _IMAGES if name in row.values)


def _written(folder: Path, layout: Layout) -> ConvertConfig:
    for path, text in layout.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        data = IMAGE if has_image_suffix(path) else text.encode()
        (folder / path).write_bytes(data)
    return ConvertConfig(input=(str(folder),), output="out", name="pets")


OF_TOOLS = [name for name, layout in LAYOUTS.items() if layout.tool]


@pytest.mark.parametrize("name", OF_TOOLS)
def test_annotations_of_a_tool_are_read_or_named(tmp_path: Path, name: str) -> None:
    layout = LAYOUTS[name]
    config = _written(tmp_path, layout)
    found = ((path, *tool_of(text.encode())) for path, text in layout.files.items())
    path, tool, remedy = next((one for one in found if one[1]), ("", "", ""))
    if not tool:  # a format of it has been added
        assert not {file.format for file in probe_tables(config).files} & {"folder", *TEXT_FORMATS}
        return
    assert layout.tool in tool
    message = f"got annotations of {tool} ({path}). {remedy}. To make folders"
    with pytest.raises(UsageError, match=re.escape(message)):
        probe_tables(config)


def test_every_tool_has_a_folder() -> None:
    tools = {LAYOUTS[name].tool for name in OF_TOOLS}
    assert [name for name in UNREAD_TOOLS if not any(tool in name for tool in tools)] == []


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name not in OF_TOOLS])
def test_a_folder_gives_the_rows_that_are_meant(tmp_path: Path, name: str) -> None:
    layout = LAYOUTS[name]
    config = _written(tmp_path, layout)
    if layout.stops:
        with pytest.raises(UsageError, match=layout.stops):
            probe_tables(config)
        return

    tables = probe_tables(config)
    rows, skipped = {}, 0
    columns = (*_IMAGES, "label", "labels", "split", "segmentation", "keypoints")
    known = tuple(c for c in columns if c in tables.columns)
    for file, found in _read(tables.files, Projection(known)):
        assert not isinstance(found, Reject), found
        if isinstance(found, SkippedInput):
            # Of the kinds in `NOTED`, the images are rows, too.
            skipped += sum(map(has_image_suffix, found.names)) * (found.kind not in NOTED)
            continue
        assert isinstance(found, Row)
        assert Path(_address(found)).read_bytes() == IMAGE
        image = _image(found)
        image = image if image in layout.rows else f"{file.key_prefix}{image}"
        split = found.values.get("split") or dict(file.partition).get("split")
        rows[image] = (split, found.values.get("labels", found.values.get("label")))
    assert rows == layout.rows
    assert set(tables.splits) == {split for split, _ in layout.rows.values() if split}
    declared = tables.classes.get("labels")
    assert tuple(name for _, name in declared.names) == layout.classes if declared else True
    # No image is lost in silence. Hidden folders are counted as one.
    seen = [name for name in layout.files if not any(map(is_hidden, name.split("/")[:-1]))]
    assert len(rows) + skipped == sum(map(has_image_suffix, seen))
