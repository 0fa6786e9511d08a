"""Duplicate statistics: images that occur more than once in a dataset, or in its input."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from recordmill.schemas.masking import masked_json, masked_source

EXAMPLES = 5
"""How many keys or pairs of keys are shown of what may be millions."""

PAIRED_SPLITS = 32
"""An image in more splits than these is counted in pairs with the first of its splits only."""

Pair = tuple[str, str]
"""The keys of two records, or rows, with one image."""


class Leakage(BaseModel):
    """Two splits that share images: a model is tested on what it was trained on.

    Attributes:
        splits: the two, sorted.
        images: how many images are in both; one that is in more than `PAIRED_SPLITS` splits is
            counted with the first of them only.
        records: how many records of the two hold them.
        examples: for each of some images the smallest key in the one split and in the other.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    splits: tuple[str, str]
    images: int
    records: int
    examples: tuple[Pair, ...] = ()


class GroupLeakage(BaseModel):
    """Groups (`--group_column`) whose rows are in more than one split.

    Attributes:
        groups: how many.
        examples: some of them, each with its splits.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    groups: int = 0
    examples: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Conflicts(BaseModel):
    """Images that have more than one label.

    Attributes:
        images: how many.
        records: how many records, or rows, have them.
        examples: for each of some images the smallest keys of two labels.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: int = 0
    records: int = 0
    examples: tuple[Pair, ...] = ()


class DuplicateStats(BaseModel):
    """Duplicate images of a dataset, detected by the digests of the images as stored.

    Attributes:
        images: how many different ones there are.
        duplicates: split to the number of its records that repeat another of its images.
        leaks: the pairs of splits that share images.
        conflicts: images whose records have different labels.
        dropped_conflicts: images of which rows were dropped (`--deduplicate`), though their label
            was not that of the row that was kept.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: int = 0
    duplicates: dict[str, int] = {}
    leaks: tuple[Leakage, ...] = ()
    conflicts: Conflicts = Conflicts()
    dropped_conflicts: Conflicts = Conflicts()


NO_CONTENT = DuplicateStats()
"""What is known of no images."""


@dataclass(frozen=True)
class Duplicate:
    """A row that was dropped, because its image is that of another row.

    Attributes:
        key: the row's key.
        uri: where its image is.
        source: file and line of the row.
        split: the split that it had been placed in.
        kept: the key of the row that was kept.
        label: the row's label, if it is not that of the row that was kept; "" otherwise.
        kept_label: the label of the row that was kept.
    """

    key: str
    uri: str
    source: str
    split: str
    kept: str
    label: str = ""
    kept_label: str = ""

    def to_json(self) -> str:
        """Returns one line of dropped/dropped-*.jsonl."""
        source = masked_source(self.source)
        line = {"key": self.key, "uri": self.uri, "source": source, "repeats": self.kept}
        if self.label:
            line |= {"label": self.label, "label_of_repeated": self.kept_label}
        return masked_json(line)
