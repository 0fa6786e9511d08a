"""Checks a certificate of removal against the dataset that it was published with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from google.protobuf.message import DecodeError
from pydantic import ValidationError

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.errors import VerificationFailed
from recordmill.schemas.manifest import ShardEntry
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.removal import Removal, ShardDigest, digest_of_key
from recordmill.transforms.functional.read_ahead import map_ahead
from recordmill.transforms.functional.records.examples import read_features
from recordmill.transforms.functional.records.framing import FrameError, read_frames
from recordmill.transforms.storage.dataset import Dataset, read_file
from recordmill.transforms.storage.shard_files import DAMAGED_GZIP, uncompressed
from recordmill.transforms.workers.cores import num_cores

_SHARDS_AHEAD = 4


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


def check_certificate(dataset: Dataset) -> Iterator[Problem]:
    """Yields the problems of removal.json; none if the dataset has no such file.

    Args:
        dataset: a published dataset.
    """
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
    yield from removal_problems(dataset, removal)


def removal_problems(dataset: Dataset, removal: Removal) -> Iterator[Problem]:
    """Yields the problems of a certificate: wrong counts and digests, and records that remain.

    Reads all records, and computes the digests of their images.

    Args:
        dataset: the dataset.
        removal: its certificate.
    """
    for what, stated, found in _statements(dataset, removal):
        if stated != found:
            message = f"states {what} {stated}, but the manifest has {found}"
            yield Problem(layout.REMOVAL, message)
    check = partial(_present, dataset, removal)
    cores = num_cores()
    with ThreadPoolExecutor(cores) as executor:
        shards = dataset.shards().values()
        for problems in map_ahead(check, shards, executor, _SHARDS_AHEAD * cores):
            yield from problems


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


def _present(dataset: Dataset, removal: Removal, shard: ShardEntry) -> list[Problem]:
    """Returns a problem for each record of a shard that was removed, by key or by image."""
    keys, images = frozenset(removal.keys_sha256), frozenset(removal.images_sha256)
    problems = list[Problem]()
    try:
        found = dataset.index(shard, ["key"])["key"].to_pylist()
        with uncompressed(dataset.path(shard.file)) as stream:
            for key, frame in zip(found, read_frames(stream), strict=False):
                at = frame.record, frame.offset
                if digest_of_key(key) in keys:
                    what = f"its key {key!r} is one that {layout.REMOVAL} states as removed"
                    problems.append(Problem(shard.file, what, *at))
                if not images.isdisjoint(image_digests(frame.data, dataset.manifest.resolved)):
                    what = f"its image is one that {layout.REMOVAL} states as removed (key {key!r})"
                    problems.append(Problem(shard.file, what, *at))
    except (
        VerificationFailed,
        FrameError,
        DecodeError,
        ValueError,
        OSError,
        *DAMAGED_GZIP,
    ) as error:
        problems.append(Problem(shard.file, f"cannot be searched for removed records: {error}"))
    return problems
