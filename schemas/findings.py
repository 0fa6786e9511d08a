"""A finding: anything that a run noticed about the data, as data that all views show alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from recordmill.schemas.document import Document
from recordmill.schemas.statistics import EXAMPLES

Severity = Literal["warning", "note", "info"]

_SHOWN = 3
_INDENT = " " * 6


class Finding(Document):
    """An observation about the data, in run.json and in `Dataset.findings`.

    Attributes:
        kind: what was noticed, in a word that stays the same: `leakage`, `missing_classes`.
        severity: "warning" if the data may be wrong; "note" if it may not be what was meant; "info"
            for what was read, skipped or done as the options say.
        text: one sentence with numbers and some examples, without a final period.
        hint: what to do, as a sentence without a final period; "" if there is nothing to do.
        splits: the splits that it is about; () for the whole dataset.
        feature: the feature that it is about, or "".
        figures: the numbers of the text by name, unrounded.
        examples: some of the keys, classes or groups; several values belong together in a tuple.
    """

    kind: str
    severity: Severity
    text: str
    hint: str = ""
    splits: tuple[str, ...] = ()
    feature: str = ""
    figures: dict[str, int | float] = Field(default_factory=dict)
    examples: tuple[str | tuple[str, ...], ...] = ()

    @property
    def line(self) -> str:
        """The text with its severity, as the terminal prints it."""
        return self.text if self.severity == "info" else f"{self.severity}: {self.text}"


def finding(
    severity: Severity,
    kind: str,
    text: str,
    hint: str = "",
    *,
    splits: tuple[str, ...] = (),
    feature: str = "",
    examples: Sequence[str | tuple[str, ...]] = (),
    figures: Mapping[str, int | float] = MappingProxyType({}),
) -> Finding:
    """Returns a finding with the first of its examples."""
    return Finding(
        kind=kind,
        severity=severity,
        text=text,
        hint=hint,
        splits=splits,
        feature=feature,
        figures=dict(figures),
        examples=tuple(examples[:EXAMPLES]),
    )


def lines(findings: Iterable[Finding]) -> Iterator[str]:
    """Yields the line of each finding, and a hint that several in a row share after the last."""
    hint = ""
    for finding in findings:
        if hint and finding.hint != hint:
            yield f"{_INDENT}({hint})"
        yield finding.line
        hint = finding.hint
    if hint:
        yield f"{_INDENT}({hint})"


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun.

    >>> counted(1, "image"), counted(2_000, "image"), counted(0, "class")
    ('1 image', '2,000 images', '0 classes')
    """
    plural = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def counted_kind(number: int, kind: str) -> str:
    """Returns a number with its kind, which begins with a plural: "rows with …"."""
    plural, _, rest = kind.partition(" ")
    return f"{counted(number, plural.removesuffix('s'))} {rest}"


def has(number: int) -> str:
    """Returns the verb of a number of things."""
    return "has" if number == 1 else "have"


def images_are(number: int) -> str:
    """Returns the beginning of a sentence on a number of images."""
    return f"{counted(number, 'image')} {'is' if number == 1 else 'are'}"


def first_lines(texts: Sequence[str], shown: int, total: int | None = None) -> str:
    r"""Returns the first lines below a message, and the number of others, of `total` that exist.

    >>> first_lines(["a", "b", "c"], 2)
    '\n  a\n  b\n  and 1 more'
    """
    lines = list(texts[:shown])
    if more := (len(texts) if total is None else total) - len(lines):
        lines.append(f"and {more:,} more")
    return "".join(f"\n  {line}" for line in lines)


def lost_rows_message(lost: Iterable[tuple[str, str]]) -> str:
    """Returns the message for lost rows, from source location and detail of each reject."""
    shown = [f"{source}: {detail}" for source, detail in sorted(lost)]
    has_remedies = all(text.endswith(".") for text in shown)
    return (
        f"rows of the input are lost:{first_lines(shown, _SHOWN)}\n"
        "Their number is unknown, so no --max_rejects allows it."
        + " Replace the file by an intact copy, or fix it there."
        * (not has_remedies)
    )


def some(names: Sequence[str], total: int | None = None, shown: int = _SHOWN) -> str:
    """Returns the first names of a list that has `total` names.

    >>> some(["a", "b", "c", "d"]), some(["a"], 2), some(["a"])
    ('a, b, c, …', 'a, …', 'a')
    """
    more = (len(names) if total is None else total) > min(shown, len(names))
    return ", ".join(names[:shown]) + ", …" * more
