"""Tests of the limits on bytes, parts and pixels of images decoded in the worker process."""

from __future__ import annotations

import struct
import zlib

import pytest
from PIL import ImageFile

from recordmill.pipelines.report import samples
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.settings import ImageSettings
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.images import jpeg as jpeg_parser
from recordmill.transforms.functional.images import png as png_parser
from recordmill.transforms.functional.images.masks import examine_mask_in_process
from recordmill.transforms.functional.images.sniffing import WorkLimitError
from recordmill.transforms.functional.images.transcode import _pass_through_source, transcode
from recordmill.transforms.functional.rendering.drawing import is_cheap_to_draw
from recordmill.transforms.functional.rendering.infer_features import MASK_KEY, bytes_kind
from recordmill.transforms.workers.sandbox import examine_in_subprocess
from tests.corpus import png_of, samples_of
from tests.images import (
    image,
    image_bytes,
    jpeg,
    jpeg_header,
    jpeg_segment,
    png,
    png_chunk,
    png_header,
)

SETTINGS = ImageSettings()
IEND = png_chunk(b"IEND", b"")


def before_pixels(data, segments):
    return data[:2] + segments + data[2:]


def tags(number):
    """Returns a TIFF structure with many tags that all refer to all of its bytes."""
    entries = struct.pack("<HHLL", 1, 1, 12 * number, 0) * number
    return b"II*\0" + struct.pack("<LH", 8, number) + entries + bytes(4)


def exif(number):
    return jpeg_segment(0xE1, b"Exif\0\0" + tags(number))


IN_THIS_PROCESS = {
    "JPEG": jpeg(),
    "progressive JPEG": jpeg(progressive=True),
    "JPEG with EXIF": before_pixels(jpeg(), exif(100)),
    "JPEG with 1,000 segments": before_pixels(jpeg(), jpeg_segment(0xFE, b"") * 1000),
    "JPEG with a long profile": jpeg(icc_profile=b"x" * 3_000_000),
    "MPO": image_bytes("MPO", save_all=True, append_images=[image(16, 12, 1)]),
    "PNG": png(),
    "PNG of 10,000 pieces": png_header(1, 1, color_type=0)
    + png_chunk(b"IDAT", b"") * 10_000
    + png_chunk(b"IDAT", zlib.compress(bytes(2)))
    + IEND,
}
SEPARATE = {
    "GIF": image_bytes("GIF"),
    "JPEG with 1,100 segments": before_pixels(jpeg(), jpeg_segment(0xFE, b"") * 1100),
    "JPEG of 1,100 scans": jpeg()[:-2]
    + jpeg_segment(0xDA, b"\x01\x01\0\0?\0") * 1100
    + b"\xff\xd9",
    "JPEG with EXIF of 5,000 tags": before_pixels(jpeg(), exif(5000)),
    "JPEG with EXIF twice": before_pixels(jpeg(), exif(9) * 2),
    "JPEG with an MPF of 5,000 tags": before_pixels(
        jpeg(), jpeg_segment(0xE2, b"MPF\0" + tags(5000))
    ),
    "JPEG with 5 MB of metadata": before_pixels(jpeg(), jpeg_segment(0xED, bytes(60_000)) * 84),
    "JPEG of 100 million progressive pixels": jpeg_header(10_000, 10_000, process=2),
    "PNG with 200 empty chunks": png_of(samples_of(0, 8), 0, before=png_chunk(b"abCd", b"") * 200),
    "PNG with 200 at its end": png_of(samples_of(0, 8), 0, after=png_chunk(b"abCd", b"") * 200),
    "PNG of 20,000 pieces": png_header(1, 1) + png_chunk(b"IDAT", b"") * 20_000 + IEND,
    "PNG of 100 million pixels": png_header(10_000, 10_000) + png_chunk(b"IDAT", b"") + IEND,
    "PNG of 80 million deep pixels": png_header(10_000, 8_000, bit_depth=16)
    + png_chunk(b"IDAT", b"")
    + IEND,
}


@pytest.mark.parametrize("name", IN_THIS_PROCESS)
def test_common_images_stay_in_this_process(name):
    assert _pass_through_source(IN_THIS_PROCESS[name], SETTINGS)


@pytest.mark.parametrize("name", SEPARATE)
def test_expensive_images_go_to_a_separate_process(name):
    assert _pass_through_source(SEPARATE[name], SETTINGS) is None


def test_large_files_go_to_a_separate_process(monkeypatch):
    data = jpeg()
    module = "recordmill.transforms.functional.images.codecs"
    monkeypatch.setattr(f"{module}.MAX_FILE_BYTES", len(data))
    assert _pass_through_source(data, SETTINGS)
    assert _pass_through_source(data + b"\0", SETTINGS) is None


def test_expensive_masks_go_to_a_separate_process(monkeypatch):
    assert examine_mask_in_process(png(mode="L"))
    with pytest.raises(RecordError, match="unsupported_format"):
        examine_mask_in_process(jpeg())
    assert not examine_mask_in_process(SEPARATE["PNG with 200 empty chunks"])
    assert not examine_mask_in_process(SEPARATE["PNG of 80 million deep pixels"])
    monkeypatch.setattr("recordmill.transforms.functional.images.codecs.MAX_FILE_BYTES", 99)
    assert not examine_mask_in_process(png(mode="L"))


@pytest.mark.parametrize("name", IN_THIS_PROCESS)
def test_common_images_are_examined_and_drawn_in_this_process(name, monkeypatch):
    monkeypatch.delattr("recordmill.transforms.workers.sandbox.run_in_subprocess")
    assert examine_in_subprocess(IN_THIS_PROCESS[name]).width
    assert is_cheap_to_draw({"image": [IN_THIS_PROCESS[name]], MASK_KEY: [png(mode="L")]})


@pytest.mark.parametrize("name", SEPARATE)
def test_expensive_images_are_examined_and_drawn_in_a_separate_process(name, monkeypatch):
    monkeypatch.delattr("PIL.Image.open")
    module = "recordmill.transforms.workers.sandbox"
    monkeypatch.setattr(f"{module}.run_in_subprocess", lambda *_, timeout: "separate")
    data = SEPARATE[name]
    assert not is_cheap_to_draw({"image": [data]})
    assert not is_cheap_to_draw({"image": [png()], MASK_KEY: [data]})
    assert bytes_kind(data) == f"{name.partition(' ')[0]} image"
    if "pixels" not in name:  # of which the header says all
        assert examine_in_subprocess(data) == "separate"


SCHEMA = preset("image_classification")


def test_the_report_draws_expensive_images_in_a_separate_process(monkeypatch):
    drawn = []

    def run_separately(_, features, *__, timeout):
        drawn.append(features)
        return image(9, 9)

    monkeypatch.setattr(samples, "run_in_subprocess", run_separately)
    monkeypatch.setattr(samples, "read_first_frame", lambda record: {"image": [record]})
    assert samples._draw(png(20, 10), SCHEMA, ()).width == 20
    assert drawn == []
    odd = SEPARATE["JPEG with EXIF of 5,000 tags"]
    assert samples._draw(odd, SCHEMA, ()).width == 9
    assert drawn == [{"image": [odd]}]


@pytest.mark.parametrize(
    ("parser", "parts", "data", "most"),
    [
        (
            jpeg_parser,
            "_segments",
            SEPARATE["JPEG with 1,100 segments"],
            jpeg_parser.MAX_SEGMENTS,
        ),
        (
            png_parser,
            "_chunks",
            SEPARATE["PNG with 200 at its end"],
            png_parser.MAX_OTHER_CHUNKS,
        ),
        (png_parser, "_chunks", SEPARATE["PNG of 20,000 pieces"], png_parser.MAX_CHUNKS),
    ],
    ids=["segments", "chunks", "pieces"],
)
def test_parsing_stops_at_the_limit(monkeypatch, parser, parts, data, most):
    seen, original = [], getattr(parser, parts)

    def counted(data):
        for part in original(data):
            seen.append(part)
            yield part

    monkeypatch.setattr(parser, parts, counted)
    with pytest.raises(WorkLimitError):
        parser.examine(data, bounded=True)
    assert len(seen) <= most + 2


@pytest.mark.parametrize("pieces", [1, 1000])
def test_nothing_is_inflated_after_the_last_row(monkeypatch, pieces):
    stream = zlib.compress(bytes(2) + bytes(64 << 20))
    size = -(-len(stream) // pieces)
    cut = [stream[i : i + size] for i in range(0, len(stream), size)]
    chunks = b"".join(png_chunk(b"IDAT", piece) for piece in cut)
    inflated, feed = [], png_parser.RowChecker.feed
    monkeypatch.setattr(
        png_parser.RowChecker,
        "feed",
        lambda self, made: (inflated.append(len(made)), feed(self, made)),
    )
    data = png_header(1, 1, color_type=0) + chunks + IEND
    assert transcode(data, SETTINGS).data == data
    assert sum(inflated) <= 2 * 2**20


def test_the_checksum_after_the_last_row_is_checked():
    stream = zlib.compress(bytes(2))
    more = zlib.compress(bytes(2) + bytes(500))
    for changed, reason in (
        (more[:-4], Reason.TRUNCATED),  # libpng reads on for 1 KiB
        (stream[:-1] + bytes([stream[-1] ^ 1]), Reason.CORRUPT),
        (stream[:-1], Reason.TRUNCATED),
        (stream[:-4], Reason.TRUNCATED),
    ):
        data = png_header(1, 1, color_type=0) + png_chunk(b"IDAT", changed) + IEND
        with pytest.raises(RecordError) as raised:
            transcode(data, SETTINGS)
        assert raised.value.reason is reason


def test_out_of_memory_is_a_reject(monkeypatch):
    def out_of_memory(*_):
        raise MemoryError

    module = "recordmill.transforms.functional.images.codecs"
    monkeypatch.setattr(f"{module}._read_coded_data", out_of_memory)
    with pytest.raises(RecordError) as raised:
        transcode(jpeg(), SETTINGS)
    assert raised.value.reason is Reason.TOO_MANY_PIXELS


def test_images_go_to_a_separate_process_if_pillow_ignores_damage(monkeypatch):
    name = next(iter(IN_THIS_PROCESS))
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert _pass_through_source(IN_THIS_PROCESS[name], SETTINGS) is None
