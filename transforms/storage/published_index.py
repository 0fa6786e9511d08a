"""Reads the index of a shard's records: the one that the dataset's manifest lists, and no other.

Beam is loaded only for object stores, so that a reader's workers start fast.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pyarrow as pa

from recordmill.schemas import layout
from recordmill.schemas.errors import ProofError
from recordmill.schemas.manifest import ShardEntry
from recordmill.transforms.functional.one_thread_parquet import read_table
from recordmill.transforms.storage.shard_files import open_stored

_TYPES = {"key": pa.string(), "offset": pa.int64(), "length": pa.int64()}
"""Of the columns that decide which record is read."""


def read_index(directory: str, shard: ShardEntry, columns: Sequence[str]) -> pa.Table:
    """Returns some columns of the index of a shard.

    Args:
        directory: the dataset's folder.
        shard: what its manifest states about the shard.
        columns: which.

    Raises:
        ProofError: if the index is missing, cannot be read, or is not the published one.
    """
    path = layout.join(directory, shard.index_file)
    try:
        with open_stored(path) as stream:
            data = stream.read()
    except FileNotFoundError as error:
        raise ProofError(f"{path}: is missing; restore it from a copy") from error
    except OSError as error:
        what = error.strerror or error
        raise ProofError(f"{path}: cannot be read: {what}; restore it from a copy") from error
    if hashlib.sha256(data).hexdigest() != shard.index_sha256:
        raise ProofError(
            f"{path}: is not the file that {layout.MANIFEST} lists: its sha256 differs; "
            "restore it from a copy"
        )
    try:
        table = read_table(data, columns)
    except (pa.ArrowException, KeyError) as error:  # whoever made the manifest listed it so
        raise ProofError(f"{path}: is not a valid index: {error}; convert again") from error
    for name in columns:
        column, expected = table[name], _TYPES.get(name)
        if expected is not None and (column.type != expected or column.null_count):
            what = f"{column.type} with {column.null_count} nulls"
            raise ProofError(
                f"{path}: is not a valid index: column {name!r}: expected {expected} without "
                f"nulls, got {what}; convert again"
            )
    return table
