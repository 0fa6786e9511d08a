"""The examples of the README and of docs/images.md do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tensorflow as tf

from recordmill.schemas.features import Kind
from recordmill.schemas.presets import parse_schema, preset_names
from recordmill.schemas.settings import ImageSettings
from tests.images import jpeg

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
IMAGES = (ROOT / "docs" / "images.md").read_text(encoding="utf-8")


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_library_example_writes_what_tensorflow_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = [block for block in blocks("python") if "BuildExamples" in block]
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(jpeg(40, 30))
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})  # noqa: S102 - that is what readers do
    files = sorted(map(str, tmp_path.glob("examples-*-of-00004")))
    (record,) = tf.data.TFRecordDataset(files)
    features = tf.train.Example.FromString(record.numpy()).features.feature
    numbers = {n: f.int64_list.value[0] for n, f in features.items() if n != "image_raw"}
    assert numbers == {"height": 30, "width": 40, "depth": 3, "label": 7}
    assert features["image_raw"].bytes_list.value[0] == jpeg(40, 30)


def test_the_schema_example_is_a_schema() -> None:
    (example,) = [block for block in blocks("yaml") if "features:" in block]
    schema = parse_schema(example, "README.md")
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


def test_every_image_setting_is_told_with_its_default() -> None:
    (example,) = blocks("yaml", IMAGES)
    told = dict(re.findall(r"^  (\w+): (\S+)", example, re.MULTILINE))
    defaults = {name: field.default for name, field in ImageSettings.model_fields.items()}
    assert told.keys() | {"resize", "column"} == defaults.keys()
    for name, value in told.items():
        if name not in ("quality", "max_side"):  # without a default of their own
            assert value == str(defaults[name]).lower()


def test_the_table_of_presets_is_whole() -> None:
    table = README.split("| preset | Example keys |")[1].split("```")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == preset_names()
