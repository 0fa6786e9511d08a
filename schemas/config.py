"""The config of a conversion: all its options, validated on creation."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import ByteSize, ConfigDict, Field, model_validator

from recordmill.schemas import layout
from recordmill.schemas.document import Document
from recordmill.schemas.features import Schema
from recordmill.schemas.input_formats import FormatName
from recordmill.schemas.option import (
    MAX_SAMPLE_ROWS,
    MAX_SHARDS,
    Affects,
    Budget,
    DatasetName,
    Delimiter,
    FromInteger,
    Header,
    ImageSuffix,
    Integer,
    Issues,
    NumShards,
    Pairs,
    Path,
    Patterns,
    Properties,
    Sample,
    Settings,
    SplitColumn,
    Version,
    WebAddress,
    Weights,
    Where,
    fields_that_affect,
    option,
    options_of,
)
from recordmill.schemas.records import OUTSIDE_WHERE, SkippedInput
from recordmill.schemas.rejects import RejectBudget
from recordmill.schemas.settings import Decode, ImageSettings
from recordmill.schemas.shard_format import SHARD_FORMATS, Compression, ShardFormat
from recordmill.schemas.statistics import ISSUES
from recordmill.schemas.yaml_files import preset

# Version of the shard format; incremented when the same input and options produce other bytes.
FORMAT_VERSION = 2

_LICENSE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]*")

Verify = Literal["parse", "decode"]
SplitMethod = Literal["hash", "exact", "stratified"]
OnConflict = Literal["fail", "update", "keep"]
NearDuplicateMode = Literal["report", "keep_together", "drop", "none"]

DEFAULT_SCHEMA = "image_classification"

_NOT_IN_TFDS = " or ".join(found.name for found in SHARD_FORMATS.values() if not found.in_tfds)

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

# The declarations of options by their heading in the reference.
GROUPS = ("input", "output", "metadata", "splits and shards", "checks")
_input, _output, _metadata, _splits, _checks = (partial(option, group) for group in GROUPS)


class ConvertConfig(Document):
    """The options of a conversion, except for those that override the schema.

    The order of the fields is part of the fingerprint.
    """

    model_config = ConfigDict(populate_by_name=True)

    inputs: tuple[Path, ...] = _input(
        ...,
        SOURCE,
        "PATTERN",
        "table, folder, or pattern of files; repeatable",
        min_length=1,
        validation_alias="input",
    )
    input_format: FormatName = _input(
        "auto", SOURCE, "FORMAT", "format of the input; auto detects it by name and content"
    )
    exclude: Patterns = _input(
        (),
        SOURCE,
        "PATTERN",
        "leave out files and folders in input folders, by patterns as in .gitignore; repeatable",
    )
    class_level: Annotated[Integer, Field(ge=1, le=64)] | None = _input(
        None,
        SOURCE,
        "N",
        "level of the folders that are the classes, from 1, the folders directly in the input",
        "found, if no other can be meant",
    )
    delimiter: Delimiter | None = _input(
        None,
        SOURCE,
        "CHARACTER",
        "character between fields of CSV tables: ';', tab",
        "by format",
        "a single character, as in ';', or tab",
    )
    header: Header | None = _input(
        None,
        SOURCE,
        "none|NAME,…",
        "columns of CSV tables without a header; none: numbers from 0",
        "the first row",
    )
    output: Path = _output(
        ..., RUN, "DIR", "folder of datasets; writes to DIR/NAME/VERSION", min_length=1
    )
    name: DatasetName = _output(..., DATASET, "NAME", "name of the dataset", "", _NAME)
    version: Version = _output("1.0.0", DATASET, "X.Y.Z", "version of the dataset", "", _VERSION)
    dataset_schema: Schema = _input(
        ...,
        DATASET,
        "PRESET|FILE",
        "preset or schema file that defines the features",
        DEFAULT_SCHEMA,
        default_factory=lambda: preset(DEFAULT_SCHEMA),
        alias="schema",
    )
    image_root: Path | None = _input(
        None,
        ROW | SHARD,
        "DIR",
        "base folder of image paths; if set, none may lead outside",
        "the table's folder",
    )
    allow_outside_root: bool = _input(
        False, ROW | SHARD, "", "allow image paths and links that lead outside of --image_root"
    )
    image_suffix: ImageSuffix | None = _input(
        None,
        ROW,
        ".jpg",
        "suffix of image files that paths in a table lack",
        "",
        "a suffix, as in .jpg",
    )
    columns: Pairs = _input({}, ROW, "S=T,…", "schema column = table column, if the names differ")
    labels: Path | None = _input(
        None, SOURCE, "PATTERN", "second table, to be joined with the input"
    )
    join_on: str | None = _input(
        None, SOURCE, "C|C=D", "column to join both tables on; C of the input, D of --labels"
    )
    list_unused_images: bool = _input(
        False, SOURCE | CHECKS, "", "list the images below --image_root that no row names"
    )
    key_column: str | None = _input(
        None, ROW, "C", "column that identifies a row", "the image path as written"
    )
    where: Where = _input(
        None,
        SOURCE | BASE,
        "CONDITION",
        "convert only some rows: \"label in ('cat', 'dog') and width >= 64\"",
        "all rows",
    )
    rename: Pairs = _input(
        {}, SOURCE | BASE, "A=B,…", "class names to replace; equal ones become one class"
    )
    sample: Sample = _input(
        None,
        SOURCE | BASE,
        "N|P%",
        "convert a part of the rows, for a trial: 1000, or 1%",
        "all rows",
        _SAMPLE,
    )
    per_class: Annotated[Integer, Field(ge=1, le=MAX_SAMPLE_ROWS)] | None = _input(
        None, SOURCE | BASE, "N", "convert at most N rows of each class", "all rows"
    )
    base: Path | None = _output(
        None, DATASET, "DIR", "base version: keep its splits and reuse its shards"
    )
    append: bool = _output(
        False, DATASET, "", "the input has only new rows: keep the records of --base"
    )
    on_conflict: OnConflict = _output(
        "fail", DATASET, "", "with --append, what to do with a changed row of a known key"
    )
    splits: Weights | None = _splits(
        None, DATASET | BASE, "train=0.9,…", "weights of the splits", "all rows to train"
    )
    folds: Annotated[Integer, Field(ge=2, le=100)] | None = _splits(
        None, DATASET | BASE, "K", "K equal splits fold0, fold1, …, for cross-validation", "none"
    )
    split_method: SplitMethod = _splits(
        "hash",
        DATASET | BASE,
        "",
        "exact: exact shares; stratified: exact shares of each class; hash: about the shares",
    )
    split_column: SplitColumn = _splits(
        None,
        DATASET | BASE,
        "C",
        "column with the split of each row, or none; overrides the weights",
        "the splits of the source",
    )
    group_column: str | None = _splits(
        None, DATASET | BASE, "C", "column of groups that stay in one split: patients, videos"
    )
    num_shards: NumShards = _splits(
        "auto",
        DATASET,
        "auto|N|S=N,…",
        "number of shards per split; auto: by --shard_size",
        "",
        _NUMBERS,
    )
    shard_size: ByteSize = _splits(
        ByteSize(128 * 2**20),
        DATASET,
        "SIZE",
        "size of a shard, if --num_shards is auto",
        "128MiB",
        "a size above 0, as in 128MiB",
        gt=0,
    )
    records_per_shard: Annotated[Integer, Field(ge=1)] | None = _splits(
        None, DATASET | BASE, "N", "records per shard, instead of a number or size of shards"
    )
    classes: tuple[str, ...] | None = _input(
        None,
        DATASET,
        "FILE",
        "class names: one per line, a JSON list, or a label map (.pbtxt)",
        "as the source declares, or sorted",
    )
    num_classes: Annotated[Integer, Field(ge=1, le=MAX_CLASSES)] | None = _input(
        None, DATASET, "N", "number of classes of integer labels, which must be below it"
    )
    seed: Integer = _splits(0, DATASET | BASE, "N", "changes splits and order")
    compression: Compression = _output(
        "none", SHARD | BASE, "", f"compression of shards; TFDS cannot read {_NOT_IN_TFDS}"
    )
    deduplicate: Literal["none", "content"] = _splits(
        "none", DATASET | BASE, "", "content: keep one of the rows with the same image"
    )
    near_duplicates: NearDuplicateMode = _splits(
        "report",
        DATASET | SHARD,
        "",
        "similar images: report, keep_together in one split, drop all but one, or none: no "
        "comparison",
        needs_pixels=True,
    )
    index: bool = _output(False, CHECKS, "", "write idx/ with record offsets, for DALI and PyTorch")
    decode: Decode = _checks(
        "full", ROW | SHARD | BASE, "", "full: decode all image data; header: read only the size"
    )
    verify: Verify = _checks(
        "parse", SHARD | CHECKS, "", "parse every record, or decode every image as well"
    )
    reject_quality: Issues = _checks(
        (),
        SHARD,
        "ISSUE,…",
        f"reject images with a quality issue: {', '.join(ISSUES)}",
        "none",
        "names of quality issues",
        needs_pixels=True,
    )
    max_rejects: Budget = _checks(
        RejectBudget(),
        CHECKS,
        "N|P%,…",
        "allowed rejects: 10, 0.5%, or 10,truncated=5,read_error=1%",
    )
    fail_fast: Annotated[Integer, Field(ge=0)] = _checks(
        1000,
        SOURCE | RUN,
        "N",
        "stop early if the images of the first N rows are all rejected; 0: never",
        "",
        "a number of rows, or 0",
    )
    if_exists: Literal["fail", "skip", "replace"] = _output(
        "fail", RUN, "", "what to do if the dataset exists"
    )
    report: bool = _output(True, RUN, "", "write report.html beside the shards")
    description: str = _metadata(
        "", METADATA, "TEXT", "what the dataset contains", "the schema's description"
    )
    citation: str = _metadata("", METADATA, "TEXT", "how to cite the dataset, as BibTeX")
    license: str = _metadata(
        "", METADATA, "NAME", "license of the dataset: an SPDX id or an address"
    )
    homepage: WebAddress = _metadata(
        "", METADATA, "URL", "web page of the dataset", "", _WEB_ADDRESS
    )
    creator: str = _metadata("", METADATA, "NAME", "person or organization that made the dataset")
    croissant: Properties = _metadata(
        {}, METADATA, "FILE", "YAML file of more properties of croissant.json: keywords, …"
    )

    @model_validator(mode="before")
    @classmethod
    def _with_folds(cls, values: Any) -> Any:
        """Adds the splits that `folds` stands for."""
        number = str(values.get("folds"))
        if values.get("splits") is not None or not re.fullmatch(r"[1-9]\d?|100", number):
            return values
        return {**values, "splits": {f"fold{fold}": 1 for fold in range(int(number))}}

    @model_validator(mode="after")
    def _check_combinations(self) -> ConvertConfig:
        self._check_header()
        self._check_classes()
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
        self._check_per_class()
        self._check_rename()
        if self.folds is not None and self.weights != {f"fold{n}": 1 for n in range(self.folds)}:
            raise ValueError("--folds: cannot be combined with --splits. Remove one of them.")
        if self.append and self.base is None:
            raise ValueError("--append: adds rows to a base version. Set --base DIR/NAME/X.Y.Z.")
        if self.on_conflict != "fail" and not self.append:
            raise ValueError("--on_conflict: applies only to --append. Add it, or omit this.")
        self._check_pixels()
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

    def _check_classes(self) -> None:
        if repeated := [name for name, n in Counter(self.classes or ()).items() if n > 1]:
            raise ValueError(f"--classes: {min(repeated)!r} occurs twice. Remove one of them.")
        if None not in (self.classes, self.num_classes):
            raise ValueError("--num_classes: conflicts with --classes. Remove one of them.")
        if self.class_names is not None and not self.dataset_schema.named_features:
            raise ValueError("--classes: no feature has classes. Declare classes: true for one.")

    def _check_rename(self) -> None:
        if unchanged := [old for old, new in self.rename.items() if old == new]:
            raise ValueError(
                f"--rename {unchanged[0]}={unchanged[0]}: has the same name twice, without the "
                "whitespace around it. Fix the labels themselves, or remove it."
            )

    def _check_per_class(self) -> None:
        if self.per_class is None:
            return
        if self.sample is not None:
            raise ValueError("--per_class: cannot be combined with --sample. Remove one of them.")
        if self.append:
            raise ValueError("--per_class: would not count the rows of --base. Omit --append.")
        if not self.dataset_schema.class_features or self.dataset_schema.sequence:
            raise ValueError(
                "--per_class: expected a schema with classes and without sequences, got "
                f"{self.dataset_schema.name!r}. Declare classes: true, or omit the option."
            )

    def _check_pixels(self) -> None:
        limited = options_of(type(self)) if self.decode == "header" else ()
        for one in (one for one in limited if one.option.needs_pixels):
            if getattr(self, one.name) not in (one.field.default, "none"):
                raise ValueError(
                    f"--{one.name}: needs the pixels of images, and cannot be combined with "
                    "--decode header. Remove one of them."
                )
        is_used = self.near_duplicates in ("keep_together", "drop")
        if is_used and not self.dataset_schema.has_image:
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

    def no_rows(self, skipped: Mapping[str, SkippedInput]) -> str:
        """Returns the message for an input of which no row is read, by what was skipped."""
        what = "has no rows. Add some."
        if outside := skipped.get(OUTSIDE_WHERE):
            what = f"--where holds for none of its rows, which have {' or '.join(outside.names)}"
            what += f'. Check its values, as in --where "{outside.names[0]}".'
        return f"--input {', '.join(self.inputs)}: {what}"

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

        With `num_classes`, the names are the labels, as in TFDS's `ClassLabel(num_classes=…)`.
        """
        if self.num_classes is None:
            return self.classes
        first = max((one.first_label for one in self.dataset_schema.features.values()), default=0)
        return tuple(map(str, range(first, first + self.num_classes)))

    @property
    def license_id(self) -> str | None:
        """The SPDX id of the license, or None if it is stated in another way."""
        return self.license if _LICENSE_ID.fullmatch(self.license) else None

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


class SchemaOverrides(Document):
    """Options that override single settings of the schema."""

    image: Settings = _input(
        {}, ROW | SHARD, "K=V,…", "settings of the image block: max_side=512,format=jpeg,…"
    )
    boxes: Settings = _input(
        {}, ROW | SHARD, "K=V,…", "settings of the boxes block: order=xywh,units=normalized,…"
    )
    masks: Settings = _input(
        {}, ROW | SHARD, "K=V,…", "settings of the masks block: bit_depth=16,frame=stored,…"
    )
    label_offset: Annotated[Literal[0, 1] | None, FromInteger] = _input(
        None, ROW | SHARD, "0|1", "1 reserves id 0 for the background", "as in the schema", "0 or 1"
    )
    first_label: Annotated[Literal[0, 1] | None, FromInteger] = _input(
        None, ROW | SHARD, "0|1", "1 if integer labels count from 1", "as in --classes", "0 or 1"
    )
    image_timeout: float | None = _checks(
        None, ROW | SHARD, "SECONDS", "time limit for decoding one image", _TIMEOUT
    )
