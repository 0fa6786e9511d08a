"""Seeds of the fuzz corpus: a small file of each kind. `python -m tests.fuzz.seeds`

writes generated ones to `corpus/`, also of the forms of annotations in their unit tests. Findings
are added there by hand, named after the bug.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz import CORPUS
from tests.fuzz.targets import TARGETS
from tests.images import image_bytes, jpeg, png
from tests.mutations.mutations import framed
from tests.shots import annotation_of, forms, shots


def _table(with_image: bool) -> pa.Table:
    columns = {"image": ["a.jpg", "b.jpg", None], "label": ["cat", "dog", "cat"], "n": [1, 2, 3]}
    columns |= {"box": [[1.5, 2.0], [], None]}
    if with_image:
        columns["image"] = [{"bytes": png(3, 2, i), "path": f"{i}.png"} for i in range(3)]
    return pa.table(columns)


def _parquet(with_image: bool, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(_table(with_image), sink, row_group_size=2, **options)
    return sink.getvalue()


def _arrow(with_image: bool, as_file: bool) -> bytes:
    sink, table = io.BytesIO(), _table(with_image)
    new = pa.ipc.new_file if as_file else pa.ipc.new_stream
    with new(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _tar(format_: int) -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=format_) as tar:
        for name, data in (("a.png", png(3, 2)), ("a.cls", b"1"), ("b" * 120 + ".json", b"{}")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return sink.getvalue()


def _records() -> bytes:
    import tensorflow as tf

    def feature(*values: bytes) -> tf.train.Feature:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))

    named = {"image": feature(png(3, 2)), "label": feature(b"cat")}
    example = tf.train.Example(features=tf.train.Features(feature=named))
    return framed([example.SerializeToString(deterministic=True)] * 2)


def seeds() -> Iterator[tuple[str, str, bytes]]:
    """Yields target, name and content."""
    yield "csv", "plain", b'image,label\r\na.jpg,cat\r\n"b ""1"".jpg","d\no\ng"\r\n'
    yield "csv", "utf-16", "image,label\na.jpg,ü\n".encode("utf-16")
    yield "csv_ranges", "quotes", b'\x05a,b\r\n1,"x\n""y"""\n2,x"y\r3,"x"y,"\n4,"z\n'
    yield "tsv", "plain", b"image\tlabel\na.jpg\tcat\n"
    yield "jsonl", "plain", b'{"image":"a.jpg","label":"cat"}\n{"image":null,"n":[1,[2.5,true]]}\n'
    yield "parquet", "plain", _parquet(False)
    yield "parquet", "images", _parquet(True, compression="none", write_page_checksum=True)
    yield "parquet", "dictionary", _parquet(False, compression="zstd", data_page_version="2.0")
    yield "data_file", "plain", _parquet(False)
    yield "data_file", "images", _parquet(True, compression="none")
    yield "arrow", "file", _arrow(False, True)
    yield "arrow", "stream", _arrow(True, False)
    presets = Path(__file__).parents[2] / "schemas/presets"
    for path in sorted(presets.glob("*.yaml")):
        yield "schema", path.stem, path.read_bytes()
    yield "sniffing", "jpeg", jpeg(9, 7)
    yield "sniffing", "progressive", jpeg(9, 7, progressive=True, exif_orientation=6)
    yield "sniffing", "png", png(5, 4, 1, "RGBA")
    for format_ in ("GIF", "BMP", "WEBP", "TIFF", "AVIF", "JPEG2000", "PPM", "ICO"):
        yield "sniffing", format_.lower(), image_bytes(format_, 5, 4)
    yield "tar", "pax", _tar(tarfile.PAX_FORMAT)
    yield "tar", "gnu", _tar(tarfile.GNU_FORMAT)
    yield "tfrecord", "examples", _records()
    yield "folder", "text", b"notes"
    yield "yolo_yaml", "data", b"names:\n  0: cat\n  1: dog\nkpt_shape: [17, 3]\n"
    for name, form in forms().items():
        target, _, kind = name.partition(" ")
        if target in TARGETS:  # without other suffixes
            files = form.files(shots(3))
            yield target, kind or "form", files[annotation_of(files)]


def main() -> None:
    """Writes the seeds."""
    for target, name, data in seeds():
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        (CORPUS / target / name).write_bytes(data)


if __name__ == "__main__":
    main()
