"""All unusual, damaged and hostile files of the corpus have their expected outcome."""

from __future__ import annotations

import io
import warnings
from itertools import islice

import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from recordmill.schemas.rejects import RecordError
from recordmill.schemas.settings import ImageSettings
from recordmill.transforms.functional.images.transcode import transcode
from tests.corpus import Specimen, corpus
from tests.image_mutants import jpeg_mutants, png_mutants

SETTINGS = ImageSettings()
ONE_OF = 6
"""Of how many mutants of JPEGs one is tried: all of them take 15 s."""

pytestmark = pytest.mark.filterwarnings("ignore")  # Pillow's, on metadata that it skips


def outcome_of(data, image_settings):
    """Returns the stored image, or None and the reason of the reject."""
    try:
        return transcode(data, image_settings), None
    except RecordError as error:
        return None, error


def read_as_recorded(stored):
    """Asserts that TensorFlow and plain Pillow read an image in its recorded size.

    TensorFlow is also asked for the stored number of channels, which chunks that it skips could
    change.
    """
    size = (stored.height, stored.width)
    assert tf.io.decode_image(stored.data, expand_animations=False).shape == (
        *size,
        stored.channels,
    )
    assert tf.io.decode_jpeg(stored.data, channels=3).shape == (*size, 3)
    with Image.open(io.BytesIO(stored.data)) as opened:
        opened.load()
        assert opened.size == (stored.width, stored.height)


def is_unread(data):
    """Returns why a reader cannot read the image of a record; None if all can, or for a reject."""
    stored, rejected = outcome_of(data, ImageSettings(max_pixels=2_000_000))
    if stored is None:
        return None if is_sentence(rejected.detail) else f"no sentence: {rejected.detail}"
    try:
        read_as_recorded(stored)
    except Exception as error:  # noqa: BLE001 - whatever a reader says
        return repr(error)
    return None


def is_sentence(detail):
    """Returns whether a detail is a sentence, not only the key of a `KeyError`."""
    return " " in detail and not detail.startswith(("'", "("))


def test_the_corpus_has_enough_files_of_every_kind():
    names = [specimen.name for specimen in corpus()]
    assert len(names) == len(set(names)) >= 300
    assert sum(specimen.accepted for specimen in corpus()) >= 200
    outcomes = {part for specimen in corpus() for part in specimen.outcome.split("|")}
    assert outcomes == {
        *("kept", "png", "jpeg", "empty_file", "not_an_image", "unsupported_format"),
        *("unsupported_feature", "truncated", "corrupt", "too_many_pixels", "invalid_dimensions"),
    }


@pytest.mark.parametrize("specimen", corpus(), ids=lambda specimen: specimen.name)
def test_outcome(specimen: Specimen):
    stored, rejected = outcome_of(specimen.data, SETTINGS)
    if stored is None:
        assert is_sentence(rejected.detail)
        assert rejected.reason.value in specimen.outcome.split("|"), rejected.detail
        return
    kept = stored.data == specimen.data
    assert ("kept" if kept else stored.format) == specimen.outcome, stored.treatment
    assert (stored.width, stored.height) == specimen.size
    assert stored.source_format == specimen.format
    assert stored.transcoded == (not kept and specimen.format != "mpo")
    if stored.transcoded:
        with Image.open(io.BytesIO(stored.data)) as opened:
            assert opened.format == "PNG"
            assert opened.getexif().get(0x112, 1) == 1  # or a reader would turn it once more
    read_as_recorded(stored)


@pytest.mark.parametrize(
    "mutants",
    [
        pytest.param(png_mutants(), id="PNG"),
        pytest.param(islice(jpeg_mutants(), 0, None, ONE_OF), id="JPEG"),
    ],
)
def test_mutants_are_rejected_or_read_by_all_readers(mutants):
    unread = {name: why for name, data in mutants if (why := is_unread(data))}
    assert unread == {}


VALID = tuple(s for s in corpus() if s.accepted and len(s.data) < 20_000)


@st.composite
def mutations(draw):
    """Returns a valid file with a few changes or truncated."""
    data = bytearray(draw(st.sampled_from(VALID)).data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["set", "set", "flip", "drop", "repeat", "cut", "long"]))
        if kind == "set" and data:
            data[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
        elif kind == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "drop":
            del data[at : at + draw(st.integers(1, 20))]
        elif kind == "repeat":
            data[at:at] = data[at : at + draw(st.integers(1, 20))]
        elif kind == "cut":
            del data[at + len(data) // 2 :]
        elif kind == "long":
            data[at : at + 4] = draw(st.binary(min_size=4, max_size=4))
    return bytes(data)


@settings(max_examples=500, suppress_health_check=list(HealthCheck), derandomize=True)
@given(mutations())
def test_mutations_are_rejected_or_readable(data):
    # pytest's filter does not reach into Hypothesis's repetitions.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert is_unread(data) is None
