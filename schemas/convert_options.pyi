"""The keywords of `convert()` and of the Beam transforms, written by docs/options.py."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from typing_extensions import Required, TypedDict

from recordmill.schemas.features import Schema
from recordmill.schemas.rejects import RejectBudget

StrPath: TypeAlias = "str | os.PathLike[str]"


class RowOptions(TypedDict, total=False):
    """Options of a conversion that apply to a single row."""

    image_root: StrPath | None
    """base folder of image paths; if set, none may lead outside; default: the table's folder"""
    allow_outside_root: bool
    """allow image paths and links that lead outside of --image_root"""
    image_suffix: str | None
    """suffix of image files that paths in a table lack"""
    columns: Mapping[str, str]
    """schema column = table column, if the names differ"""
    key_column: str | None
    """column that identifies a row; default: the image path as written"""
    image: Mapping[str, Any]
    """settings of the image block: max_side=512,format=jpeg,…"""
    boxes: Mapping[str, Any]
    """settings of the boxes block: order=xywh,units=normalized,…"""
    masks: Mapping[str, Any]
    """settings of the masks block: bit_depth=16,frame=stored,…"""
    label_offset: Literal[0, 1] | None
    """1 reserves id 0 for the background; default: as in the schema"""
    first_label: Literal[0, 1] | None
    """1 if integer labels count from 1; default: as in --classes"""
    decode: Literal["full", "header"]
    """full: decode all image data; header: read only the size; default: full"""
    image_timeout: float | None
    """time limit for decoding one image; default: 60"""


class DatasetOptions(RowOptions, total=False):
    """Options of a conversion of rows from a pipeline."""

    classes: StrPath | Sequence[str] | None
    """class names: one per line, a JSON list, or a label map (.pbtxt); default: as the source declares, or sorted"""
    num_classes: int | None
    """number of classes of integer labels, which must be below it"""
    version: str
    """version of the dataset; default: 1.0.0"""
    base: StrPath | None
    """base version: keep its splits and reuse its shards"""
    append: bool
    """the input has only new rows: keep the records of --base"""
    on_conflict: Literal["fail", "update", "keep"]
    """with --append, what to do with a changed row of a known key; default: fail"""
    compression: Literal["none", "gzip"]
    """compression of shards; TFDS cannot read gzip; default: none"""
    index: bool
    """write idx/ with record offsets, for DALI and PyTorch"""
    if_exists: Literal["fail", "skip", "replace"]
    """what to do if the dataset exists; default: fail"""
    report: bool
    """write report.html beside the shards"""
    description: str
    """what the dataset contains; default: the schema's description"""
    citation: str
    """how to cite the dataset, as BibTeX"""
    license: str
    """license of the dataset: an SPDX id or an address"""
    homepage: str
    """web page of the dataset"""
    creator: str
    """person or organization that made the dataset"""
    croissant: StrPath | Mapping[str, str | Sequence[str]]
    """YAML file of more properties of croissant.json: keywords, …"""
    splits: Mapping[str, float | Decimal] | None
    """weights of the splits; default: all rows to train"""
    folds: int | None
    """K equal splits fold0, fold1, …, for cross-validation; default: none"""
    split_method: Literal["hash", "exact", "stratified"]
    """exact: exact shares; stratified: exact shares of each class; hash: about the shares; default: hash"""
    split_column: str | None
    """column with the split of each row, or none; overrides the weights; default: the splits of the source"""
    group_column: str | None
    """column of groups that stay in one split: patients, videos"""
    num_shards: Literal["auto"] | int | Mapping[str, int]
    """number of shards per split; auto: by --shard_size; default: auto"""
    shard_size: int | str
    """size of a shard, if --num_shards is auto; default: 128MiB"""
    records_per_shard: int | None
    """records per shard, instead of a number or size of shards"""
    seed: int
    """changes splits and order; default: 0"""
    deduplicate: Literal["none", "content"]
    """content: keep one of the rows with the same image; default: none"""
    near_duplicates: Literal["report", "keep_together", "drop", "none"]
    """similar images: report, keep_together in one split, drop all but one, or none: no comparison; default: report"""
    verify: Literal["parse", "decode"]
    """parse every record, or decode every image as well; default: parse"""
    reject_quality: Sequence[Literal["blank", "dark", "bright", "blurred", "low_information", "odd_aspect_ratio", "tiny"]]
    """reject images with a quality issue: blank, dark, bright, blurred, low_information, odd_aspect_ratio, tiny; default: none"""
    max_rejects: int | str | RejectBudget
    """allowed rejects: 10, 0.5%, or 10,truncated=5,read_error=1%; default: 0"""


class ConvertOptions(DatasetOptions, total=False):
    """Options of a conversion except for its input."""

    input_format: Literal["auto", "csv", "tsv", "jsonl", "parquet", "arrow", "folder", "tar", "tfrecord", "cvat", "voc", "yolo", "coco", "labelme", "dota"]
    """format of the input; auto detects it by name and content; default: auto"""
    exclude: str | Sequence[str]
    """leave out files and folders in input folders, by patterns as in .gitignore; repeatable"""
    class_level: int | None
    """level of the folders that are the classes, from 1, the folders directly in the input; default: found, if no other can be meant"""
    delimiter: str | None
    """character between fields of CSV tables: ';', tab; default: by format"""
    header: Sequence[str] | None
    """columns of CSV tables without a header; none: numbers from 0; default: the first row"""
    schema: StrPath | Schema
    """preset or schema file that defines the features; default: image_classification"""
    labels: StrPath | None
    """second table, to be joined with the input"""
    join_on: str | None
    """column to join both tables on; C of the input, D of --labels"""
    list_unused_images: bool
    """list the images below --image_root that no row names"""
    where: str | None
    """convert only some rows: "label in ('cat', 'dog') and width >= 64"; default: all rows"""
    rename: Mapping[str, str]
    """class names to replace; equal ones become one class"""
    sample: int | str | None
    """convert a part of the rows, for a trial: 1000, or 1%; default: all rows"""
    per_class: int | None
    """convert at most N rows of each class; default: all rows"""
    output: Required[StrPath]
    """folder of datasets; writes to DIR/NAME/VERSION"""
    name: Required[str]
    """name of the dataset"""
    fail_fast: int
    """stop early if the images of the first N rows are all rejected; 0: never; default: 1000"""
