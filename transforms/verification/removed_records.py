"""Searches a shard for removed records: all of its records are read again."""

from __future__ import annotations

from google.protobuf.message import DecodeError

from recordmill.schemas import layout
from recordmill.schemas.dataset_info import Problem
from recordmill.schemas.errors import VerificationFailed
from recordmill.schemas.manifest import ShardEntry
from recordmill.transforms.functional.records.framing import FrameError, read_frames
from recordmill.transforms.functional.records.removal import Removed
from recordmill.transforms.storage.dataset import read_index
from recordmill.transforms.storage.shard_files import DAMAGED_GZIP, uncompressed


def find_removed(directory: str, shard: ShardEntry, removed: Removed) -> list[Problem]:
    """Returns a problem for each record of a shard that was removed, by key or by image.

    Holds the keys of the shard and one record in memory.

    Args:
        directory: the dataset's folder.
        shard: the shard.
        removed: the removed records.
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
        *DAMAGED_GZIP,
    ) as error:
        problems.append(Problem(shard.file, f"cannot be searched for removed records: {error}"))
    return problems
