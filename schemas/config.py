"""What a conversion is asked to do, checked when it is made."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ByteSize, ConfigDict, Field, field_validator, model_validator

from recordmill.schemas import layout
from recordmill.schemas.features import Schema
from recordmill.schemas.rejects import RejectBudget

FORMAT_VERSION = 1
"""Changes whenever the same input and options would give other bytes."""

SPLIT_NAME = re.compile(r"[A-Za-z]\w{0,49}")
"""It is part of file names, which have 255 bytes; a letter can take four."""

SPLIT_NAME_RULE = "up to 50 letters, digits and _, beginning with a letter"

MAX_SHARDS = 99_999
"""What five digits in a file name can count."""

InputFormat = Literal[
    "auto",
    "csv",
    "tsv",
    "jsonl",
    "parquet",
    "arrow",
    "folder",
    "tar",
    "tfrecord",
    "coco",
    "voc",
    "yolo",
]
Decode = Literal["full", "header"]
Verify = Literal["parse", "decode"]

ShardCount = Annotated[int, Field(ge=1, le=MAX_SHARDS)]


class ConvertConfig(BaseModel):
    """Everything that decides the bytes of a dataset, and where it goes.

    Attributes follow the command line's flags; see `recordmill.pipelines.flags` for their meaning.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    inputs: tuple[str, ...] = Field(min_length=1)
    input_format: InputFormat = "auto"
    output: str = Field(min_length=1)
    name: str = Field(pattern=r"^[A-Za-z]\w*$")
    version: str = Field(default="1.0.0", pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")
    dataset_schema: Schema = Field(alias="schema")
    image_root: str | None = None
    allow_outside_root: bool = False
    columns: dict[str, str] = Field(default_factory=dict)
    labels: str | None = None
    join_on: str | None = None
    key_column: str | None = None
    base: str | None = None
    splits: dict[str, Decimal] | None = None
    split_column: str | None = None
    group_column: str | None = None
    num_shards: Literal["auto"] | ShardCount | dict[str, ShardCount] = "auto"
    shard_size: ByteSize = Field(default=ByteSize(128 * 2**20), gt=0)
    records_per_shard: Annotated[int, Field(ge=1)] | None = None
    classes: tuple[str, ...] | None = None
    seed: int = 0
    compression: Literal["none", "gzip"] = "none"
    deduplicate: Literal["none", "content"] = "none"
    index: bool = False
    decode: Decode = "full"
    verify: Verify = "parse"
    max_rejects: RejectBudget = RejectBudget()
    if_exists: Literal["fail", "skip", "replace"] = "fail"
    report: bool = True

    @field_validator("splits")
    @classmethod
    def _check_splits(cls, splits: dict[str, Decimal] | None) -> dict[str, Decimal] | None:
        if splits is None:
            return None
        if bad := [name for name in splits if not SPLIT_NAME.fullmatch(name)]:
            raise ValueError(f"{bad[0]!r} cannot name a split; expected {SPLIT_NAME_RULE}")
        if any(weight < 0 for weight in splits.values()) or sum(splits.values()) <= 0:
            raise ValueError("split weights must not be negative, and one must be above 0")
        return splits

    @model_validator(mode="after")
    def _check_classes(self) -> ConvertConfig:
        counts = Counter(self.classes or ())
        if repeated := [name for name, count in counts.items() if count > 1]:
            raise ValueError(f"--classes names {min(repeated)!r} twice; each name is one class")
        return self

    @model_validator(mode="after")
    def _check_join(self) -> ConvertConfig:
        if (self.labels is None) != (self.join_on is None):
            raise ValueError("--labels PATTERN and --join_on COLUMN go together; give both")
        return self

    @model_validator(mode="after")
    def _check_records_per_shard(self) -> ConvertConfig:
        if self.records_per_shard is not None and self.num_shards != "auto":
            raise ValueError("--records_per_shard and --num_shards both say how many; drop one")
        return self

    @model_validator(mode="after")
    def _check_num_shards(self) -> ConvertConfig:
        open_list = self.splits is None and self.split_column is not None
        named = self.num_shards.keys() if isinstance(self.num_shards, dict) else set()
        if not open_list and (unknown := sorted(named - self.weights.keys())):
            expected = ", ".join(self.weights)
            raise ValueError(f"--num_shards names split {unknown[0]!r}; there are: {expected}")
        return self

    @model_validator(mode="after")
    def _check_index(self) -> ConvertConfig:
        if self.index and self.compression != "none":
            raise ValueError(
                "--index tells where records begin, and nobody can seek in a gzip stream; "
                "leave it out, or choose --compression none"
            )
        return self

    @property
    def weights(self) -> dict[str, Decimal]:
        """The weight of each split for rows that bring no split of their own."""
        return self.splits or {"train": Decimal(1)}

    @property
    def fence(self) -> str | None:
        """The folder that no image may be outside of, or None."""
        return None if self.allow_outside_root else self.image_root

    @property
    def directory(self) -> str:
        """Where the dataset is published."""
        return layout.join(self.output, self.name, self.version)

    def column(self, schema_column: str) -> str:
        """Returns the table's name of a schema's column."""
        return self.columns.get(schema_column, schema_column)

    @property
    def fingerprint(self) -> str:
        """Hex digest of every option that decides the dataset's content."""
        outside = {"output", "if_exists", "max_rejects", "verify", "index", "report"}
        document = self.model_dump_json(exclude=outside, by_alias=True)
        return hashlib.sha256(f"{FORMAT_VERSION}\n{document}".encode()).hexdigest()
