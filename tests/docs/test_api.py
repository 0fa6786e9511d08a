"""docs/reference/api.md lists every public name, and docstrings describe every argument."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import recordmill

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
CALLABLES = (
    "convert",
    "open",
    "verify",
    "load",
    "Records",
    "ReadTables",
    "BuildExamples",
    "WriteDataset",
)


def test_the_page_has_every_public_name_once() -> None:
    named = re.findall(r"^\.\. auto\w+:: recordmill\.(\w+)$", PAGE, re.MULTILINE)
    assert sorted(named) == sorted(set(recordmill.__all__) - {"__version__"})


@pytest.mark.parametrize("name", CALLABLES)
def test_arguments_results_and_errors_are_documented(name: str) -> None:
    found: Any = getattr(recordmill, name)
    function = found.__init__ if inspect.isclass(found) else found
    document = inspect.getdoc(function) or ""
    code = function.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARKEYWORDS)
    arguments = [name for name in code.co_varnames[:count] if name != "self"]
    section = document.partition("Args:\n")[2].partition("\n\n")[0]
    documented = re.findall(r"^ {4}\*{0,2}(\w+):", section, re.MULTILINE)
    assert documented == arguments
    assert "\nRaises:\n" in document
    returns = document.startswith("Returns ") or "\nReturns:\n" in document
    assert inspect.isclass(found) or returns
