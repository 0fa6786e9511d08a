"""Every page is reachable, every link has a target, and every command is valid."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from recordmill.pipelines.options import beam_options
from recordmill.pipelines.parser import program
from recordmill.schemas.errors import UsageError
from tests.docs.pages import DOCS, PAGES, ROOT, blocks

LINK = re.compile(r"\]\(([^)\s]+)\)")


def commands() -> Iterator[tuple[str, str]]:
    """Yields the page and the text of each `recordmill` command in a code block."""
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                if command := re.match(r"(?:RECORDMILL=\S+ )?recordmill (.*)", line.strip()):
                    yield page.name, command[1]


def commands_of(page: Path) -> list[list[str]]:
    """Returns the words of each `recordmill` command on a page."""
    return [shlex.split(text, comments=True) for name, text in commands() if name == page.name]


COMMANDS = list(commands())


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_are_valid(page: str, command: str) -> None:
    words = shlex.split(command, comments=True)
    words = words[: words.index(">")] if ">" in words else words
    if "…" in words:  # the page leaves the rest to its reader
        words += ["--output", "datasets", "--name", "birds"]
    words = [word for word in words if word not in ("…", "$options")]
    flags, rest = program().parse_known_args(words)
    if flags.command == "convert":
        beam_options(rest)
    else:
        assert rest == [], page


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 30
    assert {command.split()[0] for _, command in COMMANDS} >= {"convert", "verify", "diff"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_existing_files(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link in LINK.findall(text):
        if not re.match(r"https?:|#", link):
            assert (page.parent / link.partition("#")[0]).exists(), link


def test_every_page_is_in_the_table_of_contents() -> None:
    listed = {
        name for tree in blocks(DOCS / "index.md", "{toctree}") for name in tree.split("\n") if name
    }
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}
    assert {name for name in listed if not name.startswith(":")} == pages - {"index"}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 130


def repeated(pages: dict[str, str], words: int = 8) -> set[str]:
    """Returns the runs of words that occur on more than one page, outside of code blocks."""
    found: dict[str, set[str]] = {}
    for name, text in pages.items():
        prose = re.sub(r"^```.*?^```|<!--.*?-->|^[|: -]+$", "", text, flags=re.DOTALL | re.M)
        for paragraph in re.split(r"\n\s*\n|\n(?=[-|#])", prose):
            split = re.findall(r"[\w./'-]+", paragraph.lower())
            for start in range(len(split) - words + 1):
                found.setdefault(" ".join(split[start : start + words]), set()).add(name)
    return {run for run, names in found.items() if len(names) > 1}


def test_no_two_pages_state_the_same_fact() -> None:
    """Tutorials may repeat the reference, so that they can be read alone."""
    folders = ("how-to", "reference", "explanation")
    pages = [page for folder in folders for page in (DOCS / folder).glob("*.md")]
    assert repeated({page.name: page.read_text("utf-8") for page in pages}) == set()
    fact = "labels that are all integers stay integers in datasets"
    assert repeated({"a.md": fact, "b.md": f"# B\n\nAlso, {fact}"}, words=9) == {fact}


def test_modes_of_run_local_on_pages_exist() -> None:
    modes = set(re.findall(r"^([a-z|]+)\)", (ROOT / "run_local.sh").read_text("utf-8"), re.M))
    for page in PAGES:
        for block in blocks(page, "sh"):
            for mode in re.findall(r"\./run_local\.sh ([a-z]+)\b", block):
                assert mode in modes, page


def test_invalid_commands_are_detected() -> None:
    with pytest.raises(UsageError):
        test_commands_are_valid("page.md", "verify")
    with pytest.raises(AssertionError):
        test_commands_are_valid("page.md", "verify DIR --no_such_flag")
