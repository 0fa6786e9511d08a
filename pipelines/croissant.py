"""croissant.json: describes a dataset for search engines, dataset hubs and loaders.

Source: the Croissant format specification 1.1 (http://mlcommons.org/croissant/1.1) and its
extension for Responsible AI (http://mlcommons.org/croissant/RAI/1.0), both by MLCommons. Croissant
cannot extract columns from TFRecords, so the shards are listed as files, and the record sets are
those that every Croissant reader can load: the record index, the classes and the splits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import pyarrow as pa

from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import DatasetInfo
from recordmill.schemas.option import RESPONSIBLE_AI
from recordmill.transforms.functional.records.index import arrow_schema

_CROISSANT = "http://mlcommons.org/croissant/1.1"
_RAI = "http://mlcommons.org/croissant/RAI/1.0"

# The JSON-LD context of the specification's appendix 1, in which readers look these keys up.
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    **{
        key: f"cr:{key}"
        for key in (
            *("arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract"),
            *("field", "fileObject", "fileProperty", "fileSet", "format", "includes", "isArray"),
            *("isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet"),
            *("references", "regex", "repeated", "replace", "samplingRate", "separator"),
            *("source", "subField", "transform"),
        )
    },
}

_FORMATS = {".txt": "text/plain", ".json": "application/json", ".pbtxt": "text/plain"}
_TFRECORD = "application/x-tfrecord"
_PARQUET = "application/x-parquet"

_TYPES = {pa.string(): "sc:Text", pa.float32(): "sc:Float", pa.float64(): "sc:Float"}

_DESCRIPTIONS = {
    "key": "The key that identifies the record.",
    "split": "The split of the record.",
    "shard": "The number of the shard within its split, from 0.",
    "index": "The number of the record within its shard, from 0.",
    "offset": "The first byte of the record's data in the uncompressed shard.",
    "length": "The size of the record's data in bytes.",
    "sha256": "The SHA-256 digest of the stored image.",
    "class": "The class name or names of the record.",
    "frames": "The number of frames of the sequence.",
    "width": "The width of the stored image in pixels.",
    "height": "The height of the stored image in pixels.",
    "phash": "The perceptual hash (PDQ) of the image, 256 bits in hexadecimal.",
    "luma_p5": "The 5th percentile of the luma of the pixels, 0 to 255.",
    "luma_p99": "The 99th percentile of the luma of the pixels, 0 to 255.",
    "luma_std": "The standard deviation of the luma of the pixels.",
    "entropy": "The entropy of the histogram of the luma, in bits, 0 to 8.",
    "sharpness": "The sharpness of the image, from 0 to 1.",
}


def croissant_document(
    info: DatasetInfo, config: ConvertConfig, digests: Mapping[str, str]
) -> dict[str, Any]:
    """Returns croissant.json.

    `digests`: sha256 of each file that describes the shards, by name.
    """
    resolved = info.plan.resolved
    named = [feature for feature, names in resolved.classes.items() if names]
    responsible = config.croissant.keys() & RESPONSIBLE_AI
    stated = {
        f"rai:{name}" if name in responsible else name: value
        for name, value in config.croissant.items()
    }
    return {
        "@context": deepcopy(_CONTEXT),  # mlcroissant adds to the context of a document
        "@type": "sc:Dataset",
        "conformsTo": [_CROISSANT, _RAI] if responsible else _CROISSANT,
        "name": config.name,
        "version": config.version,
        "description": config.description or resolved.schema.description,
        **dict(_about(config)),
        **stated,
        "distribution": [*_files(digests), *_file_sets(info, config)],
        "recordSet": [
            _splits(info),
            *(_classes(feature) for feature in named),
            _records(arrow_schema(resolved)),
        ],
    }


def _about(config: ConvertConfig) -> Iterator[tuple[str, Any]]:
    if config.license:  # the specification recommends the address of a known license
        page = f"https://spdx.org/licenses/{config.license}.html"
        yield "license", page if config.license_id else config.license
    if config.homepage:
        yield "url", config.homepage
    if config.creator:
        yield "creator", {"@type": "sc:Person", "name": config.creator}
    if config.citation:
        yield "citeAs", config.citation


def _id(name: str) -> str:
    """Returns a name without white space, which mlcroissant rejects in ids."""
    return re.sub(r"\s", "+", name)


def _files(digests: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for name, digest in sorted(digests.items()):
        yield {
            "@type": "cr:FileObject",
            "@id": _id(name),
            "name": name,
            "contentUrl": name,
            "encodingFormat": _FORMATS[name[name.rindex(".") :]],
            "sha256": digest,
        }


def _file_sets(info: DatasetInfo, config: ConvertConfig) -> Iterator[dict[str, Any]]:
    example = "SequenceExample" if info.plan.resolved.schema.sequence else "Example"
    features = ", ".join(info.plan.resolved.schema.features)
    for split in info.splits:
        yield {
            "@type": "cr:FileSet",
            "@id": f"shards-{split}",
            "description": f"Shards of {split}. Each record is a tf.train.{example} with the "
            f"features {features}.",
            "encodingFormat": [_TFRECORD, *config.shard_format.media_types],
            "includes": f"{layout.shard_stem(config.name, split)}-*",
        }
    yield {
        "@type": "cr:FileSet",
        "@id": "index-files",
        "description": "The record index: one row per record.",
        "encodingFormat": _PARQUET,
        "includes": f"{layout.RECORDS}/{layout.RECORDS}-*.parquet",
    }


def _splits(info: DatasetInfo) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": "splits",
        "dataType": "cr:Split",
        "key": {"@id": "splits/name"},
        "field": [
            {"@type": "cr:Field", "@id": "splits/name", "dataType": "sc:Text"},
            {"@type": "cr:Field", "@id": "splits/records", "dataType": "sc:Integer"},
        ],
        "data": [
            {"splits/name": split, "splits/records": counts.records}
            for split, counts in info.splits.items()
        ],
    }


def _classes(feature: str) -> dict[str, Any]:
    """Returns the record set of a feature's classes, whose ids are the line numbers of a file."""
    file, name = _id(layout.labels_name(feature)), _id(f"classes-{feature}")
    fields = (("id", "sc:Integer", "lineNumbers"), ("name", "sc:Text", "lines"))
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "dataType": "sc:Enumeration",
        "key": {"@id": f"{name}/id"},
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{field}",
                "dataType": kind,
                "source": {
                    "fileObject": {"@id": file},
                    "extract": {"fileProperty": file_property},
                },
            }
            for field, kind, file_property in fields
        ],
    }


def _records(schema: pa.Schema) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": "records",
        "key": [{"@id": "records/split"}, {"@id": "records/key"}],
        "field": [_column(column) for column in schema],
    }


def _column(column: pa.Field) -> dict[str, Any]:
    is_list = pa.types.is_list(column.type)
    kind = column.type.value_type if is_list else column.type
    found: dict[str, Any] = {
        "@type": "cr:Field",
        "@id": f"records/{column.name}",
        "description": _DESCRIPTIONS[column.name],
        "dataType": _data_type(column.name, kind),
        "source": {"fileSet": {"@id": "index-files"}, "extract": {"column": column.name}},
    }
    if is_list:
        found |= {"isArray": True, "arrayShape": "-1"}
    if column.name == "split":
        found["references"] = {"field": {"@id": "splits/name"}}
    return found


def _data_type(name: str, kind: pa.DataType) -> str | list[str]:
    scalar = _TYPES.get(kind, "sc:Integer")
    return [scalar, "cr:Label"] if name == "class" else scalar
