"""README.md: the complete card, and its front matter as the Hugging Face Hub reads it."""

from __future__ import annotations

import re

import pytest
from huggingface_hub import DatasetCard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from recordmill.pipelines.sidecars import _code, _dataset_card, _literal
from recordmill.schemas.masking import visible
from recordmill.schemas.yaml_files import preset, preset_names
from tests.unit.pipelines.test_croissant import config_of, info_of

CARD = """\
---
pretty_name: birds
license: cc-by-4.0
task_categories:
- image-classification
size_categories:
- n<1K
tags:
- tfrecord
- croissant
---

# birds 1.0.0

Birds | bees.

Homepage: <https://example.com/birds>

## Splits

| split | records | shards | MiB |
|---|--:|--:|--:|
| test | 1 | 0 | 0.0 |
| train | 2 | 0 | 0.0 |

## Features

Each record is a `tf.train.Example` with these features:

| feature | type | values | from |
|---|---|---|---|
| `image` | bytes | one value | `image:bytes` |
| `image/filename` | bytes | one value | `column:image` |
| `label` | int64 | one value | `column:label` |

`label` has 2 classes, in the order of their ids in `label.labels.txt`:
cat\\|lynx, dög

## Warnings

- 2 classes of 'label' without any record (cat\\|lynx, dög)
- 'label' has class names like lists: if so, write cat\\|dog or \\["cat", "dog"\\], for \
--schema multi_label (cat\\|lynx)

## Use

```python
import recordmill

dataset = recordmill.load("birds/1.0.0")  # tf.data.Dataset
```

Without TensorFlow, `recordmill.Records` of the package `recordmill-reader` has the same records as
arrays. TensorFlow Datasets reads the folder with `tfds.builder_from_directory`; for TensorFlow
alone, `recordmill schema birds/1.0.0` prints the code.

Before this dataset was published, every record was read back and parsed by TensorFlow.
`recordmill verify` repeats the check, and compares each file with its digest in `manifest.json`.

## License and citation

Created by A. Person.

License: CC-BY-4.0

```bibtex
@misc{birds}
```

## Responsible AI

- dataBiases: Only garden birds.; Mostly males.
"""


def test_the_complete_card() -> None:
    schema = preset("image_classification")
    config = config_of(
        schema,
        license="CC-BY-4.0",
        homepage="https://example.com/birds",
        creator="A. Person",
        citation="@misc{birds}",
        description="Birds | bees.",
        croissant={"keywords": "birds", "dataBiases": ("Only garden birds.", "Mostly males.")},
    )
    info = info_of(schema, {"label": ("cat|lynx", "dög")})
    assert _dataset_card(info, config).decode() == CARD


TASKS = {
    "captioning": None,
    "image_classification": ["image-classification"],
    "image_sequence": ["video-classification"],
    "instance_segmentation": ["image-segmentation"],
    "keypoints": ["keypoint-detection"],
    "landmark": ["image-classification"],
    "multi_label": ["image-classification"],
    "object_detection": ["object-detection"],
    "oriented_boxes": ["object-detection"],
    "panoptic": ["image-segmentation"],
    "segmentation": ["image-segmentation"],
    "tabular": None,
    "tf_slim": ["image-classification"],
    "tf_tutorial": ["image-classification"],
}


@pytest.mark.parametrize("name", preset_names())
def test_the_hub_reads_the_front_matter(name: str) -> None:
    tasks = TASKS[name]
    schema = preset(name)
    card = DatasetCard(
        _dataset_card(info_of(schema, {}), config_of(schema, license="My own")).decode()
    )
    expected = {
        "pretty_name": "birds",
        "license": "other",
        "license_name": "My own",
        "size_categories": ["n<1K"],
        "tags": ["tfrecord", "croissant"],
    }
    assert card.data.to_dict() == expected | ({"task_categories": tasks} if tasks else {})


RENDERED = MarkdownIt("gfm-like", {"linkify": False})
NAMES = st.text(min_size=1, max_size=30) | st.from_regex(r"[!#*_`<>&|~$@\\\[\](){}=+.:/a1 -]{1,20}")


@settings(max_examples=100)
@given(NAMES.filter(str.strip))
@example("![x](http://127.0.0.1:9/t.png) [click](javascript:alert(1)) <img src=x onerror=alert(1)>")
@example("\x1b]0;title\x07\x1b[2J\u202e<script>")
@example("<https://host/> &lt; &#60; **b** `code` ~~s~~ \\")
@example("# heading")
@example("===")
@example("1) item")
def test_names_are_literal_text_in_markdown_and_on_terminals(name: str) -> None:
    shown = visible(re.sub(r"\s", " ", name.strip()))
    for text in (_literal(name), f"class {_literal(name)}", f"first\n{_literal(name)}"):
        assert visible(text.replace("\n", "")) == text.replace("\n", "")
        (inline,) = (token for token in RENDERED.parse(text) if token.type == "inline")
        types = {token.type for token in inline.children or ()}
        assert types <= {"text", "text_special", "softbreak"}
        content = "".join(token.content for token in inline.children or ())
        assert content.removeprefix("class ").removeprefix("first") == shown
        assert [token.tag for token in RENDERED.parse(text) if token.nesting > 0] == ["p"]
    (inline,) = (token for token in RENDERED.parse(_code(name)) if token.type == "inline")
    (only,) = inline.children or ()
    assert (only.type, only.content.strip()) == ("code_inline", shown.replace("|", "\\|").strip())
