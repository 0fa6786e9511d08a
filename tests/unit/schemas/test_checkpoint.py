"""The checkpoint of a finished shard names files of the run's own folder, and no others."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from recordmill.schemas.checkpoint import StagedFile


@pytest.mark.parametrize("field", ["staged", "final"])
@pytest.mark.parametrize("name", ["../../notes.txt", "/etc/passwd", "s3://bucket/key", "a//b", ""])
def test_a_file_outside_of_the_folder_is_not_taken(field: str, name: str) -> None:
    """A run deletes the files of a checkpoint that it does not take."""
    names = {"staged": "shards-train/00000-x", "final": "birds-train.tfrecord-00000-of-00001"}
    StagedFile(**names, size=1, crc32c=0)
    with pytest.raises(ValidationError, match="is not a name below"):
        StagedFile(**{**names, field: name}, size=1, crc32c=0)
