"""Verifies that removed records are gone: checks the certificate, and searches the shards.

Records are found by key and by the digests of their images; all of them are read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from google.protobuf.message import DecodeError
from pydantic import ValidationError

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.errors import VerificationFailed
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.removal import Removal, RemovedRecords, ShardDigest, digest_of_key
from recordmill.schemas.shard_format import DAMAGED_STREAM
from recordmill.transforms.functional.read_ahead import map_ahead
from recordmill.transforms.functional.records.examples import read_features
from recordmill.transforms.functional.records.framing import FrameError, read_frames
from recordmill.transforms.storage.dataset import Dataset, read_index
from recordmill.transforms.storage.published import read_file
from recordmill.transforms.storage.shard_files import uncompressed
from recordmill.transforms.workers.cores import num_cores

_SHARDS_AHEAD = 4


def image_digests(data: bytes, resolved: ResolvedSchema) -> list[str]:
    """Returns the hex digest of each image of a record; for sequences, of each frame."""
    feature = resolved.schema.image_feature
    if feature is None:
        return []
    images = read_features(data).get(feature, [])
    return [hashlib.sha256(image).hexdigest() for image in images]


@dataclass(frozen=True)
class Removed:
    """What a version must not have any more."""

    keys: Set[str]
    images: Set[str]
    resolved: ResolvedSchema

    @classmethod
    def of(cls, records: RemovedRecords, resolved: ResolvedSchema) -> Removed:
        """Returns the digests that a certificate states.

        Images that another record has may remain.
        """
        return cls(frozenset(records.keys_sha256), frozenset(records.images_sha256), resolved)

    def found_in(self, key: str, data: bytes) -> Iterator[str]:
        """Yields a description of each part of a record that was removed."""
        if digest_of_key(key) in self.keys:
            yield f"its key {key!r} is one that {layout.REMOVAL} states as removed"
        if not self.images.isdisjoint(image_digests(data, self.resolved)):
            yield f"its image is one that {layout.REMOVAL} states as removed (key {key!r})"


def find_removed(directory: str, shard: ShardEntry, removed: Removed) -> list[Problem]:
    """Returns a problem for each record of a shard that was removed, by key or by image.

    Holds the keys of the shard and one record in memory.
    """
    problems = list[Problem]()
    try:
        index = layout.join(directory, shard.index_file)
        keys = read_index(index, ["key"], shard.index_sha256)["key"].to_pylist()
        with uncompressed(layout.join(directory, shard.file)) as stream:
            for key, frame in zip(keys, read_frames(stream), strict=False):
                for what in removed.found_in(key, frame.data):
                    problems.append(Problem(shard.file, what, frame.record, frame.offset))
    except (
        VerificationFailed,
        FrameError,
        DecodeError,
        ValueError,
        OSError,
        *DAMAGED_STREAM,
    ) as error:
        problems.append(Problem(shard.file, f"cannot be searched for removed records: {error}"))
    return problems


def check_certificate(dataset: Dataset) -> Iterator[Problem]:
    """Yields the problems of removal.json; none if the dataset has no such file."""
    if layout.REMOVAL not in dataset.manifest.sidecars:
        return
    data = read_file(dataset.path(layout.REMOVAL))
    if data is None:
        return  # reported with the other files
    try:
        removal = Removal.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = " > ".join(map(str, first["loc"])) or "the file"
        yield Problem(layout.REMOVAL, f"is not a certificate: at {where}: {first['msg']}")
        return
    yield from _removal_problems(dataset, removal)


def _removal_problems(dataset: Dataset, removal: Removal) -> Iterator[Problem]:
    """Yields the problems of a certificate: wrong counts and digests, and records that remain.

    Reads all records, and computes the digests of their images.
    """
    yield from false_statements(dataset, removal)
    removed = Removed.of(removal, dataset.manifest.resolved)
    check = partial(find_removed, dataset.directory, removed=removed)
    cores = num_cores()
    with ThreadPoolExecutor(cores) as executor:
        shards = dataset.shards().values()
        for problems in map_ahead(check, shards, executor, _SHARDS_AHEAD * cores):
            yield from problems


def false_statements(dataset: Dataset, removal: Removal) -> Iterator[Problem]:
    """Yields the counts and digests of a certificate that are not those of the manifest."""
    for what, stated, found in _statements(dataset, removal):
        if stated != found:
            message = f"states {what} {stated}, but the manifest has {found}"
            yield Problem(layout.REMOVAL, message)


def _statements(dataset: Dataset, removal: Removal) -> Iterator[tuple[str, object, object]]:
    """Yields (what, the certificate's value, the manifest's value)."""
    manifest, base = dataset.manifest, dataset.manifest.base
    yield "the name", removal.name, manifest.name
    yield "the version", removal.version, manifest.version
    yield "the base version", removal.base_version, base and base.version
    yield "the base's sha256", removal.base_manifest_sha256, base and base.manifest_sha256
    yield "removed records:", removal.records, sum(base.gone.values()) if base else 0
    yield "distinct keys:", len(set(removal.keys_sha256)), removal.records
    yield "remaining records:", removal.remaining_records, manifest.input.records
    gone = sum(pair.before.records - pair.after.records for pair in removal.shards)
    yield "records removed from its shards:", gone, removal.records
    entries = {entry.file: ShardDigest.of(entry) for entry in dataset.shards().values()}
    for pair in removal.shards:
        yield f"the shard {pair.after.file}:", pair.after, entries.get(pair.after.file)
