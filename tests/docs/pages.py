"""The pages of the documentation, and the blocks of code on them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path, *languages: str) -> list[str]:
    """Returns the code blocks of a page in some languages, in order."""
    names = "|".join(languages)
    text = page.read_text("utf-8")
    return re.findall(rf"^```(?:{names})\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
