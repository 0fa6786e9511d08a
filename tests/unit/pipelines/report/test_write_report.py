"""Rendering of the page and of the command on it."""

from __future__ import annotations

import os
import subprocess

import pytest

from recordmill.pipelines.report.write_report import _command_text, _quoted, _render
from recordmill.schemas.masking import visible

HOSTILE_WORDS = ("a b", "it's \u202e\\x", "a\nb", "\x1b]0;t\x07", "é", "")


@pytest.mark.parametrize("word", HOSTILE_WORDS)
def test_a_shell_parses_quoted_words_unchanged(word):
    command = ["bash", "-c", f"printf %s {_quoted(word)}"]
    environment = {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}
    pasted = subprocess.run(command, capture_output=True, check=True, env=environment).stdout
    assert pasted.decode() == word
    assert visible(_quoted(word)) == _quoted(word)


def test_a_command_can_be_pasted_into_a_shell():
    text = _command_text(["recordmill", "convert", "--input", "a b/$x.csv", "--name=y"])
    assert text == "recordmill convert \\\n    --input 'a b/$x.csv' \\\n    --name=y"


def test_a_missing_variable_of_the_template_is_an_error():
    with pytest.raises(Exception, match="undefined"):
        _render({})
