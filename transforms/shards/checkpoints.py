"""The staging area of finished shards, and the fingerprints by which a run reuses them.

A finished shard is two files and a checkpoint with its fingerprint: a digest of everything that
decides the shard's bytes. The checkpoint is written last, so files without one are incomplete. The
area is next to the dataset. It survives a failed run and is deleted by the run that publishes.

A fingerprint leaves out the line of a row in its table, the number of shards, and class names that
no row of the shard has. So a shard stays valid when rows are inserted before its own, or classes
are appended to the list.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata

from pydantic import ValidationError

from recordmill.schemas import layout
from recordmill.schemas.config import FORMAT_VERSION, ConvertConfig
from recordmill.schemas.dataset_info import Checkpoint, ImageFault, WrittenShard
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import ImageRef
from recordmill.transforms.functional.records.index import row_class
from recordmill.transforms.storage.files import (
    delete,
    exists,
    file_size,
    files_below,
    make_folder,
    move,
    open_binary,
    write_bytes,
)
from recordmill.transforms.storage.shard_files import local_copy, stream_checksum

_CHECKPOINTS = "checkpoints"
_THREADS = 16
"""Concurrent file operations: they wait for the file system or store, not for a core."""


@dataclass(frozen=True)
class Staging:
    """The staging area of one dataset.

    Attributes:
        directory: the folder of the staging area.
        dataset: the folder of the dataset that is being written.
    """

    directory: str
    dataset: str

    def folder(self, kind: str, split: str) -> str:
        """Returns the folder for one kind of file and one split; a Beam sink renames per folder.

        Args:
            kind: "shards" or "records".
            split: the split.
        """
        return layout.join(self.directory, f"{kind}-{split}")

    def make(self, splits: Iterable[str]) -> None:
        """Creates the staging folders of the given splits, and the dataset's folder of indexes."""
        make_folder(layout.join(self.dataset, layout.RECORDS))
        for split in splits:
            for kind in ("shards", "records"):
                make_folder(self.folder(kind, split))

    def paths(self, shard: WrittenShard) -> tuple[str, str]:
        """Returns the staging paths of a shard's file and its index."""
        shard_file, index_file = shard.staged
        return layout.join(self.directory, shard_file), layout.join(self.directory, index_file)

    def relative(self, path: str) -> str:
        """Returns a path relative to the staging area."""
        return path.removeprefix(self.directory).lstrip("/")

    def sizes(self, shard: WrittenShard) -> tuple[int, int]:
        """Returns the sizes of a shard's file and its index, in bytes; 0 for a missing file."""
        shard_file, index_file = self.paths(shard)
        return file_size(shard_file) or 0, file_size(index_file) or 0

    def keep(self, checkpoint: Checkpoint) -> None:
        """Writes the checkpoint of a finished shard, which makes the shard reusable."""
        write_bytes(self._path_of(checkpoint), checkpoint.model_dump_json().encode())

    def has(self, split: str, index: int) -> bool:
        """Returns whether a shard has a checkpoint, valid or not.

        Args:
            split: the shard's split.
            index: the shard's number in the split.
        """
        return exists(self._checkpoint_path(split, index))

    def find(self, split: str, index: int, fingerprint: str) -> Checkpoint | None:
        """Returns the checkpoint of a shard; None unless complete and of the same fingerprint.

        Deletes a checkpoint that is damaged or has another fingerprint, and its files.

        Args:
            split: the shard's split.
            index: the shard's number in the split.
            fingerprint: the required fingerprint.
        """
        checkpoint = self._read(self._checkpoint_path(split, index))
        if checkpoint is None:
            return None
        if checkpoint.fingerprint == fingerprint and self._is_intact(checkpoint):
            return checkpoint
        self._delete(checkpoint)
        return None

    def count(self) -> int:
        """Returns the number of finished shards."""
        return len(files_below(self.directory, f"{_CHECKPOINTS}/*.json"))

    def drop_others(self, settings: str) -> None:
        """Deletes shards with another settings fingerprint, which this run cannot reuse."""
        for checkpoint in self._checkpoints():
            if checkpoint.settings != settings:
                self._delete(checkpoint)

    def recover(self) -> None:
        """Restores the staging area after an interrupted run.

        Moves shards that already had their final names back into the area, and deletes files
        without a checkpoint, which belong to unfinished shards.
        """
        checkpoints = self._checkpoints()
        with ThreadPoolExecutor(_THREADS) as executor:
            for _ in executor.map(self._move_back, checkpoints):
                pass
        known = {self.relative(self._path_of(checkpoint)) for checkpoint in checkpoints}
        known |= {name for checkpoint in checkpoints for name in checkpoint.shard.staged}
        for name in files_below(self.directory, "**"):
            if name not in known:
                delete(layout.join(self.directory, name))

    def _move_back(self, checkpoint: Checkpoint) -> None:
        for path, final in zip(self.paths(checkpoint.shard), checkpoint.final, strict=True):
            renamed = layout.join(self.dataset, final)
            if not exists(path) and exists(renamed):
                move(renamed, path)

    def _is_intact(self, checkpoint: Checkpoint) -> bool:
        """Returns whether both files of a shard have their recorded sizes and checksums."""
        shard = checkpoint.shard
        paths, expected = self.paths(shard), (shard.crc32c, shard.index_crc32c)
        return all(map(_matches, paths, checkpoint.sizes, expected))

    def _delete(self, checkpoint: Checkpoint) -> None:
        # The checkpoint goes first: a checkpoint without files would be found, and fail to match.
        delete(self._path_of(checkpoint))
        for path in filter(exists, self.paths(checkpoint.shard)):
            delete(path)

    def _checkpoints(self) -> list[Checkpoint]:
        names = files_below(self.directory, f"{_CHECKPOINTS}/*.json")
        paths = [layout.join(self.directory, name) for name in names]
        with ThreadPoolExecutor(_THREADS) as executor:
            return [checkpoint for checkpoint in executor.map(self._read, paths) if checkpoint]

    def _read(self, path: str) -> Checkpoint | None:
        try:
            with open_binary(path) as stream:
                return Checkpoint.model_validate_json(stream.read())
        except (OSError, ValidationError):
            return None  # missing or truncated: the shard is written again

    def _checkpoint_path(self, split: str, index: int) -> str:
        return layout.join(self.directory, _CHECKPOINTS, f"{split}-{index:05d}.json")

    def _path_of(self, checkpoint: Checkpoint) -> str:
        return self._checkpoint_path(checkpoint.shard.split, checkpoint.shard.index)


def _matches(path: str, size: int, crc32c: int) -> bool:
    """Returns whether a file exists with a size and the checksum of its uncompressed stream."""
    if not exists(path) or file_size(path) != size:  # cheap, and detects most damage
        return False
    with local_copy(path) as copy:
        return stream_checksum(copy)[1] == crc32c


_PACKAGES = ("recordmill", "Pillow", "pyarrow", "protobuf", "numpy", "pycocotools")
"""Packages whose version can change the bytes of a shard."""


def versions() -> dict[str, str]:
    """Returns the versions of the libraries that decide the bytes of shards."""
    packages = {package: metadata.version(package) for package in _PACKAGES}
    return {**packages, "zlib": zlib.ZLIB_RUNTIME_VERSION}  # which writes --compression gzip


def settings_fingerprint(
    config: ConvertConfig, resolved: ResolvedSchema, versions: Mapping[str, str]
) -> str:
    """Returns a hex digest of the settings that decide the bytes of every shard of a run.

    Args:
        config: the compression, decoding, verification and image root guard.
        resolved: the resolved schema with its image settings; class names are left out.
        versions: library name to version, of the libraries that decide the bytes of shards.
    """
    document = {
        "format_version": FORMAT_VERSION,
        "versions": dict(sorted(versions.items())),
        "schema": resolved.schema.model_dump(mode="json"),
        "compression": config.compression,
        "decode": config.decode,
    }
    if config.verify == "decode":  # a run without it may have stored images it would reject
        document["verify"] = config.verify
    if config.guard is not None:  # a run without it may have read files outside the image root
        document["image_root_guard"] = config.guard
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Fingerprint:
    """The fingerprint of one shard.

    Attributes:
        settings: the settings fingerprint, common to all shards of a run.
        split: the shard's split.
        index: the shard's number in the split.
        refs: the shard's references in order, each with the version tag of its image file.
        resolved: the resolved schema.
    """

    settings: str
    split: str
    index: int
    refs: Sequence[tuple[ImageRef, str]]
    resolved: ResolvedSchema

    @cached_property
    def digest(self) -> str:
        """The hex digest, which checkpoints store."""
        return self._digest(self._rows)

    def without(self, faults: Sequence[ImageFault]) -> str:
        """Returns the digest without the rejected rows, which the manifest stores.

        A later version with this one as its base finds shards by this digest: its rows exclude the
        rejected ones, whether or not its table still has them.
        """
        if not faults:
            return self.digest
        rejected = {fault.position for fault in faults}
        return self._digest(row for i, row in enumerate(self._rows) if i not in rejected)

    @cached_property
    def _rows(self) -> list[bytes]:
        """The encoded rows, cached because `digest` and `without` both hash them."""
        return [self._row(ref, version_tag) for ref, version_tag in self.refs]

    def _row(self, ref: ImageRef, version_tag: str) -> bytes:
        # Neither the source location nor the split column changes a record's bytes; the shard's
        # split is part of the digest itself.
        hashed = ref._replace(file="", line=0, split="", group="")
        if ref.staged:  # staged by this run under a new name; the field is the hash of its bytes
            hashed = hashed._replace(uri="", start=None, stop=None)
        text = repr((tuple(hashed), version_tag, row_class(ref.values, self.resolved)))
        return text.encode("utf-8", "backslashreplace")

    def _digest(self, rows: Iterable[bytes]) -> str:
        digest = hashlib.sha256(f"{self.settings}\0{self.split}\0{self.index}\0".encode())
        for row in rows:
            digest.update(row)
        return digest.hexdigest()
