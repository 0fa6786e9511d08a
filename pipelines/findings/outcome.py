"""What findings are computed from: the manifest, and what only the run knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from recordmill.schemas.manifest import Manifest


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run; for a dataset that is opened later, the manifest alone."""

    manifest: Manifest
    skipped_names: Mapping[str, Sequence[str]] = field(default_factory=dict)  # first ones, by kind
    linked: int = 0  # shards taken from the base version without reading them

    @property
    def is_sample(self) -> bool:
        """Whether rows are a sample, whose splits and classes are those of all rows, by chance."""
        return self.manifest.config.get("sample") is not None
