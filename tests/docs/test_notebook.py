"""The notebook equals the page that is executed when the documentation is built."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_notebook_equals_the_page_and_has_no_outputs() -> None:
    page = (
        (ROOT / "docs" / "tutorials" / "training.md")
        .read_text(encoding="utf-8")
        .split("---\n", 2)[2]
    )
    parts = re.split(r"^```\{code-cell\}\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    cells = [
        ("code" if i % 2 else "markdown", part.strip())
        for i, part in enumerate(parts)
        if part.strip()
    ]
    notebook = json.loads((ROOT / "examples" / "train.ipynb").read_text(encoding="utf-8"))
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    assert found == cells
    codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all((cell["outputs"], cell["execution_count"]) == ([], None) for cell in codes)
