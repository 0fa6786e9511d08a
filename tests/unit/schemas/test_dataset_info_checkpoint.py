"""The checkpoint of a finished shard names files of the run's own folder, and no others."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from recordmill.schemas.dataset_info import Checkpoint

SHARD = {
    **{"split": "train", "index": 0, "records": 1, "payload": 9, "crc32c": 1, "index_crc32c": 2},
    **{"classes": {}, "staged": ("shards-train/00000-x", "records-train/00000-x")},
}
CHECKPOINT = {
    **{"settings": "s", "fingerprint": "f", "shard": SHARD, "sizes": (1, 1), "faults": ()},
    "final": ("birds-train.tfrecord-00000-of-00001", "records/records-train.parquet"),
}


@pytest.mark.parametrize("name", ["../../notes.txt", "/etc/passwd", "s3://bucket/key", "a//b", ""])
def test_a_file_outside_of_the_folder_is_not_taken(name: str) -> None:
    """A run deletes the files of a checkpoint that it does not reuse."""
    assert Checkpoint.model_validate(CHECKPOINT).shard.staged == SHARD["staged"]
    for names in ((name, "b"), ("a", name)):
        with pytest.raises(ValidationError, match="is not a path within"):
            Checkpoint.model_validate({**CHECKPOINT, "final": names})
        with pytest.raises(ValidationError, match="is not a path within"):
            Checkpoint.model_validate({**CHECKPOINT, "shard": {**SHARD, "staged": names}})
