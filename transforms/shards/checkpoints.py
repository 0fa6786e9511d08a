"""The checkpoints of finished shards, and the fingerprints by which a run reuses them.

A shard is written under its final name, and its checkpoint afterwards, with its fingerprint: a
digest of everything that decides the shard's bytes. The next run deletes files without one. The
checkpoints are next to the dataset. They survive a failed run and are deleted by the run that
publishes.

A fingerprint leaves out the line of a row in its table, the number of shards, and class names that
no row of the shard has. So a shard stays valid when rows are inserted before its own, or classes
are appended to the list.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from itertools import chain
from typing import Any

from PIL import features
from pydantic import ValidationError

from recordmill.schemas import layout
from recordmill.schemas.config import FORMAT_VERSION, ConvertConfig
from recordmill.schemas.dataset_info import Checkpoint, ImageFault
from recordmill.schemas.option import Affects, fields_that_affect
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import Place
from recordmill.schemas.shard_format import SHARD_FORMATS
from recordmill.transforms.elements import encode_columns
from recordmill.transforms.functional.records.index import row_classes
from recordmill.transforms.functional.rows.batches import RefBatch
from recordmill.transforms.storage.drafts import ended_run
from recordmill.transforms.storage.files import (
    all_files_below,
    delete,
    delete_files,
    exists,
    file_size,
    read,
    version,
    write_bytes,
)
from recordmill.transforms.storage.shard_files import ShardFiles, digests
from recordmill.transforms.storage.stores.store import Version

_SUFFIX = ".json"

# References of a shard that are encoded together.
_BATCH_ROWS = 1024

# A placeholder for an unreadable checkpoint: it matches no shard, so the shard is written again.
_DAMAGED = Checkpoint.model_construct(fingerprint="", versions=({}, {}))  # type: ignore[call-arg]


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one dataset, named after the shards."""

    directory: str
    dataset: str
    name: str

    def write(self, checkpoint: Checkpoint, shard: str) -> None:
        """Writes the checkpoint of a finished shard, which makes the shard reusable.

        Raises RecordmillError if the run has ended.
        """
        path = self._path(shard)
        try:
            write_bytes(path, checkpoint.model_dump_json().encode(), with_folders=False)
        except FileNotFoundError as error:
            raise ended_run(path) from error

    def read(self, shard: str) -> Checkpoint | None:
        """Returns the checkpoint of a shard, or None; a damaged one matches no shard."""
        try:
            return Checkpoint.model_validate_json(read(self._path(shard)))
        except FileNotFoundError:
            return None
        except ValidationError:
            return _DAMAGED

    def delete(self, shard: str) -> None:
        """Deletes the checkpoint of a shard."""
        delete(self._path(shard))

    def shards(self) -> set[str]:
        """Returns the file names of the finished shards."""
        names = all_files_below(self.directory)
        return {name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)}

    def keep(self, shards: Collection[str]) -> None:
        """Deletes the checkpoints and files of all finished shards except the given ones."""
        others = sorted(self.shards() - set(shards))
        if not others:
            return
        # Checkpoints first: after a crash in between, the next run deletes files without one.
        delete_files(self.directory, [shard + _SUFFIX for shard in others])
        files = (layout.files_of_shard(self.name, shard) for shard in others)
        delete_files(self.dataset, list(chain.from_iterable(files)))

    def _path(self, shard: str) -> str:
        return layout.join(self.directory, shard + _SUFFIX)


def is_reusable(checkpoint: Checkpoint, fingerprint: str, files: ShardFiles) -> bool:
    """Returns whether a checkpoint has the fingerprint of a shard, and the shard's files match it.

    Object stores compare versions; elsewhere, sizes and checksums are compared.
    """
    if checkpoint.fingerprint != fingerprint:
        return False
    shard = checkpoint.shard
    paths = [layout.join(files.directory, name) for name in (files.file, files.records)]
    checksums = shard.crc32c, shard.index_crc32c
    return all(map(_is_intact, paths, checkpoint.sizes, checksums, checkpoint.versions))


def _is_intact(path: str, size: int, crc32c: int, expected: Version) -> bool:
    if expected:
        try:
            return version(path) == expected
        except FileNotFoundError:
            return False
    if not exists(path) or file_size(path) != size:
        return False
    return digests(path).crc32c == crc32c


# Packages whose version can change the bytes of a shard of any format.
_PACKAGES = ("recordmill", "Pillow", "pyarrow", "protobuf", "numpy", "pycocotools")


@cache  # each version parses all metadata of a package
def versions() -> Mapping[str, str]:
    """Returns the versions of the libraries that decide the bytes of shards."""
    names = chain(_PACKAGES, *(found.packages for found in SHARD_FORMATS.values()))
    packages = {package: metadata.version(package) for package in names}
    codec = features.version("libjpeg_turbo") or "none"  # encodes resized JPEGs
    return {**packages, "zlib": zlib.ZLIB_RUNTIME_VERSION, "libjpeg-turbo": codec}


def settings_fingerprint(
    config: ConvertConfig, resolved: ResolvedSchema, versions: Mapping[str, str]
) -> str:
    """Returns a hex digest of the settings that decide the bytes of every shard of a run.

    Of class names, only the number of those of masks counts. `versions` is the version of each
    library that decides the bytes of shards, by name.
    """
    of_shards = fields_that_affect(type(config), Affects.SHARD)
    document = {
        "format_version": FORMAT_VERSION,
        "versions": dict(sorted(versions.items())),
        "schema": resolved.schema.model_dump(mode="json"),
        "options": config.model_dump(mode="json", include=of_shards),
    }
    if resolved.mask_classes:
        document["mask_classes"] = resolved.mask_classes
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Fingerprint:
    """The fingerprint of one shard."""

    settings: str
    split: str
    index: int  # the shard's number in the split
    refs: RefBatch  # the shard's references in order
    tags: Sequence[str]
    resolved: ResolvedSchema

    @cached_property
    def digest(self) -> str:
        """The hex digest, which checkpoints store."""
        return self._digest(self.refs, self.tags)

    def without(self, faults: Sequence[ImageFault]) -> str:
        """Returns the digest without the rejected rows, which the manifest stores.

        A later version with this one as its base finds shards by this digest: its rows exclude the
        rejected ones, whether or not its table still has them.
        """
        if not faults:
            return self.digest
        rejected = {fault.position for fault in faults}
        kept = [i for i in range(len(self.refs)) if i not in rejected]
        return self._digest(self.refs.take(kept), [self.tags[i] for i in kept])

    def _digest(self, refs: RefBatch, tags: Sequence[str]) -> str:
        digest = hashlib.sha256(f"{self.settings}\0{self.split}\0{self.index}\0".encode())
        for start in range(0, len(refs), _BATCH_ROWS):
            some = slice(start, start + _BATCH_ROWS)
            digest.update(self._encoded(refs[some], tuple(tags[some])))
        return digest.hexdigest()

    def _encoded(self, refs: RefBatch, tags: tuple[str, ...]) -> bytes:
        # Neither the source location nor the split, group and cluster change a record's bytes; the
        # shard's split is part of the digest itself.
        keys, _, _, _, _, _, values, _, _, boxes, files, *others, _ = refs.columns
        # Images that this run has staged under new names are known by the hash of their bytes.
        images: list[Any] = [
            "" if staged else (uri, start, stop)
            for uri, start, stop, staged in refs.select("uri", "start", "stop", "staged")
        ]
        images *= len(refs) // len(images)
        files = tuple(map(_identity_of, files))
        classes = row_classes(values, self.resolved)
        return encode_columns(keys, images, values, boxes, files, *others, tags, classes)


def _identity_of(files: Sequence[Place] | None) -> Any:
    """Returns the identity of other files, for a mask the one that earlier versions have."""
    found = [staged or (uri, start, stop) for uri, start, stop, staged in files or ()]
    if not found:
        return ""
    return found[0][0] if len(found) == 1 and found[0][1:] == (None, None) else tuple(found)
