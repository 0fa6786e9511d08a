"""The formats of image files: how the header is read, and how a file is checked that is kept.

`examine` identifies the format by the content, not by the name, and returns a `Jpeg` or a `Png`,
which can be stored as they are, or a `SourceImage` of another format, which is always encoded
again: TensorFlow fails on some files of each of them.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import TypeVar

from PIL import ExifTags, Image, ImageFile, PpmImagePlugin, TiffImagePlugin, UnidentifiedImageError

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import Decode
from recordmill.transforms.functional.images import jpeg, pixels, png, sniffing
from recordmill.transforms.functional.images.jpeg import UPRIGHT, orientation_of

T = TypeVar("T")

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
_DRAFT_SCALES = (8, 4, 2)  # libjpeg's DCT also decodes at 1/8, 1/4 and 1/2
_SHOWN_BYTES = 16
_PREFIX_BYTES = 16  # the number that `Image.open` passes to a plugin

# Limit for measuring a PNG, whose check does not need all rows in memory: 100 MB in RGB.
_MAX_MEASURED_PIXELS = 2**25

# Limit for decoding a PNG in one piece: about 1 MB in RGB and alpha.
_MAX_PLAIN_PIXELS = 2**18

# Errors that Pillow's plugins raise for files of other formats or with damaged headers.
PLUGIN_ERRORS = (SyntaxError, IndexError, TypeError, struct.error)
_PHOTOMETRIC, _YCBCR = 262, 6  # TIFF 6.0: PhotometricInterpretation
_NEW_SUBFILE_TYPE, _SUB_IFDS, _DNG_VERSION = 254, 330, 50706  # TIFF 6.0, TIFF/EP and DNG 1.7
_BITS_PER_SAMPLE = 258  # TIFF 6.0
_KINDS = {1: "unsigned", 2: "signed", 3: "float"}  # TIFF 6.0, section 19: SampleFormat
_CODESTREAM = b"\xff\x4f\xff\x51"  # JPEG 2000: markers of the start and the size
_COMPONENTS = struct.Struct(">HB")  # number of components, sign and depth of the first


@dataclass(frozen=True, kw_only=True)
class SourceImage:
    """The header of an image file."""

    format: str  # the format of the content; "mpo" for a JPEG followed by further images
    width: int  # the width in pixels, before the orientation is applied
    height: int  # the height in pixels, before the orientation is applied
    channels: int
    mode: str
    bit_depth: int
    has_alpha: bool = False  # whether any pixel can be transparent
    frames: int = 1  # the number of animation frames or pages
    orientation: int = UPRIGHT  # the EXIF orientation, from 1 to 8
    common: bool = False  # whether all readers decode the file without changes to it
    work: int = 0  # the decoding work, in the units of `MAX_WORK`; 0 if unknown
    # The type of samples that are signed, wider than 16 bits or floats, as in "signed 16-bit"; ""
    # for others.
    samples: str = ""

    @property
    def family(self) -> str:
        """The key of PILLOW_FORMATS for the first image of the file."""
        return self.format

    @property
    def size(self) -> tuple[int, int]:
        """The width and height in pixels, before the orientation is applied."""
        return self.width, self.height

    def keep(self, data: bytes, strip: bool, decode: Decode) -> tuple[bytes, bytes] | None:
        """Checks a file that is stored as it is, or without its metadata.

        Returns its bytes and its thumbnail, which is b"" if the pixels were not decoded; None if
        some reader cannot open it.
        """
        raise NotImplementedError

    def pixel_data(self, data: bytes) -> bytes:
        """Returns a file without damaged metadata, on which Pillow may fail."""
        return data

    def load_reduced(self, image: Image.Image, _: int) -> None:
        """Loads an opened image, possibly reduced to a longest side of at least some pixels."""
        image.load()

    def _opened_by_readers(self, data: bytes) -> ImageFile.ImageFile | None:
        """Opens a file like `Image.open`; returns None if that fails."""
        image = _attempt(partial(open_image, data, PILLOW_FORMATS[self.family]), None)
        return image if image and image.size == self.size else None


@dataclass(frozen=True, kw_only=True)
class Jpeg(SourceImage):
    """A JPEG, or an MPO, whose further images are not stored."""

    end: int  # the offset after its first image

    @property
    def family(self) -> str:
        """The format of the first image."""
        return "jpeg"

    @classmethod
    def examine(cls, data: bytes, bounded: bool) -> Jpeg:
        """Reads the header; raises WorkLimitError if it is `bounded`, and its metadata is not."""
        header = jpeg.examine(data, bounded)
        if header.end is None:
            raise RecordError(Reason.TRUNCATED, "the file ends before its end-of-image marker")
        if header.process is None:
            raise RecordError(Reason.CORRUPT, "has no frame header")
        if header.precision != 8 or header.process not in jpeg.DECODABLE:
            coding = f"coding process SOF{header.process} with {header.precision} bits per sample"
            raise RecordError(Reason.UNSUPPORTED_FEATURE, f"JPEG with {coding}")
        if header.components not in _JPEG_MODES:
            what = f"JPEG with {header.components} components"
            raise RecordError(Reason.UNSUPPORTED_FEATURE, what)
        # The decoder of an image with several scans visits each pixel in each scan, and keeps the
        # coefficients of all components, of 2 bytes each, in memory between scans.
        kept = 0 if header.decoded_in_one_pass else header.components
        return cls(
            format="mpo" if header.multi_image else "jpeg",
            width=header.width,
            height=header.height,
            channels=min(header.components, 3),
            mode=_JPEG_MODES[header.components],
            bit_depth=header.precision,
            orientation=orientation_of(header.exif),
            common=header.readable_by_all,
            work=header.width * header.height * max(header.scans, kept),
            end=header.end,
        )

    def keep(self, data: bytes, strip: bool, decode: Decode) -> tuple[bytes, bytes] | None:
        """Checks the coded data of a file that is stored."""
        if strip:
            data = jpeg.strip_metadata(data)
        elif self.format == "mpo":
            data = data[: self.end]
        image = self._opened_by_readers(data)
        if image is None:
            return None
        with image:
            return data, _read_coded_data(image, data) if decode == "full" else b""

    def pixel_data(self, data: bytes) -> bytes:
        """Returns only the segments that determine the pixels."""
        return jpeg.keep_pixel_data(data)

    def load_reduced(self, image: Image.Image, side: int) -> None:
        """Loads the pixels at 1/2, 1/4 or 1/8 of their size, by the DCT."""
        if self.common:  # scaling the lossless process would corrupt the heap of Pillow 12.3
            factor = pixels.reduction_factor(image.size, side)
            image.draft(None, (max(1, image.width // factor), max(1, image.height // factor)))
        image.load()


def _read_coded_data(image: ImageFile.ImageFile, data: bytes) -> bytes:
    """Checks the coded data of a JPEG by decoding it in gray at an eighth of its size.

    This reads all entropy-coded data but skips most of the inverse DCT, which takes a third less
    time than a full decode and detects the same damage. Only for SOF0, SOF1 and SOF2: for the
    lossless process, the scaled decode of Pillow 12.3 corrupts the heap. Returns a thumbnail.
    """
    size = image.size
    # Small images are scaled down less, so that enough pixels remain for the thumbnail.
    scale = next((s for s in _DRAFT_SCALES if min(size) // s >= pixels.MIN_HASHED_SIDE), 1)
    with reject_damage():
        # Pillow decodes in blocks, and stops after the block with the last row: damage after it, on
        # which TensorFlow fails, would be missed. So the whole file is one block.
        image.decodermaxblock = len(data)
        drafted = image.draft("L", (size[0] // scale, size[1] // scale))
        image.load()
    return pixels.thumbnail_of(image, drafted[1] if drafted else None)


@dataclass(frozen=True, kw_only=True)
class Png(SourceImage):
    """A PNG."""

    header: png.PngHeader

    @classmethod
    def examine(cls, data: bytes, bounded: bool) -> Png:
        """Reads the header; raises WorkLimitError if it is `bounded`, and its metadata is not."""
        header = png.examine(data, bounded)
        return cls(
            format="png",
            width=header.width,
            height=header.height,
            channels=header.channels,
            mode=header.mode,
            bit_depth=header.depth,
            has_alpha=header.has_alpha,
            frames=header.frames,
            orientation=header.orientation,
            common=header.readable_by_all,
            work=header.inflated_bytes // 2,
            header=header,
        )

    def keep(self, data: bytes, strip: bool, decode: Decode) -> tuple[bytes, bytes] | None:
        """Checks the image data of a file that is stored."""
        header = self.header
        if strip:
            data = png.strip_metadata(data)
            header = png.examine(data)
        if _is_plain(header):
            return data, _plain_thumbnail(data, header) if decode == "full" else b""
        image = self._opened_by_readers(data)
        if image is None:
            return None
        with image:
            if decode == "header":
                return data, b""
            if header.ends_with_pixels:
                return data, _read_rows(image, data, header)
            png.check_rows(data, header)
            return (data, pixels.thumbnail_of(image)) if _can_load(image) else None

    def pixel_data(self, data: bytes) -> bytes:
        """Returns only the chunks that determine the pixels."""
        return png.keep_pixel_data(data, self.header)


def _is_plain(header: png.PngHeader) -> bool:
    """Returns whether a PNG is small and consists of pixels that Pillow stores as they are."""
    return (
        header.only_pixels
        and header.depth == 8
        and header.mode != "P"
        and not header.interlaced
        and header.width * header.height <= _MAX_PLAIN_PIXELS
    )


def _plain_thumbnail(data: bytes, header: png.PngHeader) -> bytes:
    """Checks the image data of a plain PNG, and returns a thumbnail.

    Pillow's plugin would parse the same chunks again. All of them have been checked, so that it
    cannot fail, and calling its decoder takes a third less time.
    """
    rows = b"".join(png.stored(png.checked_rows(data, header)))
    size = (header.width, header.height)
    return pixels.thumbnail_of(Image.frombytes(header.mode, size, rows, "zip", header.mode))


def _read_rows(image: ImageFile.ImageFile, data: bytes, header: png.PngHeader) -> bytes:
    """Checks a PNG whose pixels are at its end; returns a thumbnail, b"" if it is not measured."""
    if header.width * header.height <= _MAX_MEASURED_PIXELS:
        # Pillow gets the rows that have been decompressed for the check, so this is not done twice.
        rows = png.stored(png.checked_rows(data, header))
        image.load_read = lambda _: next(rows, b"")  # type: ignore[attr-defined]
        if _can_load(image):
            for _ in rows:  # Pillow stops at the last row, but readers fail on damage after it
                pass
            return pixels.thumbnail_of(image)
    png.check_rows(data, header)
    return b""


def sniffed_format(data: bytes) -> str:
    """Returns the format of a file; raises RecordError if it is not supported."""
    if not data:
        raise RecordError(Reason.EMPTY_FILE, "the file is empty")
    head = data[: sniffing.HEAD_BYTES]
    format_ = sniffing.sniff(head)
    if format_ in PILLOW_FORMATS:
        return format_
    if kind := sniffing.foreign(head):
        raise _unsupported(kind)
    raise RecordError(Reason.NOT_AN_IMAGE, f"begins with {data[:_SHOWN_BYTES]!r}")


def _unsupported(kind: sniffing.Foreign) -> RecordError:
    reason = Reason.UNSUPPORTED_FORMAT if kind.is_image else Reason.NOT_AN_IMAGE
    expected = ", ".join(PILLOW_FORMATS)
    return RecordError(reason, f"{kind.name}; expected one of {expected}. {kind.remedy}")


def examine(data: bytes) -> SourceImage:
    """Reads the header of an image file; raises RecordError if it is damaged or not supported."""
    format_ = sniffed_format(data)
    if format_ == "jpeg":
        return Jpeg.examine(data, bounded=False)
    if format_ == "png":
        return Png.examine(data, bounded=False)
    sniffing.check_stated_size(data, format_)
    try:
        with opened(data, format_) as image:
            return _from_pillow(image, format_, data)
    except RecordError as error:
        if format_ == "tiff" and "unknown pixel mode" in error.detail:
            raise RecordError(Reason.UNSUPPORTED_FEATURE, _tiff_layout(data)) from error
        raise


def check_pixels(data: bytes) -> None:
    """Decodes an image file completely, as the pixels of stored images are checked."""
    source = examine(data)
    if isinstance(source, Jpeg | Png) and source.keep(data, strip=False, decode="full"):
        return
    with opened(data, source.family) as image:
        image.load()


def examine_in_process(data: bytes) -> Jpeg | Png | None:
    """Reads the header of a JPEG or PNG within the limits; returns None for all other files.

    Those are opened only in a separate process, since opening them can crash or hang.
    """
    codec = Jpeg if data.startswith(jpeg.SIGNATURE) else Png
    if not data.startswith((jpeg.SIGNATURE, png.SIGNATURE)) or len(data) > MAX_FILE_BYTES:
        return None
    try:
        return codec.examine(data, bounded=True)
    except sniffing.WorkLimitError:
        return None


def _from_pillow(image: Image.Image, format_: str, data: bytes) -> SourceImage:
    width, height = _stored_size(image)
    bits, samples = _samples_of(image, data)
    return SourceImage(
        format=format_,
        width=width,
        height=height,
        channels=len(image.getbands()),
        mode=image.mode,
        bit_depth=_BITS.get(image.mode) or bits,
        has_alpha="A" in image.getbands() or "transparency" in image.info,
        # 1 if the frames or pages after the first are damaged
        frames=_attempt(partial(_frames, image, data), 1),
        orientation=_valid(image.getexif().get(ExifTags.Base.Orientation)),
        samples=samples,
    )


def _valid(orientation: object) -> int:
    return orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else UPRIGHT


def _stored_size(image: Image.Image) -> tuple[int, int]:
    """Returns the width and height as stored, which Pillow swaps for a rotated TIFF."""
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return image.size
    tags = image.tag_v2
    # The first image of a DNG, NEF or ARW is a thumbnail of the raw data in a SubIFD.
    is_thumbnail = tags.get(_NEW_SUBFILE_TYPE, 0) & 1 and _SUB_IFDS in tags
    if is_thumbnail or _DNG_VERSION in tags:
        raise _unsupported(sniffing.FOREIGN["raw"])
    if tags.get(_PHOTOMETRIC) == _YCBCR and image.info.get("compression") == "raw":
        raise RecordError(Reason.UNSUPPORTED_FEATURE, "uncompressed YCbCr TIFF")
    # Pillow swaps the size of a TIFF when it opens the file, and rotates its pixels when it loads
    # them.
    turned = tags.get(ExifTags.Base.Orientation) in (5, 6, 7, 8)
    return (image.height, image.width) if turned else image.size


def _samples_of(image: Image.Image, data: bytes) -> tuple[int, str]:
    """Returns the bits per sample in the file, at least 8, and the type as in `SourceImage`.

    Pillow's mode is not enough: it hides the bits of color, unsigned PGM has mode I, and signed
    8-bit TIFF has mode L.
    """
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        bits = image.tag_v2.get(_BITS_PER_SAMPLE, (1,))
        kind = _KINDS.get(image.tag_v2.get(pixels.TIFF_SAMPLE_FORMAT, (1,))[0], "undefined")
        is_plain = kind == "unsigned" and bits[0] <= 16
        return int(max(8, *bits)), "" if is_plain else f"{kind} {bits[0]}-bit"
    if image.format == "JPEG2000":
        # ISO/IEC 15444-1, A.5.1: the sign and the number of bits - 1
        start = data.find(_CODESTREAM)
        _, depth = _COMPONENTS.unpack_from(data.ljust(start + 43, b"\0"), start + 40)
        number = (depth & 0x7F) + 1
        if depth & 0x80 and len(image.getbands()) == 1:  # Pillow shifts the values
            detail = f"JPEG 2000 with signed {number}-bit samples; expected unsigned samples"
            raise RecordError(Reason.UNSUPPORTED_FEATURE, detail)
        return max(8, number), ""
    if isinstance(image, PpmImagePlugin.PpmImageFile) and image.mode in ("I", "RGB"):
        args = image.tile[0].args  # "RGB", or ("RGB", largest value)
        is_deep = image.mode == "I" or (isinstance(args, tuple) and args[1] > 255)
        return 16 if is_deep else 8, ""
    if image.format == "AVIF":
        # AV1 in ISOBMFF, section 2.3.3: high_bitdepth and twelve_bit in the first `av1C` box
        flags = data[data.find(b"av1C\x81") :][6:7] or b"\0"
        return {0x40: 10, 0x60: 12}.get(flags[0] & 0x60, 8), ""
    return 8, "float 32-bit" if image.mode == "F" else ""


def _frames(image: Image.Image, data: bytes) -> int:
    """Returns the number of frames of an animation, or of the linked pages of a TIFF."""
    if image.format != "TIFF":
        return int(getattr(image, "n_frames", 1))
    # Pillow parses each page, and searches the ones before for it: 100,000 pages take a minute.
    order, is_big = "<>"[data.startswith(b"MM")], b"+" in data[2:4]
    number, link = struct.Struct(order + "HQ"[is_big]), struct.Struct(order + "IQ"[is_big])
    (at,), found = link.unpack_from(data, 8 if is_big else 4), set[int]()
    while at and at not in found:
        found.add(at)
        at += number.size + (20 if is_big else 12) * number.unpack_from(data, at)[0]
        (at,) = link.unpack_from(data, at)
    return len(found)


def _tiff_layout(data: bytes) -> str:
    stream = io.BytesIO(data)
    is_big = data[2:3] == b"+" or data[3:4] == b"+"
    tags = TiffImagePlugin.ImageFileDirectory_v2(stream.read(16 if is_big else 8))
    stream.seek(tags.next)
    tags.load(stream)
    bits, kinds = tags.get(_BITS_PER_SAMPLE, (1,)), tags.get(pixels.TIFF_SAMPLE_FORMAT, (1,))
    names = [_KINDS.get(kind, "undefined") for kind in kinds]
    samples = dict.fromkeys(f"{name} {n}-bit" for n, name in zip(bits, cycle(names), strict=False))
    return f"TIFF of {len(bits)} x {', '.join(samples)} samples per pixel"


def _attempt(call: Callable[[], T], otherwise: T) -> T:
    """Returns the result of a call of Pillow, or a value if it fails, except for lack of memory."""
    try:
        return call()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - Pillow's parsers raise almost anything for a damaged file
        return otherwise


def _can_load(image: Image.Image) -> bool:
    return _attempt(image.load, None) is not None


@contextmanager
def opened(data: bytes, format_: str) -> Iterator[ImageFile.ImageFile]:
    """Opens a file with Pillow, and converts its errors to rejects, also in the `with` block."""
    plugins = _plugins(format_)
    with reject_damage(), open_image(data, plugins) as image:
        yield image


def open_image(data: bytes, plugins: Iterable[str]) -> ImageFile.ImageFile:
    """Opens a file like `Image.open`, but without its check for decompression bombs.

    That check uses the global `Image.MAX_IMAGE_PIXELS`, which belongs to the host program. Instead,
    callers compare the size in the header to the limits of their settings. Raises the error of the
    first plugin that accepts the file, or UnidentifiedImageError if none does.
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
    """Converts errors of Pillow in the `with` block to rejects, as `opened` does."""
    try:
        yield
    except RecordError:
        raise
    except (MemoryError, Image.DecompressionBombError) as error:
        raise RecordError(Reason.TOO_MANY_PIXELS, "not enough memory to decode it") from error
    except Exception as error:  # Pillow's parsers raise almost anything for a damaged file
        raise _as_record_error(error) from error


def _plugins(format_: str) -> tuple[str, ...]:
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


def _as_record_error(error: Exception) -> RecordError:
    text = str(error)
    sentence = f"Pillow cannot decode it: {type(error).__name__}" + (f": {text}" if text else "")
    if isinstance(error, OSError | ValueError | NotImplementedError) and " " in text:
        sentence = text
    # Pillow has no error classes for damage: its plugins raise OSError, ValueError and others, and
    # only their messages state the reason.
    unknown = any(word in text.lower() for word in ("unsupported", "unknown pixel mode"))
    if isinstance(error, NotImplementedError) or unknown:
        return RecordError(Reason.UNSUPPORTED_FEATURE, sentence)
    if isinstance(error, SyntaxError | UnidentifiedImageError):
        return RecordError(Reason.CORRUPT, "the header is damaged")
    cut = isinstance(error, EOFError) or any(
        word in text.lower() for word in ("truncated", "not enough image data", "unexpected end")
    )
    return RecordError(Reason.TRUNCATED if cut else Reason.CORRUPT, sentence)
