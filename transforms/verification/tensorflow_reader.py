"""Parses records and decodes images with TensorFlow, which shares no code with their writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from recordmill.schemas.features import Feature, ImageAttribute, Kind
from recordmill.schemas.plan import ResolvedSchema
from recordmill.transforms.verification.tensorflow_ops import (
    FLOAT,
    INT64,
    STRING,
    UINT8,
    UINT16,
    DataType,
    Tensor,
    run,
)

_SHAPE = (ImageAttribute.HEIGHT, ImageAttribute.WIDTH, ImageAttribute.CHANNELS)
_TYPES = {Kind.INT64: INT64, Kind.FLOAT: FLOAT, Kind.BYTES: STRING}
_MISSING: dict[Kind, Any] = {Kind.INT64: np.int64(0), Kind.FLOAT: np.float32(0), Kind.BYTES: b""}


class UnequalLengthsError(Exception):
    """The frame features of a sequence differ in length."""


class BadImageError(Exception):
    """A decoded image or mask does not have the shape that its record states."""


@dataclass(frozen=True)
class ParsedBatch:
    """A parsed batch of records."""

    resolved: ResolvedSchema
    # Feature name to a tensor of all records' values, (records, ...), or (values,) of a feature
    # with any number of values.
    context: Mapping[str, Tensor]
    # Feature name to a tensor of all frames' values, padded, (records, frames, ...), or (values,);
    # {} unless the records are sequences.
    frames: Mapping[str, Tensor]
    # The number of frames of each record; None unless the records are sequences.
    lengths: list[int] | None

    def labels(self, name: str) -> list[int]:
        """Returns the class ids of all records, or of all their frames, in a feature."""
        values = (self.frames if name in self.frames else self.context)[name].numpy()
        if self.lengths is not None and name in self.frames and values.ndim > 1:
            values = np.concatenate([values[i, :n] for i, n in enumerate(self.lengths)])
        labels: list[int] = values.ravel().tolist()
        no_label = self.resolved.schema.features[name].no_label
        return labels if no_label is None else [label for label in labels if label != no_label]

    def decode(self) -> None:
        """Decodes every image with the functions that training code uses, and its mask.

        Raises OpError if TensorFlow cannot decode an image. Raises BadImageError if an image or
        mask does not have the shape that its record states.
        """
        schema = self.resolved.schema
        if schema.encoded_image is None:
            return
        keys = {attribute: key for key, attribute in schema.image_attributes.items()}
        keys = {attribute: keys[attribute] for attribute in _SHAPE if attribute in keys}
        names = (schema.encoded_image, schema.mask_feature, *keys.values())
        tensors = self.context if self.lengths is None else self.frames
        values = {name: tensors[name].numpy() for name in names if name}
        # (record,) or (record, frame) of each image
        images = (
            range(len(values[schema.encoded_image]))
            if self.lengths is None
            else ((i, j) for i, length in enumerate(self.lengths) for j in range(length))
        )
        for place in images:
            mask = values[schema.mask_feature][place] if schema.mask_feature else None
            shape = {attribute: int(values[key][place]) for attribute, key in keys.items()}
            image = values[schema.encoded_image][place]
            check_image(image, shape, mask, schema.masks.bit_depth)


class _Features:
    """Features as TensorFlow's parsers take them: lists of values, and arrays of a fixed shape.

    `lists`: names of features with any number of values. `list_types`: types of `lists`.
    `array_types`: types of `arrays`. `shapes`: shapes of `arrays`; -1 where the number of rows is
    not fixed. `defaults`: values of `arrays` that a record lacks; empty for those that it must
    have.
    """

    def __init__(self, features: Mapping[str, Feature]) -> None:
        self.lists = sorted(name for name, feature in features.items() if feature.optional)
        self.arrays = sorted(features.keys() - set(self.lists))
        self.list_types = [DataType(_TYPES[features[name].kind]) for name in self.lists]
        arrays = [features[name] for name in self.arrays]
        self.array_types = [DataType(_TYPES[feature.kind]) for feature in arrays]
        self.shapes = [[-1 if n is None else n for n in feature.shape or ()] for feature in arrays]
        self.defaults = [_default(feature) for feature in arrays]


def _default(feature: Feature) -> Tensor:
    padding = _MISSING[feature.kind]
    if isinstance(padding, bytes):
        return Tensor.of(padding if feature.has_open_rows else [])
    return Tensor.of(np.full(() if feature.has_open_rows else 0, padding))


def _names(names: Sequence[str]) -> Tensor:
    return Tensor.of([name.encode() for name in names])


def parse_batch(records: Sequence[bytes], resolved: ResolvedSchema) -> ParsedBatch:
    """Parses a batch of serialized records.

    Raises OpError if a record does not match the schema. Raises UnequalLengthsError if the frame
    features of a sequence differ in length.
    """
    if resolved.schema.sequence is not None:
        return _parse_sequences(records, resolved)
    features, none = _Features(resolved.schema.features), _names(())
    names = _names(features.lists), _names(features.arrays)
    count = len(features.lists)
    found = run(
        "ParseExampleV2",
        [Tensor.of(records), none, *names, none, features.defaults],
        3 * count + len(features.arrays),
        {
            "num_sparse": count,
            "sparse_types": features.list_types,
            "ragged_value_types": [],
            "ragged_split_types": [],
            "dense_shapes": features.shapes,
        },
    )
    # indices, values and shapes of the lists, then the arrays
    values = [*found[count : 2 * count], *found[3 * count :]]
    context = dict(zip((*features.lists, *features.arrays), values, strict=True))
    return ParsedBatch(resolved, context, {}, None)


def _parse_sequences(records: Sequence[bytes], resolved: ResolvedSchema) -> ParsedBatch:
    context, frames = (
        _Features(features)
        for features in (resolved.schema.context_features, resolved.schema.frame_features)
    )
    none = _names(())
    found = iter(
        run(
            "ParseSequenceExampleV2",
            [
                Tensor.of(records),
                none,
                *(_names(context.lists), _names(context.arrays), none),
                *(none, _names(frames.arrays), _names(frames.lists)),
                Tensor.of(np.zeros(len(frames.arrays), np.bool_)),  # none may be missing
                context.defaults,
            ],
            3 * len(context.lists)
            + len(context.arrays)
            + 2 * len(frames.arrays)
            + 3 * len(frames.lists),
            {
                "Ncontext_sparse": len(context.lists),
                "context_sparse_types": context.list_types,
                "context_dense_shapes": context.shapes,
                "Nfeature_list_dense": len(frames.arrays),
                "feature_list_dense_types": frames.array_types,
                "feature_list_dense_shapes": frames.shapes,
                "feature_list_ragged_value_types": frames.list_types,
                "feature_list_ragged_split_types": [DataType(INT64)] * len(frames.lists),
            },
        )
    )

    def take(names: Sequence[str]) -> dict[str, Tensor]:
        return dict(zip(names, islice(found, len(names)), strict=True))

    take(context.lists)  # indices
    of_context = take(context.lists)
    take(context.lists)  # shapes
    of_context |= take(context.arrays)
    of_frames, lengths = take(frames.arrays), take(frames.arrays)
    of_frames |= take(frames.lists)
    counts = {name: tensor.numpy().tolist() for name, tensor in lengths.items()}
    counts |= {name: np.diff(t.numpy()).tolist() for name, t in take(frames.lists).items()}
    return ParsedBatch(resolved, of_context, of_frames, _equal_lengths(counts))


def _equal_lengths(counts: Mapping[str, list[int]]) -> list[int]:
    """Returns the number of frames of each record, from those of each of its features."""
    first, *others = counts.values()  # feature name to the length of its list in each record
    for number, found in enumerate(zip(first, *others, strict=True)):
        if len(set(found)) > 1 or not found[0]:
            summary = ", ".join(f"{name!r} {count[number]}" for name, count in counts.items())
            raise UnequalLengthsError(f"its lists do not have one item per frame: {summary}")
    return first


def check_image(
    data: bytes, stated: Mapping[ImageAttribute, int], mask: bytes | None, bit_depth: int
) -> None:
    """Decodes an image and its mask, and compares their shapes with the record's.

    `data` is the encoded bytes. `stated` is the height, width and channels that the record states;
    some may be absent. `mask` is the encoded mask; None if there is none. `bit_depth` is the bits
    per id of a mask, 8 or 16. Raises OpError if TensorFlow cannot decode the image or the mask.
    Raises BadImageError if the image or the mask does not have the stated shape.
    """
    image = Tensor.of(data)
    run("DecodeJpeg", [image], 1, {"channels": 3})  # many readers call it for PNG as well
    [decoded] = run("DecodeImage", [image], 1, {"expand_animations": False})
    found = dict(zip(_SHAPE, decoded.shape, strict=True))
    for attribute, value in stated.items():
        if value != found[attribute]:
            what = f"{attribute.value} of {found[attribute]}, recorded {value}"
            raise BadImageError(f"the image decodes to a {what}")
    if mask is not None:
        _decode_mask(mask, found, bit_depth)


def _decode_mask(data: bytes, image: Mapping[ImageAttribute, int], bit_depth: int) -> None:
    """Decodes a mask, which must have one channel and the size of its image."""
    dtype = DataType(UINT8 if bit_depth == 8 else UINT16)
    [ids] = run("DecodePng", [Tensor.of(data)], 1, {"dtype": dtype})
    expected = (image[ImageAttribute.HEIGHT], image[ImageAttribute.WIDTH], 1)
    if ids.shape != expected:
        raise BadImageError(f"the mask decodes to {list(ids.shape)}, expected {list(expected)}")
