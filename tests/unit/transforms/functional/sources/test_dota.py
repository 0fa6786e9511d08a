"""Text of DOTA: exact columns of a folder, rejects of invalid lines, and what is recognized."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from recordmill.schemas.records import UNANNOTATED, Row, SkippedInput
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.tables import SPLIT, Projection
from recordmill.transforms.functional.sources import dota
from recordmill.transforms.functional.sources.tree import NO_IMAGE
from recordmill.transforms.inputs.file_tree import FileTree
from tests.shots import Form, Shot, write_images

LINES = b"imagesource:GoogleEarth\r\ngsd:0.15\r\n\r\n2 1 9.5 3 8 7 1 5 small-vehicle 1\r\n"


def test_lines_give_columns():
    assert dota._parse(LINES + b"0 0 4 0 4 2 0 2 tennis court\n") == {
        "image": "",
        "xmin": [1.0, 0.0],
        "ymin": [1.0, 0.0],
        "xmax": [9.5, 4.0],
        "ymax": [7.0, 2.0],
        "box_units": None,
        "labels": ["small-vehicle", "tennis court"],
        "corners": [[2.0, 1.0, 9.5, 3.0, 8.0, 7.0, 1.0, 5.0], [0, 0, 4, 0, 4, 2, 0, 2]],
        "difficult": [1, 0],
    }
    assert dota._parse(b"")["labels"] == []


@pytest.mark.parametrize(
    ("line", "reason", "detail"),
    [
        (b"1 2 3 4 5 6 7 8", Reason.MALFORMED_ROW, "line 1: expected x1 y1 x2 y2 x3 y3 x4 y4"),
        (b"1 2 3 4 5 6 7 8 ship 2", Reason.MALFORMED_ROW, "line 1: expected 0 or 1 after the"),
        (b"1 2 3 4 5 6 7 8 ship 01", Reason.MALFORMED_ROW, "line 1: expected 0 or 1 after the"),
        (b"1 2 3 4 5 6 7 x ship 0", Reason.BAD_BOX, "line 1: corner: expected a number, got 'x'"),
        (b"1 2 3 4 5 6 7 nan ship 0", Reason.BAD_BOX, "line 1: corner: expected a number"),
        (b"\xff", Reason.MALFORMED_ROW, "is not text in UTF-8"),
        (b"\n\n\ngsd:1", Reason.MALFORMED_ROW, "line 4: expected x1 y1"),
    ],
)
def test_invalid_lines_are_rejected(line: bytes, reason: Reason, detail: str):
    with pytest.raises(RecordError) as error:
        dota._parse(line)
    assert error.value.reason is reason
    assert error.value.detail.startswith(detail)


def test_an_invalid_box_may_be_dropped():
    found = dota._parse(b"1 2 3 4 5 6 7 x ship 0\n" + LINES.splitlines()[3], drops_boxes=True)
    assert found["corners"] == [[0.0] * 8, [2.0, 1.0, 9.5, 3.0, 8.0, 7.0, 1.0, 5.0]]
    assert str(found["xmin"]) == "[nan, 1.0]"


def test_a_folder_gives_rows_with_splits(tmp_path: Path):
    files = {
        "train/labelTxt/P1.txt": LINES,
        "val/annfiles/P1.txt": b"1 2 3\n",
        "train/images/P1.png": b"",
        "val/images/P1.png": b"",
        "val/images/P2.png": b"",
        "README.txt": b"notes",
    }
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    tree = FileTree(str(tmp_path))
    sources = dota.recognize_folder(tree)
    assert sources is not None
    (file,) = sources.files
    assert sources.text.startswith("DOTA (")
    probe = dota.probe(tree, file)
    assert (probe.preset, probe.splits) == ("oriented_boxes", ("train", "val"))
    part, *skipped = dota.parts(tree, file)
    assert skipped == [
        SkippedInput.named(NO_IMAGE, ["README.txt"]),
        SkippedInput.named(UNANNOTATED, ["val/images/P2.png"]),
    ]
    columns = ("image", "id", "labels", "difficult", SPLIT)
    found = sorted(dota.read(tree, part, Projection(columns)), key=lambda one: isinstance(one, Row))
    reject, row = found
    assert isinstance(reject, Reject)
    assert (reject.source, reject.reason) == (tree.path("val/annfiles/P1.txt"), "malformed_row")
    assert row.values == {
        "image": "train/images/P1.png",
        "id": "P1",
        "labels": ["small-vehicle"],
        "difficult": [1],
        SPLIT: "train",
    }
    assert row.image.uri == tree.path("train/images/P1.png")


def test_other_folders_are_not_recognized(tmp_path: Path):
    (tmp_path / "labelTxt").mkdir()
    (tmp_path / "labelTxt/P1.txt").write_bytes(LINES)
    assert dota.recognize_folder(FileTree(str(tmp_path))) is None


def _dota(root: Path, given: Sequence[Shot]) -> Path:
    write_images(root / "dota" / "images", given)
    (root / "dota" / "labelTxt").mkdir()
    for shot in given:
        lines = [
            f"{x1} {y1} {x2} {y1} {x2} {y2} {x1} {y2} {label} 0\n"
            for label, x1, y1, x2, y2 in shot.boxes
        ]
        text = "imagesource:GoogleEarth\ngsd:0.15\n" + "".join(lines)
        (root / "dota" / "labelTxt" / f"{shot.stem}.txt").write_text(text, encoding="utf-8")
    return root / "dota"


FORMS = {"dota": Form(_dota)}
