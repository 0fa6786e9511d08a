"""croissant.json: the complete document, and every preset in mlcroissant."""

from __future__ import annotations

import mlcroissant
import pytest

from recordmill.pipelines.sidecars import _croissant_document
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import DatasetInfo
from recordmill.schemas.features import Schema
from recordmill.schemas.plan import Plan, ResolvedSchema
from recordmill.schemas.row_counts import RowCounts, SplitCounts
from recordmill.schemas.yaml_files import preset, preset_names

SPLITS = {
    "test": SplitCounts(rows=1, records=1, rejected=0, duplicates=0),
    "train": SplitCounts(rows=3, records=2, rejected=1, duplicates=0),
}


def info_of(schema: Schema, classes: dict[str, tuple[str, ...]]) -> DatasetInfo:
    plan = Plan(ResolvedSchema(schema, classes), {"test": 1, "train": 1}, 4)
    return DatasetInfo(plan, RowCounts.of(4, SPLITS), SPLITS, (), problems=())


def config_of(schema: Schema, **options: object) -> ConvertConfig:
    return ConvertConfig(inputs=("t.csv",), output="out", name="birds", schema=schema, **options)


def test_the_complete_document() -> None:
    schema = preset("image_classification")
    options = {
        "license": "CC-BY-4.0",
        "homepage": "https://example.com/birds",
        "creator": "A. Person",
        "citation": "@misc{birds}",
        "description": "Birds.",
        "croissant": {"keywords": ("birds", "photos"), "dataBiases": "Only garden birds."},
    }
    digests = {"schema.pbtxt": "aa", "label.labels.txt": "bb"}
    found = _croissant_document(
        info_of(schema, {"label": ("cat", "dög")}), config_of(schema, **options), digests
    )
    context = found.pop("@context")
    assert (context["cr"], context["recordSet"]) == (
        "http://mlcommons.org/croissant/",
        "cr:recordSet",
    )
    assert found == {
        "@type": "sc:Dataset",
        "conformsTo": [
            "http://mlcommons.org/croissant/1.1",
            "http://mlcommons.org/croissant/RAI/1.0",
        ],
        "name": "birds",
        "version": "1.0.0",
        "description": "Birds.",
        "license": "https://spdx.org/licenses/CC-BY-4.0.html",
        "url": "https://example.com/birds",
        "creator": {"@type": "sc:Person", "name": "A. Person"},
        "citeAs": "@misc{birds}",
        "keywords": ("birds", "photos"),
        "rai:dataBiases": "Only garden birds.",
        "distribution": [
            file_object("label.labels.txt", "bb"),
            file_object("schema.pbtxt", "aa"),
            shards("test"),
            shards("train"),
            {
                "@type": "cr:FileSet",
                "@id": "index-files",
                "description": "The record index: one row per record.",
                "encodingFormat": "application/x-parquet",
                "includes": "records/records-*.parquet",
            },
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "splits",
                "dataType": "cr:Split",
                "key": {"@id": "splits/name"},
                "field": [
                    {"@type": "cr:Field", "@id": "splits/name", "dataType": "sc:Text"},
                    {"@type": "cr:Field", "@id": "splits/records", "dataType": "sc:Integer"},
                ],
                "data": [
                    {"splits/name": "test", "splits/records": 1},
                    {"splits/name": "train", "splits/records": 2},
                ],
            },
            {
                "@type": "cr:RecordSet",
                "@id": "classes-label",
                "dataType": "sc:Enumeration",
                "key": {"@id": "classes-label/id"},
                "field": [
                    line_field("id", "sc:Integer", "lineNumbers"),
                    line_field("name", "sc:Text", "lines"),
                ],
            },
            found["recordSet"][2],  # below
        ],
    }
    records = found["recordSet"][2]
    assert (records["@id"], records["key"]) == (
        "records",
        [{"@id": "records/split"}, {"@id": "records/key"}],
    )
    fields = {field["@id"]: field for field in records["field"]}
    assert fields["records/split"] == {
        "@type": "cr:Field",
        "@id": "records/split",
        "description": "The split of the record.",
        "dataType": "sc:Text",
        "source": {"fileSet": {"@id": "index-files"}, "extract": {"column": "split"}},
        "references": {"field": {"@id": "splits/name"}},
    }
    assert fields["records/offset"]["dataType"] == "sc:Integer"
    assert fields["records/class"]["dataType"] == ["sc:Text", "cr:Label"]


def file_object(name: str, digest: str) -> dict[str, str]:
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "encodingFormat": "text/plain",
        "sha256": digest,
    }


def shards(split: str) -> dict[str, object]:
    return {
        "@type": "cr:FileSet",
        "@id": f"shards-{split}",
        "description": f"Shards of {split}. Each record is a tf.train.Example with the features "
        "image, image/filename, label.",
        "encodingFormat": ["application/x-tfrecord"],
        "includes": f"birds-{split}.tfrecord-*",
    }


def line_field(name: str, kind: str, file_property: str) -> dict[str, object]:
    return {
        "@type": "cr:Field",
        "@id": f"classes-label/{name}",
        "dataType": kind,
        "source": {
            "fileObject": {"@id": "label.labels.txt"},
            "extract": {"fileProperty": file_property},
        },
    }


@pytest.mark.parametrize("name", preset_names())
def test_mlcroissant_accepts_every_preset(name: str) -> None:
    schema = preset(name)
    classes = dict.fromkeys(schema.named_features, ("cat", "dog"))
    options = {"license": "MIT", "citation": "@misc{x}", "compression": "gzip"}
    config = config_of(schema, croissant={"datePublished": "2026-11-23"}, **options)
    digests = {f"{feature.replace('/', '.')}.labels.txt": "aa" for feature in classes}
    document = _croissant_document(info_of(schema, classes), config, digests)
    metadata = mlcroissant.Dataset(document).metadata
    assert (metadata.ctx.issues.errors, metadata.ctx.issues.warnings) == (set(), set())


def test_ids_have_no_white_space() -> None:
    schema = Schema.model_validate(
        {"features": {"eye color": {"kind": "int64", "from": "column:e", "classes": True}}}
    )
    info = info_of(schema, {"eye color": ("blue", "green")})
    document = _croissant_document(info, config_of(schema), {"eye color.labels.txt": "aa"})
    (label,) = (found for found in document["distribution"] if found.get("sha256") == "aa")
    assert (label["@id"], label["contentUrl"]) == ("eye+color.labels.txt", "eye color.labels.txt")
    assert mlcroissant.Dataset(document).metadata.record_sets[1].uuid == "classes-eye+color"
