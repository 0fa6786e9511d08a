"""One vocabulary in code, documentation and test names: `glossary.txt` and the phrases below.

`python tests/repository/test_vocabulary.py [PATH…]` lists all findings.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = Path(__file__).with_name("glossary.txt")
CODE = ("recordmill", "schemas", "transforms", "pipelines", "benchmarks", "examples", "deploy")
SUFFIXES = {".py", ".sh", ".yaml", ".yml", ".proto", ".md", ".html", ".j2", ".css", ".js", ".toml"}
GENERATED = {"example_pb2.py", "example_pb2.pyi"}

PHRASES = {
    r"is no \w+64": "is not a valid …64",
    r"but for": "except for",
    r"at once": "immediately, concurrently",
    r"the books": "row counts",
    r"in a process apart": "in a separate process",
    r"(returns|yields) what": "Returns the NOUN",
    r"stands? (in|twice)": "occurs in, is in, occurs twice",
}
"""Phrases to avoid, with replacements; a space matches any line break or underscore."""

ALLOWED = (
    # Published names of JSON fields.
    r"""["'`.](input\.)?asides\b""",
    r"\basides[:=]",
    # Other tools' words.
    r"ConnectionRefused\w*|ECONNREFUSED|connection[ _]refused|refused[ _](the )?connection",
    r"code[ _]fences?|fenced[ _]code",
    r"spot (workers|instances|VMs)",
    r"\bWantedBy=",
    r"f\.tell\(|\.tell\(\)|\bdef tell\b",
)
"""Exceptions, which are removed from a text before it is checked."""


@cache
def glossary() -> dict[str, str]:
    """Returns the words to avoid, with replacements."""
    lines = GLOSSARY.read_text("utf-8").split("\n")
    return {
        word: new.rstrip(",") for word, _, new in (line.partition("->") for line in lines) if word
    }


def findings(text: str) -> list[tuple[int, str, str]]:
    """Returns the line, the word or phrase, and the replacement of each finding in a text."""
    for allowed in ALLOWED:
        text = re.sub(allowed, lambda match: " " * len(match[0]), text, flags=re.IGNORECASE)
    # fooBar_baz becomes "foo bar baz"; line breaks stay, to count lines by.
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_", " ", text).lower()
    words = (
        (match.start(), match[0], glossary()[match[0]])
        for match in re.finditer(r"[a-z]+", split)
        if match[0] in glossary()
    )
    phrases = (
        (match.start(), " ".join(match[0].split()), new)
        for phrase, new in PHRASES.items()
        for match in re.finditer(rf"\b{phrase}\b".replace(" ", r"[\s#]+"), split)
    )
    return [(split.count("\n", 0, at) + 1, *found) for at, *found in sorted([*words, *phrases])]


def checked_texts() -> Iterator[tuple[str, str]]:
    """Yields the path and the text of each file of code and documentation."""
    for folder in CODE:
        # "recordmill" holds links to the other folders, which rglob() does not follow
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.name not in GENERATED and path.is_file():
                yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8")


def test_names() -> Iterator[tuple[str, str]]:
    """Yields the path of each test file, and a text with the names of its tests, line by line."""
    for path in sorted((ROOT / "tests").rglob("*.py")):
        lines = path.read_text("utf-8").split("\n")
        names = re.compile(r"\s*(?:async )?(?:def|class) (test_\w+|Test\w+)")
        kept = [match[1] if (match := names.match(line)) else "" for line in lines]
        kept[0] = path.stem
        yield path.relative_to(ROOT).as_posix(), "\n".join(kept)


test_names.__test__ = False  # type: ignore[attr-defined]


def messages(prefixes: tuple[str, ...] = ("",)) -> list[str]:
    """Returns a message for each finding in files whose path begins with a prefix."""
    return [
        f"{path}:{line}: {word!r}: write {new}"
        for path, text in [*checked_texts(), *test_names()]
        if path.startswith(prefixes)
        for line, word, new in findings(text)
    ]


def test_code_documentation_and_test_names_keep_to_the_glossary() -> None:
    found = messages()
    assert not found, "\n".join(found)


def test_codespell_finds_typos_british_spelling_and_words_of_the_glossary(tmp_path: Path) -> None:
    pytest.importorskip("codespell_lib")  # of the extra `dev`
    (tmp_path / "page.md").write_text("The picture has a colour and a tpyo.\n")
    command = [sys.executable, "-m", "codespell_lib", "--toml", ROOT / "pyproject.toml", tmp_path]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    words = re.findall(r": (\w+) ==>", found.stdout)
    assert (found.returncode > 0, words) == (True, ["picture", "colour", "tpyo"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\npicture_size = 2", [(2, "picture")]),
        ("class PictureOf: ...", [(1, "picture")]),
        ("class HTTPPicture: ...", [(1, "picture")]),
        ("# A record is\n# proven, and told.", [(2, "proven"), (2, "told")]),
        ('"""Returns\n    what is counted."""', [(1, "returns what")]),
        ('raise ValueError(f"{x} is no int64")', [(1, "is no int64")]),
        ("def all_at_once(): ...", [(1, "at once")]),
        ("All keys, but for\none, are unique.", [(1, "but for")]),
        ("An image, verified and published. Connection refused.", []),
        ('manifest["asides"]; asides: int; `asides`', []),
        ("provenance, spotless, foretold", []),
    ],
)
def test_planted_words_are_found(text: str, expected: list[tuple[int, str]]) -> None:
    assert [(line, word) for line, word, _ in findings(text)] == expected


def test_each_word_of_the_glossary_has_a_replacement_that_is_allowed() -> None:
    assert glossary()
    for word, new in glossary().items():
        assert re.fullmatch("[a-z]+", word)
        assert new
        assert not findings(new), word


def test_names_of_tests_are_checked() -> None:
    texts = dict(test_names())
    here = Path(__file__).relative_to(ROOT).as_posix()
    assert texts[here].startswith("test_vocabulary\n")
    assert "\ntest_planted_words_are_found\n" in texts[here]


if __name__ == "__main__":
    print("\n".join(messages(tuple(sys.argv[1:]) or ("",))))
