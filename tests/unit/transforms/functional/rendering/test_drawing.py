"""Tests of the drawing of records, captions and contact sheets."""

from __future__ import annotations

import io
import time

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from PIL import Image

from recordmill.pipelines.commands.inspect import _make_tile
from recordmill.pipelines.record_files import FoundRecord
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.rendering import drawing as module
from recordmill.transforms.functional.rendering.drawing import (
    BOX_KEYS,
    CORNERS_KEY,
    OTHERS_KEY,
    TILE_SIDE,
    Tile,
    _class_color,
    _decode_damaged,
    _fit_caption,
    _make_caption,
    _read_boxes,
    contact_sheet,
    draw_record,
    thumbnail_of_damaged,
)
from recordmill.transforms.functional.rendering.infer_features import MASK_KEY, image_key
from tests.images import SRGB, SWAPPED, image, image_bytes, jpeg, png, png_16_bit

GRAY = (127, 127, 127)


def flat(width=80, height=60):
    stream = io.BytesIO()
    Image.new("RGB", (width, height), GRAY).save(stream, "PNG")
    return stream.getvalue()


def font_with(characters):
    """Returns a TrueType font with some characters, each drawn as a box of another width."""
    glyphs = {f"g{ord(c)}": c for c in dict.fromkeys(characters)}
    builder = FontBuilder(unitsPerEm=1000)
    builder.setupGlyphOrder([".notdef", *glyphs])
    builder.setupCharacterMap({ord(c): name for name, c in glyphs.items()})
    widths = {name: 300 + 10 * i for i, name in enumerate([".notdef", *glyphs])}
    outlines = {}
    for name, width in widths.items():
        pen = TTGlyphPen(None)
        pen.moveTo((50, 0))
        for corner in ((50, 700), (width - 50, 700), (width - 50, 0)):
            pen.lineTo(corner)
        pen.closePath()
        outlines[name] = pen.glyph()
    builder.setupGlyf(outlines)
    builder.setupHorizontalMetrics({name: (width, 50) for name, width in widths.items()})
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Boxes", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, usWinAscent=800, usWinDescent=200)
    builder.setupPost()
    stream = io.BytesIO()
    builder.save(stream)
    return stream.getvalue()


def boxes(*corners):
    return {key: [box[i] for box in corners] for i, key in enumerate(BOX_KEYS)}


@pytest.mark.parametrize(
    ("features", "key"),
    [
        ({"image": [b"no"], "thumb": [png()]}, "thumb"),
        ({"image/encoded": [jpeg()], "image": [png()]}, "image/encoded"),
        ({MASK_KEY: [png()]}, None),
        ({"image_raw": [b"x" * 24], "height": [2], "width": [4], "depth": [3]}, "image_raw"),
        ({"image_raw": [b"x" * 24], "height": [2], "width": [4]}, "image_raw"),
        ({"image_raw": [b"x" * 23], "height": [2], "width": [4], "depth": [3]}, None),
        ({"label": [1], "image": []}, None),
        ({"image": [1.5]}, None),
    ],
)
def test_the_image_is_found_by_its_key_or_its_bytes(features, key):
    assert image_key(features) == key


@pytest.mark.parametrize("data", [png(40, 30, 1), image_bytes("WEBP", 40, 30, 1, lossless=True)])
def test_a_small_image_keeps_its_size(data):
    assert draw_record({"image": [data]}, 100).tobytes() == image(40, 30, 1).tobytes()


def test_a_large_image_is_scaled_proportionally():
    assert draw_record({"image": [jpeg(400, 100)]}, 100).size == (100, 25)


@pytest.mark.parametrize(("profile", "drawn"), [(SRGB, (200, 60, 30)), (SWAPPED, (60, 200, 30))])
def test_a_large_image_is_converted_by_its_color_profile(profile, drawn):
    stream = io.BytesIO()
    Image.new("RGB", (640, 480), (200, 60, 30)).save(
        stream, "JPEG", quality=95, icc_profile=profile
    )
    found = np.asarray(draw_record({"image": [stream.getvalue()]}, 100)).astype(int)
    assert found.shape == (75, 100, 3)
    assert np.abs(found - drawn).max() <= 4


def test_deep_and_transparent_images_are_drawn():
    drawn = draw_record({"image": [png_16_bit(20, 10, 3, 1)]}, 100)
    assert abs(np.asarray(drawn)[..., 0].astype(int) - np.asarray(image(20, 10, 3, "L"))).max() <= 1
    clear = io.BytesIO()
    Image.new("RGBA", (9, 9), (255, 0, 0, 0)).save(clear, "PNG")
    assert draw_record({"image": [clear.getvalue()]}, 100).getpixel((4, 4)) == (255, 255, 255)


def test_depth_is_drawn_with_the_range_of_its_values():
    depth, stream = np.arange(900, 1100, dtype=np.uint16)[None].repeat(100, axis=0), io.BytesIO()
    Image.fromarray(depth).save(stream, "PNG")
    drawn = draw_record({"image": [flat()], OTHERS_KEY: [stream.getvalue()]}, 404)
    assert drawn.size == (200 + 4 + 200, 100)
    grays = np.asarray(drawn)[50, 204:, 0].astype(int)
    assert (grays[0], grays[-1]) == (0, 255)
    assert set(np.diff(grays)) <= {0, 1, 2}  # no steps


def test_raw_samples_are_drawn_by_their_stated_size():
    drawn = image(24, 18, 5)
    features = {"image_raw": [drawn.tobytes()], "height": [18], "width": [24], "depth": [3]}
    assert draw_record(features, 100).tobytes() == drawn.tobytes()


@pytest.mark.parametrize("features", [{"image": [jpeg()[:200]]}, {"image": [png()[:60]]}, {}])
def test_images_that_cannot_be_drawn_are_reported(features):
    with pytest.raises((RecordError, ValueError)):
        draw_record(features, 100)


def test_a_box_is_drawn_at_its_coordinates():
    features = {"image": [flat()], **boxes((0.25, 0.5, 0.75, 0.9))}
    drawn = np.asarray(draw_record(features, 100))
    ys, xs = np.nonzero((drawn != GRAY).any(axis=2))
    assert (xs.min(), xs.max(), ys.min(), ys.max()) == (20, 60, 30, 54)
    assert tuple(drawn[30, 40]) == _class_color(0)
    assert tuple(drawn[40, 40]) == GRAY


@pytest.mark.parametrize(
    ("corners", "left"),
    [([(8, 6, 40, 30)], [0.1]), ([(float("nan"), 0, 1, 1), (0, 0, 1, 1)], [0.0]), ([], [])],
)
def test_boxes_in_pixels_become_fractions_and_non_finite_boxes_are_omitted(corners, left):
    assert [box.corners[0][0] for box in _read_boxes(boxes(*corners), (80, 60))] == left


def test_boxes_have_the_names_of_their_classes():
    features = {**boxes((0, 0, 1, 1), (0, 0, 0.5, 1)), "image/object/class/label": [1, 7]}
    assert [box.name for box in _read_boxes(features, (1, 1), ["cat", "dog"])] == ["dog", "7"]
    features["image/object/class/text"] = [b"a", b"\xff"]
    assert [box.name for box in _read_boxes(features, (1, 1))] == ["a", "\\xff"]


def test_a_class_has_one_color_in_all_images():
    of_two = {**boxes((0, 0, 1, 1), (0, 0, 0.5, 1)), "image/object/class/label": [4, 1]}
    of_one = {**boxes((0, 0, 1, 1)), "image/object/class/label": [4]}
    assert [box.number for box in _read_boxes(of_two, (1, 1))] == [4, 1]
    assert _read_boxes(of_one, (1, 1))[0].number == 4
    drawn = np.asarray(draw_record({"image": [flat()], **of_one}, 100))
    assert tuple(drawn[0, 40]) == _class_color(4)
    for texts in ([b"cat", b"dog"], [b"dog", b"cat"]):  # without ids, the name decides
        found = _read_boxes(
            {**boxes((0, 0, 1, 1), (0, 0, 1, 1)), "image/object/class/text": texts}, (1, 1)
        )
        assert {box.name: box.number for box in found} == {"cat": 2656977832, "dog": 2167159165}


@pytest.mark.parametrize("corners", [[0.5] * 7, [0.5] * 7 + [float("nan")], [1e20, -1e20] * 4])
def test_oriented_boxes_that_cannot_be_drawn_are_upright(corners):
    upright = {"image": [flat()], **boxes((0.25, 0.5, 0.75, 0.9))}
    assert draw_record({**upright, CORNERS_KEY: corners}, 100) == draw_record(upright, 100)


def test_the_name_of_an_oriented_box_beyond_the_edge_is_in_the_image():
    names = {"image/object/class/text": [b"cat"], **boxes((0, 0, 0.5, 0.5))}
    corners = [0.1, -0.9, 0.5, -0.5, 0.1, 0.5, -0.5, 0.1]
    drawn = draw_record({"image": [flat(240, 240)], **names, CORNERS_KEY: corners}, 240)
    assert drawn.getpixel((1, 1)) == _class_color(2656977832)


def test_boxes_outside_the_image_or_inverted_are_clipped():
    features = {"image": [flat()], **boxes((1.5, 0.9, -0.5, 0.1))}
    drawn = np.asarray(draw_record(features, 100))
    assert (drawn[6, :] == _class_color(0)).all()


def test_a_mask_is_blended_with_its_image():
    ids = np.zeros((60, 80), np.uint8)
    ids[:30], ids[30:, :40] = 1, 255
    mask = io.BytesIO()
    Image.fromarray(ids).save(mask, "PNG")
    drawn = np.asarray(draw_record({"image": [flat()], MASK_KEY: [mask.getvalue()]}, 100))
    mixed = tuple(round(0.45 * g + 0.55 * c) for g, c in zip(GRAY, _class_color(1), strict=True))
    assert [tuple(drawn[at]) for at in ((10, 10), (50, 10), (50, 60))] == [
        mixed,
        tuple(round(0.45 * 127 + 0.55 * 128) for _ in range(3)),
        GRAY,
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain “text” …", "plain “text” …"),
        ("Übermut", "\\xdcbermut"),
        ("猫", "\\u732b"),
        ("a\nb\x1b", "a\\x0ab\\x1b"),
        ("\ud800", "\\ud800"),
        ("😀", "\\U0001f600"),
    ],
)
def test_characters_that_no_font_has_are_escaped(text, shown, monkeypatch):
    monkeypatch.setattr(module, "SYSTEM_FONTS", ("there is no such font.ttf",))
    assert _make_caption(text, 14).text == shown


def test_a_system_font_draws_characters_that_the_font_of_pillow_lacks(tmp_path, monkeypatch):
    font = tmp_path / "has-umlauts.ttf"
    font.write_bytes(font_with("Übermut"))
    monkeypatch.setattr(module, "SYSTEM_FONTS", (str(font),))
    assert _make_caption("Übermut", 14).text == "Übermut"
    assert _make_caption("Übermut猫", 14).text == "Übermut\\u732b"
    assert _make_caption("plain", 14).font is not _make_caption("Übermut", 14).font


def test_text_is_truncated_to_the_width():
    cut = _fit_caption("a label that is far too long", 60, 14)
    assert cut.text.endswith("…")
    assert cut.width <= 60


def test_a_contact_sheet_shows_every_tile():
    tiles = [
        Tile(Image.new("RGB", (TILE_SIDE, 100), _class_color(i)), f"c{i}", "key") for i in range(5)
    ]
    sheet = np.asarray(contact_sheet([*tiles, Tile(None, "猫", "key", "is damaged")]))
    for i in range(5):
        assert (sheet == _class_color(i)).all(axis=2).sum() == TILE_SIDE * 100


def test_the_intact_part_of_a_damaged_image_is_drawn():
    whole = jpeg(200, 150, 4, quality=90)
    left = np.asarray(_decode_damaged(whole[: len(whole) // 2], 200)).astype(int)
    true = np.asarray(Image.open(io.BytesIO(whole))).astype(int)
    assert abs(left[:40] - true[:40]).max() <= 2
    assert (left[-8:] == 128).all()
    data, size = thumbnail_of_damaged(whole[:-100], 100)
    assert Image.open(io.BytesIO(data)).size == size == (100, 75)
    with pytest.raises(RecordError):
        _decode_damaged(b"\xff\xd8\xff", 100)


def test_an_image_that_crashes_its_decoder_loses_only_its_tile(monkeypatch):
    def expired(function, *_, timeout):
        assert (function, timeout) == (draw_record, 10.0)
        raise RecordError(Reason.DECODER_CRASH, "the decoder crashed")

    monkeypatch.setattr("recordmill.pipelines.commands.inspect.run_in_subprocess", expired)
    record = FoundRecord("x.tfrecord", 0, 0, b"", {"image": [jpeg(8, 8)]}, "k")
    module = "recordmill.pipelines.commands.inspect"
    monkeypatch.setattr(f"{module}.read_first_frame", lambda _: record.features)
    assert _make_tile(record, {}, None) == Tile(None, "", "k", "the decoder crashed")


def test_fitting_a_long_text_is_fast() -> None:
    began = time.thread_time()
    shown = _fit_caption("x" * 10_000_000, 100, 12)
    assert shown.text.endswith("x…")
    assert 80 < shown.width <= 100
    assert time.thread_time() - began < 1
