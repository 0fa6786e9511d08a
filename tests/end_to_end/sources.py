"""The same labeled images in every supported source format."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import tensorflow as tf

from tests.shots import Form, Shot, forms


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
    **{name: form for name, form in forms().items() if form.holds == "label"},
}
"""Forms that hold a label for each image, by their names."""


ANNOTATED = {name: form for name, form in forms().items() if form.holds == "boxes"}
"""Forms that hold boxes for each image, by their names."""

CAPTIONED = {name: form for name, form in forms().items() if form.holds == "captions"}
"""Forms that hold captions and no labels."""
