"""A format of inputs is added in the two files of the product that docs/contributing.md names."""

from __future__ import annotations

import json
from pathlib import Path

from recordmill.schemas.input_formats import INPUT_FORMATS
from tests.images import jpeg
from tests.recipes.copied_package import commands_of, copy_package
from tests.shots import UNIT_TESTS

ROOT = Path(__file__).parents[2]
MODULE, REGISTRY = "transforms/functional/sources/outlines.py", "schemas/input_formats.py"

# A folder of images with outlines in JSON files, as labeling tools write them.
OUTLINES = '''"""Reads a folder with one JSON file per image, with shapes of a label and points."""

from __future__ import annotations

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.tables import SPLIT, Sources
from recordmill.transforms.functional.images.masks import box_of_outline
from recordmill.transforms.functional.sources.annotated import Annotated
from recordmill.transforms.functional.sources.tree import Tree
from recordmill.transforms.functional.values.documents import parse_json
from recordmill.transforms.functional.values.boxes import BOX_COLUMNS, box_columns

COLUMNS = ("image", "id", *BOX_COLUMNS, "labels", "segmentation", SPLIT)


def recognize_folder(tree: Tree) -> Sources | None:
    """Returns a folder with JSON files with shapes; None for others."""
    first = next(filter(FORMAT.is_annotation, tree.entries().files), None)
    if first is None:
        return None
    with tree.open(first) as stream:
        is_known = b'"shapes"' in stream.read(4096)
    return FORMAT.sources_in(tree)._replace(text="outlines") if is_known else None


def parse(data: bytes, drops_boxes: bool, others: list[str]) -> dict[str, object]:
    """Parses one JSON file to values by column."""
    try:
        found = parse_json(data.decode("utf-8"))
        points = [[float(n) for xy in shape["points"] for n in xy] for shape in found["shapes"]]
        labels = [str(shape["label"]) for shape in found["shapes"]]
        image = str(found["imagePath"])
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(Reason.MALFORMED_ROW, f"expected shapes: {error}") from error
    outlines = [[one] for one in points]
    boxes = box_columns([box_of_outline(one) for one in outlines])
    return {**boxes, "image": image, "labels": labels, "segmentation": outlines}


FORMAT = Annotated("outlines", ".json", COLUMNS, "a folder of images with JSON", parse)

sources_in, probe, parts, read = FORMAT.sources_in, FORMAT.probe, FORMAT.parts, FORMAT.read
'''


def test_the_page_names_the_files() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text("utf-8")
    section = page.partition("## Add a source")[2].partition("\n## ")[0]
    assert f"`{REGISTRY}`" in section
    assert f"`{MODULE.replace('outlines', 'NAME')}`" in section
    assert f"`tests/{UNIT_TESTS}`" in section
    assert "outlines" not in INPUT_FORMATS, "give the test a name that is free"


def _with_outlines(folder: Path) -> Path:
    """Returns a copy of the package that has one more format."""
    package = copy_package(folder)
    (package / MODULE).write_text(OUTLINES, "utf-8")
    registry = package / REGISTRY
    text, line = registry.read_text("utf-8"), '    "voc": InputFormat("voc", title="Pascal VOC"),\n'
    assert text.count(line) == 1
    added = '    "outlines": InputFormat("outlines", title="Outlines"),\n'
    registry.write_text(text.replace(line, added + line))
    return folder


def test_a_format_needs_no_other_file(tmp_path: Path) -> None:
    copy, given = _with_outlines(tmp_path / "copy"), tmp_path / "in"
    given.mkdir()
    for i in range(6):
        (given / f"{i}.jpg").write_bytes(jpeg(20, 10, i))
        shape = {"label": ["cat", "dog"][i % 2], "points": [[2, 1], [10, 1], [10, 6]]}
        (given / f"{i}.json").write_text(json.dumps({"imagePath": f"{i}.jpg", "shapes": [shape]}))
    (given / "5.json").write_text('{"imagePath": "5.jpg", "shapes": [{}]}')

    files = ("--input", given, "--output", tmp_path / "out", "--name", "pets")
    with commands_of(copy) as commands:
        run = commands.run
        assert "5.json: malformed_row" in run("convert", *files, code=4)
        (given / "5.json").unlink()
        assert "read as outlines" in run("convert", *files)
        (dataset,) = (tmp_path / "out" / "pets").iterdir()
        shown = run("inspect", dataset, "--key", "3.jpg")
        assert "dog" in shown
        assert "0.5" in shown  # xmax is 10 of 20 pixels
        assert "outlines" in run("convert", "--help=all")
