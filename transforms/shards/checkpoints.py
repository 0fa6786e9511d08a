"""The staging area of a run: finished shards wait here, and those of a run that died are found.

A shard is two files and a receipt, written in this order: without its receipt a file counts for
nothing. The area lies beside the dataset, outlives the run that fails, and goes with the one that
publishes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata

from pydantic import ValidationError

from recordmill.schemas import layout
from recordmill.schemas.checkpoint import Receipt, StagedFile
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

_RECEIPTS = "receipts"
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
        """Returns where the files of one kind and split are: Beam's sinks want them together."""
        return layout.join(self.directory, f"{kind}-{split}")

    def make(self, splits: Iterable[str]) -> None:
        """Makes the folders of some splits, and those that their files go to."""
        make_folder(layout.join(self.dataset, layout.RECORDS))
        for split in splits:
            for kind in ("shards", "records"):
                make_folder(self.folder(kind, split))

    def path(self, file: StagedFile) -> str:
        """Returns where a file waits."""
        return layout.join(self.directory, file.staged)

    def staged(self, path: str, final: str, crc32c: int) -> StagedFile:
        """Returns what a receipt says of a file that was just closed."""
        name = path.removeprefix(self.directory).lstrip("/")
        return StagedFile(staged=name, final=final, size=file_size(path) or 0, crc32c=crc32c)

    def keep(self, receipt: Receipt) -> None:
        """Writes the receipt of a finished shard; from now on it counts."""
        path = self._receipt(receipt.info.split, receipt.info.index)
        write_bytes(path, receipt.model_dump_json().encode())

    def has(self, split: str, index: int) -> bool:
        """Returns whether there is a receipt of a shard, whatever it says."""
        return exists(self._receipt(split, index))

    def find(self, split: str, index: int, fingerprint: str) -> Receipt | None:
        """Returns the receipt of a shard if it is whole and as it would be written now.

        What is there, but is another or damaged, is deleted.
        """
        receipt = self._read(self._receipt(split, index))
        if receipt is None:
            return None
        if receipt.fingerprint == fingerprint and all(map(self._whole, receipt.files)):
            return receipt
        self._forget(receipt)
        return None

    def count(self) -> int:
        """Returns how many finished shards there are."""
        return len(files_below(self.directory, f"{_RECEIPTS}/*.json"))

    def drop_others(self, settings: str) -> None:
        """Deletes the shards that were made under other settings: they would never be taken."""
        for receipt in self._receipts():
            if receipt.settings != settings:
                self._forget(receipt)

    def reclaim(self) -> None:
        """Takes stock of what a run has left that is no more.

        Shards that had their final names already get those of the staging area again; files
        without a receipt, of shards that were open, are deleted.
        """
        known = set[str]()
        receipts = self._receipts()
        with ThreadPoolExecutor(_THREADS) as executor:
            for _ in executor.map(self._take_back, receipts):
                pass
        for receipt in receipts:
            known |= {self._name(receipt), *(file.staged for file in receipt.files)}
        for name in files_below(self.directory, "**"):
            if name not in known:
                delete(layout.join(self.directory, name))

    def _take_back(self, receipt: Receipt) -> None:
        for file in receipt.files:
            final = layout.join(self.dataset, file.final)
            if not exists(self.path(file)) and exists(final):
                move(final, self.path(file))

    def _whole(self, file: StagedFile) -> bool:
        path = self.path(file)
        if not exists(path) or file_size(path) != file.size:
            return False
        with local_copy(path) as copy:
            return stream_checksum(copy)[1] == file.crc32c

    def _forget(self, receipt: Receipt) -> None:
        delete(layout.join(self.directory, self._name(receipt)))
        for file in receipt.files:
            if exists(self.path(file)):
                delete(self.path(file))

    def _receipts(self) -> list[Receipt]:
        names = files_below(self.directory, f"{_RECEIPTS}/*.json")
        paths = [layout.join(self.directory, name) for name in names]
        with ThreadPoolExecutor(_THREADS) as executor:
            return [receipt for receipt in executor.map(self._read, paths) if receipt]

    def _read(self, path: str) -> Receipt | None:
        try:
            with open_binary(path) as stream:
                return Receipt.model_validate_json(stream.read())
        except (OSError, ValidationError):
            return None  # there is none, or one that was cut short: the shard is written anew

    def _receipt(self, split: str, index: int) -> str:
        return layout.join(self.directory, _RECEIPTS, f"{split}-{index:05d}.json")

    def _name(self, receipt: Receipt) -> str:
        return f"{_RECEIPTS}/{receipt.info.split}-{receipt.info.index:05d}.json"


def versions() -> dict[str, str]:
    """Returns the versions of the packages that make the bytes of shards."""
    packages = {package: metadata.version(package) for package in _PACKAGES}
    return {**packages, "zlib": zlib.ZLIB_RUNTIME_VERSION}  # Python's own: --compression gzip
