"""Decodes records to the features of their schema, with images as pixels, like TensorFlow."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from PIL import Image

from recordmill.schemas.errors import UsageError, did_you_mean
from recordmill.schemas.features import Schema
from recordmill.schemas.origins import ImageAttribute
from recordmill.schemas.settings import ImageSettings
from recordmill.transforms.functional.images import codecs
from recordmill.transforms.functional.images.pixels import read_samples, reduced
from recordmill.transforms.functional.images.sniffing import SIXTEEN_BITS, is_16_bit
from recordmill.transforms.functional.records.examples import decode_example, decode_sequence

# The type of decoded samples.
PixelType = Literal["uint8", "uint16"]

CHANNELS = {0: "as stored", 1: "gray", 3: "RGB"}
_COLOR_TYPE, _GRAY_WITH_ALPHA = 25, 4  # offset of the color type in a PNG, and its value
_TO_16 = 257  # from 255 to 65535
_LUMA = np.array([0.299, 0.587, 0.114])  # of PNG decoders
_MODES = {1: "L", 3: "RGB"}


def check_pixel_type(dtype: str) -> None:
    """Raises UsageError if a type of decoded samples is not supported."""
    if dtype not in get_args(PixelType):
        raise UsageError(f"dtype={dtype!r}: expected one of {', '.join(get_args(PixelType))}")


def warn_of_lost_bits(
    images: Mapping[str, int], dtype: PixelType, reader: str, stacklevel: int = 3
) -> None:
    """Warns once per reader if images of 16 bits, by the counts of a manifest, are read as 8."""
    if dtype == "uint8" and (count := images.get(SIXTEEN_BITS, 0)):
        what = "1 image has" if count == 1 else f"{count:,} images have"
        warnings.warn(
            f"{what} 16 bits per sample, of which uint8 returns the high byte. Read them with "
            f'{reader}(…, dtype="uint16"), or pass decode=False for the stored bytes.',
            stacklevel=stacklevel,
        )


def _decode_stored(data: bytes, channels: int = 3, dtype: PixelType = "uint8") -> np.ndarray:
    """Decodes a JPEG or PNG to pixels: (height, width, channels); raises ValueError for damage.

    Like `tf.io.decode_image`, it ignores color profiles and drops alpha without blending. As uint8,
    16-bit samples are reduced to their high byte; as uint16, 8-bit samples are multiplied by 257.
    """
    try:
        if dtype == "uint16" and is_16_bit(data):
            return _decode_deep(data, channels)
        with codecs.open_image(data, ("JPEG", "PNG")) as image:
            pixels = np.array(_in_channels(image, data, channels))  # a copy, which is writable
    except (OSError, *codecs.PLUGIN_ERRORS) as error:
        raise ValueError(f"the image cannot be decoded: {error}") from error
    return _as_type(pixels if pixels.ndim == 3 else pixels[:, :, None], dtype)


def _as_type(pixels: np.ndarray, dtype: PixelType) -> np.ndarray:
    """Returns pixels of 8 bits in a type, in which white is the largest value."""
    return np.multiply(pixels, _TO_16, dtype=np.uint16) if dtype == "uint16" else pixels


def _decode_deep(data: bytes, channels: int) -> np.ndarray:
    with codecs.open_image(data, ("PNG",)) as image, codecs.open_image(data, ("PNG",)) as reopened:
        return _select_channels(read_samples(image, reopened).astype(np.uint16), channels)


def _select_channels(samples: np.ndarray, channels: int) -> np.ndarray:
    """Returns samples of (height, width, channels) as gray or RGB, or as they are for 0."""
    stored = samples.shape[2]
    if channels in (0, stored):
        return samples
    colors = samples[:, :, : 3 if stored > 2 else 1]
    if channels == 3:
        return colors if stored == 4 else colors.repeat(3, axis=2)
    if stored == 2:
        return colors
    if samples.dtype == np.uint16:
        return np.asarray(np.rint(colors @ _LUMA), np.uint16)[:, :, None]
    return np.array(Image.fromarray(np.ascontiguousarray(colors)).convert("L"))[:, :, None]


def decode_reduced(data: bytes, source: codecs.SourceImage, side: int) -> Image.Image:
    """Decodes a JPEG or PNG to RGB, averaged over blocks to a longest side of at least `side`."""
    with codecs.opened(data, source.family) as image:
        source.load_reduced(image, side)
        return reduced(_in_channels(image, data, 3), side)


def _decode_mask(data: bytes) -> np.ndarray:
    """Decodes a mask to uint8 or uint16 ids, (height, width, 1); ValueError for damage."""
    try:
        with codecs.open_image(data, ("PNG",)) as image:
            return np.array(image)[:, :, None]
    except (OSError, *codecs.PLUGIN_ERRORS) as error:
        raise ValueError(f"the mask cannot be decoded: {error}") from error


def reshape_raw(data: bytes, height: int, width: int, channels: int = 3) -> np.ndarray:
    """Converts raw samples to uint8 (height, width, channels); ValueError for another size."""
    stored, rest = divmod(len(data), height * width)
    if rest or stored not in (1, 2, 3, 4):
        raise ValueError(f"{len(data)} bytes are not an image of {width} x {height} pixels")
    # The number of stored channels follows from the size: 2 and 4 include alpha.
    pixels = np.array(np.frombuffer(data, np.uint8)).reshape(height, width, stored)
    return _select_channels(pixels, channels)


def _in_channels(image: Image.Image, data: bytes, channels: int) -> Image.Image:
    decoded = _of_8_bits(image)
    # Pillow opens 16-bit gray with alpha as RGBA; TensorFlow decodes it to two channels.
    if image.format == "PNG" and data[_COLOR_TYPE] == _GRAY_WITH_ALPHA:
        decoded = decoded.convert("LA")
    if channels == 0 or decoded.mode == _MODES[channels]:
        return decoded
    return decoded.convert(_MODES[channels])


def _of_8_bits(image: Image.Image) -> Image.Image:
    if image.mode in ("1", "P", "PA"):
        has_alpha = image.mode == "PA" or "transparency" in image.info
        return image.convert("L" if image.mode == "1" else "RGBA" if has_alpha else "RGB")
    if image.mode.startswith("I"):
        # The high byte, like png_set_strip_16 in TensorFlow's decoder. `transcode` rounds instead.
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image


def common_size(settings: ImageSettings) -> tuple[int, int] | None:
    """Returns the height and width of all images, or None if the settings do not fix them."""
    resize = settings.resize
    if resize is None or resize.mode == "fit":
        return None
    return resize.height, resize.width


def _attribute_features(schema: Schema) -> dict[ImageAttribute, str]:
    return {attribute: name for name, attribute in schema.image_attributes.items()}


def raw_size(schema: Schema, example: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns the height and width of a raw image; UsageError if no feature or setting has them."""
    check_raw_size(schema)
    names = _attribute_features(schema)
    if ImageAttribute.HEIGHT in names and ImageAttribute.WIDTH in names:
        return example[names[ImageAttribute.HEIGHT]], example[names[ImageAttribute.WIDTH]]
    return common_size(schema.image) or (0, 0)


def check_raw_size(schema: Schema) -> None:
    """Raises UsageError if the size of raw images is neither stored with them nor fixed."""
    sized = {ImageAttribute.HEIGHT, ImageAttribute.WIDTH} <= _attribute_features(schema).keys()
    if not sized and common_size(schema.image) is None:
        raise UsageError(
            f"schema {schema.name!r}: expected features from image:height and image:width, or a "
            "fixed size, to shape raw pixels. Read with decode=False, or convert again with these "
            "features."
        )


@dataclass(frozen=True)
class ExampleReader:
    """Reads records of a schema."""

    schema: Schema
    names: tuple[str, ...] | None = None  # the features to return, or None for all
    decode: bool = True  # whether to decode images to pixels, and masks to class ids
    # The channels of a decoded image: 3 for RGB, 1 for gray, 0 for the stored number.
    channels: int = 3
    dtype: PixelType = "uint8"  # the type of its pixels; gray of `bit_depth: 16` is always uint16

    def __post_init__(self) -> None:
        check_choice(self.schema, self.names, self.channels)
        check_pixel_type(self.dtype)
        if self.decodes and self.schema.encoded_image is None:
            check_raw_size(self.schema)

    def read(self, data: bytes) -> dict[str, Any]:
        """Returns the features of a serialized example; raises ValueError for another schema."""
        if not self._decoded_features:
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
        # Transposes {feature: [value of each frame]} to [{feature: value}], one dict per frame.
        lists = {name: list(example[name]) for name in self.schema.frame_features}
        frames = [
            dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)
        ]
        for frame in frames:
            self._decode(frame)
        for name in self._decoded_features:
            example[name] = [frame[name] for frame in frames]

    def _decode(self, example: dict[str, Any]) -> None:
        for name in self._decoded_features:
            example[name] = self._image(example, name)

    @property
    def decodes(self) -> bool:
        """Whether the first image is decoded."""
        return self.schema.image_feature in self._decoded_features

    @property
    def _decoded_features(self) -> list[str]:
        stored = (*self.schema.stored_images, self.schema.mask_feature) if self.decode else ()
        return [name for name in stored if name and (self.names is None or name in self.names)]

    def _image(self, example: dict[str, Any], name: str) -> Any:
        data = example[name]
        if name == self.schema.mask_feature:
            return _decode_mask(data)
        if self.schema.is_deep(name):
            return _decode_stored(data, 1, "uint16")
        if name in self.schema.encoded_images:
            return _decode_stored(data, self.channels, self.dtype)
        height, width = raw_size(self.schema, example)
        return _as_type(reshape_raw(data, height, width, self.channels), self.dtype)


def check_choice(schema: Schema, names: Sequence[str] | None, channels: int) -> None:
    """Raises UsageError if a feature to return is unknown, or the channels are not supported."""
    for name in names or ():
        if name not in schema.features:
            guess = did_you_mean(name, schema.features)
            raise UsageError(
                f"unknown feature {name!r}{guess}; available: {', '.join(schema.features)}"
            )
    if channels not in CHANNELS:
        expected = ", ".join(f"{number} ({what})" for number, what in CHANNELS.items())
        raise UsageError(f"channels={channels}: expected one of {expected}")
