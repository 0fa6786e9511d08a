"""The schemas and settings in the reference are valid, complete, and show the defaults."""

from __future__ import annotations

import re

import pytest
import yaml

from recordmill.schemas.features import Schema
from recordmill.schemas.origins import Kind
from recordmill.schemas.rejects import Reason
from recordmill.schemas.settings import ImageSettings
from recordmill.schemas.yaml_files import parse_schema, preset, preset_names
from tests.docs.pages import DOCS, blocks

PAGE = DOCS / "reference" / "schema.md"
EXAMPLE, TASKS, CLIPS = blocks(PAGE, "yaml")
BOXES, MASKS = blocks(PAGE.with_name("objects.md"), "yaml")


def test_the_schema_example_is_valid() -> None:
    schema = parse_schema(EXAMPLE, PAGE.name)
    assert {name: feature.kind for name, feature in schema.features.items()} == {
        "image": Kind.BYTES,
        "height": Kind.INT64,
        "label": Kind.INT64,
        "name": Kind.BYTES,
        "id": Kind.BYTES,
        "score": Kind.FLOAT,
        "tags": Kind.BYTES,
        "box": Kind.FLOAT,
    }


def test_the_schemas_with_masks_and_sequences_are_valid() -> None:
    assert parse_schema(TASKS, PAGE.name).mask_feature == "mask"
    assert list(parse_schema(CLIPS, PAGE.name).context_features) == ["sequence/id", "label"]


@pytest.mark.parametrize(("name", "block"), [("object_detection", BOXES), ("segmentation", MASKS)])
def test_settings_are_shown_with_their_defaults(name: str, block: str) -> None:
    ((key, shown),) = yaml.safe_load(block).items()
    assert shown.pop("units") == "pixel"  # has no default
    document = {**preset(name).model_dump(by_alias=True), key: shown}
    assert Schema.model_validate(document) == preset(name)


def test_every_image_setting_is_shown_with_its_default() -> None:
    (example,) = blocks(DOCS / "explanation" / "images.md", "yaml")
    shown = dict(re.findall(r"^  (\w+): (\S+)", example, re.MULTILINE))
    defaults = {name: field.default for name, field in ImageSettings.model_fields.items()}
    assert shown.keys() | {"resize", "rescale", "column"} == defaults.keys()
    for name, value in shown.items():
        if name not in ("max_side", "window"):  # without a default
            assert value == str(defaults[name]).lower()


def test_the_table_of_presets_is_complete() -> None:
    table = PAGE.read_text("utf-8").split("| preset | Example keys |")[1].split("\n\n")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == preset_names()


def test_the_table_of_rejection_reasons_is_complete() -> None:
    text = (DOCS / "reference" / "rejects.md").read_text("utf-8")
    table = text.split("| Reason | Meaning | Remedy |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \|$", table, re.MULTILINE)
    assert dict(rows) == {reason.value: reason.remedy for reason in Reason}
