"""Decodes images in a `tf.data` graph to uint8 or uint16 tensors, (height, width, channels)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import tensorflow as tf

from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import Schema
from recordmill.transforms.functional.images.sniffing import PNG_SIGNATURE
from recordmill.transforms.functional.records import example_reader

_OTHER_SIZE = (
    "images of different sizes cannot be batched: resize them with load(…, image_size=(height, "
    "width)), or read them one by one with batch_size=None"
)


# The ratios at which libjpeg decodes a JPEG from a part of its coefficients.
_JPEG_RATIOS = (2, 4, 8)

# Pixels that a reduced JPEG keeps per pixel of the resized image, along each side. With 1, the
# pixels of photographs differ from those of the whole image by 2.0 levels on average, with 2 by 1.1
# (Pillow's `reducing_gap` calls 2 close to, 3 indistinguishable from the resize of the whole).
_KEPT_PIXELS = 2

# How an image of another shape fills a size: distorted, cropped, or with black bars.
Fill = Literal["stretch", "crop", "pad"]


@dataclass(frozen=True)
class TensorResize:
    """How images are resized."""

    size: tuple[int, int]  # (height, width) in pixels
    # "stretch" distorts images of another shape, "crop" cuts off their sides, "pad" adds black
    # bars, which are class 0 in masks.
    fill: Fill = "stretch"
    # Whether each pixel is the mean of all that it covers. Of a JPEG that is much larger, libjpeg
    # takes a part of the mean.
    antialias: bool = True

    @classmethod
    def of(
        cls, image_size: int | tuple[int, int] | None, fill: Fill, antialias: bool
    ) -> TensorResize | None:
        """Returns the resize for the keywords of `load`; None for no resizing."""
        if fill not in get_args(Fill):
            raise UsageError(f"resize={fill!r}: expected one of {', '.join(get_args(Fill))}")
        if image_size is None:
            if fill != "stretch":
                raise UsageError(f"resize={fill!r}: needs a size. Add image_size=(height, width).")
            return None
        return cls(_checked(image_size), fill, antialias)

    @property
    def keeps_positions(self) -> bool:
        """Whether a position, as a fraction of the image, stays where it is."""
        return self.fill == "stretch"

    def image(self, image: tf.Tensor) -> tf.Tensor:
        """Returns a resized image: bilinear, rounded."""
        resized = tf.image.resize(self._shaped(image), self.size, antialias=self.antialias)
        return tf.saturate_cast(tf.round(resized), image.dtype)

    def mask(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns a resized mask; interpolation would invent class ids."""
        nearest = tf.image.ResizeMethod.NEAREST_NEIGHBOR
        return tf.image.resize(self._shaped(ids), self.size, nearest)

    def _shaped(self, image: tf.Tensor) -> tf.Tensor:
        """Returns the image in the shape of the size, by the formulas of Keras."""
        if self.fill == "stretch":
            return image
        height, width = tf.unstack(tf.shape(image)[:2])
        of_width = width * self.size[0] // self.size[1]  # the height that fits the width
        of_height = height * self.size[1] // self.size[0]
        if self.fill == "crop":
            rows = tf.maximum(1, tf.minimum(height, of_width))
            columns = tf.maximum(1, tf.minimum(width, of_height))
            top, left = (height - rows) // 2, (width - columns) // 2
            return image[top : top + rows, left : left + columns]
        bars = (tf.maximum(height, of_width) - height) // 2
        sides = (tf.maximum(width, of_height) - width) // 2
        return tf.pad(image, [[bars, bars], [sides, sides], [0, 0]])


@dataclass(frozen=True)
class ImageDecoder:
    """Decodes the images of a schema."""

    schema: Schema
    channels: int  # 3 for RGB, 1 for gray, 0 for the stored number
    resize: TensorResize | None  # how images are resized; None for no resizing
    # (height, width) in pixels of all images; None if it is not known.
    common: tuple[int, int] | None
    image: str = ""  # the feature that stores the images
    dtype: example_reader.PixelType = "uint8"  # the type of the pixels
    checked: bool = False  # whether each image is checked at run time to have the common size

    @classmethod
    def of(
        cls,
        schema: Schema,
        channels: int,
        resize: TensorResize | None,
        dtype: example_reader.PixelType = "uint8",
        image: str | None = None,
    ) -> ImageDecoder:
        """Returns the decoder of the images in a feature, of the first image by default."""
        image = image or schema.image_feature or ""
        if schema.encoded_image is None and image == schema.image_feature:
            example_reader.check_raw_size(schema)
        if image and schema.is_deep(image):
            channels, dtype = 1, "uint16"
        name = schema.stored_images.get(image, "")
        common = resize.size if resize else example_reader.common_size(schema.image_settings[name])
        return cls(schema, channels, resize, common, image, dtype)

    def of_one_size(self, records: tf.data.Dataset, parse: Any) -> ImageDecoder:
        """Returns a decoder for batches, which requires each image to have the size of the first.

        `records`: serialized examples; only the first is decoded.
        """
        # A batch needs one size. If the schema does not state one, it is that of the first image.
        for example in records.take(1 if self.common is None else 0).map(parse):
            height, width, _ = self.decode(example).shape
            return replace(self, common=(height, width), checked=True)
        return self

    def decode(self, example: dict[str, Any]) -> tf.Tensor:
        """Returns the image of a parsed example."""
        data = example[self.image]
        is_raw = self.image not in self.schema.encoded_images
        image = self._raw(data, example) if is_raw else self._coded(data)
        if self.resize is not None:
            # Between an object and what is behind it, there is no depth.
            resize = self.resize.mask if self.schema.is_deep(self.image) else self.resize.image
            image = resize(image)
        if self.checked:
            # None in eager mode; in a graph, an op that runs only if something depends on it.
            same = tf.debugging.assert_equal(tf.shape(image)[:2], self.common, _OTHER_SIZE)
            with tf.control_dependencies([same] if same is not None else []):
                image = tf.identity(image)
        return tf.ensure_shape(image, [*(self.common or (None, None)), self.channels or None])

    def decode_mask(self, data: tf.Tensor) -> tf.Tensor:
        """Returns the class ids of each pixel: uint8 or uint16, (height, width, 1)."""
        dtype = tf.uint8 if self.schema.masks.bit_depth == 8 else tf.uint16
        ids = tf.io.decode_png(data, dtype=dtype)
        if self.resize is not None:
            ids = self.resize.mask(ids)
        return tf.ensure_shape(ids, [*(self.common or (None, None)), 1])

    def _coded(self, data: tf.Tensor) -> tf.Tensor:
        if self.dtype == "uint8":
            return self._of_8_bits(data)
        # TensorFlow multiplies 8-bit samples of PNG by 257, but those of JPEG by 256.
        start = [tf.strings.substr(data, 0, 8), tf.strings.substr(data, 24, 1)]
        return tf.cond(
            tf.reduce_all(tf.equal(start, [PNG_SIGNATURE, b"\x10"])),
            lambda: tf.io.decode_png(data, channels=self.channels, dtype=tf.uint16),
            lambda: _widened(self._of_8_bits(data)),
        )

    def _of_8_bits(self, data: tf.Tensor) -> tf.Tensor:
        def whole() -> tf.Tensor:
            return tf.io.decode_image(data, channels=self.channels, expand_animations=False)

        if self.resize is None or not self.resize.antialias:
            return whole()
        size = self.resize.size

        def reduced() -> tf.Tensor:
            """Lets libjpeg leave out the detail that the resize would average away."""
            most = tf.reduce_min(tf.io.extract_jpeg_shape(data)[:2] // size) // _KEPT_PIXELS
            of_ratio = [partial(tf.io.decode_jpeg, data, self.channels, r) for r in _JPEG_RATIOS]
            chosen = tf.reduce_sum(tf.cast(most >= _JPEG_RATIOS, tf.int32))
            return tf.switch_case(chosen, [whole, *of_ratio])

        return tf.cond(tf.io.is_jpeg(data), reduced, whole)

    def _raw(self, data: tf.Tensor, example: dict[str, Any]) -> tf.Tensor:
        pixels = self._raw_of_8_bits(data, example)
        return pixels if self.dtype == "uint8" else _widened(pixels)

    def _raw_of_8_bits(self, data: tf.Tensor, example: dict[str, Any]) -> tf.Tensor:
        height, width = example_reader.raw_size(self.schema, example)
        pixels = tf.reshape(tf.io.decode_raw(data, tf.uint8), tf.stack([height, width, -1]))
        if self.channels == 0:
            return pixels
        stored = tf.shape(pixels)[2]
        # A graph needs both branches: the number of stored channels is known only at run time.
        rgb = tf.cond(
            stored < 3, lambda: tf.repeat(pixels[:, :, :1], 3, 2), lambda: pixels[:, :, :3]
        )
        if self.channels == 3:
            return rgb
        return tf.cond(stored < 3, lambda: pixels[:, :, :1], lambda: tf.image.rgb_to_grayscale(rgb))


_OTHER_SIZE_IN_SEQUENCE = (
    "the images of one sequence have different sizes: resize them with load(…, image_size="
    "(height, width)), or read them as stored with decode=False"
)


@dataclass(frozen=True)
class FrameDecoder(ImageDecoder):
    """Decodes the images of a sequence: (frames, height, width, channels)."""

    def decode(self, example: dict[str, Any]) -> tf.Tensor:
        """Returns the images of a parsed sequence."""
        names = {self.image, *self.schema.image_attributes}
        stored = {name: example[name] for name in names}
        return self._mapped(super().decode, stored, self.channels or None, tf.as_dtype(self.dtype))

    def decode_mask(self, data: tf.Tensor) -> tf.Tensor:
        """Returns the class ids of each pixel of each frame: (frames, height, width, 1)."""
        dtype = tf.uint8 if self.schema.masks.bit_depth == 8 else tf.uint16
        return self._mapped(super().decode_mask, data, 1, dtype)

    def _mapped(self, decode: Any, stored: Any, channels: int | None, dtype: Any) -> tf.Tensor:
        size = self.common or (None, None)
        # map_fn stacks its results, so all frames must have the shape of the first.
        first = tf.shape(decode(tf.nest.map_structure(lambda values: values[0], stored)))

        def one(values: Any) -> tf.Tensor:
            image = decode(values)
            same = tf.debugging.assert_equal(tf.shape(image), first, _OTHER_SIZE_IN_SEQUENCE)
            with tf.control_dependencies([same] if same is not None else []):
                return tf.identity(image)

        return tf.map_fn(one, stored, fn_output_signature=tf.TensorSpec([*size, channels], dtype))


def _widened(pixels: tf.Tensor) -> tf.Tensor:
    return tf.cast(pixels, tf.uint16) * 257  # from 255 to 65535


def _checked(image_size: int | tuple[int, int]) -> tuple[int, int]:
    size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
    if len(size) != 2 or not all(isinstance(side, int) and side > 0 for side in size):
        raise UsageError(f"image_size={image_size!r}: expected (height, width), or one number")
    return size[0], size[1]
