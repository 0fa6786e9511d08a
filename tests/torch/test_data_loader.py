"""`Records` in PyTorch's DataLoader, with forked and spawned workers.

Not in the default suite: the newest PyTorch on PyPI needs its GPU packages.
`tests/torch/run` installs the last version without them, and runs this test on a dataset.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Subset

from recordmill.pipelines.dataset.records import Records

DATASET = os.environ["DATASET"]
SCHEMA = Path(os.environ["SCHEMA"])
PAGE = Path(__file__).parents[2] / "docs/how-to/read.md"


def to_tensors(examples: list[dict[str, Any]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the top-left corner of each image, and the labels."""
    corners = [torch.from_numpy(example["image"][:8, :8]) for example in examples]
    return torch.stack(corners), torch.tensor([example["label"] for example in examples])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_return_every_record_in_order(method: str) -> None:
    records = Records(DATASET, "all", features=["image", "label"])
    loader = DataLoader(
        records,
        batch_size=32,
        num_workers=2,
        collate_fn=to_tensors,
        multiprocessing_context=method,
    )
    found = list(loader)
    expected = to_tensors(list(records))
    assert torch.equal(torch.cat([images for images, _ in found]), expected[0])
    assert torch.equal(torch.cat([labels for _, labels in found]), expected[1])


def test_shuffled_epochs_contain_every_record_once() -> None:
    records = Records(DATASET, "all", features=["label"])
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(records, batch_size=50, shuffle=True, num_workers=2, generator=generator)
    expected = sorted(record["label"] for record in records)
    epochs = [[int(label) for batch in loader for label in batch["label"]] for _ in range(2)]
    assert [sorted(epoch) for epoch in epochs] == [expected] * 2
    assert epochs[0] != epochs[1]


def test_slices_equal_subsets() -> None:
    records = Records(DATASET, "train", features=["label"])
    sliced = [int(x["label"]) for x in DataLoader(records[10:20], batch_size=None, num_workers=2)]
    subset = [int(x["label"]) for x in DataLoader(Subset(records, range(10, 20)), batch_size=None)]
    assert sliced == subset == [record["label"] for record in records[10:20]]


def test_the_code_that_the_schema_command_prints_runs() -> None:
    found: dict[str, Any] = {}
    exec(json.loads(SCHEMA.read_bytes())["snippets"]["PyTorch"], found)  # noqa: S102 - as readers do
    batches = list(found["loader"])
    assert batches[0][0].shape == (32, 3, 224, 224)
    assert sum(len(labels) for _, labels in batches) == len(found["records"])


def test_the_example_of_the_page_runs() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    (block,) = [block for block in blocks if "import torch" in block]
    found: dict[str, Any] = {"path": DATASET, "Records": Records}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as for arrays that are not writable
        exec(compile(block, PAGE, "exec"), found)  # noqa: S102 - as readers do
    assert found["images"].shape == (32, 3, 224, 224)
    assert found["images"].dtype == torch.float32
    batches = list(found["loader"])
    assert sum(len(labels) for _, labels in batches) == len(found["records"])
