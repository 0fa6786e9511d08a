"""The page on Excel works by copy and paste."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from tests.docs.test_tutorials import of_python
from tests.end_to_end import readers
from tests.images import jpeg


def test_a_table_of_excel_is_read_with_pandas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table, program, schema = blocks(DOCS / "how-to" / "from-excel.md", "text", "python", "yaml")
    Path("pets.csv").write_text(table, "utf-8-sig", newline="\r\n")
    Path("pets.yaml").write_text(schema)
    Path("fotos").mkdir()
    for i in (1, 2):
        Path(f"fotos/{i}.jpg").write_bytes(jpeg(32, 24, i))
    of_python(program)
    dataset = Path("datasets/pets/1.0.0")
    found = {
        (e["label"][0], e["weight"][0]): e["image"][0] for e in readers.examples(dataset, "train")
    }
    assert found == {(0, 7.5): jpeg(32, 24, 1), (1, 4.25): jpeg(32, 24, 2)}
    assert (dataset / "label.labels.txt").read_text() == "Hund\nKatze\n"
