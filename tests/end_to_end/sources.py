"""The same labeled images in every supported source format."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import tensorflow as tf

from tests.images import jpeg, png


@dataclass(frozen=True)
class Shot:
    """An image with its label and boxes in pixels, as (label, xmin, ymin, xmax, ymax)."""

    name: str
    data: bytes
    width: int
    height: int
    label: str
    boxes: tuple[tuple[str, int, int, int, int], ...]
    captions: tuple[str, ...]

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[0]


LABELS = ("cat", "dog", "새")


def shots(number: int = 9) -> list[Shot]:
    """Returns some small images of three classes, with none to two boxes each."""
    return [_shot(i) for i in range(number)]


def _shot(i: int) -> Shot:
    width, height = 16 + 4 * i, 40 - 2 * i
    name = f"{i:03d}.{'png' if i % 3 == 1 else 'jpg'}"
    data = (png if i % 3 == 1 else jpeg)(width, height, i)
    boxes = tuple((LABELS[(i + k) % 3], k, 2, 8 + k, 10) for k in range(i % 3))
    return Shot(name, data, width, height, LABELS[i % 3], boxes, (f"shot | {i}", "second"))


@dataclass(frozen=True)
class Form:
    """A source format: how to write it to a folder, and the flags to read it."""

    write: Callable[[Path, Sequence[Shot]], Path]
    flags: tuple[str, ...] = ()


def _folder(root: Path, given: Sequence[Shot]) -> Path:
    for shot in given:
        path = root / "photos" / shot.label / "more" / shot.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(shot.data)
    (root / "photos" / ".hidden").write_bytes(b"x")
    (root / "photos" / "notes.txt").write_bytes(b"no image")
    return root / "photos"


def _tar(suffix: str) -> Callable[[Path, Sequence[Shot]], Path]:
    def write(root: Path, given: Sequence[Shot]) -> Path:
        path = root / f"shots.{suffix}"
        with tarfile.open(path, "w:gz" if suffix != "tar" else "w") as tar:
            for shot in given:
                members = {
                    shot.name: shot.data,
                    f"{shot.stem}.cls": shot.label.encode(),
                    f"{shot.stem}.json": json.dumps(
                        {"labels": [b[0] for b in shot.boxes]}
                    ).encode(),
                    f"{shot.stem}.txt": shot.captions[0].encode(),
                }
                for name, data in members.items():
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        return path

    return write


def _tfrecord(options: str) -> Callable[[Path, Sequence[Shot]], Path]:
    def write(root: Path, given: Sequence[Shot]) -> Path:
        path = root / f"shots.tfrecord{'.gz' if options else ''}"
        with tf.io.TFRecordWriter(str(path), options) as writer:
            for shot in given:
                columns = {
                    "image/encoded": [shot.data],
                    "id": [shot.stem.encode()],
                    "label": [shot.label.encode()],
                    "labels": [b[0].encode() for b in shot.boxes],
                    "caption": [c.encode() for c in shot.captions],
                }
                features = {
                    name: tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
                    for name, values in columns.items()
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(example.SerializeToString())
        return path

    return write


_STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def _columns(given: Sequence[Shot], image: Any) -> pa.Table:
    return pa.table(
        {
            "image": image,
            "id": [s.stem for s in given],
            "label": [s.label for s in given],
            "labels": [[b[0] for b in s.boxes] for s in given],
            "caption": [list(s.captions) for s in given],
        }
    )


def _structs(given: Sequence[Shot]) -> pa.Table:
    images = [{"bytes": s.data, "path": s.name} for s in given]
    return _columns(given, pa.array(images, _STRUCT))


def _parquet_structs(root: Path, given: Sequence[Shot]) -> Path:
    pq.write_table(_structs(given), root / "shots.parquet", row_group_size=4)
    return root / "shots.parquet"


def _parquet_bytes(root: Path, given: Sequence[Shot]) -> Path:
    table = _columns(given, pa.array([s.data for s in given], pa.binary()))
    pq.write_table(table, root / "shots.parquet", row_group_size=4)
    return root / "shots.parquet"


def _delta(root: Path, given: Sequence[Shot]) -> Path:
    """Writes a table without the last image, then adds it in a file of its own."""
    from deltalake import write_deltalake  # a test extra that most users of this module do not need

    for part in (given[:-1], given[-1:]):
        write_deltalake(str(root / "shots"), _structs(part), mode="append")
    return Path(f"delta:{root / 'shots'}")


def _arrow(root: Path, given: Sequence[Shot]) -> Path:
    table = _structs(given)
    with pa.ipc.new_stream(str(root / "shots.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=4)
    return root / "shots.arrow"


def _feather(root: Path, given: Sequence[Shot]) -> Path:
    feather.write_feather(_structs(given), str(root / "shots.feather"), compression="lz4")
    return root / "shots.feather"


SINGLE_LABEL = {
    "folder": Form(_folder),
    "tar": Form(_tar("tar")),
    "tar.gz": Form(_tar("tar.gz")),
    "tfrecord": Form(_tfrecord(""), ("--columns", "image=image/encoded", "--key_column", "id")),
    "tfrecord.gz": Form(
        _tfrecord("GZIP"), ("--columns", "image=image/encoded", "--key_column", "id")
    ),
    "parquet structs": Form(_parquet_structs),
    "parquet bytes": Form(_parquet_bytes),
    "delta": Form(_delta),
    "arrow": Form(_arrow),
    "feather": Form(_feather),
}
"""Forms that hold a label for each image, by their names."""


def _images(root: Path, given: Sequence[Shot]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for shot in given:
        (root / shot.name).write_bytes(shot.data)


def _coco(root: Path, given: Sequence[Shot]) -> Path:
    _images(root / "images", given)
    annotations = [
        {
            "id": 100 * i + k,
            "image_id": i,
            "category_id": LABELS.index(label),
            "bbox": [xmin, ymin, xmax - xmin, ymax - ymin],
            "area": (xmax - xmin) * (ymax - ymin),
            "iscrowd": 0,
        }
        for i, shot in enumerate(given)
        for k, (label, xmin, ymin, xmax, ymax) in enumerate(shot.boxes)
    ]
    return _coco_file(root, given, annotations)


def _captions(root: Path, given: Sequence[Shot]) -> Path:
    _images(root / "images", given)
    notes = [
        {"id": 100 * i + k, "image_id": i, "caption": caption}
        for i, shot in enumerate(given)
        for k, caption in enumerate(shot.captions)
    ]
    return _coco_file(root, given, notes)


def _coco_file(root: Path, given: Sequence[Shot], annotations: list[dict[str, Any]]) -> Path:
    images = [
        {"id": i, "file_name": f"images/{s.name}", "width": s.width, "height": s.height}
        for i, s in enumerate(given)
    ]
    categories = [{"id": i, "name": name} for i, name in enumerate(LABELS)]
    document = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations.json").write_text(json.dumps(document))
    return root / "annotations.json"


def _voc(root: Path, given: Sequence[Shot]) -> Path:
    _images(root / "voc" / "JPEGImages", given)
    (root / "voc" / "Annotations").mkdir()
    for shot in given:
        objects = "".join(
            f"<object><name>{label}</name><difficult>0</difficult><bndbox><xmin>{xmin}</xmin>"
            f"<ymin>{ymin}</ymin><xmax>{xmax}</xmax><ymax>{ymax}</ymax></bndbox></object>"
            for label, xmin, ymin, xmax, ymax in shot.boxes
        )
        text = f"<annotation><filename>{shot.name}</filename>{objects}</annotation>"
        (root / "voc" / "Annotations" / f"{shot.stem}.xml").write_text(text, encoding="utf-8")
    return root / "voc"


def _yolo(root: Path, given: Sequence[Shot]) -> Path:
    _images(root / "yolo" / "images", given)
    (root / "yolo" / "labels").mkdir()
    for shot in given:
        lines = [
            f"{LABELS.index(label)} {(xmin + xmax) / 2 / shot.width} "
            f"{(ymin + ymax) / 2 / shot.height} {(xmax - xmin) / shot.width} "
            f"{(ymax - ymin) / shot.height}\n"
            for label, xmin, ymin, xmax, ymax in shot.boxes
        ]
        (root / "yolo" / "labels" / f"{shot.stem}.txt").write_text("".join(lines))
    names = ", ".join(LABELS)
    (root / "yolo" / "data.yaml").write_text(f"names: [{names}]\n", encoding="utf-8")
    return root / "yolo"


def _labelme(root: Path, given: Sequence[Shot]) -> Path:
    _images(root / "labelme", given)
    for shot in given:
        shapes = [
            # Corners in any order; the box around a polygon.
            {"label": label, "points": [[x2, y1], [x1, y2]], "shape_type": "rectangle"}
            if k % 2
            else {"label": label, "points": [[x1, y1], [x2, y1], [x1, y2]], "shape_type": "polygon"}
            for k, (label, x1, y1, x2, y2) in enumerate(shot.boxes)
        ]
        document = {"version": "5.4.1", "shapes": shapes, "imagePath": shot.name}
        document |= {"imageData": None, "imageHeight": shot.height, "imageWidth": shot.width}
        (root / "labelme" / f"{shot.stem}.json").write_text(json.dumps(document))
    return root / "labelme"


def _dota(root: Path, given: Sequence[Shot]) -> Path:
    _images(root / "dota" / "images", given)
    (root / "dota" / "labelTxt").mkdir()
    for shot in given:
        lines = [
            f"{x1} {y1} {x2} {y1} {x2} {y2} {x1} {y2} {label} 0\n"
            for label, x1, y1, x2, y2 in shot.boxes
        ]
        text = "imagesource:GoogleEarth\ngsd:0.15\n" + "".join(lines)
        (root / "dota" / "labelTxt" / f"{shot.stem}.txt").write_text(text, encoding="utf-8")
    return root / "dota"


def _cvat(root: Path, given: Sequence[Shot]) -> Path:
    _images(root / "cvat" / "images", given)
    labels = "".join(f"<label><name>{label}</name></label>" for label in LABELS)
    images = [
        f'<image id="{i}" name="{shot.name}" width="{shot.width}" height="{shot.height}">'
        + "".join(
            f'<box label="{label}" xtl="{x1}" ytl="{y1}" xbr="{x2}" ybr="{y2}"/>'
            if k % 2
            else f'<polygon label="{label}" points="{x1},{y1};{x2},{y1};{x1},{y2}"/>'
            for k, (label, x1, y1, x2, y2) in enumerate(shot.boxes)
        )
        + "</image>"
        for i, shot in enumerate(given)
    ]
    meta = f"<meta><task><labels>{labels}</labels></task></meta>"
    text = f"<annotations><version>1.1</version>{meta}{''.join(images)}</annotations>"
    (root / "cvat" / "annotations.xml").write_text(text, encoding="utf-8")
    return root / "cvat"


ANNOTATED = {
    "coco": Form(_coco),
    "cvat": Form(_cvat),
    "coco.gz": Form(lambda root, given: _zipped(_coco(root, given)), ("--input_format", "coco")),
    "voc": Form(_voc, ("--input_format", "voc")),
    "yolo": Form(_yolo, ("--input_format", "yolo")),
    "labelme": Form(_labelme),
    "dota": Form(_dota),
}
"""Forms that hold boxes for each image, by their names."""

CAPTIONED = {"coco captions": Form(_captions)}
"""Forms that hold captions and no labels."""


def _zipped(path: Path) -> Path:
    zipped = path.with_name(path.name + ".gz")
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return zipped
