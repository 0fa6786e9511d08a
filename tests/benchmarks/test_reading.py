"""The benchmark of readers reads all records with each of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

import recordmill
from benchmarks import reading


def test_all_readers_read_all_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(6):
        image = Image.new("RGB", (8, 8), (40 * number, 90, 9))
        image.save(tmp_path / f"{number}.jpg")
    rows = [f"{number}.jpg,{'ab'[number % 2]}" for number in range(6)]
    (tmp_path / "t.csv").write_text("\n".join(["image,label", *rows]))
    published = recordmill.convert(
        input=tmp_path / "t.csv", output=tmp_path / "out", name="small", report=False
    )

    readers = reading.baselines_of(Path(published.directory), "train")
    assert {name: read() for name, read in readers.items()} == dict.fromkeys(readers, 6)
    assert reading.main([str(published.directory), "--turns", "1"]) == 0
    _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split("  ")[0] for row in rows] == list(readers)
