"""Settings in the blocks of a schema, and the parsing of integers."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from recordmill.pipelines.options import config_of
from recordmill.schemas.errors import UsageError
from recordmill.schemas.settings import ImageSettings, Resize, is_integer, parse_integer


def test_default_image_settings():
    assert ImageSettings().model_dump() == {
        "column": "image",
        "orientation": "apply",
        "color": "keep",
        "alpha": "keep",
        "bit_depth": "keep",
        "format": "keep",
        "quality": 95,
        "max_side": None,
        "resize": None,
        "animated": "first",
        "max_pixels": 178_956_970,
        "min_side": 1,
        "strip_metadata": False,
        "unsupported": "transcode",
        "timeout": 60,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("640x480", Resize(width=640, height=480, mode="fit", filter="lanczos")),
        ("1x65500 pad", Resize(width=1, height=65_500, mode="pad", filter="lanczos")),
        ("640x480 crop nearest", Resize(width=640, height=480, mode="crop", filter="nearest")),
        ("640x480 bicubic", Resize(width=640, height=480, mode="fit", filter="bicubic")),
    ],
)
def test_sizes_as_text(text, expected):
    made = ImageSettings(resize=text)
    assert made.resize == expected
    assert ImageSettings.model_validate_json(made.model_dump_json()) == made


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"resize": "640"}, "expected WIDTHxHEIGHT"),
        ({"resize": "640x480 stretch"}, "expected WIDTHxHEIGHT"),
        ({"resize": "640x480 lanczos fit"}, "expected WIDTHxHEIGHT"),
        ({"resize": "0x480"}, "greater than or equal to 1"),
        ({"resize": "640x65501"}, "less than or equal to 65500"),
        ({"resize": "13378x13378 exact"}, "178,970,884 pixels; expected at most 178,956,970"),
        ({"resize": "65500x65500"}, "4,290,250,000 pixels; expected at most"),
        ({"max_side": 0}, "max_side"),
        ({"max_side": 100, "resize": "10x10"}, "Remove one of them"),
        ({"quality": 80}, "Add format: jpeg"),
        ({"quality": 80, "format": "png", "max_side": 9}, "Add format: jpeg"),
        ({"format": "jpeg", "quality": 101}, "quality"),
        ({"format": "webp"}, "format"),
        ({"alpha": "composite red"}, "alpha"),
        ({"alpha": "composite #12345"}, "alpha"),
        ({"alpha": "keep\n"}, "alpha"),
        ({"bit_depth": 12}, "bit_depth"),
        ({"bit_depth": 16, "resize": "9x9 fit bicubic"}, "bit_depth: 16 needs nearest"),
        ({"orientation": "rotate"}, "orientation"),
        ({"unsupported": "reject", "format": "png"}, "cannot be combined with"),
        ({"unsupported": "reject", "max_side": 10}, "cannot be combined with"),
        ({"max_pixels": 0}, "greater than 0"),
        ({"min_side": 0}, "min_side"),
        ({"timeout": 0}, "greater than 0"),
        ({"hue": "rgb"}, "hue"),
    ],
    ids=str,
)
def test_invalid_settings_are_rejected(options, problem):
    with pytest.raises(ValidationError, match=problem):
        ImageSettings(**options)


@pytest.mark.parametrize(
    ("options", "background"),
    [
        ({}, None),
        ({"alpha": "drop"}, None),
        ({"alpha": "composite #ff8000"}, (255, 128, 0)),
        ({"alpha": "composite #000000", "format": "jpeg"}, (0, 0, 0)),
        ({"format": "jpeg"}, (255, 255, 255)),
        ({"format": "jpeg", "alpha": "drop"}, None),
    ],
    ids=str,
)
def test_background(options, background):
    assert ImageSettings(**options).background == background


ODD = ["²", "٣", "1_000", " 1", "1 ", "+1", "1.0", "", "-", "one", "9" * 4001]


@pytest.mark.parametrize("text", ODD)
def test_text_that_is_not_an_integer_is_rejected(text: str) -> None:
    assert not is_integer(text)
    with pytest.raises(ValueError, match="expected an integer"):
        parse_integer(text)


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("-7", -7), ("007", 7), ("9" * 19, 10**19 - 1)]
)
def test_integers(text: str, value: int) -> None:
    assert parse_integer(text) == value


@pytest.mark.parametrize("text", ["²", "٣", "x"])
@pytest.mark.parametrize(
    ("flag", "form"),
    [
        ("image", "max_side={}"),
        ("num_shards", "{}"),
        ("num_shards", "train={}"),
        ("records_per_shard", "{}"),
        ("seed", "{}"),
        ("max_rejects", "{}"),
        ("version", "{}.0.0"),
        ("image", "resize={0}x{0}"),
    ],
)
def test_flags_reject_digits_of_other_scripts(flag: str, form: str, text: str) -> None:
    flags = {"input": ["t.csv"], "output": "o", "name": "n", flag: form.format(text)}
    with pytest.raises(UsageError, match=rf"--{flag}"):
        config_of(flags)


@pytest.mark.parametrize("options", [{"format": "jpeg"}, {"max_side": 9}, {"resize": "9x9"}])
def test_quality_applies_to_converted_and_resized_jpegs(options):
    assert ImageSettings(**options, quality=80).quality == 80
