"""The staging area of a run: finished shards wait here, also for the next run if this one dies.

A shard is two files and a checkpoint, written in this order: without its checkpoint a file counts
for nothing. The area is beside the dataset, outlives a run that fails, and is deleted by the one
that publishes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata

from pydantic import ValidationError

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import Checkpoint, WrittenShard
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
_PACKAGES = ("recordmill", "Pillow", "pyarrow", "protobuf", "numpy", "pycocotools")


@dataclass(frozen=True)
class Staging:
    """The staging area of one dataset.

    Attributes:
        directory: where it is.
        dataset: the folder of the dataset that is being written.
    """

    directory: str
    dataset: str

    def folder(self, kind: str, split: str) -> str:
        """Returns the folder of the files of one kind and split, which Beam's sinks need together.

        Args:
            kind: "shards" or "records".
            split: the split.
        """
        return layout.join(self.directory, f"{kind}-{split}")

    def make(self, splits: Iterable[str]) -> None:
        """Makes the folders of some splits, and those that their files go to."""
        make_folder(layout.join(self.dataset, layout.RECORDS))
        for split in splits:
            for kind in ("shards", "records"):
                make_folder(self.folder(kind, split))

    def paths(self, shard: WrittenShard) -> tuple[str, str]:
        """Returns where the two files of a shard wait."""
        shard_file, index_file = shard.staged
        return layout.join(self.directory, shard_file), layout.join(self.directory, index_file)

    def name(self, path: str) -> str:
        """Returns the name of a file of the area below its folder."""
        return path.removeprefix(self.directory).lstrip("/")

    def sizes(self, shard: WrittenShard) -> tuple[int, int]:
        """Returns the sizes of the two files of a shard, in bytes."""
        shard_file, index_file = self.paths(shard)
        return file_size(shard_file) or 0, file_size(index_file) or 0

    def keep(self, checkpoint: Checkpoint) -> None:
        """Writes the checkpoint of a finished shard; from now on it counts."""
        path = self._checkpoint(checkpoint.shard.split, checkpoint.shard.index)
        write_bytes(path, checkpoint.model_dump_json().encode())

    def has(self, split: str, index: int) -> bool:
        """Returns whether a shard has a checkpoint, valid or not.

        Args:
            split: the shard's split.
            index: its number in the split.
        """
        return exists(self._checkpoint(split, index))

    def find(self, split: str, index: int, fingerprint: str) -> Checkpoint | None:
        """Returns the checkpoint of a shard; None unless complete and of the same fingerprint.

        Deletes a checkpoint that is damaged or has another fingerprint, and its files.

        Args:
            split: the shard's split.
            index: its number in the split.
            fingerprint: the fingerprint that the shard has to have.
        """
        checkpoint = self._read(self._checkpoint(split, index))
        if checkpoint is None:
            return None
        if checkpoint.fingerprint == fingerprint and self._is_whole(checkpoint):
            return checkpoint
        self._forget(checkpoint)
        return None

    def count(self) -> int:
        """Returns how many finished shards there are."""
        return len(files_below(self.directory, f"{_CHECKPOINTS}/*.json"))

    def drop_others(self, settings: str) -> None:
        """Deletes the shards that were made under other settings: they would never be taken."""
        for checkpoint in self._checkpoints():
            if checkpoint.settings != settings:
                self._forget(checkpoint)

    def reclaim(self) -> None:
        """Takes stock of what a run has left that is no more.

        Shards that had their final names already get those of the staging area again; files
        without a checkpoint, of shards that were open, are deleted.
        """
        known = set[str]()
        checkpoints = self._checkpoints()
        with ThreadPoolExecutor(_THREADS) as executor:
            for _ in executor.map(self._take_back, checkpoints):
                pass
        for checkpoint in checkpoints:
            known |= {self._name(checkpoint), *checkpoint.shard.staged}
        for name in files_below(self.directory, "**"):
            if name not in known:
                delete(layout.join(self.directory, name))

    def _take_back(self, checkpoint: Checkpoint) -> None:
        for path, final in zip(self.paths(checkpoint.shard), checkpoint.final, strict=True):
            published = layout.join(self.dataset, final)
            if not exists(path) and exists(published):
                move(published, path)

    def _is_whole(self, checkpoint: Checkpoint) -> bool:
        shard = checkpoint.shard
        paths, expected = self.paths(shard), (shard.crc32c, shard.index_crc32c)
        return all(map(_is_file, paths, checkpoint.sizes, expected))

    def _forget(self, checkpoint: Checkpoint) -> None:
        delete(layout.join(self.directory, self._name(checkpoint)))
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
            return None  # there is none, or one that was cut short: the shard is written again

    def _checkpoint(self, split: str, index: int) -> str:
        return layout.join(self.directory, _CHECKPOINTS, f"{split}-{index:05d}.json")

    def _name(self, checkpoint: Checkpoint) -> str:
        return f"{_CHECKPOINTS}/{checkpoint.shard.split}-{checkpoint.shard.index:05d}.json"


def _is_file(path: str, size: int, crc32c: int) -> bool:
    if not exists(path) or file_size(path) != size:
        return False
    with local_copy(path) as copy:
        return stream_checksum(copy)[1] == crc32c


def versions() -> dict[str, str]:
    """Returns the versions of the packages that make the bytes of shards."""
    packages = {package: metadata.version(package) for package in _PACKAGES}
    return {**packages, "zlib": zlib.ZLIB_RUNTIME_VERSION}  # Python's own: --compression gzip
