"""Fingerprints of shards: digests of everything that decides a shard's bytes.

Equal fingerprints mean equal shards. A fingerprint leaves out the line of a row in its table, the
number of shards, and class names that no row of the shard has. So a shard stays valid when rows are
inserted before its own, or classes are appended to the list.
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

        A later version that has this one as its base finds shards by it: rejected rows are in no
        shard of the base, whether or not the later version's table still has them.
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
