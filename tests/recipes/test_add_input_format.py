"""A format of inputs is added in the files that docs/contributing.md names."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
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


def _parse(data: bytes, drops_boxes: bool, others: list[str]) -> dict[str, object]:
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


FORMAT = Annotated("outlines", ".json", COLUMNS, "a folder of images with JSON", _parse)

sources_in, probe, parts, read = FORMAT.sources_in, FORMAT.probe, FORMAT.parts, FORMAT.read
'''


def test_the_page_names_the_files() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text("utf-8")
    section = page.partition("## Add a source")[2].partition("\n## ")[0]
    assert f"`{REGISTRY}`" in section
    assert f"`{MODULE.replace('outlines', 'NAME')}`" in section
    assert f"`tests/{UNIT_TESTS}`" in section
    assert "outlines" not in INPUT_FORMATS, "give the test a name that is free"


TEST = '''"""Outlines in JSON."""

import json

from tests.shots import Form, write_images


def _outlines(root, given):
    write_images(root / "in", given)
    for shot in given:
        boxes = [(label, [[x1, y1], [x2, y1], [x2, y2]]) for label, x1, y1, x2, y2 in shot.boxes]
        shapes = [{"label": label, "points": points} for label, points in boxes]
        document = json.dumps({"imagePath": shot.name, "shapes": shapes})
        (root / "in" / f"{shot.stem}.json").write_text(document)
    return root / "in"


FORMS = {"outlines": Form(_outlines)}
'''


def _add_outlines(folder: Path) -> None:
    """Adds the module and its line to a copy of the package or the repository."""
    (folder / MODULE).write_text(OUTLINES, "utf-8")
    registry = folder / REGISTRY
    text, line = registry.read_text("utf-8"), '    "voc": InputFormat("voc", title="Pascal VOC"),\n'
    assert text.count(line) == 1
    added = '    "outlines": InputFormat("outlines", title="Outlines"),\n'
    registry.write_text(text.replace(line, added + line))


def test_a_test_and_a_section_complete_it(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns(".*", "__pycache__", "build")
    copy = shutil.copytree(ROOT, tmp_path / "copy", symlinks=True, ignore=ignored)
    _add_outlines(copy)
    (copy / "tests" / UNIT_TESTS / "test_outlines.py").write_text(TEST)
    with (copy / "docs/reference/annotations.md").open("a") as page:
        page.write("\n## Outlines\n\nBoxes are those around them.\n")

    def run(*arguments: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        command = [sys.executable, *arguments]
        ended = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    run("docs/options.py")
    run("-m", "deploy.dataflow.metadata")
    run("-m", "tests.fuzz.seeds")
    passed = run(
        *("-m", "pytest", "-q", "-k", "outlines or formats or figure or current"),
        *("tests/repository/test_formats.py", "tests/repository/test_ratchet.py", "tests/fuzz"),
        *("tests/docs/test_cli.py", "tests/deploy/files", "tests/sources/test_matrix.py"),
    )
    assert re.search(r"^\d+ passed", passed, re.MULTILINE)
    for page in ("README.md", "docs/reference/annotations.md"):
        assert "Outlines" in (copy / page).read_text("utf-8")


def test_a_format_needs_no_other_file(tmp_path: Path) -> None:
    copy, given = tmp_path / "copy", tmp_path / "in"
    _add_outlines(copy_package(copy))
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
