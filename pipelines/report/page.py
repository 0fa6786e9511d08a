"""Renders a page: jinja2 escapes every value, and a policy in the page forbids all but itself.

Bars and histograms are a few SVG rectangles made by the template. Chart libraries were weighed:
those that draw such SVG bring scripts, fonts or addresses of their own, which the policy rejects.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from recordmill.pipelines.report.charts import number_text, size_text
from recordmill.schemas.masking import masked
from recordmill.transforms.functional.rendering.visible_text import visible

_LONGEST = 1_000
"""Characters of a name that a page shows."""

_SPECIAL, _BACKSLASH = r"[\\']", r"\\\g<0>"


def render(content: dict[str, Any]) -> bytes:
    """Returns the page that shows some content."""
    environment = Environment(
        loader=PackageLoader("recordmill.pipelines.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_masked,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        count=lambda n: f"{n:,}",
        size=size_text,
        number=number_text,
        percent=percent,
        plain=plain,
        command=command_text,
    )
    style = environment.get_template("report.css").render()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    template = environment.get_template("report.html")
    page = template.render(style=style, style_digest=digest, **content)
    return page.encode("utf-8", "backslashreplace")


def _masked(value: Any) -> Any:
    """Returns what a page shows of a value: of a text, all that is no secret."""
    return masked(value) if type(value) is str and not value.startswith("data:") else value


def plain(value: object) -> str:
    r"""Returns a value as visible text of bounded length: a name may have millions of characters.

    >>> print(plain("a\n"), len(plain("x" * 10_000)))
    a\x0a 1001
    """
    text = masked(str(value))  # before it is cut: what is left of a secret looks like none
    return visible(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def percent(part: float, whole: float) -> str:
    """Returns a part as a percentage.

    >>> percent(1, 3), percent(0, 0), percent(9999, 10000)
    ('33.3 %', '0 %', '99.99 %')
    """
    if not whole or not part:
        return "0 %"
    share = 100 * part / whole
    if share == 100:
        return "100 %"
    return f"{share:.2f} %" if share > 99.9 or share < 0.1 else f"{share:.1f} %"


def command_text(parts: Sequence[str]) -> str:
    """Returns a command as a shell takes it, a flag a line."""
    lines: list[str] = []
    for part in map(quoted, parts):
        if part.startswith("-") or not lines:
            lines.append(part)
        else:
            lines[-1] += f" {part}"
    return " \\\n    ".join(lines)


def quoted(word: str) -> str:
    r"""Returns a word as bash takes it, with nothing in it that cannot be seen.

    >>> print(quoted("a b"), quoted("it's\u202e"))
    'a b' $'it\'s\u202e'
    """
    if visible(word) == word:
        return shlex.quote(word)
    return f"$'{visible(re.sub(_SPECIAL, _BACKSLASH, word))}'"
