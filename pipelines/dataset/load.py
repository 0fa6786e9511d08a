"""Loads a published dataset for training, as a `tf.data.Dataset`."""

from __future__ import annotations

import os
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from recordmill.pipelines.dataset.image_tensors import (
    Fill,
    FrameDecoder,
    ImageDecoder,
    TensorResize,
)
from recordmill.schemas import layout
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Feature, Schema
from recordmill.schemas.manifest import Manifest
from recordmill.schemas.origins import INSTANCES, Kind
from recordmill.transforms.functional.read_ahead import map_in_threads
from recordmill.transforms.functional.records import example_reader
from recordmill.transforms.functional.records.framing import overlong_record
from recordmill.transforms.functional.splits import RecordRange
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.local_files import open_regular
from recordmill.transforms.storage.published import newest_version
from recordmill.transforms.storage.shard_files import frames_in

if TYPE_CHECKING:
    from typing_extensions import Self

_PARALLEL_SHARDS = 16

# Consecutive records from one shard of an interleaved read.
_BLOCK_RECORDS = 16

# Size of the default shuffle buffer.
_SHUFFLE_BYTES = 256 * 2**20

# Size of a read from an object store; large reads hide its latency.
_REMOTE_BUFFER = 8 * 2**20


def load(
    path: str | os.PathLike[str] | DatasetFolder,
    split: str = "train",
    *,
    batch_size: int | None = None,
    shuffle: bool = False,
    decode: bool = True,
    image_size: int | tuple[int, int] | None = None,
    resize: Fill = "stretch",
    antialias: bool = True,
    channels: int = 3,
    dtype: example_reader.PixelType = "uint8",
    features: Sequence[str] | None = None,
    as_supervised: bool = False,
    seed: int | None = None,
    shuffle_buffer: int | None = None,
    epochs: int | None = 1,
    drop_remainder: bool = False,
    share: tuple[int, int] = (0, 1),
    parallel_shards: int | None = None,
) -> tf.data.Dataset:
    """Returns a dataset of dicts: Example key to value; images as (height, width, 3).

    Args:
        path: a Dataset, or its folder DIR/NAME/VERSION, or DIR/NAME for the newest version.
        split: a split or exact slice, such as `train`, `train[:80%]` or `train[100:200]+test`.
        batch_size: records per batch; sequences become ragged batches; None for no batches.
        shuffle: shuffles the shards in each epoch, and the records within a buffer.
        decode: decodes the image, and its mask to class ids; otherwise returns the stored bytes.
        image_size: (height, width) in pixels, or one number; masks of objects keep their size.
        resize: "stretch", "crop" or "pad" (with black bars) images of another shape.
        antialias: averages all pixels when images shrink, which doubles the cost of resizing.
        channels: channels of decoded images: 3 for RGB, 1 for gray, 0 for the stored number.
        dtype: "uint8", or "uint16" for all bits of 16-bit images; 8 bits are multiplied by 257.
        features: the features to return; all by default.
        as_supervised: returns pairs of image and label (the first `classes: true`), or mask.
        seed: makes the shuffled order the same in each run, at some cost in speed.
        shuffle_buffer: records in the buffer; by default, as many as fit into 256 MiB undecoded.
        epochs: the number of passes over the records; None for an endless dataset.
        drop_remainder: leaves out the last batch if it is smaller than the others.
        share: (i, n) selects the i-th of n equal shares, for one of n processes.
        parallel_shards: shards read concurrently; by default 16 if shuffled, otherwise 1.

    Raises:
        RecordmillError: if no valid dataset is published there, or an option is not supported.
    """
    shards, size = _Shards.of(path, split, share), TensorResize.of(image_size, resize, antialias)
    records = _Order(shuffle, seed, shuffle_buffer, parallel_shards).apply(shards).repeat(epochs)
    chosen = _Selection(shards.manifest.dataset_schema, features, as_supervised, channels, dtype)
    return chosen.examples(shards, decode, size).of(records, batch_size, drop_remainder)


@dataclass(frozen=True)
class _Shards:
    dataset: DatasetFolder
    parts: Sequence[RecordRange]

    @classmethod
    def of(
        cls, path: str | os.PathLike[str] | DatasetFolder, split: str, share: tuple[int, int]
    ) -> Self:
        """Opens a dataset, unless it is open, and selects the records of a split or slice."""
        dataset = path if isinstance(path, DatasetFolder) else _open(path)
        shards = cls(dataset, dataset.select(split, share))
        if dataset.shard_format.seekable and not layout.is_url(dataset.directory):
            deque(map_in_threads(shards.check_lengths, shards.parts), maxlen=0)
        return shards

    def check_lengths(self, part: RecordRange) -> None:
        """Raises VerificationFailed if a record of a local shard is longer than its file."""
        shard = self.dataset.shard(part.split, part.shard)
        try:
            with open_regular(self.dataset.path(shard.file)) as stream:
                file = stream.fileno()
                if hasattr(os, "posix_fadvise"):  # Linux would read 128 KiB around each header
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
                found = overlong_record(file, os.fstat(file).st_size)
        except OSError:
            return  # TensorFlow reports it, with the path
        if found:
            record, start, length = found
            what = f"states {length:,} bytes, which is more than the file has"
            raise self.dataset.damaged(shard, record, start, what)

    @property
    def manifest(self) -> Manifest:
        return self.dataset.manifest

    def files(self) -> tf.data.Dataset:
        """Returns (file, records to skip, records to take) of each shard."""
        shards = [self.dataset.shard(part.split, part.shard) for part in self.parts]
        files = [self.dataset.path(shard.file) for shard in shards]
        # (file, skip, take) as tensors, so that tf.data can shuffle and interleave shards.
        spans = np.array([(p.skip, p.take) for p in self.parts], np.int64).reshape(-1, 2)
        return tf.data.Dataset.from_tensor_slices((tf.constant(files, tf.string), *spans.T))

    def first_record(self) -> tf.data.Dataset:
        return replace(self, parts=self.parts[:1]).files().flat_map(self.open).take(1)

    def open(self, file: tf.Tensor, skip: tf.Tensor, take: tf.Tensor) -> tf.data.Dataset:
        """Returns `take` records of one shard, after the first `skip`."""
        kind = self.dataset.shard_format.tensorflow
        if kind is None or not _tensorflow_reads(self.dataset.directory):
            spec = tf.TensorSpec((), tf.string)
            return tf.data.Dataset.from_generator(
                _frames_of, output_signature=spec, args=(file, skip, take)
            )
        size = _REMOTE_BUFFER if layout.is_url(self.dataset.directory) else None
        records = tf.data.TFRecordDataset(file, compression_type=kind, buffer_size=size)
        return records.skip(skip).take(take)


@dataclass(frozen=True)
class _Order:
    shuffle: bool
    seed: int | None
    buffer: int | None
    parallel: int | None

    def apply(self, shards: _Shards) -> tf.data.Dataset:
        """Returns the serialized records of the shards in this order, which batches keep."""
        files = shards.files()
        total = sum(part.take for part in shards.parts)
        if self.shuffle:
            # Each epoch has another order, because repeat() is applied after the shuffle.
            files = files.shuffle(max(1, len(shards.parts)), self.seed)
        records = files.interleave(
            shards.open,
            cycle_length=self.parallel or (_PARALLEL_SHARDS if self.shuffle else 1),
            block_length=_BLOCK_RECORDS,
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=self.deterministic,
        ).apply(tf.data.experimental.assert_cardinality(total))
        options = tf.data.Options()
        options.deterministic = self.deterministic
        records = records.with_options(options)
        if not self.shuffle:
            return records
        # The unit of tf.data's buffer is records, so the limit in bytes is converted.
        all_shards = shards.dataset.shards().values()
        size = sum(s.payload for s in all_shards) / max(1, sum(s.records for s in all_shards))
        fitting = int(_SHUFFLE_BYTES / max(1.0, size))
        return records.shuffle(max(1, self.buffer or min(total, fitting)), self.seed)

    @property
    def deterministic(self) -> bool:
        """Whether the order must be the same in each run."""
        return not self.shuffle or self.seed is not None


@dataclass(frozen=True)
class _Selection:
    schema: Schema
    names: Sequence[str] | None
    as_supervised: bool
    channels: int
    dtype: example_reader.PixelType

    def __post_init__(self) -> None:
        example_reader.check_choice(self.schema, self.names, self.channels)
        example_reader.check_pixel_type(self.dtype)
        if self.as_supervised and self.names is not None:
            raise UsageError("as_supervised returns image and label. Leave features out.")
        if self.as_supervised and self.schema.supervised is None:
            raise UsageError(
                f"as_supervised returns image and label; schema {self.schema.name!r} has features "
                f"{', '.join(self.schema.features)}. Choose some with features=[…], and map them."
            )

    @property
    def names_in_order(self) -> tuple[str, ...]:
        """The names of the features, in order."""
        if self.as_supervised and self.schema.supervised:
            return self.schema.supervised
        return tuple(self.schema.features if self.names is None else self.names)

    @property
    def has_image(self) -> bool:
        return self.schema.image_feature in self.names_in_order

    def examples(self, shards: _Shards, decode: bool, resize: TensorResize | None) -> _Examples:
        """Returns the parser of the records of shards, which decodes their images if asked to."""
        if decode and self.has_image:
            # The caller of `load` is two frames above.
            example_reader.warn_of_lost_bits(
                shards.manifest.images, self.dtype, "load", stacklevel=4
            )
        return _Examples(shards, self, self.decoders(resize) if decode else {})

    def decoders(self, resize: TensorResize | None) -> dict[str, ImageDecoder]:
        """Returns the decoders of the images and the mask among the features.

        Raises UsageError if boxes would no longer be where the schema says.
        """
        boxes = [n for n in self.names_in_order if self.schema.features[n].has_positions]
        if boxes and resize and not resize.keeps_positions:
            raise UsageError(
                f"resize={resize.fill!r} moves what is in {', '.join(boxes)}. Use "
                'resize="stretch", or leave them out with features=[…].'
            )
        masks = [n for n in boxes if self.schema.features[n].source.origin in INSTANCES]
        if masks and resize:
            warnings.warn(f"image_size does not resize {', '.join(masks)}.", stacklevel=4)
        # The mask has the size of the first image.
        images = {name: name for name in self.schema.stored_images}
        if self.schema.mask_feature and self.schema.image_feature:
            images[self.schema.mask_feature] = self.schema.image_feature
        of = ImageDecoder.of if self.schema.sequence is None else FrameDecoder.of
        return {
            name: of(self.schema, self.channels, resize, self.dtype, image)
            for name, image in images.items()
            if name in self.names_in_order
        }

    def of(self, example: dict[str, Any]) -> Any:
        values = [example[name] for name in self.names_in_order]
        if self.as_supervised:
            return tuple(values)
        return dict(zip(self.names_in_order, values, strict=True))


@dataclass(frozen=True)
class _Examples:
    shards: _Shards
    selection: _Selection
    decoders: Mapping[str, ImageDecoder]  # of the images and the mask, by feature

    def _needed(self, features: Mapping[str, Feature]) -> dict[str, Feature]:
        """Returns those of some features that are returned, or that decoding may need."""
        # Decoding may need features that are not returned, such as the size of raw pixels.
        names = self.selection.schema.features if self.decoders else self.selection.names_in_order
        return {name: features[name] for name in names if name in features}

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The spec of the features for `tf.io.parse_example`; for sequences, of the context."""
        schema = self.selection.schema
        features = schema.features_of_record if schema.has_steps else schema.context_features
        return {
            name: _spec(feature) if feature.per == "frame" else _as_ragged(_spec(feature))
            for name, feature in self._needed(features).items()
        }

    @cached_property
    def frames(self) -> dict[str, Any]:
        """The spec of the frame features for `tf.io.parse_sequence_example`."""
        features = self._needed(self.selection.schema.frame_features)
        return {name: _frame_spec(feature) for name, feature in features.items()}

    @property
    def _sequences(self) -> bool:
        return self.selection.schema.sequence is not None

    def _of_one_size(self) -> _Examples:
        """Returns a copy that checks that all images have the size of the first one."""
        if not self.decoders or self._sequences:
            return self
        decoders = {
            name: decoder.of_one_size(self.shards.first_record(), self._parsed)
            for name, decoder in self.decoders.items()
        }
        return _Examples(self.shards, self.selection, decoders)

    def of(self, records: tf.data.Dataset, size: int | None, drop: bool) -> tf.data.Dataset:
        """Returns parsed and decoded examples: in batches of a size, or one by one.

        The last batch is dropped if it is smaller and `drop` is set.
        """
        if size is None:
            return _mapped(records, self._one).prefetch(tf.data.AUTOTUNE)
        if not self.decoders and not self._sequences:
            # Parsing a batch in one call is far cheaper than parsing record by record.
            batches = records.batch(size, drop_remainder=drop)
            parse = partial(tf.io.parse_example, features=self.spec)
            return _mapped(batches, lambda batch: self.selection.of(parse(batch)))
        examples = _mapped(records, self._of_one_size()._one)
        ragged = (
            isinstance(self.spec.get(n), tf.io.RaggedFeature) for n in self.selection.names_in_order
        )
        batch = examples.ragged_batch if self._sequences or any(ragged) else examples.batch
        return batch(size, drop_remainder=drop).prefetch(tf.data.AUTOTUNE)

    def _one(self, record: tf.Tensor) -> Any:
        example = self._parsed(record)
        mask = self.selection.schema.mask_feature
        decoded = {
            name: decoder.decode_mask(example[name]) if name == mask else decoder.decode(example)
            for name, decoder in self.decoders.items()
        }
        return self.selection.of(example | decoded)

    def _parsed(self, record: tf.Tensor) -> dict[str, Any]:
        if not self._sequences or self.selection.schema.has_steps:
            return dict(tf.io.parse_single_example(record, self.spec))
        # TensorFlow rejects empty dicts.
        specs = (self.spec or None, self.frames or None)
        context, frames = tf.io.parse_single_sequence_example(record, *specs)
        return {**context, **frames}


def _frame_spec(feature: Feature) -> Any:
    spec = _spec(feature)
    if isinstance(spec, tf.io.VarLenFeature):
        return tf.io.RaggedFeature(spec.dtype, row_splits_dtype=tf.int64)
    return tf.io.FixedLenSequenceFeature(spec.shape, spec.dtype)


def _spec(feature: Feature) -> Any:
    dtypes = {Kind.INT64: tf.int64, Kind.FLOAT: tf.float32, Kind.BYTES: tf.string}
    if feature.optional:
        return tf.io.VarLenFeature(dtypes[feature.kind])
    shape = list(feature.shape or ())
    if feature.has_open_rows:
        return tf.io.FixedLenSequenceFeature(shape[1:], dtypes[feature.kind], allow_missing=True)
    return tf.io.FixedLenFeature(shape, dtypes[feature.kind])


def _mapped(dataset: tf.data.Dataset, function: Any) -> tf.data.Dataset:
    return dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE)


def _as_ragged(spec: Any) -> Any:
    """Returns the parse spec of a feature; lists of variable length become ragged tensors."""
    if isinstance(spec, tf.io.VarLenFeature):
        return tf.io.RaggedFeature(spec.dtype, row_splits_dtype=tf.int64)
    if isinstance(spec, tf.io.FixedLenSequenceFeature):
        rows = [tf.io.RaggedFeature.UniformRowLength(size) for size in spec.shape]
        return tf.io.RaggedFeature(spec.dtype, partitions=rows, row_splits_dtype=tf.int64)
    return spec


def _open(path: str | os.PathLike[str]) -> DatasetFolder:
    if layout.is_url(os.fspath(path)) and _tensorflow_reads(os.fspath(path)):
        newest = newest_version(path, _read_by_tensorflow, _published_in_tensorflow)
        return DatasetFolder.open(newest, _read_by_tensorflow)
    return DatasetFolder.open(newest_version(path))


def _tensorflow_reads(path: str) -> bool:
    """Returns whether TensorFlow has a file system for a path; Beam reads the others."""
    scheme = path.partition("://")[0]
    return not layout.is_url(path) or scheme in tf.io.gfile.get_registered_schemes()


def _read_by_tensorflow(path: str) -> bytes | None:
    try:
        with tf.io.gfile.GFile(path, "rb") as stream:
            data: bytes = stream.read()
            return data
    except tf.errors.NotFoundError:
        return None
    except tf.errors.OpError as error:
        raise OSError(error.message) from error


def _published_in_tensorflow(folder: str) -> list[str]:
    """Returns the names of the folders in a folder that have a commit marker."""
    try:
        names = [name.rstrip("/") for name in tf.io.gfile.listdir(folder)]  # stores add a slash
        markers = {name: layout.join(folder, name, layout.SUCCESS) for name in names}
        return [name for name, marker in markers.items() if tf.io.gfile.exists(marker)]
    except tf.errors.NotFoundError:
        return []
    except tf.errors.OpError as error:
        raise OSError(error.message) from error


def _frames_of(file: bytes, skip: int, take: int) -> Iterator[bytes]:
    """Yields a range of a shard's records, if TensorFlow does not read its format or store."""
    for frame in islice(frames_in(file.decode()), int(skip), int(skip) + int(take)):
        yield frame.data
