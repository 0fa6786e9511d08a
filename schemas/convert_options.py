"""The keywords of `convert()` and their types, written by docs/options.py."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from typing_extensions import Required, TypedDict

from recordmill.schemas.features import Schema
from recordmill.schemas.rejects import RejectBudget

StrPath: TypeAlias = "str | os.PathLike[str]"


class ConvertOptions(TypedDict, total=False):
    """The options of a conversion, except for its input."""

    input_format: Literal["auto", "csv", "tsv", "jsonl", "parquet", "arrow", "folder", "tar", "tfrecord", "coco", "voc", "yolo"]
    """of the input; auto detects it by name and content; default: auto"""
    schema: StrPath | Schema
    """what a record consists of; default: image_classification"""
    image_root: StrPath | None
    """base of image paths, none may lead out of it; default: the table's folder"""
    allow_outside_root: bool
    """allow image paths and links that lead out of --image_root"""
    columns: Mapping[str, str]
    """schema column = table column, where the names differ"""
    labels: StrPath | None
    """a second table, joined to the input"""
    join_on: str | None
    """the column of both tables that they are joined on"""
    key_column: str | None
    """the rows' identity; default: the image path as written"""
    classes: StrPath | Sequence[str] | None
    """class names, one a line; default: the names found, sorted"""
    image: Mapping[str, Any]
    """settings of the image block: max_side=512,format=jpeg,…"""
    boxes: Mapping[str, Any]
    """settings of the boxes block: order=xywh,units=normalized,…"""
    masks: Mapping[str, Any]
    """settings of the masks block: bit_depth=16,frame=stored,…"""
    label_offset: Literal[0, 1] | None
    """1 leaves id 0 to the background; default: as in the schema"""
    output: Required[StrPath]
    """the dataset goes to DIR/NAME/VERSION"""
    name: Required[str]
    """of the dataset"""
    version: str
    """of the dataset; default: 1.0.0"""
    base: StrPath | None
    """an earlier version, whose splits are kept and shards reused"""
    compression: Literal["none", "gzip"]
    """of the shards; TFDS reads no gzip; default: none"""
    index: bool
    """write idx/: where records begin, for DALI and PyTorch"""
    if_exists: Literal["fail", "skip", "replace"]
    """what to do with a published dataset; default: fail"""
    report: bool
    """write report.html beside the shards"""
    splits: Mapping[str, float | Decimal] | None
    """weights of the splits; default: all rows to train"""
    split_column: str | None
    """a row's own split, which overrides the weights"""
    group_column: str | None
    """rows with the same value go to the same split: patient, video"""
    num_shards: Literal["auto"] | int | Mapping[str, int]
    """of each split; auto: by --shard_size; default: auto"""
    shard_size: int | str
    """of a shard, if --num_shards is auto; default: 128MiB"""
    records_per_shard: int | None
    """in place of a number or size of shards"""
    seed: int
    """changes splits and order; default: 0"""
    deduplicate: Literal["none", "content"]
    """content: keep one of the rows with the same image; default: none"""
    decode: Literal["full", "header"]
    """full reads every coded bit of an image, header its size only; default: full"""
    verify: Literal["parse", "decode"]
    """parse every record, or decode every image as well; default: parse"""
    max_rejects: int | str | RejectBudget
    """rejects allowed: 10, 0.5%, or 10,truncated=5,read_error=1%; default: 0"""
    image_timeout: float | None
    """seconds for decoding one image; default: 60"""
