"""The page on Kaggle joins a train.csv and a test.csv without labels by copy and paste."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from tests.docs.test_pages import commands_of
from tests.docs.test_tutorials import of_python
from tests.end_to_end.command import recordmill
from tests.images import png


def test_both_tables_become_one_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS / "how-to" / "from-kaggle.md"
    Path("both.yaml").write_text(blocks(page, "yaml")[-1])
    for folder in ("train_images", "test_images"):
        Path("retina", folder).mkdir(parents=True)
    rows = [f"a{n},{n % 2},p{n // 4}" for n in range(40)]
    Path("retina/train.csv").write_text("\n".join(["id_code,diagnosis,patient", *rows]))
    Path("retina/test.csv").write_text("id_code\nb0\nb1\n")
    for name in (*(f"train_images/a{n}" for n in range(40)), "test_images/b0", "test_images/b1"):
        Path("retina", f"{name}.png").write_bytes(png(8, 8))
    (program,) = blocks(page, "python")
    of_python(program)
    ended = recordmill(*commands_of(page)[-1], "--json")
    assert ended.code == 0, ended.err
    records = {n: split["records"] for n, split in json.loads(ended.out)["splits"].items()}
    assert (records["test"], records["train"] + records["val"]) == (2, 40)
