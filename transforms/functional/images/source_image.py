"""Reads the header of an image file, whose format is identified by its content, not by its name."""

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
from recordmill.transforms.functional.images import deep, jpeg, png
from recordmill.transforms.functional.images.jpeg import UPRIGHT, orientation_of
from recordmill.transforms.functional.images.sniffing import (
    FOREIGN,
    HEAD_BYTES,
    Foreign,
    WorkLimitError,
    check_stated_size,
    foreign,
    sniff,
)

# Size limit of a file for decoding in the worker process.
# Images over any of these limits are decoded in a separate process with a deadline and a memory
# limit.
MAX_FILE_BYTES = 2**26

# Limit of decoding work in the worker process, about a second: the unit is a pixel of a scan, or
# two bytes of memory.
MAX_WORK = 2**27

# The Pillow plugins for each supported format. Others are unsafe: EPS, for example, starts
# Ghostscript.
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

_BITS = {"1": 1, "I;16": 16, "I;16B": 16, "I;16L": 16, "I;16N": 16}
_JPEG_MODES = {1: "L", 3: "RGB", 4: "CMYK"}
_SHOWN_BYTES = 16
_PREFIX_BYTES = 16  # the number that `Image.open` passes to a plugin

# Errors that Pillow's plugins raise for files of other formats or with damaged headers.
PLUGIN_ERRORS = (SyntaxError, IndexError, TypeError, struct.error)
_PHOTOMETRIC, _YCBCR = 262, 6  # TIFF 6.0: PhotometricInterpretation
_NEW_SUBFILE_TYPE, _SUB_IFDS, _DNG_VERSION = 254, 330, 50706  # TIFF 6.0, TIFF/EP and DNG 1.7


class SourceImage(NamedTuple):
    """The header of an image file."""

    format: str  # the format of the content; "mpo" for a JPEG followed by further images
    width: int  # the width in pixels, before the orientation is applied
    height: int  # the height in pixels, before the orientation is applied
    channels: int
    mode: str
    bit_depth: int
    has_alpha: bool  # whether any pixel can be transparent
    frames: int  # the number of animation frames or pages
    orientation: int  # the EXIF orientation, from 1 to 8; 1 is upright
    common: bool  # whether all readers decode the file without changes to it
    work: int = 0  # the decoding work, in the units of `MAX_WORK`; 0 if unknown
    # The header of a PNG, without its EXIF; None for other formats.
    png: png.PngHeader | None = None
    # The type of samples that are signed, wider than 16 bits or floats, as in "signed 16-bit"; ""
    # for others.
    samples: str = ""

    @property
    def family(self) -> str:
        """The key of PILLOW_FORMATS for the first image of the file."""
        return "jpeg" if self.format == "mpo" else self.format


def sniffed_format(data: bytes) -> str:
    """Returns the format of a file after checking that it is supported.

    Raises RecordError (empty_file), not_an_image or unsupported_format.
    """
    if not data:
        raise RecordError(Reason.EMPTY_FILE, "the file is empty")
    head = data[:HEAD_BYTES]
    format_ = sniff(head)
    if format_ in PILLOW_FORMATS:
        return format_
    if kind := foreign(head):
        raise _unsupported(kind)
    raise RecordError(Reason.NOT_AN_IMAGE, f"begins with {data[:_SHOWN_BYTES]!r}")


def _unsupported(kind: Foreign) -> RecordError:
    reason = Reason.UNSUPPORTED_FORMAT if kind.is_image else Reason.NOT_AN_IMAGE
    expected = ", ".join(PILLOW_FORMATS)
    return RecordError(reason, f"{kind.name}; expected one of {expected}. {kind.remedy}")


def examine(data: bytes, bounded: bool = False) -> SourceImage:
    """Reads the header of an image file.

    `bounded`: whether to enforce the limits on the metadata of JPEG and PNG. Raises WorkLimitError
    if a limit is exceeded. Raises RecordError if the file is not an image, is not supported, or has
    a damaged header.
    """
    format_ = sniffed_format(data)
    if format_ == "jpeg":
        return _jpeg(jpeg.examine(data, bounded))
    if format_ == "png":
        return _png(png.examine(data, bounded))
    check_stated_size(data, format_)
    try:
        with opened(data, format_) as image:
            return _from_pillow(image, format_, data)
    except RecordError as error:
        if format_ == "tiff" and "unknown pixel mode" in error.detail:
            raise RecordError(Reason.UNSUPPORTED_FEATURE, deep.tiff_layout(data)) from error
        raise


def examine_in_process(data: bytes) -> SourceImage | None:
    """Reads the header of a JPEG or PNG within the limits; returns None for all other files.

    Other files are opened only in a separate process, since opening them can crash or hang. Raises
    RecordError if the header is damaged.
    """
    known = data.startswith((jpeg.SIGNATURE, png.SIGNATURE))
    if not known or len(data) > MAX_FILE_BYTES:
        return None
    try:
        return examine(data, bounded=True)
    except WorkLimitError:
        return None


def open_with_pillow(data: bytes, format_: str) -> ImageFile.ImageFile | None:
    """Opens a file like `Image.open`, but without its size check; returns None if that fails.

    `format_`: "jpeg" or "png".
    """
    try:
        return open_image(data, PILLOW_FORMATS[format_])
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - with any exception, readers cannot open the file
        return None


def can_load(image: Image.Image) -> bool:
    """Returns whether Pillow can load an opened image and the chunks after its pixels.

    Raises MemoryError if there is not enough memory.
    """
    try:
        image.load()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - with any exception, readers cannot load the file
        return False
    return True


@contextmanager
def opened(data: bytes, format_: str) -> Iterator[ImageFile.ImageFile]:
    """Opens a file with Pillow, and converts errors of Pillow to rejects, also in the `with` block.

    Raises RecordError (truncated), corrupt or unsupported_feature; too_many_pixels if there is not
    enough memory.
    """
    plugins = _plugins(format_)
    with reject_damage(), open_image(data, plugins) as image:
        yield image


def open_image(data: bytes, plugins: Iterable[str]) -> ImageFile.ImageFile:
    """Opens a file like `Image.open`, but without its check for decompression bombs.

    That check uses the global `Image.MAX_IMAGE_PIXELS`, which belongs to the host program. Instead,
    callers compare the size in the header to the limits of their settings. Returns the image, whose
    pixels are not loaded yet. `plugins` are the names of Pillow's plugins, to be tried in order.
    Raises Exception: the error of the first plugin that accepts the file and fails to open it.
    Raises UnidentifiedImageError if no plugin accepts the file.
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
    raise failure or UnidentifiedImageError("no plugin accepts the file")


@contextmanager
def reject_damage() -> Iterator[None]:
    """Converts errors of Pillow in the `with` block to rejects.

    Raises RecordError (truncated), corrupt or unsupported_feature; too_many_pixels if there is not
    enough memory.
    """
    try:
        yield
    except RecordError:
        raise
    except (MemoryError, Image.DecompressionBombError) as error:
        raise RecordError(Reason.TOO_MANY_PIXELS, "not enough memory to decode it") from error
    except Exception as error:  # Pillow's parsers raise almost anything for a damaged file
        raise _damage(error) from error


def _plugins(format_: str) -> tuple[str, ...]:
    """Returns the plugins for a format that this build of Pillow includes.

    Raises RecordError (unsupported_feature) if it includes none.
    """
    names = PILLOW_FORMATS[format_]
    Image.preinit()
    # preinit() imports only five common plugins; init() imports all, which takes much longer.
    if not Image.OPEN.keys() >= set(names):
        Image.init()
    if found := tuple(name for name in names if name in Image.OPEN):
        return found
    raise RecordError(
        Reason.UNSUPPORTED_FEATURE, f"{format_} is not supported by this build of Pillow"
    )


def _damage(error: Exception) -> RecordError:
    """Converts an error of Pillow to the reason for a reject."""
    text = str(error)
    # Pillow has no error classes for damage: its plugins raise OSError, ValueError and others, and
    # only their messages state the reason.
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
    """Returns the message of an error, with its class if the message alone is not a sentence."""
    text = str(error)
    if isinstance(error, OSError | ValueError | NotImplementedError) and " " in text:
        return text
    return f"Pillow cannot decode it: {type(error).__name__}" + (f": {text}" if text else "")


def _jpeg(header: jpeg.JpegHeader) -> SourceImage:
    if header.end is None:
        raise RecordError(Reason.TRUNCATED, "the file ends before its end-of-image marker")
    if header.process is None:
        raise RecordError(Reason.CORRUPT, "has no frame header")
    if header.precision != 8 or header.process not in jpeg.DECODABLE:
        what = (
            f"JPEG with coding process SOF{header.process} with {header.precision} bits per sample"
        )
        raise RecordError(Reason.UNSUPPORTED_FEATURE, what)
    if header.components not in _JPEG_MODES:
        raise RecordError(Reason.UNSUPPORTED_FEATURE, f"JPEG with {header.components} components")
    return SourceImage(
        format="mpo" if header.multi_image else "jpeg",
        width=header.width,
        height=header.height,
        channels=min(header.components, 3),
        mode=_JPEG_MODES[header.components],
        bit_depth=header.precision,
        has_alpha=False,
        frames=1,
        orientation=orientation_of(header.exif),
        common=header.readable_by_all,
        work=_work_of_jpeg(header),
    )


def _work_of_jpeg(header: jpeg.JpegHeader) -> int:
    # The decoder of an image with several scans visits each pixel in each scan, and keeps the
    # coefficients of all components, of 2 bytes each, in memory between scans.
    pixels = header.width * header.height
    kept = 0 if header.decoded_in_one_pass else header.components
    return pixels * max(header.scans, kept)


def _png(header: png.PngHeader) -> SourceImage:
    return SourceImage(
        format="png",
        width=header.width,
        height=header.height,
        channels=header.channels,
        mode=header.mode,
        bit_depth=header.depth,
        has_alpha=header.has_alpha,
        frames=header.frames,
        orientation=orientation_of(header.exif),
        common=header.readable_by_all,
        work=header.work,
        png=header._replace(exif=None) if header.exif else header,
    )


def _from_pillow(image: Image.Image, format_: str, data: bytes) -> SourceImage:
    width, height = _stored_size(image)
    samples = deep.sample_type(image, data)
    if samples and format_ == "jpeg2000":  # Pillow shifts the values
        detail = f"JPEG 2000 with {samples} samples; expected unsigned samples"
        raise RecordError(Reason.UNSUPPORTED_FEATURE, detail)
    return SourceImage(
        format=format_,
        width=width,
        height=height,
        channels=len(image.getbands()),
        mode=image.mode,
        bit_depth=_BITS.get(image.mode) or deep.sample_bits(image, data),
        has_alpha="A" in image.getbands() or "transparency" in image.info,
        frames=_frames(image),
        orientation=_valid(image.getexif().get(ExifTags.Base.Orientation)),
        # Other formats are always re-encoded: TensorFlow fails on some files of each of them.
        common=False,
        samples=samples,
    )


def _stored_size(image: Image.Image) -> tuple[int, int]:
    """Returns the stored width and height, which Pillow swaps for a rotated TIFF.

    Raises RecordError (unsupported_feature) for a TIFF that Pillow would decode to wrong colors.
    """
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return image.size
    tags = image.tag_v2
    # The first image of a DNG, NEF or ARW is a thumbnail of the raw data in a SubIFD.
    is_thumbnail = tags.get(_NEW_SUBFILE_TYPE, 0) & 1 and _SUB_IFDS in tags
    if is_thumbnail or _DNG_VERSION in tags:
        raise _unsupported(FOREIGN["raw"])
    if tags.get(_PHOTOMETRIC) == _YCBCR and image.info.get("compression") == "raw":
        raise RecordError(Reason.UNSUPPORTED_FEATURE, "uncompressed YCbCr TIFF")
    # Pillow swaps the size of a TIFF when it opens the file, and rotates its pixels when it loads
    # them.
    turned = tags.get(ExifTags.Base.Orientation) in (5, 6, 7, 8)
    return (image.height, image.width) if turned else image.size


def _frames(image: Image.Image) -> int:
    """Returns the number of frames or pages; 1 if those after the first are damaged."""
    try:
        return getattr(image, "n_frames", 1)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - Pillow's parsers raise almost anything; the first frame is intact
        return 1


def _valid(orientation: object) -> int:
    """Returns an orientation if it is valid, or else upright."""
    return orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else UPRIGHT
