"""Tests of the EXIF orientation: the same as in Pillow, in linear time."""

from __future__ import annotations

import struct
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import ExifTags, Image

from recordmill.transforms.functional.images.jpeg import _tags, _tiff_of, orientation_of

ORIENTATION = ExifTags.Base.Orientation


def block(tags, order="<", prefix=b"Exif\0\0", start=8, after=b""):
    """Returns an EXIF block of (tag, kind, number of values, four bytes)."""
    mark = b"II*\0" if order == "<" else b"MM\0*"
    entries = b"".join(struct.pack(order + "HHL4s", *tag) for tag in tags)
    head = mark + struct.pack(order + "L", start) + bytes(start - 8)
    return prefix + head + struct.pack(order + "H", len(tags)) + entries + bytes(4) + after


def by_pillow(data):
    exif = Image.Exif()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exif.load(data)
            found = exif.get(ORIENTATION)
        except Exception:  # noqa: BLE001 - Pillow's parser raises almost anything
            return 1
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("prefix", [b"", b"Exif\0\0", b"Exif\0\0Exif\0\0"])
@pytest.mark.parametrize(("kind", "code"), [(3, "H"), (4, "L"), (8, "h"), (9, "l")])
def test_every_kind_of_integer_is_read(order, prefix, kind, code):
    value = struct.pack(order + code, 6).ljust(4, b"\0")
    data = block([(1, 3, 1, b"\2\2\2\2"), (ORIENTATION, kind, 1, value)], order, prefix)
    assert orientation_of(data) == by_pillow(data) == 6


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"Exif\0\0", id="a prefix"),
        pytest.param(b"Exif\0\0II*\0", id="no directory"),
        pytest.param(block([])[:-6], id="an empty directory, cut"),
        pytest.param(block([(ORIENTATION, 3, 1, b"\6\0\0\0")])[:-8], id="cut within the tag"),
        pytest.param(block([(ORIENTATION, 3, 1, b"\x09\0\0\0")]), id="9"),
        pytest.param(block([(ORIENTATION, 3, 1, bytes(4))]), id="0"),
        pytest.param(block([(ORIENTATION, 3, 0, b"\6\0\0\0")]), id="no value"),
        pytest.param(block([(ORIENTATION, 2, 1, b"6\0\0\0")]), id="text"),
        pytest.param(block([(ORIENTATION, 5, 1, b"\6\0\0\0")]), id="a fraction"),
        pytest.param(block([(ORIENTATION, 9, 1, b"\xff" * 4)]), id="-1"),
        pytest.param(block([(ORIENTATION, 3, 9, b"\xff" * 4)]), id="values beyond the end"),
    ],
)
def test_invalid_blocks_are_upright(data):
    assert orientation_of(data) == by_pillow(data) == 1
    assert orientation_of(None) == 1


def test_the_first_of_several_values_counts():
    values = block([(ORIENTATION, 3, 3, struct.pack("<L", 26))], after=struct.pack("<3H", 6, 3, 3))
    assert orientation_of(values) == by_pillow(values) == 6


def test_the_last_of_several_orientation_tags_counts():
    tags = block([(ORIENTATION, 3, 1, b"\6\0\0\0"), (ORIENTATION, 3, 1, b"\3\0\0\0")])
    assert orientation_of(tags) == 3  # as in Pillow 12; Pillow 13 takes the first


@given(
    st.lists(
        st.tuples(
            st.sampled_from([ORIENTATION, 0x10F, 0x112, 0x8769]),
            st.sampled_from([2, 3, 4, 8, 9]),
            st.integers(0, 5),
            st.one_of(
                st.sampled_from([b"\6\0\0\0", b"\0\6\0\0", b"\0\0\0\6", b"\x1a\0\0\0"]),
                st.binary(min_size=4, max_size=4),
            ),
        ),
        max_size=4,
        unique_by=lambda tag: tag[0],  # of equal tags, Pillow 12 takes the last and 13 the first
    ),
    st.sampled_from("<>"),
    st.binary(max_size=40),
    st.integers(0, 40),
)
def test_orientation_agrees_with_pillow(tags, order, after, cut):
    data = block(tags, order, after=after)
    data = data[: max(14, len(data) - cut)]
    assert orientation_of(data) == by_pillow(data)


def test_tags_with_the_same_large_value_are_only_counted():
    size = 12 * 60_000
    data = block([(0x10F, 1, size, struct.pack("<L", 0))] * 60_000)
    assert sum(1 for _ in _tags(_tiff_of(data))) == 60_000
    assert orientation_of(data) == 1
