"""The files that describe the shards: schemas for TensorFlow's tools, croissant.json, the card.

README.md is the card of a dataset, which dataset hubs and people read. Its front matter is that of
the Hugging Face Hub's (https://github.com/huggingface/hub-docs/blob/main/datasetcard.md).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from typing import Any

import pyarrow as pa
import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from recordmill.pipelines.findings import Outcome, findings_of
from recordmill.pipelines.report.statistics import shape_text
from recordmill.schemas import layout, tensorflow_metadata
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import DatasetInfo, manifest_of
from recordmill.schemas.features import Schema
from recordmill.schemas.masking import masked, visible
from recordmill.schemas.option import RESPONSIBLE_AI
from recordmill.schemas.origins import KEYPOINTS
from recordmill.transforms.functional.records.index import arrow_schema

# Number of class names in the card; all of them are in a file beside it.
_SHOWN_CLASSES = 20

# The Hub's size categories: the number of records from which each begins.
_SIZES = (
    (10**12, "n>1T"),
    (10**11, "100B<n<1T"),
    (10**10, "10B<n<100B"),
    (10**9, "1B<n<10B"),
    (10**8, "100M<n<1B"),
    (10**7, "10M<n<100M"),
    (10**6, "1M<n<10M"),
    (10**5, "100K<n<1M"),
    (10**4, "10K<n<100K"),
    (10**3, "1K<n<10K"),
    (0, "n<1K"),
)


def sidecars(info: DatasetInfo, config: ConvertConfig) -> dict[str, bytes]:
    """Returns the files that describe the shards: content by file name."""
    resolved = info.plan.resolved
    files = {layout.SCHEMA: tensorflow_metadata.schema_text(resolved).encode("utf-8")}
    for feature, names in resolved.classes.items():
        if names:
            files[layout.labels_name(feature)] = "".join(f"{n}\n" for n in names).encode("utf-8")
    schema = resolved.schema
    if config.shard_format.in_tfds and schema.message == "Example":
        # TFDS does not read SequenceExamples.
        files[layout.FEATURES] = _json(tensorflow_metadata.features_document(resolved))
        lengths = {
            split: [(s.entry.records, s.entry.payload) for s in info.shards if s.split == split]
            for split in info.plan.shards
        }
        document = tensorflow_metadata.dataset_info_document(config, resolved.schema, lengths)
        files[layout.DATASET_INFO] = _json(document)
    files[layout.CROISSANT] = _json(_croissant_document(info, config, digests_of(files)))
    files[layout.DATASET_CARD] = _dataset_card(info, config)
    return files


def digests_of(files: Mapping[str, bytes]) -> dict[str, str]:
    """Returns the sha256 of files, by name."""
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"


@cache
def text_template(name: str) -> Template:
    """Returns a template of Markdown or code, in which nothing is escaped."""
    environment = Environment(
        loader=PackageLoader("recordmill.pipelines.report"),
        autoescape=False,  # noqa: S701 - no HTML; the Hub sanitizes Markdown
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        literal=_literal, code=_code, shape=shape_text, labels_name=layout.labels_name, repr=repr
    )
    return environment.get_template(name)


def _dataset_card(info: DatasetInfo, config: ConvertConfig) -> bytes:
    """Returns README.md, with the findings that do not differ from run to run."""
    resolved = info.plan.resolved
    findings = findings_of(Outcome(manifest_of(info, config, {})))
    text = text_template("dataset_card.md").render(
        front_matter=yaml.safe_dump(
            _front_matter(info, config), sort_keys=False, allow_unicode=True
        ),
        config=config,
        description=config.description or resolved.schema.description,
        splits=[_split(info, split) for split in info.splits],
        example=resolved.schema.message,
        features=resolved.schema.features,
        classes={feature: names for feature, names in resolved.classes.items() if names},
        shown=_SHOWN_CLASSES,
        warnings=[found.text for found in findings if found.severity == "warning"],
        responsible={
            name: (value,) if isinstance(value, str) else value
            for name, value in config.croissant.items()
            if name in RESPONSIBLE_AI
        },
    )
    return text.encode("utf-8")


def _front_matter(info: DatasetInfo, config: ConvertConfig) -> dict[str, Any]:
    records = sum(counts.records for counts in info.splits.values())
    found: dict[str, Any] = {"pretty_name": config.name}
    if config.license_id:
        found["license"] = config.license_id.lower()  # the Hub's ids are SPDX's in lower case
    elif config.license:
        found |= {"license": "other", "license_name": config.license}
    if tasks := _tasks(info.plan.resolved.schema):
        found["task_categories"] = tasks
    found["size_categories"] = [next(name for least, name in _SIZES if records >= least)]
    found["tags"] = ["tfrecord", "croissant"]
    return found


def _tasks(schema: Schema) -> list[str]:
    """Returns the Hub's names for the tasks that a schema has labels for."""
    if schema.sequence is not None:
        return ["video-classification"] if schema.class_features else []
    if not schema.has_image:
        return ["tabular-classification"] if schema.class_features else []
    if schema.columns_from(KEYPOINTS):
        return ["keypoint-detection"]
    if schema.has_boxes and not schema.has_instances:
        return ["object-detection"]
    if schema.mask_feature or schema.has_instances:
        return ["image-segmentation"]
    return ["image-classification"] if schema.class_features else []


def _split(info: DatasetInfo, split: str) -> dict[str, Any]:
    shards = [shard.entry for shard in info.shards if shard.split == split]
    return {
        "name": split,
        "records": info.splits[split].records,
        "shards": len(shards),
        "mib": sum(shard.bytes for shard in shards) / 2**20,
    }


# What Markdown, or GitHub's dialect, reads as markup in a line; `_` only at the ends of words.
# A list item, a heading or its underline begins a line; an address is a link without brackets.
_MARKUP = re.compile(
    r"[\\`*\[\]<>~|$&@]|(?<![^\W_])_|_(?![^\W_])|^[#+=-]|(?<=^\d)[.)]|(?<=^\d\d)[.)]|:(?=//)"
    r"|(?<=www)\."
)


def _literal(text: str) -> str:
    r"""Returns text that Markdown and terminals show as it is, on one line.

    >>> print(_literal("a|b_c"), _literal("![x](y) <b>\x1b"), _literal("1. https://host"))
    a\|b_c !\[x\](y) \<b\>\\x1b 1\. https\://host
    """
    return _MARKUP.sub(r"\\\g<0>", visible(masked(re.sub(r"\s", " ", text.strip()))))


def _code(text: str) -> str:
    r"""Returns a code span, whose delimiters are longer than any row of backticks in the text.

    >>> print(_code("a|b"), _code("x`y"))
    `a\|b` ``x`y``
    """
    shown = visible(masked(re.sub(r"\s", " ", text))).replace("|", "\\|")
    ticks = "`" * (1 + max((len(row) for row in re.findall("`+", shown)), default=0))
    pad = " " * (shown.startswith("`") or shown.endswith("`"))
    return f"{ticks}{pad}{shown}{pad}{ticks}"


_CROISSANT = "http://mlcommons.org/croissant/1.1"
_RAI = "http://mlcommons.org/croissant/RAI/1.0"

# The keys of Croissant whose term has their name.
_TERMS = (
    "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract",
    "field", "fileObject", "fileProperty", "fileSet", "format", "includes", "isArray",
    "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet",
    "references", "regex", "repeated", "replace", "samplingRate", "separator",
    "source", "subField", "transform",
)  # fmt: skip

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
    **{key: f"cr:{key}" for key in _TERMS},
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


def _croissant_document(
    info: DatasetInfo, config: ConvertConfig, digests: Mapping[str, str]
) -> dict[str, Any]:
    """Returns croissant.json, with the sha256 of each file that describes the shards, by name."""
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
    example = info.plan.resolved.schema.message
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
    file = _id(layout.labels_name(feature))
    name = _id(f"classes-{feature}")
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
                "source": {"fileObject": {"@id": file}, "extract": {"fileProperty": file_property}},
            }
            for field, kind, file_property in fields
        ],
    }


def _records(schema: pa.Schema) -> dict[str, Any]:
    return {
        "@type": "cr:RecordSet",
        "@id": "records",
        "key": [{"@id": "records/split"}, {"@id": "records/key"}],
        # Readers of Croissant have no lists of structs.
        "field": [_column(column) for column in schema if column.name in _DESCRIPTIONS],
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
