"""Writes and verifies the record index of a shard, a Parquet table with one row per record."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from recordmill.schemas.features import Feature
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import CopiedRecord, FeatureValue, SerializedExample
from recordmill.transforms.functional.records.framing import data_starts, frame_size, frame_start
from recordmill.transforms.functional.records.image_columns import IMAGE_COLUMNS, ImageColumns

BATCH_ROWS = 8192


def arrow_schema(resolved: ResolvedSchema) -> pa.Schema:
    """Returns the Arrow schema of the index.

    `offset` and `length` are the byte range of the data of a record, without its frame, in the
    uncompressed shard. `class` is the class name, or the label in decimal, or a list of these. For
    sequences, `frames` is the number of frames, `sha256` the digest of the image digests, and
    `class`, if each frame has a class, the sorted list of all classes. The columns of the first
    image follow if the schema has images, and `other_images`, frame by frame, if it has several.
    """
    sequence = resolved.schema.sequence is not None
    frames = [("frames", pa.int64())] if sequence else []
    images = [
        (column.name, pa.list_(column.type) if sequence else column.type)
        for column in (list(IMAGE_COLUMNS) if resolved.schema.has_image else [])
    ]
    others = [("other_images", _OTHER_IMAGES)] if resolved.schema.image_names else []
    return pa.schema(
        [
            ("key", pa.string()),
            ("split", pa.string()),
            ("shard", pa.int32()),
            ("index", pa.int64()),
            ("offset", pa.int64()),
            ("length", pa.int64()),
            ("sha256", pa.string()),
            ("class", _class_type(resolved)),
            *frames,
            *images,
            *others,
        ]
    )


_OTHER_IMAGES = pa.list_(
    pa.struct(
        [
            ("image", pa.string()),
            ("sha256", pa.string()),
            ("format", pa.string()),
            ("width", pa.int32()),
            ("height", pa.int32()),
            ("channels", pa.int32()),
            ("bytes", pa.int64()),
        ]
    )
)


class RecordIndex:
    """Writes the index of one shard while its records are written."""

    def __init__(
        self, handle: Any, split: str, shard: int, resolved: ResolvedSchema, hashed: bool = True
    ) -> None:
        """Starts an index in a binary file."""
        self._split, self._shard, self._resolved = split, shard, resolved
        self._schema = arrow_schema(resolved)
        self._writer = pq.ParquetWriter(pa.PythonFile(handle, mode="w"), self._schema)
        # The columns key, length, digest, class and frames of the rows of the next row group.
        self._columns: tuple[list[Any], ...] = ([], [], [], [], [])
        self._others = list[Any]()  # the other images of each of these rows
        self._images = ImageColumns(hashed)
        self._next_index = 0  # number of the next record in the shard
        self._next_frame = 0  # byte offset of its frame

    def add(self, examples: Sequence[SerializedExample]) -> None:
        """Adds the next records."""
        while examples:  # row groups have the same sizes, however the records are batched
            room = BATCH_ROWS - len(self._columns[0])
            part, examples = examples[:room], examples[room:]
            if self._resolved.schema.has_image:
                for example in part:
                    for built in example.frames or (example,):
                        self._images.add(built.shape)
            if self._resolved.schema.image_names:
                for example in part:
                    frames = example.frames or (example,)
                    self._others.append([one._asdict() for built in frames for one in built.others])
            self._add(
                [example.ref.key for example in part],
                [len(example.data) for example in part],
                [example.image_sha256 or None for example in part],
                _record_classes(part, self._resolved),
                [example.rows for example in part] if self._resolved.schema.sequence else (),
            )

    def copy(self, record: CopiedRecord) -> None:
        """Adds a record of the base version, with its row in the base's index."""
        row = record.row
        if self._resolved.schema.has_image:
            is_list = self._resolved.schema.sequence is not None
            columns = {name: row[name] if is_list else [row[name]] for name in IMAGE_COLUMNS.names}
            self._images.add_described(columns)
        if self._resolved.schema.image_names:
            self._others.append(row["other_images"])
        data = len(record.data)
        self._add([record.key], [data], [row["sha256"]], [row["class"]], [record.rows])

    def _add(self, *columns: Sequence[Any]) -> None:
        for column, values in zip(self._columns, columns, strict=True):
            column.extend(values)
        if len(self._columns[0]) >= BATCH_ROWS:
            self._flush()

    def close(self) -> None:
        """Writes the remaining rows and the footer; the file stays open."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        keys, lengths, digests, labels, frames = self._columns
        count, first = len(keys), self._next_index
        if not count:
            return
        columns = [
            keys,
            [self._split] * count,
            [self._shard] * count,
            range(first, first + count),
            data_starts(lengths, self._next_frame),
            lengths,
            digests,
            labels,
            *([frames] if self._resolved.schema.sequence else []),
        ]
        self._next_index += count
        self._next_frame += sum(map(frame_size, lengths))
        arrays = [pa.array(c, f.type) for c, f in zip(columns, self._schema, strict=False)]
        if self._resolved.schema.has_image:
            arrays += self._image_arrays()
        if self._resolved.schema.image_names:
            arrays.append(pa.array(self._others, _OTHER_IMAGES))
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        for column in (*self._columns, self._others):
            column.clear()

    def _image_arrays(self) -> list[pa.Array]:
        """Returns the columns of the images of all rows; for sequences, with a list per row."""
        columns = [column.chunk(0) for column in self._images.take().columns]
        if not self._resolved.schema.sequence:
            return columns
        offsets = pa.array(accumulate(self._columns[-1], initial=0), pa.int32())
        return [pa.ListArray.from_arrays(offsets, column) for column in columns]


def index_lines(table: pa.Table) -> bytes:
    """Returns an index in the format of DALI's tfrecord2idx: a line "offset length" per record."""
    ranges = zip(table["offset"].to_pylist(), table["length"].to_pylist(), strict=True)
    # DALI's byte ranges include the header and footer of the frame.
    lines = (f"{frame_start(start)} {frame_size(length)}\n" for start, length in ranges)
    return "".join(lines).encode("ascii")


def row_classes(rows: Sequence[tuple[FeatureValue, ...]], resolved: ResolvedSchema) -> list[Any]:
    """Returns the result of `row_class` for each row."""
    return [row_class(values, resolved) for values in rows]


def row_class(values: tuple[FeatureValue, ...], resolved: ResolvedSchema) -> Any:
    """Returns the class of a row as text, a list of these, or None for schemas without classes."""
    schema, position = resolved.schema, resolved.class_position
    if position is None:
        return None
    name = schema.named_features[0]
    feature = schema.features[name]
    names = [resolved.class_name(name, label) for label in label_ids(values[position], feature)]
    return names if feature.shape == () else next(iter(names), None)


def _record_classes(examples: Sequence[SerializedExample], resolved: ResolvedSchema) -> list[Any]:
    if resolved.class_position is None:
        return [None] * len(examples)
    return [_record_class(example, resolved) for example in examples]


def _record_class(example: SerializedExample, resolved: ResolvedSchema) -> Any:
    """Returns the result of `row_class`; if frames have classes, the sorted names of all frames."""
    if not example.frames or not _per_frame(resolved):
        return row_class(example.ref.values, resolved)
    found = (row_class(frame.ref.values, resolved) for frame in example.frames)
    names = (name if isinstance(name, list) else [name] for name in found)
    return sorted({name for some in names for name in some if name is not None})


def label_ids(value: FeatureValue, feature: Feature) -> list[int]:
    """Returns the class ids in the value of a class feature; none for a missing value."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, int) and item != feature.no_label]


def index_mismatch(
    table: pa.Table, split: str, shard: int, lengths: list[int], frames: list[int] | None = None
) -> str | None:
    """Describes the first difference of an index from its shard; None if they match."""
    if table.num_rows != len(lengths):
        return f"{table.num_rows} rows; the shard has {len(lengths)} records"
    expected: dict[str, Any] = {
        "split": [split] * len(lengths),
        "shard": [shard] * len(lengths),
        "index": np.arange(len(lengths)),
        "length": lengths,
        "offset": data_starts(lengths),  # frames are contiguous
    }
    if frames is not None:
        expected["frames"] = frames
    for column, values in expected.items():
        found, actual = table[column], pa.array(values)
        differs = pc.fill_null(pc.not_equal(found, actual), True)
        if (row := pc.index(differs, True).as_py()) >= 0:
            one, other = found[row].as_py(), actual[row].as_py()
            return f"row {row}: {column} is {one!r}, in the shard {other!r}"
    return None


def _class_type(resolved: ResolvedSchema) -> pa.DataType:
    features = [f for f in resolved.schema.features.values() if f.classes]
    several = _per_frame(resolved) or (features and features[0].shape == ())
    return pa.list_(pa.string()) if several else pa.string()


def _per_frame(resolved: ResolvedSchema) -> bool:
    """Returns whether the indexed class feature has one value per frame."""
    features = [f for f in resolved.schema.features.values() if f.classes]
    return bool(features) and features[0].per == "frame"
