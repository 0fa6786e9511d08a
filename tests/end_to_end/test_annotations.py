"""Detection, segmentation and captions from table to reader: boxes and masks equal those of an
independent computation, in every form of table."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.pipelines.dataset.load import load
from recordmill.pipelines.dataset.records import Records
from tests.annotations import SIDES, Case, expected_box, expected_mask, placement
from tests.end_to_end import readers
from tests.end_to_end.command import convert, published, recordmill
from tests.end_to_end.tables import write_table
from tests.images import jpeg, png

IMAGES = 100
PETS = ["cat", "dog", "owl"]
MASK = "image/segmentation/class/encoded"
BOX_KEYS = [f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax")]

BOTH = """
name: both
features:
  image/encoded: {kind: bytes, from: "image:bytes"}
  image/height: {kind: int64, from: "image:height"}
  image/width: {kind: int64, from: "image:width"}
  objects/bbox: {kind: float, from: "box:yxyx", shape: [null, 4]}
  objects/label: {kind: int64, from: "column:labels", shape: [], classes: true, per_box: true}
  objects/area: {kind: float, from: "area:area", shape: []}
  mask: {kind: bytes, from: "mask:mask", classes: true}
image: {resize: 24x20 crop, format: png}
"""


def draw(folder: Path, i: int) -> tuple[Case, dict[str, Any], np.ndarray]:
    """Draws an image and its mask; returns the case, its row with COCO boxes, and the mask."""
    random = np.random.default_rng(i)
    width, height = (int(n) for n in random.integers(4, 48, 2))
    orientation = i % len(SIDES) + 1
    case = Case(width, height, orientation, {"resize": "24x20 crop"}, "displayed")
    encode, suffix = (jpeg, "jpg") if i % 2 else (png, "png")
    name = f"{i:03d}.{suffix}"
    (folder / name).write_bytes(encode(width, height, i, exif_orientation=orientation))
    shown = case.shown
    boxes, labels = [], []
    for n in range(i % 4):
        x, y = random.uniform(0, shown[0] - 1), random.uniform(0, shown[1] - 1)
        boxes.append([x, y, *random.uniform(0.5, [shown[0] - x, shown[1] - y])])
        labels.append(PETS[(i + n) % 3])
    ids = random.integers(0, 3, shown[::-1])
    drawn = Image.fromarray(ids.astype(np.uint8), "P")
    drawn.putpalette(bytes(range(7, 256)) + bytes(519))
    drawn.save(folder / f"{i:03d}.mask.png")
    row = {
        "image": name,
        "bbox": boxes,
        "labels": labels,
        "area": [w * h for _, _, w, h in boxes],
        "mask": f"{i:03d}.mask.png",
    }
    return case, row, ids


@pytest.fixture(scope="module")
def drawn(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, dict[str, tuple[Case, dict[str, Any], np.ndarray]]]:
    """A folder of images, and their cases by name."""
    folder = tmp_path_factory.mktemp("drawn")
    made = [draw(folder, i) for i in range(IMAGES)]
    return folder, {row["image"]: (case, row, ids) for case, row, ids in made}


@pytest.fixture(scope="module")
def both(drawn: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of all images, cropped, with boxes and masks."""
    folder, known = drawn
    (folder / "both.yaml").write_text(BOTH)
    (folder / "pets.txt").write_text("".join(f"{name}\n" for name in PETS))
    table = write_table(folder / "both.jsonl", [row for _, row, _ in known.values()])
    return published(
        table,
        tmp_path_factory.mktemp("out"),
        *("--schema", folder / "both.yaml", "--classes", folder / "pets.txt"),
        *("--boxes", "order=xywh", "--verify", "decode"),
    )


def test_boxes_and_masks_are_where_an_independent_computation_puts_them(
    drawn: Any, both: Path
) -> None:
    _, known = drawn
    for key, example in zip(
        readers.keys(both, "train"), readers.examples(both, "train"), strict=True
    ):
        case, row, ids = known[key]
        expected = [
            (expected_box((x, y, x + w, y + h), case), label, area)
            for (x, y, w, h), label, area in zip(
                row["bbox"], row["labels"], row["area"], strict=True
            )
        ]
        kept = [(box, label, area) for box, label, area in expected if box is not None]
        _, (across, down), _ = placement(case)
        yxyx = [[b[1], b[0], b[3], b[2]] for b, _, _ in kept]
        found = np.array(example["objects/bbox"]).reshape(-1, 4)
        np.testing.assert_allclose(found, np.array(yxyx).reshape(-1, 4), atol=1e-6)
        assert example["objects/label"] == [PETS.index(label) for _, label, _ in kept]
        areas = [area * float(across * down) for _, _, area in kept]
        np.testing.assert_allclose(example["objects/area"], areas, rtol=1e-6)
        mask = np.asarray(Image.open(io.BytesIO(example["mask"][0])))
        np.testing.assert_array_equal(mask, expected_mask(ids, case), key)


def test_tensorflow_datasets_gives_boxes_and_masks_of_its_own_types(drawn: Any, both: Path) -> None:
    _, known = drawn
    builder, examples = readers.loaded(both, "train")
    features = builder.info.features
    assert type(features["objects/bbox"].feature).__name__ == "BBoxFeature"
    assert features["objects/label"].feature.names == PETS
    assert type(features["mask"]).__name__ == "LabeledImage"
    assert features["mask"].names == PETS
    for key, example in zip(readers.keys(both, "train"), examples, strict=True):
        case, _, ids = known[key]
        assert example["objects/bbox"].shape == (len(example["objects/label"]), 4)
        np.testing.assert_array_equal(example["mask"][:, :, 0], expected_mask(ids, case))


def test_the_manifest_counts_clipped_and_dropped_boxes(drawn: Any, both: Path) -> None:
    _, known = drawn
    lost = sum(
        any(expected_box((x, y, x + w, y + h), case) is None for x, y, w, h in row["bbox"])
        for case, row, _ in known.values()
    )
    images = json.loads((both / "manifest.json").read_text())["images"]
    assert lost > 0
    assert images["boxes cropped off"] == lost
    others = ("boxes below 0.01 % of the image", "orientations not stated")
    assert sum(images.values()) == IMAGES + lost + sum(images[name] for name in others)


def test_load_and_records_give_boxes_in_rows_and_masks_as_ids(drawn: Any, both: Path) -> None:
    _, known = drawn
    records = Records(both)
    loaded = list(load(both))
    assert len(loaded) == len(records) == IMAGES
    for key, ours, read in zip(readers.keys(both, "train"), loaded, records, strict=True):
        case, _, ids = known[key]
        mask = expected_mask(ids, case)[:, :, None]
        for example in (ours, read):
            np.testing.assert_array_equal(example["mask"], mask)
            assert example["objects/bbox"].shape == (len(example["objects/label"]), 4)
        np.testing.assert_array_equal(ours["image/encoded"], read["image/encoded"])
        np.testing.assert_array_equal(ours["objects/bbox"], read["objects/bbox"])


@pytest.mark.parametrize("decode", [True, False])
def test_batches_of_boxes_are_ragged(both: Path, decode: bool) -> None:
    first = next(iter(load(both, batch_size=7, decode=decode)))
    single = list(load(both, "train[:7]"))
    assert first["objects/bbox"].to_list() == [
        one["objects/bbox"].numpy().tolist() for one in single
    ]
    shape = (7, 20, 24, 1) if decode else (7,)
    assert first["mask"].shape == shape


def test_pairs_of_image_and_mask_are_resized_alike(both: Path) -> None:
    for size in (10, 40):
        chosen = load(both, features=["mask", "image/encoded"], image_size=size, batch_size=4)
        batch = next(iter(chosen))
        assert batch["mask"].shape == (4, size, size, 1)
        assert set(np.unique(batch["mask"])) <= {0, 1, 2}
        assert batch["image/encoded"].shape == (4, size, size, 3)


def test_verify_decodes_masks_too(both: Path) -> None:
    ended = recordmill("verify", both, "--decode")
    assert (ended.code, ended.err) == (0, "")


FORMS = {
    "csv": {
        "xmin": "[1, 2.5]",
        "ymin": "2|3",
        "xmax": "5|8.0",
        "ymax": "[6,9]",
        "labels": "dog|cat",
    },
    "jsonl": {
        "xmin": [1, 2.5],
        "ymin": [2, 3],
        "xmax": [5, 8],
        "ymax": [6, 9],
        "labels": ["dog", "cat"],
    },
    "parquet": {"bbox": [[1.0, 2.0, 5.0, 6.0], [2.5, 3.0, 8.0, 9.0]], "labels": ["dog", "cat"]},
}


@pytest.mark.parametrize("suffix", FORMS)
def test_object_detection_from_every_table(suffix: str, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(10, 20, 1))
    (tmp_path / "b.jpg").write_bytes(jpeg(10, 20, 2))
    full = {"image": "a.jpg", **FORMS[suffix]}
    none = {"image": "b.jpg", **{k: "" if suffix == "csv" else [] for k in FORMS[suffix]}}
    table = write_table(tmp_path / f"t.{suffix}", [full, none])
    flags = ("--schema", "object_detection", "--label_offset", "1")
    dataset = published(table, tmp_path / "out", *flags)
    by_name = {e["image/filename"][0]: e for e in readers.examples(dataset, "train")}
    found = by_name[b"a.jpg"]
    boxes = np.array([found[key] for key in BOX_KEYS]).T
    np.testing.assert_allclose(boxes, [[0.1, 0.1, 0.5, 0.3], [0.25, 0.15, 0.8, 0.45]], atol=1e-6)
    assert found["image/object/class/label"] == [2, 1]
    assert found["image/object/class/text"] == [b"dog", b"cat"]
    assert all(not by_name[b"b.jpg"][key] for key in BOX_KEYS)
    builder, _ = readers.loaded(dataset, "train")
    label = builder.info.features["image/object/class/label"]
    assert label.feature.names == ["background", "cat", "dog"]
    file = dataset / "image.object.class.label.labels.txt"
    assert file.read_text() == "background\ncat\ndog\n"


def test_invalid_boxes_are_rejected_with_their_reason(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(10, 20, 1))
    boxes = {
        "good": [1, 2, 5, 6],
        "inverted": [5, 2, 1, 6],
        "flat": [1, 2, 1, 6],
        "nan": [float("nan"), 2, 5, 6],
        "outside": [30, 2, 35, 6],
        "over": [-5, 2, 5, 6],
    }
    rows = [{"image": "a.jpg", "id": n, "bbox": [b], "labels": ["cat"]} for n, b in boxes.items()]
    table = write_table(tmp_path / "t.jsonl", rows)
    flags = ("--schema", "object_detection", "--key_column", "id")
    dataset = published(table, tmp_path / "out", *flags, "--max_rejects", "10")
    assert set(readers.keys(dataset, "train")) == {"good", "over"}
    assert [(key, why) for key, _, why in readers.reject_reasons(dataset)] == [
        ("inverted", "bad_box"),
        ("flat", "bad_box"),
        ("nan", "bad_box"),
        ("outside", "bad_box"),
    ]
    strict = convert(table, tmp_path / "out", *flags, "--boxes", "out_of_bounds=reject", name="s")
    assert strict.code == 4
    assert "5 of 6 rows were rejected (5 bad_box)" in strict.err
    dropped = published(table, tmp_path / "out", *flags, "--boxes", "invalid=drop", name="d")
    kept = {
        key: example["image/object/bbox/xmax"]
        for key, example in zip(
            readers.keys(dropped, "train"), readers.examples(dropped, "train"), strict=True
        )
    }
    assert kept["good"] == kept["over"] == [0.5]
    assert kept["inverted"] == kept["nan"] == kept["outside"] == kept["flat"] == []


def test_segmentation_from_files_and_from_outlines(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(6, 4, 1, exif_orientation=6))  # shown 4 wide, 6 high
    ids = np.zeros((6, 4), np.uint8)
    ids[:, :1], ids[4:, :] = 1, 2
    drawn = Image.fromarray(ids, "P")
    drawn.putpalette(bytes(range(200, 209)))
    drawn.save(tmp_path / "m.png")
    (tmp_path / "names.txt").write_text("cat\ndog\n")
    files = write_table(tmp_path / "f.csv", [{"image": "a.jpg", "mask": "m.png"}])
    flags = ("--schema", "segmentation", "--classes", tmp_path / "names.txt")
    runs = {"size": [6, 4], "counts": [0, 6, 18]}
    polygon = [[0, 4, 4, 4, 4, 6, 0, 6]]
    rows = [{"image": "a.jpg", "segmentation": [runs, polygon], "labels": ["cat", "dog"]}]
    outlines = write_table(tmp_path / "o.jsonl", rows)
    for name, table in (("files", files), ("outlines", outlines)):
        dataset = published(table, tmp_path / "out", *flags, "--verify", "decode", name=name)
        (example,) = readers.examples(dataset, "train")
        assert (example["image/height"], example["image/width"]) == ([6], [4])
        found = tf.io.decode_png(example[MASK][0]).numpy()
        np.testing.assert_array_equal(found[:, :, 0], ids)
        builder, (loaded,) = readers.loaded(dataset, "train")
        assert builder.info.features[MASK].names == ["background", "cat", "dog"]
        np.testing.assert_array_equal(loaded[MASK][:, :, 0], ids)


def test_masks_of_another_size_are_rejected_with_their_reason(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg(6, 4, 1))
    (tmp_path / "turned.png").write_bytes(png(4, 6, 1, "L"))
    (tmp_path / "colors.png").write_bytes(png(6, 4, 1))
    (tmp_path / "lossy.jpg").write_bytes(jpeg(6, 4, 1, "L"))
    names = ("turned.png", "colors.png", "lossy.jpg", "not there.png")
    (tmp_path / "good.png").write_bytes(png(6, 4, 1, "L"))
    rows = [{"id": name, "image": "a.jpg", "mask": name} for name in (*names, "good.png")]
    table = write_table(tmp_path / "t.csv", rows)
    flags = ("--schema", "segmentation", "--key_column", "id", "--max_rejects", "10")
    dataset = published(table, tmp_path / "out", *flags)
    assert [(r["key"], r["reason"]) for r in readers.rejects(dataset)] == [
        ("turned.png", "invalid_dimensions"),
        ("colors.png", "unsupported_feature"),
        ("lossy.jpg", "unsupported_format"),
        ("not there.png", "missing_file"),
    ]
    assert all(f"mask {tmp_path}/{r['key']}: " in r["detail"] for r in readers.rejects(dataset))


def test_captions(tmp_path: Path) -> None:
    texts = {"a.jpg": ["A bird.", "Ein Vögel | im Flug"], "b.jpg": "One | caption", "c.jpg": []}
    for i, name in enumerate(texts):
        (tmp_path / name).write_bytes(jpeg(6, 4, i))
    rows = [{"image": name, "caption": caption} for name, caption in texts.items()]
    table = write_table(tmp_path / "t.jsonl", rows)
    dataset = published(table, tmp_path / "out", "--schema", "captioning")
    found = {
        e["image/filename"][0].decode(): [text.decode() for text in e["image/caption"]]
        for e in readers.examples(dataset, "train")
    }
    assert found == {**texts, "b.jpg": ["One | caption"]}
    _, loaded = readers.loaded(dataset, "train")
    by_name = {e["image/filename"].decode(): e["image/caption"].tolist() for e in loaded}
    assert by_name["a.jpg"] == [text.encode() for text in texts["a.jpg"]]
