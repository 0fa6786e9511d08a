"""The checkpoint of a finished shard: by it, a later run finds the shard and reuses it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from recordmill.schemas.dataset_info import WrittenShard
from recordmill.schemas.manifest import File
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reason, Reject

_PASSING = frozenset(
    {
        Reason.READ_ERROR,
        Reason.TIMEOUT,
        Reason.DECODER_CRASH,
        Reason.TOO_MANY_PIXELS,
        Reason.OUTSIDE_ROOT,  # where links lead is in no fingerprint
    }
)


class ImageFault(BaseModel):
    """A reference that could not become a record.

    Attributes:
        position: its number among the shard's references, from 0.
        reason: one of the closed list.
        detail: in words.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    position: int
    reason: Reason
    detail: str

    @property
    def passing(self) -> bool:
        """Whether the machine or the network may be to blame, so that the next try may succeed."""
        return self.reason in _PASSING


class Checkpoint(BaseModel):
    """A finished shard.

    Attributes:
        settings: fingerprint of what decided the bytes of all shards of the run.
        fingerprint: of what decided those of this one.
        shard: what it holds, and its two files in the staging area: records, and their index.
        final: the names of both files below the dataset's folder.
        sizes: of both files, in bytes.
        faults: which of its references were rejected.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: str
    fingerprint: str
    shard: WrittenShard
    final: tuple[File, File]
    sizes: tuple[int, int]
    faults: tuple[ImageFault, ...]

    def rejects(self, refs: Sequence[ImageRef]) -> Iterator[Reject]:
        """Yields the rejects of the shard, with the source locations of today's table."""
        for fault in self.faults:
            ref = refs[fault.position]
            yield Reject.of(ref, fault.reason, fault.detail, self.shard.split)
