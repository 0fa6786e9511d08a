"""Decodes records to the features of their schema, with images as pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.schemas.errors import UsageError, did_you_mean
from recordmill.schemas.features import Schema
from recordmill.transforms.functional.images.decode import (
    CHANNELS,
    PixelType,
    as_type,
    check_pixel_type,
    check_raw_size,
    decode_mask,
    decode_stored,
    raw_size,
    reshape_raw,
)
from recordmill.transforms.functional.records.examples import decode_example, decode_sequence


@dataclass(frozen=True)
class ExampleReader:
    """Reads records of a schema."""

    schema: Schema
    names: tuple[str, ...] | None = None  # the features to return, or None for all
    decode: bool = True  # whether to decode images to pixels, and masks to class ids
    # The channels of a decoded image: 3 for RGB, 1 for gray, 0 for the stored number.
    channels: int = 3
    dtype: PixelType = "uint8"  # the type of its pixels

    def __post_init__(self) -> None:
        check_choice(self.schema, self.names, self.channels)
        check_pixel_type(self.dtype)
        if self.decodes and self.schema.encoded_image is None:
            check_raw_size(self.schema)

    def read(self, data: bytes) -> dict[str, Any]:
        """Returns the features of a serialized example.

        Raises ValueError if the example does not match the schema.
        """
        if not self.decodes and not self._decodes_mask:
            return self._features(data, self.names)
        # Raw pixels are shaped by the features with their size, even if those are not returned.
        example = self._features(data, None)
        if self.schema.sequence is None:
            self._decode(example)
        else:
            self._decode_frames(example)
        return example if self.names is None else {name: example[name] for name in self.names}

    def _features(self, data: bytes, names: tuple[str, ...] | None) -> dict[str, Any]:
        if self.schema.sequence is not None:
            return decode_sequence(data, self.schema, names)
        return decode_example(data, self.schema.features, names)

    def _decode_frames(self, example: dict[str, Any]) -> None:
        """Decodes the image and mask of each frame to lists, in place."""
        # Transposes {feature: [value of each frame]} to [{feature: value}], one dict per frame.
        lists = {name: list(example[name]) for name in self.schema.frame_features}
        frames = [
            dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)
        ]
        for frame in frames:
            self._decode(frame)
        for name in (self.schema.image_feature, self.schema.mask_feature):
            if name is not None:
                example[name] = [frame[name] for frame in frames]

    def _decode(self, example: dict[str, Any]) -> None:
        """Decodes the image and mask of an example or a frame, in place."""
        if self._decodes_mask:
            mask = self.schema.mask_feature or ""
            example[mask] = decode_mask(example[mask])
        if self.decodes:
            example[self.schema.image_feature or ""] = self._image(example)

    @property
    def decodes(self) -> bool:
        """Whether the image is decoded."""
        image = self.schema.image_feature
        return self.decode and image is not None and (self.names is None or image in self.names)

    @property
    def _decodes_mask(self) -> bool:
        mask = self.schema.mask_feature
        return self.decode and mask is not None and (self.names is None or mask in self.names)

    def _image(self, example: dict[str, Any]) -> Any:
        data = example[self.schema.image_feature or ""]
        if self.schema.encoded_image is not None:
            return decode_stored(data, self.channels, self.dtype)
        height, width = raw_size(self.schema, example)
        return as_type(reshape_raw(data, height, width, self.channels), self.dtype)


def check_choice(schema: Schema, names: Sequence[str] | None, channels: int) -> None:
    """Checks the features and the number of channels to return.

    `names` are the features to return, or None for all. Raises UsageError if a feature is unknown,
    or the number of channels not supported.
    """
    for name in names or ():
        if name not in schema.features:
            guess = did_you_mean(name, schema.features)
            raise UsageError(
                f"unknown feature {name!r}{guess}; available: {', '.join(schema.features)}"
            )
    if channels not in CHANNELS:
        expected = ", ".join(f"{number} ({what})" for number, what in CHANNELS.items())
        raise UsageError(f"channels={channels}: expected one of {expected}")
