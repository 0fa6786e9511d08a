"""What decides the bytes of a shard, in one digest: where it is the same, the shard is, too.

Not in it: where a row stands in its table, how many shards there are, and the class names that none
of the shard's rows has. So a shard outlives rows that come before it in the table, and classes that
come after it in the list.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from recordmill.schemas.config import FORMAT_VERSION, ConvertConfig
from recordmill.schemas.dataset_info import ImageFault
from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import ImageRef
from recordmill.transforms.functional.records.index import row_class


def settings_fingerprint(
    config: ConvertConfig, resolved: ResolvedSchema, versions: Mapping[str, str]
) -> str:
    """Returns a hex digest of what decides the bytes of every shard of a run.

    Args:
        config: how to decode and compress.
        resolved: the resolved schema, image settings included; except for its class names.
        versions: of the packages that make bytes.
    """
    document = {
        "format_version": FORMAT_VERSION,
        "versions": dict(sorted(versions.items())),
        "schema": resolved.schema.model_dump(mode="json"),
        "compression": config.compression,
        "decode": config.decode,
    }
    if config.verify == "decode":  # others may have stored what TensorFlow does not decode
        document["verify"] = config.verify
    if config.guard is not None:  # a run without it may have read what lies outside
        document["fence"] = config.guard
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Fingerprint:
    """The fingerprint of one shard: all that decides its bytes, in one digest.

    Attributes:
        settings: the fingerprint of what holds for all shards.
        split: the shard's split.
        index: its number.
        refs: its references in order, each with the version tag of its image file.
        resolved: the resolved schema.
    """

    settings: str
    split: str
    index: int
    refs: Sequence[tuple[ImageRef, str]]
    resolved: ResolvedSchema

    @cached_property
    def digest(self) -> str:
        """Hex digest of it."""
        return self._digest(self._rows)

    def without(self, faults: Sequence[ImageFault]) -> str:
        """Returns the fingerprint of the same shard, had it never had the rejected rows.

        By this one the shards of a base are found: its rejected rows are in no shard of it.
        """
        if not faults:
            return self.digest
        rejected = {fault.position for fault in faults}
        return self._digest(row for i, row in enumerate(self._rows) if i not in rejected)

    @cached_property
    def _rows(self) -> list[bytes]:
        """What decides the bytes of each row, kept: two digests are made of it."""
        return [self._row(ref, version_tag) for ref, version_tag in self.refs]

    def _row(self, ref: ImageRef, version_tag: str) -> bytes:
        of_row = ref._replace(file="", line=0, split="", group="")
        if ref.staged:  # the same bytes lie elsewhere in each run
            of_row = of_row._replace(uri="", start=None, stop=None)
        text = repr((tuple(of_row), version_tag, row_class(ref.values, self.resolved)))
        return text.encode("utf-8", "backslashreplace")

    def _digest(self, rows: Iterable[bytes]) -> str:
        digest = hashlib.sha256(f"{self.settings}\0{self.split}\0{self.index}\0".encode())
        for row in rows:
            digest.update(row)
        return digest.hexdigest()
