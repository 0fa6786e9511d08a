"""The config of a conversion: all its options, validated on creation."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    model_validator,
)

from recordmill.schemas import layout
from recordmill.schemas.features import Schema
from recordmill.schemas.image_quality import ISSUES
from recordmill.schemas.option import (
    Affects,
    Integer,
    Option,
    Pairs,
    Path,
    Settings,
    fields_that_affect,
    read_integer,
)
from recordmill.schemas.option_values import (
    MAX_SAMPLE_ROWS,
    MAX_SHARDS,
    Budget,
    DatasetName,
    Delimiter,
    Header,
    ImageSuffix,
    Issues,
    NumShards,
    Properties,
    Sample,
    SplitColumn,
    Version,
    WebAddress,
    Weights,
)
from recordmill.schemas.rejects import RejectBudget
from recordmill.schemas.settings import ImageSettings
from recordmill.schemas.shard_format import SHARD_FORMATS, Compression, ShardFormat
from recordmill.schemas.yaml_files import preset

# Version of the shard format; incremented when the same input and options produce other bytes.
FORMAT_VERSION = 2

_LICENSE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")

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
SplitMethod = Literal["hash", "exact", "stratified"]
OnConflict = Literal["fail", "update", "keep"]
NearDuplicateMode = Literal["report", "keep_together", "drop", "none"]

DEFAULT_SCHEMA = "image_classification"

# The headings of the options, in order.
_NOT_IN_TFDS = " or ".join(found.name for found in SHARD_FORMATS.values() if not found.in_tfds)

GROUPS = ("input", "output", "metadata", "splits and shards", "checks")


SOURCE, ROW, DATASET, SHARD, BASE, METADATA, CHECKS, RUN = Affects

# Limit for the classes of a feature: every worker holds their names, and counts their records.
MAX_CLASSES = 1_000_000

# Descriptions of valid values, for error messages.
_NAME = "letters, digits and _, beginning with a letter"
_VERSION = "three numbers without leading zeros, as in 1.0.0"
_WEB_ADDRESS = "a web address, as in https://example.com/birds"
_NUMBERS = f"auto, a number from 1 to {MAX_SHARDS:,}, or train=16,test=2"
_SAMPLE = f"a percentage, as in 1%, or a number of rows from 1 to {MAX_SAMPLE_ROWS:,}"

_TIMEOUT = f"{ImageSettings().timeout:g}"


class ConvertConfig(BaseModel):
    """The options of a conversion, except for those that override the schema.

    The order of the fields is part of the fingerprint.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    inputs: Annotated[
        tuple[Path, ...],
        Option("input", SOURCE, "PATTERN", "table, folder, or pattern of files; repeatable"),
    ] = Field(min_length=1, validation_alias="input")
    input_format: Annotated[
        InputFormat,
        Option("input", SOURCE, "", "format of the input; auto detects it by name and content"),
    ] = "auto"
    delimiter: Annotated[
        Delimiter | None,
        Option(
            "input",
            SOURCE,
            "CHARACTER",
            "character between fields of CSV tables: ';', tab",
            "by format",
            "a single character, as in ';', or tab",
        ),
    ] = None
    header: Annotated[
        Header | None,
        Option(
            "input",
            SOURCE,
            "none|NAME,…",
            "columns of CSV tables without a header; none: numbers from 0",
            "the first row",
        ),
    ] = None
    output: Annotated[
        Path,
        Field(min_length=1),
        Option("output", RUN, "DIR", "folder of datasets; writes to DIR/NAME/VERSION"),
    ]
    name: Annotated[
        DatasetName, Option("output", DATASET, "NAME", "name of the dataset", "", _NAME)
    ]
    version: Annotated[
        Version, Option("output", DATASET, "X.Y.Z", "version of the dataset", "", _VERSION)
    ] = "1.0.0"
    dataset_schema: Annotated[
        Schema,
        Option(
            "input",
            DATASET,
            "PRESET|FILE",
            "preset or schema file that defines the features",
            DEFAULT_SCHEMA,
        ),
    ] = Field(default_factory=lambda: preset(DEFAULT_SCHEMA), alias="schema")
    image_root: Annotated[
        Path | None,
        Option(
            "input",
            ROW | SHARD,
            "DIR",
            "base folder of image paths; none may lead outside",
            "the table's folder",
        ),
    ] = None
    allow_outside_root: Annotated[
        bool,
        Option(
            "input",
            ROW | SHARD,
            "",
            "allow image paths and links that lead outside of --image_root",
        ),
    ] = False
    image_suffix: Annotated[
        ImageSuffix | None,
        Option(
            "input",
            ROW,
            ".jpg",
            "suffix of image files that paths in a table lack",
            "",
            "a suffix, as in .jpg",
        ),
    ] = None
    columns: Annotated[
        Pairs, Option("input", ROW, "S=T,…", "schema column = table column, if the names differ")
    ] = Field(default_factory=dict)
    labels: Annotated[
        Path | None, Option("input", SOURCE, "PATTERN", "second table, to be joined with the input")
    ] = None
    join_on: Annotated[
        str | None,
        Option(
            "input", SOURCE, "C|C=D", "column to join both tables on; C of the input, D of --labels"
        ),
    ] = None
    list_unused_images: Annotated[
        bool,
        Option(
            "input", SOURCE | CHECKS, "", "list the images below --image_root that no row names"
        ),
    ] = False
    key_column: Annotated[
        str | None,
        Option("input", ROW, "C", "column that identifies a row", "the image path as written"),
    ] = None
    sample: Annotated[
        Sample,
        Option(
            "input",
            SOURCE | BASE,
            "N|P%",
            "convert a part of the rows, for a trial: 1000, or 1%",
            "all rows",
            _SAMPLE,
        ),
    ] = None
    base: Annotated[
        Path | None,
        Option("output", DATASET, "DIR", "base version: keep its splits and reuse its shards"),
    ] = None
    append: Annotated[
        bool,
        Option("output", DATASET, "", "the input has only new rows: keep the records of --base"),
    ] = False
    on_conflict: Annotated[
        OnConflict,
        Option(
            "output", DATASET, "", "with --append, what to do with a changed row of a known key"
        ),
    ] = "fail"
    splits: Annotated[
        Weights | None,
        Option(
            "splits and shards",
            DATASET | BASE,
            "train=0.9,…",
            "weights of the splits",
            "all rows to train",
        ),
    ] = None
    split_method: Annotated[
        SplitMethod,
        Option(
            "splits and shards",
            DATASET | BASE,
            "",
            "exact: exact shares; stratified: exact shares of each class; hash: about the shares",
        ),
    ] = "hash"
    split_column: Annotated[
        SplitColumn,
        Option(
            "splits and shards",
            DATASET | BASE,
            "C",
            "column with the split of each row, or none; overrides the weights",
            "the splits of the source",
        ),
    ] = None
    group_column: Annotated[
        str | None,
        Option(
            "splits and shards",
            DATASET | BASE,
            "C",
            "column of groups that stay in one split: patients, videos",
        ),
    ] = None
    num_shards: Annotated[
        NumShards,
        Option(
            "splits and shards",
            DATASET,
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
            DATASET,
            "SIZE",
            "size of a shard, if --num_shards is auto",
            "128MiB",
            "a size above 0, as in 128MiB",
        ),
    ] = ByteSize(128 * 2**20)
    records_per_shard: Annotated[
        Annotated[Integer, Field(ge=1)] | None,
        Option(
            "splits and shards",
            DATASET | BASE,
            "N",
            "records per shard, instead of a number or size of shards",
        ),
    ] = None
    classes: Annotated[
        tuple[str, ...] | None,
        Option(
            "input",
            DATASET,
            "FILE",
            "class names, one per line",
            "as the source declares, or sorted",
        ),
    ] = None
    num_classes: Annotated[
        Annotated[Integer, Field(ge=1, le=MAX_CLASSES)] | None,
        Option(
            "input", DATASET, "N", "number of classes of integer labels, which must be below it"
        ),
    ] = None
    seed: Annotated[
        Integer, Option("splits and shards", DATASET | BASE, "N", "changes splits and order")
    ] = 0
    compression: Annotated[
        Compression,
        Option(
            "output", SHARD | BASE, "", f"compression of shards; TFDS cannot read {_NOT_IN_TFDS}"
        ),
    ] = "none"
    deduplicate: Annotated[
        Literal["none", "content"],
        Option(
            "splits and shards",
            DATASET | BASE,
            "",
            "content: keep one of the rows with the same image",
        ),
    ] = "none"
    near_duplicates: Annotated[
        NearDuplicateMode,
        Option(
            "splits and shards",
            DATASET | SHARD,
            "",
            "similar images: report, keep_together in one split, drop all but one, or none: no "
            "comparison",
        ),
    ] = "report"
    index: Annotated[
        bool, Option("output", CHECKS, "", "write idx/ with record offsets, for DALI and PyTorch")
    ] = False
    decode: Annotated[
        Decode,
        Option(
            "checks",
            ROW | SHARD | BASE,
            "",
            "full: decode all image data; header: read only the size",
        ),
    ] = "full"
    verify: Annotated[
        Verify,
        Option("checks", SHARD | CHECKS, "", "parse every record, or decode every image as well"),
    ] = "parse"
    reject_quality: Annotated[
        Issues,
        Option(
            "checks",
            SHARD,
            "ISSUE,…",
            f"reject images with a quality issue: {', '.join(ISSUES)}",
            "none",
            "names of quality issues",
        ),
    ] = ()
    max_rejects: Annotated[
        Budget,
        Option(
            "checks", CHECKS, "N|P%,…", "allowed rejects: 10, 0.5%, or 10,truncated=5,read_error=1%"
        ),
    ] = RejectBudget()
    fail_fast: Annotated[
        Annotated[Integer, Field(ge=0)],
        Option(
            "checks",
            SOURCE | RUN,
            "N",
            "stop early if the images of the first N rows are all rejected; 0: never",
            "",
            "a number of rows, or 0",
        ),
    ] = 1000
    if_exists: Annotated[
        Literal["fail", "skip", "replace"],
        Option("output", RUN, "", "what to do if the dataset exists"),
    ] = "fail"
    report: Annotated[bool, Option("output", RUN, "", "write report.html beside the shards")] = True
    description: Annotated[
        str,
        Option(
            "metadata", METADATA, "TEXT", "what the dataset contains", "the schema's description"
        ),
    ] = ""
    citation: Annotated[
        str, Option("metadata", METADATA, "TEXT", "how to cite the dataset, as BibTeX")
    ] = ""
    license: Annotated[
        str,
        Option("metadata", METADATA, "NAME", "license of the dataset: an SPDX id or an address"),
    ] = ""
    homepage: Annotated[
        WebAddress, Option("metadata", METADATA, "URL", "web page of the dataset", "", _WEB_ADDRESS)
    ] = ""
    creator: Annotated[
        str, Option("metadata", METADATA, "NAME", "person or organization that made the dataset")
    ] = ""
    croissant: Annotated[
        Properties,
        Option(
            "metadata",
            METADATA,
            "FILE",
            "YAML file of more properties of croissant.json: keywords, …",
        ),
    ] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_combinations(self) -> ConvertConfig:
        self._check_header()
        counts = Counter(self.classes or ())
        if repeated := [name for name, count in counts.items() if count > 1]:
            raise ValueError(f"--classes: {min(repeated)!r} occurs twice. Remove one of them.")
        if self.classes is not None and self.num_classes is not None:
            raise ValueError(
                "--num_classes: cannot be combined with --classes. Remove one of them."
            )
        if (self.labels is None) != (self.join_on is None):
            raise ValueError("--labels and --join_on: each requires the other. Set both.")
        if self.list_unused_images and (self.image_root is None or layout.is_web(self.image_root)):
            raise ValueError(
                "--list_unused_images: lists the images below --image_root. Set it to a folder."
            )
        if self.records_per_shard is not None and self.num_shards != "auto":
            raise ValueError(
                "--records_per_shard: cannot be combined with --num_shards. Remove one of them."
            )
        if self.append and self.base is None:
            raise ValueError("--append: adds rows to a base version. Set --base DIR/NAME/X.Y.Z.")
        if self.on_conflict != "fail" and not self.append:
            raise ValueError("--on_conflict: applies only to --append. Add it, or omit this.")
        if self.reject_quality and self.decode == "header":
            raise ValueError(
                "--reject_quality: needs the pixels of images, and cannot be combined with "
                "--decode header. Remove one of them."
            )
        self._check_near_duplicates()
        is_open = self.splits is None and self.split_column is not None
        named = self.num_shards.keys() if isinstance(self.num_shards, dict) else set()
        if not is_open and (unknown := sorted(named - self.weights.keys())):
            expected = ", ".join(self.weights)
            raise ValueError(f"--num_shards: unknown split {unknown[0]!r}; available: {expected}")
        if self.split_method == "stratified" and not self.dataset_schema.class_features:
            raise ValueError(
                "--split_method stratified: expected a schema with classes; "
                f"{self.dataset_schema.name!r} has none. Choose --split_method exact, or add "
                "classes: true to a feature."
            )
        if self.index and not self.shard_format.seekable:
            raise ValueError(
                f"--index: lists the byte offsets of records, but {self.compression} streams are "
                "not seekable. Omit it, or choose --compression none."
            )
        return self

    def _check_near_duplicates(self) -> None:
        if self.near_duplicates not in ("keep_together", "drop"):
            return
        if self.decode == "header":
            raise ValueError(
                f"--near_duplicates {self.near_duplicates}: needs the pixels of images, and cannot "
                "be combined with --decode header. Remove one of them."
            )
        if not self.dataset_schema.has_image:
            raise ValueError(
                f"--near_duplicates {self.near_duplicates}: expected a schema with images; "
                f"{self.dataset_schema.name!r} has none. Remove the option."
            )

    def _check_header(self) -> None:
        names = self.header or ()
        if not all(names):
            raise ValueError("--header: a name is empty; expected none, or NAME,…")
        if repeated := [name for name, count in Counter(names).items() if count > 1]:
            raise ValueError(f"--header: {repeated[0]!r} occurs twice. Rename one of the two.")

    @property
    def join_columns(self) -> tuple[str, str] | None:
        """The columns of the input and of the labels that both are joined on."""
        if self.join_on is None:
            return None
        image, _, label = self.join_on.partition("=")
        return image, label or image

    @property
    def unmatched_lists(self) -> tuple[str, ...]:
        """The folders of lists of labels and images that lack each other."""
        if self.labels is not None:
            return layout.UNMATCHED
        return (layout.UNMATCHED_IMAGES,) if self.list_unused_images else ()

    @property
    def shard_format(self) -> ShardFormat:
        """The format of the shards."""
        return SHARD_FORMATS[self.compression]

    @property
    def weights(self) -> dict[str, Decimal]:
        """The weights of the splits, for rows without a split of their own."""
        return self.splits or {"train": Decimal(1)}

    @property
    def sample_part(self) -> Fraction | None:
        """The part of the rows in the sample; None for all rows or a number of rows."""
        return Fraction(self.sample[:-1]) / 100 if isinstance(self.sample, str) else None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The class names in the order of their ids, or None if the labels decide.

        With `num_classes`, the names are the ids, as in TFDS's `ClassLabel(num_classes=…)`.
        """
        if self.num_classes is None:
            return self.classes
        return tuple(map(str, range(self.num_classes)))

    @property
    def license_id(self) -> str | None:
        """The SPDX id of the license, or None if it is stated in another way."""
        return self.license if _LICENSE_ID.fullmatch(self.license) else None

    @property
    def drops_rows(self) -> bool:
        """Whether rows with the image of another row, or a similar one, are dropped."""
        return self.deduplicate != "none" or self.near_duplicates == "drop"

    @property
    def guard(self) -> str | None:
        """The folder that must contain all images, or None."""
        return None if self.allow_outside_root else self.image_root

    @property
    def directory(self) -> str:
        """The folder of the published dataset, OUTPUT/NAME/VERSION."""
        return layout.join(self.output, self.name, self.version)

    def requested_shards(self, split: str) -> int | None:
        """Returns the number of shards of a split by `num_shards`; None if it does not say."""
        numbers = self.num_shards
        number = numbers.get(split, "auto") if isinstance(numbers, dict) else numbers
        return number if isinstance(number, int) else None

    def column(self, schema_column: str) -> str:
        """Returns the table column of a schema column."""
        return self.columns.get(schema_column, schema_column)

    @property
    def fingerprint(self) -> str:
        """Hex digest of all options that affect the content of the dataset."""
        outside = fields_that_affect(type(self), METADATA | CHECKS | RUN)
        document = self.model_dump_json(exclude=outside, by_alias=True)
        return hashlib.sha256(f"{FORMAT_VERSION}\n{document}".encode()).hexdigest()


class SchemaOverrides(BaseModel):
    """Options that override single settings of the schema."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: Annotated[
        Settings,
        Option(
            "input", ROW | SHARD, "K=V,…", "settings of the image block: max_side=512,format=jpeg,…"
        ),
    ] = Field(default_factory=dict)
    boxes: Annotated[
        Settings,
        Option(
            "input",
            ROW | SHARD,
            "K=V,…",
            "settings of the boxes block: order=xywh,units=normalized,…",
        ),
    ] = Field(default_factory=dict)
    masks: Annotated[
        Settings,
        Option(
            "input",
            ROW | SHARD,
            "K=V,…",
            "settings of the masks block: bit_depth=16,frame=stored,…",
        ),
    ] = Field(default_factory=dict)
    label_offset: Annotated[
        Literal[0, 1] | None,
        BeforeValidator(read_integer),
        Option(
            "input",
            ROW | SHARD,
            "0|1",
            "1 reserves id 0 for the background",
            "as in the schema",
            "0 or 1",
        ),
    ] = None
    image_timeout: Annotated[
        float | None,
        Option("checks", ROW | SHARD, "SECONDS", "time limit for decoding one image", _TIMEOUT),
    ] = None
