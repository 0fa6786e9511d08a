"""Images as text: what is one, and the bytes that it has."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest

from recordmill.schemas.rejects import Reason, RecordError
from recordmill.transforms.functional.images.sniffing import image_of, is_encoded
from tests.images import jpeg, png

IMAGES = [jpeg(4, 4), png(60, 40)]


def plain(data):
    return base64.b64encode(data).decode()


FORMS = {
    "base64": plain,
    "of URLs": lambda data: base64.urlsafe_b64encode(data).decode(),
    "without padding": lambda data: plain(data).rstrip("="),
    "in lines": lambda data: base64.encodebytes(data).decode(),
    "data URI": lambda data: f"data:image/jpeg;base64,{plain(data)}",
    "data URI of a URL": lambda data: f"Data:;charset=x;BASE64,{quote(plain(data), safe='')}",
    "data URI without base64": lambda data: f"data:image/png,{quote(data)}",
}


@pytest.mark.parametrize("data", IMAGES, ids=["jpeg", "png"])
@pytest.mark.parametrize("form", FORMS)
def test_images_as_text_are_decoded(form, data):
    text = FORMS[form](data)
    assert is_encoded(text)
    assert image_of(text) == data


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1.jpg",
        "/9j/4AAQSkZJRgABAQAAAQABAAD",
        "photos/" * 20,
        "/9j/" + "a" * 60 + ".jpg",
        plain(b"a text that is no image" * 3),
        "0123456789abcdef" * 4,
        "database:1.jpg",
    ],
)
def test_paths_and_other_texts_are_not_decoded(text):
    assert not is_encoded(text)


@pytest.mark.parametrize(
    "text", ["data:image/png;base64,iVBO*", "data:;base64,a", plain(png()) + "é"]
)
def test_text_that_is_not_base64_is_a_reject(text):
    with pytest.raises(RecordError, match="is not valid") as raised:
        image_of(text)
    assert raised.value.reason is Reason.MALFORMED_ROW
    assert len(raised.value.detail) < 200
