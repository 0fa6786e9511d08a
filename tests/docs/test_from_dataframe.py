"""The code of docs/how-to/from-dataframe.md runs, with rows and images as on the page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import recordmill
from tests.images import jpeg

PAGE = Path(__file__, "../../../docs/how-to/from-dataframe.md").resolve().read_text("utf-8")


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["photos/cat/1.jpg", "photos/dog/2.jpg"]
    names += [f"frames/{label}/video{n}/1.jpg" for label in ("cat", "dog") for n in range(4)]
    for seed, name in enumerate(names):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(jpeg(seed=seed))
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        exec(block, {"recordmill": recordmill})  # noqa: S102 - the page is ours
    pets, frames = (recordmill.open(f"datasets/{name}") for name in ("pets", "frames"))
    assert (len(pets.records), pets.classes) == (2, {"label": ("cat", "dog")})
    assert (len(frames.records), frames.classes) == (8, {"label": ("cat", "dog")})
