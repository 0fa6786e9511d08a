"""Every product module has tests in the expected file.

The tests of a module are in the file that mirrors it: `tests/unit/schemas/test_plan.py` for
`recordmill.schemas.plan`, and `tests/beam/test_read_rows.py` for `recordmill.transforms.read_rows`,
a stage of the pipeline. More files may add an aspect: `tests/unit/schemas/test_plan_limits.py`. The
docstring of any other test file may name the modules that it covers, in a paragraph like this:

    Covers `recordmill.schemas.spelling`, `recordmill.schemas.encoding`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MIRRORS = {"tests/unit": "recordmill", "tests/beam": "recordmill.transforms"}
GENERATED = {"recordmill.schemas.example_pb2"}


@cache
def product_modules() -> frozenset[str]:
    """Returns the names of all modules with code; a package has its own name."""
    folders = [ROOT / name for name in ("pipelines", "transforms", "schemas")]
    files = [*(ROOT / "recordmill").glob("*.py"), *(p for f in folders for p in f.rglob("*.py"))]
    return frozenset(module_name(path) for path in files if holds_code(path)) - GENERATED


def module_name(path: Path) -> str:
    """Returns the module name of a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    inside = parts[1:] if parts[0] == "recordmill" else parts
    return ".".join(["recordmill", *inside]).removesuffix(".__init__")


def holds_code(path: Path) -> bool:
    """Returns whether a file has more than a docstring."""
    return any(not isinstance(node, ast.Expr) for node in ast.parse(path.read_text("utf-8")).body)


@cache
def test_files() -> dict[str, str]:
    """Returns the docstring of each test file, by its path."""
    return {
        path.relative_to(ROOT).as_posix(): ast.get_docstring(ast.parse(path.read_text("utf-8")))
        or ""
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
    }


test_files.__test__ = False  # type: ignore[attr-defined]


def mirrored_by(path: str, modules: frozenset[str]) -> str | None:
    """Returns the module that a test file mirrors."""
    folder = next((f for f in MIRRORS if path.startswith(f"{f}/")), None)
    if folder is None:
        return None
    *package, name = path.removeprefix(f"{folder}/").removesuffix(".py").split("/")
    words = name.removeprefix("test_").split("_")
    names = ("_".join(words[:end]) for end in range(len(words), 0, -1))
    candidates = (".".join([MIRRORS[folder], *package, name]) for name in names)
    return next((name for name in candidates if name in modules), None)


def named_in(docstring: str) -> list[str]:
    """Returns the modules that the "Covers …" paragraphs of a docstring name."""
    paragraphs = re.findall(r"^Covers (`.*?`)\.$", docstring, re.MULTILINE | re.DOTALL)
    return [name for paragraph in paragraphs for name in re.findall(r"`([\w.]+)`", paragraph)]


def mirrors_of(module: str) -> list[str]:
    """Returns the paths that the test file of a module may have."""
    return [
        "/".join([folder, *package, f"test_{name}.py"])
        for folder, root in MIRRORS.items()
        if module.startswith(f"{root}.")
        for *package, name in [module.removeprefix(f"{root}.").split(".")]
    ]


def test_each_module_has_tests_in_one_place() -> None:
    modules = product_modules()
    mirrored = {mirrored_by(path, modules) for path in test_files()}
    own = {name for name in modules if any(mirror in test_files() for mirror in mirrors_of(name))}
    covering = defaultdict(list)
    for path, docstring in test_files().items():
        for name in named_in(docstring):
            covering[name].append(path)

    untested = [
        f"{name} has no tests: add {next(iter(mirrors_of(name)), 'a file')}, or write "
        f"'Covers `{name}`.' in the docstring of the test file that covers it"
        for name in sorted(modules - mirrored - covering.keys())
    ]
    twice = [
        f"{name} has a test file of its name, and is named by {', '.join(paths)}: take it out there"
        if name in own
        else f"{name} is named by {' and '.join(paths)}: keep it in one of them"
        for name, paths in sorted(covering.items())
        if name in modules and (name in own or len(paths) > 1)
    ]
    assert not (problems := [*untested, *twice]), "\n".join(problems)


def test_each_test_file_belongs_to_an_existing_module() -> None:
    modules = product_modules()
    misplaced = [
        f"{path} mirrors no module: rename it after the module that it tests, as test_<module>.py "
        "or test_<module>_<aspect>.py; or write 'Covers `recordmill.….<module>`.' in its docstring"
        for path, docstring in test_files().items()
        if path.startswith(tuple(f"{folder}/" for folder in MIRRORS))
        and mirrored_by(path, modules) is None
        and not named_in(docstring)
    ]
    gone = [
        f"{path} covers {name}, which does not exist: write the name of the module that has its "
        "code now, unless that has a test file of its name"
        for path, docstring in test_files().items()
        for name in named_in(docstring)
        if name not in modules
    ]
    assert not (problems := [*misplaced, *gone]), "\n".join(problems)


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("tests/unit/schemas/test_plan.py", "recordmill.schemas.plan"),
        ("tests/unit/schemas/test_plan_limits.py", "recordmill.schemas.plan"),
        ("tests/beam/test_read_rows.py", "recordmill.transforms.read_rows"),
        ("tests/unit/test_plan.py", None),
        ("tests/end_to_end/schemas/test_plan.py", None),
    ],
)
def test_a_test_file_mirrors_the_module_of_its_place_and_name(path: str, module: str) -> None:
    modules = frozenset({"recordmill.schemas.plan", "recordmill.transforms.read_rows"})
    assert mirrored_by(path, modules) == module


def test_only_covers_paragraphs_name_modules() -> None:
    text = "Plans.\n\nCovers `recordmill.a`,\n`recordmill.b`.\n\nNeither\nis `recordmill.c`."
    assert named_in(text) == ["recordmill.a", "recordmill.b"]
