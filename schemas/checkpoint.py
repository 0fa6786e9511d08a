"""The receipt of a finished shard: by it, a later run knows the shard, and takes it as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from recordmill.schemas.dataset_info import ShardInfo
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


class StagedFile(BaseModel):
    """A file of a finished shard.

    Attributes:
        staged: its name in the staging area.
        final: its name below the dataset's folder.
        size: bytes.
        crc32c: of the file; of a shard, of its uncompressed stream.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    staged: File
    final: File
    size: int
    crc32c: int


class ImageFault(BaseModel):
    """A reference that could not become a record.

    Attributes:
        place: its number among the shard's references, from 0.
        reason: one of the closed list.
        detail: in words.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    place: int
    reason: Reason
    detail: str

    @property
    def passing(self) -> bool:
        """Whether the machine or the network may be to blame, so that the next try may succeed."""
        return self.reason in _PASSING


class Receipt(BaseModel):
    """A finished shard.

    Attributes:
        settings: fingerprint of what decided the bytes of all shards of the run.
        fingerprint: of what decided those of this one.
        info: what the shard holds.
        shard: its file.
        records: the index of its records.
        faults: which of its references were rejected.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: str
    fingerprint: str
    info: ShardInfo
    shard: StagedFile
    records: StagedFile
    faults: tuple[ImageFault, ...]

    @property
    def files(self) -> tuple[StagedFile, StagedFile]:
        """Both files."""
        return self.shard, self.records

    def rejects(self, refs: Sequence[ImageRef]) -> Iterator[Reject]:
        """Yields the rejects of the shard, with the places that its rows have in today's table."""
        for fault in self.faults:
            ref = refs[fault.place]
            yield Reject.of(ref, fault.reason, fault.detail, self.info.split)
