"""Checks a certificate of removal against the dataset that it was published with."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from pydantic import ValidationError

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.removal import Removal, ShardDigest
from recordmill.transforms.functional.read_ahead import map_ahead
from recordmill.transforms.functional.records.removal import Removed
from recordmill.transforms.storage.dataset import Dataset
from recordmill.transforms.storage.published import read_file
from recordmill.transforms.verification.removed_records import find_removed
from recordmill.transforms.workers.cores import num_cores

_SHARDS_AHEAD = 4


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
    yield from false_statements(dataset, removal)
    removed = Removed.of(removal, dataset.manifest.resolved)
    check = partial(find_removed, dataset.directory, removed=removed)
    cores = num_cores()
    with ThreadPoolExecutor(cores) as executor:
        shards = dataset.shards().values()
        for problems in map_ahead(check, shards, executor, _SHARDS_AHEAD * cores):
            yield from problems


def false_statements(dataset: Dataset, removal: Removal) -> Iterator[Problem]:
    """Yields the counts and digests of a certificate that are not those of the manifest.

    Args:
        dataset: the dataset.
        removal: its certificate.
    """
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
