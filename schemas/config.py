"""The config of a conversion: all its options, validated on creation."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from recordmill.schemas import layout
from recordmill.schemas.features import Schema
from recordmill.schemas.option import (
    Integer,
    Option,
    Pairs,
    Path,
    Settings,
    parse_pairs,
    read_integer,
)
from recordmill.schemas.rejects import RejectBudget
from recordmill.schemas.settings import ImageSettings, parse_integer
from recordmill.schemas.yaml_files import preset

# Version of the shard format; incremented when the same input and options produce other bytes.
FORMAT_VERSION = 1

# Part of shard names: file systems allow 255 bytes, and a letter has up to four.
SPLIT_NAME = re.compile(r"[A-Za-z]\w{0,49}")

SPLIT_NAME_RULE = "up to 50 letters, digits and _, beginning with a letter"

# The largest number of shards that fits into the five digits in shard names.
MAX_SHARDS = 99_999

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

DEFAULT_SCHEMA = "image_classification"

# The headings of the options, in order.
GROUPS = ("input", "output", "splits and shards", "checks")


def _weights(value: Any) -> Any:
    """Parses weights such as "train=0.9,test=0.1"; returns other values unchanged."""
    if not isinstance(value, str):
        return value
    try:
        weights = {name: Decimal(weight) for name, weight in parse_pairs(value).items()}
    except InvalidOperation as error:
        raise ValueError("expected numbers, as in train=0.9,validation=0.1") from error
    if not all(weight.is_finite() for weight in weights.values()):
        raise ValueError("expected finite numbers")
    return weights


def _num_shards(value: Any) -> Any:
    """Parses a number of shards, or one per split; returns other values unchanged."""
    if not isinstance(value, str) or value == "auto":
        return value
    if "=" not in value:
        return parse_integer(value)
    return {split: parse_integer(number) for split, number in parse_pairs(value).items()}


def _budget(value: Any) -> Any:
    return RejectBudget.parse(str(value)) if isinstance(value, (str, int, float)) else value


ShardCount = Annotated[int, Field(ge=1, le=MAX_SHARDS)]
DatasetName = Annotated[str, Field(pattern=r"^[A-Za-z]\w*$")]
Version = Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]

_NAME = "letters, digits and _, beginning with a letter"
_VERSION = "three numbers, as in 1.0.0"
_NUMBERS = f"auto, a number from 1 to {MAX_SHARDS:,}, or train=16,test=2"
_TIMEOUT = f"{ImageSettings().timeout:g}"


class ConvertConfig(BaseModel):
    """The options of a conversion, except for those that override the schema.

    The order of the fields is part of the fingerprint.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    inputs: Annotated[
        tuple[Path, ...],
        Option("input", "PATTERN", "table, folder, or pattern of files; repeatable"),
    ] = Field(min_length=1, validation_alias="input")
    input_format: Annotated[
        InputFormat, Option("input", "", "format of the input; auto detects it by name and content")
    ] = "auto"
    output: Annotated[
        Path,
        Field(min_length=1),
        Option("output", "DIR", "folder of datasets; writes to DIR/NAME/VERSION"),
    ]
    name: Annotated[DatasetName, Option("output", "NAME", "name of the dataset", "", _NAME)]
    version: Annotated[
        Version, Option("output", "X.Y.Z", "version of the dataset", "", _VERSION)
    ] = "1.0.0"
    dataset_schema: Annotated[
        Schema,
        Option(
            "input",
            "PRESET|FILE",
            "preset or schema file that defines the features",
            DEFAULT_SCHEMA,
        ),
    ] = Field(default_factory=lambda: preset(DEFAULT_SCHEMA), alias="schema")
    image_root: Annotated[
        Path | None,
        Option(
            "input",
            "DIR",
            "base folder of image paths; none may lead outside",
            "the table's folder",
        ),
    ] = None
    allow_outside_root: Annotated[
        bool, Option("input", "", "allow image paths and links that lead outside of --image_root")
    ] = False
    columns: Annotated[
        Pairs, Option("input", "S=T,…", "schema column = table column, if the names differ")
    ] = Field(default_factory=dict)
    labels: Annotated[
        Path | None, Option("input", "PATTERN", "second table, to be joined with the input")
    ] = None
    join_on: Annotated[str | None, Option("input", "C", "column to join both tables on")] = None
    key_column: Annotated[
        str | None,
        Option("input", "C", "column that identifies a row", "the image path as written"),
    ] = None
    base: Annotated[
        Path | None,
        Option("output", "DIR", "base version: keep its splits and reuse its shards"),
    ] = None
    splits: Annotated[
        dict[str, Decimal] | None,
        BeforeValidator(_weights),
        Option("splits and shards", "train=0.9,…", "weights of the splits", "all rows to train"),
    ] = None
    split_column: Annotated[
        str | None,
        Option(
            "splits and shards", "C", "column with the split of each row; overrides the weights"
        ),
    ] = None
    group_column: Annotated[
        str | None,
        Option(
            "splits and shards", "C", "column of groups that stay in one split: patients, videos"
        ),
    ] = None
    num_shards: Annotated[
        Literal["auto"] | ShardCount | dict[str, ShardCount],
        BeforeValidator(_num_shards),
        Option(
            "splits and shards",
            "auto|N|S=N,…",
            "number of shards per split; auto: by --shard_size",
            "",
            _NUMBERS,
        ),
    ] = "auto"
    shard_size: Annotated[
        ByteSize,
        Field(gt=0),
        Option(
            "splits and shards",
            "SIZE",
            "size of a shard, if --num_shards is auto",
            "128MiB",
            "a size above 0, as in 128MiB",
        ),
    ] = ByteSize(128 * 2**20)
    records_per_shard: Annotated[
        Annotated[Integer, Field(ge=1)] | None,
        Option(
            "splits and shards", "N", "records per shard, instead of a number or size of shards"
        ),
    ] = None
    classes: Annotated[
        tuple[str, ...] | None,
        Option("input", "FILE", "class names, one per line", "all names found, sorted"),
    ] = None
    seed: Annotated[Integer, Option("splits and shards", "N", "changes splits and order")] = 0
    compression: Annotated[
        Literal["none", "gzip"],
        Option("output", "", "compression of shards; TFDS cannot read gzip"),
    ] = "none"
    deduplicate: Annotated[
        Literal["none", "content"],
        Option("splits and shards", "", "content: keep one of the rows with the same image"),
    ] = "none"
    index: Annotated[
        bool, Option("output", "", "write idx/ with record offsets, for DALI and PyTorch")
    ] = False
    decode: Annotated[
        Decode, Option("checks", "", "full: decode all image data; header: read only the size")
    ] = "full"
    verify: Annotated[
        Verify, Option("checks", "", "parse every record, or decode every image as well")
    ] = "parse"
    max_rejects: Annotated[
        RejectBudget,
        BeforeValidator(_budget),
        Option("checks", "N|P%,…", "allowed rejects: 10, 0.5%, or 10,truncated=5,read_error=1%"),
    ] = RejectBudget()
    if_exists: Annotated[
        Literal["fail", "skip", "replace"],
        Option("output", "", "what to do if the dataset exists"),
    ] = "fail"
    report: Annotated[bool, Option("output", "", "write report.html beside the shards")] = True

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
    def _check_combinations(self) -> ConvertConfig:
        counts = Counter(self.classes or ())
        if repeated := [name for name, count in counts.items() if count > 1]:
            raise ValueError(f"--classes: {min(repeated)!r} occurs twice; remove one of them")
        if (self.labels is None) != (self.join_on is None):
            raise ValueError("--labels and --join_on require each other; set both")
        if self.records_per_shard is not None and self.num_shards != "auto":
            raise ValueError(
                "--records_per_shard: cannot be combined with --num_shards. Remove one of them."
            )
        is_open = self.splits is None and self.split_column is not None
        named = self.num_shards.keys() if isinstance(self.num_shards, dict) else set()
        if not is_open and (unknown := sorted(named - self.weights.keys())):
            expected = ", ".join(self.weights)
            raise ValueError(f"--num_shards: unknown split {unknown[0]!r}; available: {expected}")
        if self.index and self.compression != "none":
            raise ValueError(
                "--index: lists the byte offsets of records, but gzip streams are not seekable; "
                "omit it, or choose --compression none"
            )
        return self

    @property
    def weights(self) -> dict[str, Decimal]:
        """The weights of the splits, for rows without a split of their own."""
        return self.splits or {"train": Decimal(1)}

    @property
    def guard(self) -> str | None:
        """The folder that must contain all images, or None."""
        return None if self.allow_outside_root else self.image_root

    @property
    def directory(self) -> str:
        """The folder of the published dataset, OUTPUT/NAME/VERSION."""
        return layout.join(self.output, self.name, self.version)

    def column(self, schema_column: str) -> str:
        """Returns the table column of a schema column."""
        return self.columns.get(schema_column, schema_column)

    @property
    def fingerprint(self) -> str:
        """Hex digest of all options that affect the content of the dataset."""
        outside = {"output", "if_exists", "max_rejects", "verify", "index", "report"}
        document = self.model_dump_json(exclude=outside, by_alias=True)
        return hashlib.sha256(f"{FORMAT_VERSION}\n{document}".encode()).hexdigest()


class SchemaOverrides(BaseModel):
    """Options that override single settings of the schema."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: Annotated[
        Settings,
        Option("input", "K=V,…", "settings of the image block: max_side=512,format=jpeg,…"),
    ] = Field(default_factory=dict)
    boxes: Annotated[
        Settings,
        Option("input", "K=V,…", "settings of the boxes block: order=xywh,units=normalized,…"),
    ] = Field(default_factory=dict)
    masks: Annotated[
        Settings,
        Option("input", "K=V,…", "settings of the masks block: bit_depth=16,frame=stored,…"),
    ] = Field(default_factory=dict)
    label_offset: Annotated[
        Literal[0, 1] | None,
        BeforeValidator(read_integer),
        Option("input", "0|1", "1 reserves id 0 for the background", "as in the schema", "0 or 1"),
    ] = None
    image_timeout: Annotated[
        float | None, Option("checks", "SECONDS", "time limit for decoding one image", _TIMEOUT)
    ] = None
