"""Searches records for those that were removed, by key and by the digests of their images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Set
from dataclasses import dataclass

from recordmill.schemas import layout
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.removal import RemovedRecords, digest_of_key
from recordmill.transforms.functional.records.examples import read_features


def image_digests(data: bytes, resolved: ResolvedSchema) -> list[str]:
    """Returns the hex digest of each image of a record; for sequences, of each frame.

    Args:
        data: the serialized message.
        resolved: the schema of the dataset.
    """
    feature = resolved.schema.image_feature
    if feature is None:
        return []
    images = read_features(data).get(feature, [])
    return [hashlib.sha256(image).hexdigest() for image in images]


@dataclass(frozen=True)
class Removed:
    """What a version must not have any more.

    Attributes:
        keys: the hex digest of each removed key.
        images: the hex digest of each removed image.
        resolved: the schema of the dataset.
    """

    keys: Set[str]
    images: Set[str]
    resolved: ResolvedSchema

    @classmethod
    def of(cls, records: RemovedRecords, resolved: ResolvedSchema) -> Removed:
        """Returns the digests that a certificate states; images that another record has may remain.

        Args:
            records: the removed records.
            resolved: the schema of the dataset.
        """
        return cls(frozenset(records.keys_sha256), frozenset(records.images_sha256), resolved)

    def found_in(self, key: str, data: bytes) -> Iterator[str]:
        """Yields a description of each part of a record that was removed.

        Args:
            key: the key of the record.
            data: the serialized message.
        """
        if digest_of_key(key) in self.keys:
            yield f"its key {key!r} is one that {layout.REMOVAL} states as removed"
        if not self.images.isdisjoint(image_digests(data, self.resolved)):
            yield f"its image is one that {layout.REMOVAL} states as removed (key {key!r})"
