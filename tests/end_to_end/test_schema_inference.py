"""`recordmill schema --infer` prints a schema and a command that work."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from recordmill.pipelines.commands.schema import _up_to_bytes
from recordmill.schemas.example_pb2 import Example
from recordmill.schemas.records import Row
from recordmill.transforms.functional.records.framing import framed
from tests.end_to_end import readers
from tests.end_to_end.command import published, recordmill
from tests.end_to_end.photos import Photo
from tests.end_to_end.tables import write_table

ROWS: dict[str, Any] = {
    "classes.csv": lambda n, p: {"file": p.path, "what kind": p.label, "n": n, "x": n / 2},
    "lists.jsonl": lambda n, p: {"path": p.path, "labels": p.labels, "box": [n, 1.5]},
    "typed.parquet": lambda n, p: {"image": p.path, "label": n % 3, "ok": n > 3, "raw": b"\xff"},
    "tabular.tsv": lambda n, p: {"a": n, "b": n / 3, "c: #d": p.label, "e": "" if n % 2 else n},
}


@pytest.mark.parametrize("name", ROWS)
def test_the_inferred_schema_converts_its_table(
    images: list[Photo], folder: Path, tmp_path: Path, name: str
) -> None:
    rows = [ROWS[name](n, p) for n, p in enumerate(images)]
    table = write_table(folder / name, rows)
    ended = recordmill("schema", "--infer", table)
    assert (ended.code, ended.err) == (0, "")
    schema = tmp_path / "guessed.yaml"
    schema.write_text(ended.out)

    dataset = published(table, tmp_path, "--schema", schema)
    examples = readers.examples(dataset, "train")
    column, image = next(iter(rows[0])), "image" in examples[0]
    assert len(examples) == 12
    assert image == (name != "tabular.tsv")
    assert set(rows[0]) - {column} <= {name.removesuffix("/value") for name in examples[0]}
    if image:
        assert {e["image"][0] for e in examples} == {p.data for p in images}
        assert {(e["height"][0], e["width"][0]) for e in examples} == {
            (p.height, p.width) for p in images
        }

    commands = [line for line in ended.out.splitlines() if "recordmill convert" in line]
    presets = [shlex.split(line.lstrip("# "))[3] for line in commands]
    assert (
        presets
        == {
            "classes.csv": ["image_classification", "landmark", "tf_slim", "tf_tutorial"],
            "lists.jsonl": ["multi_label"],
            "typed.parquet": ["image_classification", "landmark", "tf_slim", "tf_tutorial"],
            "tabular.tsv": ["tabular"],
        }[name]
    )
    words = shlex.split(commands[0].lstrip("# "))[1:]
    assert recordmill(*words, "--dry_run").code == 0


def test_a_second_column_of_images_is_one(
    images: list[Photo], folder: Path, tmp_path: Path
) -> None:
    """A name that only ends like that of an image is a text."""
    paths = [image.path for image in images[:3]]
    rows = [{"image": path, "depth": path, "was": "IMG 1.jpg"} for path in paths]
    table = write_table(folder / "stereo.csv", rows)
    (tmp_path / "s.yaml").write_text(recordmill("schema", "--infer", table).out)
    dataset = published(table, tmp_path, "--schema", tmp_path / "s.yaml")
    found = {
        (e["image"][0], e["depth"][0], e["was"][0]) for e in readers.examples(dataset, "train")
    }
    assert found == {(image.data, image.data, b"IMG 1.jpg") for image in images[:3]}


def test_records_with_raw_pixels_fit_no_preset_with_images(tmp_path: Path) -> None:
    found, tfrecord = Example(), tmp_path / "a.tfrecord"
    found.features.feature["image_raw"].bytes_list.value.append(bytes(12))
    for name, number in {"height": 2, "width": 2, "depth": 3, "label": 1}.items():
        found.features.feature[name].int64_list.value.append(number)
    tfrecord.write_bytes(framed(found.SerializeToString()))
    ended = recordmill("schema", "--infer", tfrecord)
    assert "# image_raw has 2 x 2 x 3 bytes, raw uint8 pixels: encode them as PNG.\n" in ended.out
    commands = [line for line in ended.out.splitlines() if "recordmill convert" in line]
    assert ["--schema tabular" in line for line in commands] == [True]


def test_the_schema_names_the_rows_it_was_inferred_from(images: list[Photo], folder: Path) -> None:
    rows = [{"file": f"/nowhere/{n}.jpg", "label": n} for n in range(3)]
    table = write_table(folder / "lost.csv", rows)
    ended = recordmill("schema", "--infer", table)
    assert f"# Guessed from the first 3 rows of {table}: check it before you use it." in ended.out
    assert "none of the first 3 can be opened: check --image_root, and suffixes" in ended.out


def test_a_table_without_columns_is_a_message(tmp_path: Path) -> None:
    table = tmp_path / "empty.jsonl"
    table.write_text("{}\n{}\n")
    ended = recordmill("schema", "--infer", table)
    assert (ended.code, ended.err) == (2, f"recordmill: --infer {table}: has no columns\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--infer", "nowhere.csv"), "no such file"),
        (("--infer", "a.csv", "tabular"), "not allowed with"),
        ((), "is required"),
    ],
)
def test_invalid_arguments_are_reported(arguments: tuple[str, ...], expected: str) -> None:
    ended = recordmill("schema", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert expected in ended.err


def test_images_that_hugging_face_embeds_are_inferred(
    images: list[Photo], folder: Path, tmp_path: Path
) -> None:
    rows = [
        {"photo": {"bytes": (folder / p.path).read_bytes(), "path": None}, "label": p.label}
        for p in images
    ]
    printed = recordmill("schema", "--infer", write_table(tmp_path / "t.parquet", rows)).out
    assert "image: {column: photo}" in printed
    assert "recordmill convert --schema image_classification" in printed
    assert "Left out" not in printed


def test_columns_state_what_is_the_image_and_the_label(
    images: list[Photo], folder: Path, tmp_path: Path
) -> None:
    rows = [{"image": "x", "label": "y", "kind": p.label, "file": p.path} for p in images]
    table = write_table(folder / "stated.csv", rows)
    ended = recordmill("schema", "--infer", table, "--columns", "image=file,label=kind")
    assert (ended.code, ended.err) == (0, "")
    assert 'kind: {kind: int64, from: "column:kind", classes: true}' in ended.out
    assert "image: {column: file}" in ended.out
    command = next(line for line in ended.out.splitlines() if "--schema image_classif" in line)
    assert command.endswith("--columns image=file,label=kind")
    (tmp_path / "s.yaml").write_text(ended.out)
    dataset = published(table, tmp_path, "--schema", tmp_path / "s.yaml")
    assert len(readers.examples(dataset, "train")) == 12


def test_a_stated_column_that_does_not_exist_is_an_error(folder: Path) -> None:
    table = write_table(folder / "none.csv", [{"image": "x", "kind": "y"}])
    ended = recordmill("schema", "--infer", table, "--columns", "label=kin")
    assert ended.code == 2
    assert ended.err.endswith("has no column 'kin' (did you mean 'kind'?); it has: image, kind\n")


HINT = "(if ';' separates its fields, add --delimiter ';')"


def excel(folder: Path, weight: str) -> Path:
    """Writes a table as Excel does in countries with decimal commas."""
    path = folder / "excel.csv"
    path.write_text(f"Bild;Art;Gewicht\na b.jpg;Hund;{weight}\n", encoding="utf-8-sig")
    return path


def test_a_table_of_excel_needs_its_delimiter(folder: Path) -> None:
    table = excel(folder, "1,5")
    assert recordmill("schema", "--infer", table).err == (
        f"recordmill: --infer: none of the rows can be read {HINT}; the first is {table}:2: "
        "2 fields, expected 1 as in the header. Quote fields that contain the delimiter.\n"
    )
    guessed = recordmill("schema", "--infer", excel(folder, "2")).out
    assert f"# Guessed from the first 1 rows of {table} {HINT}: check" in guessed


def test_the_command_has_the_options_that_the_schema_was_inferred_with(folder: Path) -> None:
    table = excel(folder, "1,5")
    options = ("--delimiter", ";", "--header", "photo,kind,kg", "--image_root", str(folder))
    guessed = recordmill("schema", "--infer", table, *options).out.splitlines()
    command = next(line for line in guessed if "--schema tabular" in line)
    assert shlex.split(command.lstrip("# "))[-6:] == [*options]


def test_commas_points_and_blanks_of_excel_are_shown(folder: Path) -> None:
    table = folder / "excel.csv"
    table.write_text("kg;eur;n;class;stock\n0,25;1.234,50;1;dog;11.524\n7;2;2;dog ;8\n")
    guessed = recordmill("schema", "--infer", table, "--delimiter", ";").out
    assert (
        "# kg, eur, stock: may have decimal commas or points between thousands, and are text here: "
        "see docs/how-to/from-excel.md.\n"
    ) in guessed
    assert '  stock: {kind: bytes, from: "column:stock"}  # 2 values: 11.524, 8\n' in guessed
    assert '  "n": {kind: int64, from: "column:n"}' in guessed
    assert "# 2 values: dog, 'dog '\n" in guessed


@pytest.mark.parametrize("value", ["x" * 40, b"x" * 40, ["x" * 20, "y" * 20], [1] * 5])
def test_as_many_rows_are_read_as_their_values_allow(value: object) -> None:
    rows = [Row({"a": value}, "t", i) for i in range(9)]
    assert len([*_up_to_bytes(iter(rows), 100)]) == 3


def test_a_table_with_a_row_per_box_has_object_detection(
    images: list[Photo], folder: Path, tmp_path: Path
) -> None:
    rows: list[dict[str, Any]] = [
        {"filename": p.path, "class": p.label, "xmin": 0, "ymin": 0, "xmax": 2, "ymax": 2 + n,
         "score": n / 2, "site": p.path[:1], "width": p.width, "height": p.height}
        for p in images for n in range(2)
    ]  # fmt: skip
    table = write_table(folder / "boxes.csv", rows)
    ended = recordmill("schema", "--infer", table)
    assert (ended.code, ended.err) == (0, "")
    command = f"recordmill convert --schema object_detection --input {table} --output DIR"
    assert f"#   {command} --name boxes\n" in ended.out
    (tmp_path / "s.yaml").write_text(ended.out)
    dataset = published(table, tmp_path, "--schema", tmp_path / "s.yaml")
    examples = readers.examples(dataset, "train")
    assert len(examples) == len(images)
    assert {tuple(e["score"]) for e in examples} == {(0.0, 0.5)}
    assert {len(e["image/object/bbox/ymax"]) for e in examples} == {2}
    assert {(*e["site"], *e["width"], *e["height"]) for e in examples} == {
        (p.path[:1].encode(), p.width, p.height) for p in images
    }

    lists = [{"image_id": r["filename"], "bbox": [0, 0, 2, 2]} for r in rows]
    printed = recordmill("schema", "--infer", write_table(folder / "lists.jsonl", lists)).out
    assert "--columns labels=COLUMN --boxes 'order=xywh|xyxy|cxcywh|yxyx'\n" in printed
    lists = [{"image": r["filename"], "bbox": [[0, 0, 2, 2]], "labels": ["a"]} for r in rows]
    printed = recordmill("schema", "--infer", write_table(folder / "all.jsonl", lists)).out
    assert "--schema object_detection --input" in printed
    assert "--name all --boxes 'order=xywh|xyxy'\n" in printed
