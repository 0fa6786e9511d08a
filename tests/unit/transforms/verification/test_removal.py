"""Removed records are found by their key, and by the digest of any of their images."""

from __future__ import annotations

import hashlib

import pytest

from recordmill.schemas.example_pb2 import Example
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.removal import RemovedRecords, digest_of_key
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.verification.verify_shard import Removed, image_digests

ONE, TWO = b"first image", b"second image"
IMAGES = ResolvedSchema(preset("image_classification"))


def digest(image: bytes) -> str:
    return hashlib.sha256(image).hexdigest()


def example(*images: bytes) -> bytes:
    message = Example()
    message.features.feature["image"].bytes_list.value.extend(images)
    return message.SerializeToString()


def removed(keys: tuple[str, ...] = (), images: tuple[bytes, ...] = ()) -> Removed:
    records = RemovedRecords(
        keys_sha256=tuple(map(digest_of_key, keys)),
        images_sha256=tuple(map(digest, images)),
        remaining_images_sha256=(digest(TWO),),
    )
    return Removed.of(records, IMAGES)


def test_the_digests_of_the_images_of_a_record() -> None:
    assert image_digests(example(ONE, TWO), IMAGES) == {"": [digest(ONE), digest(TWO)]}
    assert image_digests(example(), IMAGES) == {"": []}


BY_KEY = "its key 'a' is one that removal.json states as removed"
BY_IMAGE = "its image is one that removal.json states as removed (key 'a')"


@pytest.mark.parametrize(
    ("keys", "images", "expected"),
    [
        (("a", "b"), (), [BY_KEY]),
        (("b",), (ONE,), [BY_IMAGE]),
        (("a",), (ONE,), [BY_KEY, BY_IMAGE]),
        (("b",), (), []),
        (("b",), (b"another",), []),
    ],
)
def test_a_removed_record_is_found(
    keys: tuple[str, ...], images: tuple[bytes, ...], expected: list[str]
) -> None:
    assert list(removed(keys, images).found_in("a", example(ONE))) == expected


def test_an_image_that_another_record_still_has_may_remain() -> None:
    assert list(removed(("b",), (ONE,)).found_in("a", example(TWO))) == []
