"""What an image file is, from its header: told by content, never by its name."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from PIL import (
    ExifTags,
    Image,
    ImageFile,
    TiffImagePlugin,
    UnidentifiedImageError,
)

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.images import jpeg, png
from recordmill.transforms.functional.images.jpeg import UPRIGHT, orientation_of
from recordmill.transforms.functional.images.sniffing import (
    HEAD_BYTES,
    WorkLimitError,
    check_stated_size,
    sniff,
)

MAX_FILE_BYTES = 2**26
"""Bytes of a file that is decoded in the run's own process, where every byte is examined.

Images beyond this and the other limits are decoded in a separate process, which has a deadline and
a memory limit.
"""

MAX_WORK = 2**27
"""Decoding work in the run's own process, in pixels of a scan or units of two bytes of memory:
about a second."""

PILLOW_FORMATS = {
    "jpeg": ("JPEG",),
    "png": ("PNG",),
    "gif": ("GIF",),
    "bmp": ("BMP", "DIB"),
    "webp": ("WEBP",),
    "tiff": ("TIFF",),
    "avif": ("AVIF",),
    "jpeg2000": ("JPEG2000",),
    "pnm": ("PPM",),
    "ico": ("ICO",),
}
"""What may be decoded, and by which of Pillow's plugins: no other ever, such as Ghostscript's."""

_BITS = {"1": 1, "I": 32, "F": 32, "I;16": 16, "I;16B": 16, "I;16L": 16, "I;16N": 16}
_JPEG_MODES = {1: "L", 3: "RGB", 4: "CMYK"}
_SHOWN_BYTES = 16
_PREFIX_BYTES = 16  # as many as `Image.open` shows a plugin

PLUGIN_ERRORS = (SyntaxError, IndexError, TypeError, struct.error)
"""What a plugin of Pillow's raises for a file that is not its own, or has a damaged header."""
_PHOTOMETRIC, _YCBCR = 262, 6


class SourceImage(NamedTuple):
    """What a file's header says.

    Attributes:
        format: as sniffed; "mpo" for a JPEG that is followed by others.
        width: in pixels, before it is turned upright.
        height: in pixels.
        channels: once decoded.
        mode: Pillow's name for the kind of its pixels.
        bit_depth: of a sample.
        has_alpha: whether any pixel can be transparent.
        frames: of an animation, or pages.
        orientation: EXIF's, 1 to 8; 1 is upright.
        common: whether every reader takes the file as it is.
        work: to decode it, in pixels of a scan or in two bytes of memory; 0 if nobody knows.
        png: what the chunks of a PNG say, its EXIF left out; None for other formats.
    """

    format: str
    width: int
    height: int
    channels: int
    mode: str
    bit_depth: int
    has_alpha: bool
    frames: int
    orientation: int
    common: bool
    work: int = 0
    png: png.PngHeader | None = None


def sniffed_format(data: bytes) -> str:
    """Returns the format of a file that may be decoded.

    Raises:
        RecordError: empty_file, not_an_image or unsupported_format.
    """
    if not data:
        raise RecordError(Reason.EMPTY_FILE, "the file has no bytes")
    format_ = sniff(data[:HEAD_BYTES])
    if format_ is None:
        raise RecordError(Reason.NOT_AN_IMAGE, f"begins with {data[:_SHOWN_BYTES]!r}")
    if format_ not in PILLOW_FORMATS:
        expected = ", ".join(PILLOW_FORMATS)
        raise RecordError(Reason.UNSUPPORTED_FORMAT, f"{format_}; expected one of {expected}")
    return format_


def examine(data: bytes, bounded: bool = False) -> SourceImage:
    """Returns what the header of a file says.

    Args:
        data: the file.
        bounded: whether to stop where a JPEG or PNG has more metadata than this process has time
            for.

    Raises:
        WorkLimitError: if it has more.
        RecordError: if it says nothing, or nothing that can be.
    """
    format_ = sniffed_format(data)
    if format_ == "jpeg":
        return _jpeg(jpeg.examine(data, bounded))
    if format_ == "png":
        return _png(png.examine(data, bounded))
    check_stated_size(data, format_)
    with opened(data, format_) as image:
        return _from_pillow(image, format_)


def examine_in_process(data: bytes) -> SourceImage | None:
    """Returns what the header of a JPEG or PNG says, if that is little work; None otherwise.

    All others are for a process of their own: to open them can crash, or take for ever.

    Raises:
        RecordError: if the header is damaged.
    """
    known = data.startswith((jpeg.SIGNATURE, png.SIGNATURE))
    if not known or len(data) > MAX_FILE_BYTES:
        return None
    try:
        return examine(data, bounded=True)
    except WorkLimitError:
        return None


def open_with_pillow(data: bytes, format_: str) -> ImageFile.ImageFile | None:
    """Returns a file as `Image.open` opens it, whatever its size; None if it does not.

    Args:
        data: the file, of which TensorFlow would make something.
        format_: "jpeg" or "png".
    """
    try:
        return open_image(data, PILLOW_FORMATS[format_])
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - whatever it is, who opens the file is stopped by it
        return None


def loads(image: Image.Image) -> bool:
    """Returns whether Pillow loads an opened image, with all that its file holds after the pixels.

    Raises:
        MemoryError: if it takes too much.
    """
    try:
        image.load()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - whatever it is, who loads the file is stopped by it
        return False
    return True


@contextmanager
def opened(data: bytes, format_: str) -> Iterator[Image.Image]:
    """Gives a file as Pillow opens it, and makes whatever goes wrong with it a reject.

    Raises:
        RecordError: truncated, corrupt or unsupported_feature, or too_many_pixels for want of
            memory.
    """
    plugins = _plugins(format_)
    with reject_damage(), open_image(data, plugins) as image:
        yield image


def open_image(data: bytes, plugins: Iterable[str]) -> ImageFile.ImageFile:
    """Opens a file as `Image.open` does, except for its check for decompression bombs.

    That check goes by `Image.MAX_IMAGE_PIXELS`, which is for the program to set that this is part
    of. Here the limits are those of the settings, compared with the header's size.

    Args:
        data: the whole file.
        plugins: names of Pillow's plugins, of which the first that succeeds opens it.

    Returns:
        The image, whose pixels are not loaded yet.

    Raises:
        Exception: whatever the first of the plugins raises that takes the file.
        UnidentifiedImageError: if none takes it.
    """
    Image.preinit()
    failure: Exception | None = None
    for name in plugins:
        factory, accept = Image.OPEN[name]
        if accept is None or accept(data[:_PREFIX_BYTES]):
            try:
                return factory(io.BytesIO(data), "")
            except PLUGIN_ERRORS as error:
                failure = failure or error
    raise failure or UnidentifiedImageError("no plugin takes the file")


@contextmanager
def reject_damage() -> Iterator[None]:
    """Makes whatever Pillow raises for a file a reject.

    Raises:
        RecordError: truncated, corrupt or unsupported_feature, or too_many_pixels for want of
            memory.
    """
    try:
        yield
    except RecordError:
        raise
    except (MemoryError, Image.DecompressionBombError) as error:
        raise RecordError(Reason.TOO_MANY_PIXELS, "there is not the memory for it") from error
    except Exception as error:  # Pillow's parsers raise almost anything for a damaged file
        raise _damage(error) from error


def _plugins(format_: str) -> tuple[str, ...]:
    """Returns those of Pillow's plugins for a format that it was built with.

    Raises:
        RecordError: unsupported_feature, if there is none.
    """
    names = PILLOW_FORMATS[format_]
    Image.preinit()
    if not Image.OPEN.keys() >= set(names):
        Image.init()
    if found := tuple(name for name in names if name in Image.OPEN):
        return found
    raise RecordError(Reason.UNSUPPORTED_FEATURE, f"{format_}; this Pillow was built without it")


def _damage(error: Exception) -> RecordError:
    """Returns the reject for what Pillow said of a damaged file."""
    text = str(error)
    unknown = any(word in text.lower() for word in ("unsupported", "unknown pixel mode"))
    if isinstance(error, NotImplementedError) or unknown:
        return RecordError(Reason.UNSUPPORTED_FEATURE, _sentence(error))
    if isinstance(error, SyntaxError | UnidentifiedImageError):
        return RecordError(Reason.CORRUPT, "the header is damaged")
    cut = isinstance(error, EOFError) or any(
        word in text.lower() for word in ("truncated", "not enough image data", "unexpected end")
    )
    return RecordError(Reason.TRUNCATED if cut else Reason.CORRUPT, _sentence(error))


def _sentence(error: Exception) -> str:
    """Returns an error in words: a `KeyError` has no more to say than the key that is missing."""
    text = str(error)
    if isinstance(error, OSError | ValueError | NotImplementedError) and " " in text:
        return text
    return f"Pillow cannot decode it: {type(error).__name__}" + (f": {text}" if text else "")


def _jpeg(facts: jpeg.JpegHeader) -> SourceImage:
    if facts.end is None:
        raise RecordError(Reason.TRUNCATED, "the file ends before its end-of-image marker")
    if facts.process is None:
        raise RecordError(Reason.CORRUPT, "has no frame header")
    if facts.precision != 8 or facts.process not in jpeg.DECODABLE:
        what = f"JPEG of process SOF{facts.process} with {facts.precision} bits a sample"
        raise RecordError(Reason.UNSUPPORTED_FEATURE, what)
    if facts.components not in _JPEG_MODES:
        raise RecordError(Reason.UNSUPPORTED_FEATURE, f"JPEG of {facts.components} components")
    return SourceImage(
        format="mpo" if facts.multi_image else "jpeg",
        width=facts.width,
        height=facts.height,
        channels=min(facts.components, 3),
        mode=_JPEG_MODES[facts.components],
        bit_depth=facts.precision,
        has_alpha=False,
        frames=1,
        orientation=orientation_of(facts.exif),
        common=facts.readable_by_all,
        work=_work_of_jpeg(facts),
    )


def _work_of_jpeg(facts: jpeg.JpegHeader) -> int:
    pixels = facts.width * facts.height
    kept = 0 if facts.decoded_in_one_pass else facts.components
    return pixels * max(facts.scans, kept)


def _png(facts: png.PngHeader) -> SourceImage:
    return SourceImage(
        format="png",
        width=facts.width,
        height=facts.height,
        channels=facts.channels,
        mode=facts.mode,
        bit_depth=facts.depth,
        has_alpha=facts.has_alpha,
        frames=facts.frames,
        orientation=orientation_of(facts.exif),
        common=facts.readable_by_all,
        work=facts.work,
        png=facts._replace(exif=None),
    )


def _from_pillow(image: Image.Image, format_: str) -> SourceImage:
    width, height = _stored_size(image)
    return SourceImage(
        format=format_,
        width=width,
        height=height,
        channels=len(image.getbands()),
        mode=image.mode,
        bit_depth=_BITS.get(image.mode, 8),
        has_alpha="A" in image.getbands() or "transparency" in image.info,
        frames=_frames(image),
        orientation=_valid(image.getexif().get(ExifTags.Base.Orientation)),
        common=False,
    )


def _stored_size(image: Image.Image) -> tuple[int, int]:
    """Returns width and height as the file has them; Pillow swaps those of a turned TIFF.

    Raises:
        RecordError: unsupported_feature, if Pillow would read what is not there.
    """
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return image.size
    if image.tag_v2.get(_PHOTOMETRIC) == _YCBCR and image.info.get("compression") == "raw":
        raise RecordError(Reason.UNSUPPORTED_FEATURE, "TIFF of YCbCr that is not compressed")
    turned = image.tag_v2.get(ExifTags.Base.Orientation) in (5, 6, 7, 8)
    return (image.height, image.width) if turned else image.size


def _frames(image: Image.Image) -> int:
    """Returns how many frames or pages there are; 1 if those beyond the first are damaged."""
    try:
        return getattr(image, "n_frames", 1)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - Pillow's parsers raise almost anything; the first is whole
        return 1


def _valid(orientation: object) -> int:
    return orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else UPRIGHT
