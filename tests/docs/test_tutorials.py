"""The tutorials work by copy and paste: runs every block of a page in order, in this process."""

from __future__ import annotations

import contextlib
import io
import shlex
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from tests.end_to_end.command import Ended, recordmill

OTHERS = ("pip install", "python draw.py", "VOC2012")
"""Blocks that set up an environment, or need data that a reader brings along."""

EXPECTED = {("first-dataset", 1): 4, ("first-dataset", 2): 4}
"""Exit codes other than 0, by page and number of the shell block."""


def of_shell(block: str) -> Ended:
    """Runs the commands of a block until one fails; `> FILE` is the only syntax of a shell."""
    printed, errors = "", ""
    for line in block.replace("\\\n", " ").splitlines():
        program, *words = shlex.split(line, comments=True)
        assert program == "recordmill", line
        words, file = (words[:-2], words[-1]) if words[-2:-1] == [">"] else (words, "")
        ended = recordmill(*words)
        if file:
            Path(file).write_text(ended.out, "utf-8")
        else:
            printed += ended.out
        errors += ended.err
        if ended.code:
            return Ended(ended.code, printed, errors)
    return Ended(0, printed, errors)


def of_python(block: str) -> Ended:
    """Runs a program."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(block, "block.py", "exec"), {"__name__": "__main__"})  # noqa: S102 - of a page
    return Ended(0, out.getvalue(), "")


@pytest.mark.parametrize("name", ["first-dataset", "detection", "custom-schema"])
def test_every_step_works(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page, number, printed = DOCS / "tutorials" / f"{name}.md", 0, ""
    for block in blocks(page, "python", "sh", "yaml"):
        if any(text in block for text in OTHERS):
            continue
        if block.startswith("name: "):
            (tmp_path / "plants.yaml").write_text(block, "utf-8")
            continue
        is_shell = block.startswith("recordmill")
        ended = of_shell(block) if is_shell else of_python(block)
        number += is_shell
        expected = EXPECTED.get((name, number), 0) if is_shell else 0
        assert ended.code == expected, f"{block}\n{ended.out}\n{ended.err}"
        printed += ended.out
    assert number >= 2
    assert [quoted for quoted in blocks(page, "text") if quoted not in printed] == []
