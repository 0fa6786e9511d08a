"""Names of modules in code, strings and pages exist.

Some imports run in other processes (a worker's command line), in code blocks of pages or by
`monkeypatch`; neither mypy nor import-linter sees those, and a renamed module breaks them silently.
"""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = "pipelines|transforms|schemas"

# A name with its package: `recordmill.schemas.plan.Plan`.
_DOTTED = re.compile(rf"\brecordmill\.(?:{PACKAGES})(?:\.\w+)+")
_IMPORTED = re.compile(
    rf"from (recordmill(?:\.(?:{PACKAGES})(?:\.\w+)*)?) import(?: (\w[\w, ]*)|\s*\(([^()]*)\))"
)


@cache
def bound_in(module: Path) -> frozenset[str]:
    """Returns the names that the top level of a module binds."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return frozenset(names)


def is_missing(dotted: str) -> bool:
    """Returns whether neither a module nor a name in a module is called like this.

    >>> is_missing("recordmill.schemas.plan.Plan"), is_missing("recordmill.schemas.plans.Plan")
    (False, True)
    """
    folder = ROOT / "recordmill"
    _, *parts = dotted.split(".")
    for i, part in enumerate(parts):
        if (folder / part).is_dir():
            folder /= part
            continue
        modules = [folder / f"{part}{suffix}" for suffix in (".py", ".pyi")]
        if module := next(filter(Path.is_file, modules), None):
            generated = part.endswith("_pb2")  # binds its names when it is imported
            return not generated and i + 1 < len(parts) and parts[i + 1] not in bound_in(module)
        return part not in bound_in(folder / "__init__.py")
    return False


def names_in(text: str) -> set[str]:
    """Returns the dotted names that a text imports or mentions.

    >>> sorted(names_in("from recordmill.schemas.plan import Plan as P, x; recordmill.pipelines.a"))
    ['recordmill.pipelines.a', 'recordmill.schemas.plan.Plan', 'recordmill.schemas.plan.x']
    """
    found = {name for name in _DOTTED.findall(text) if f"from {name} " not in text}
    for module, line, lines in _IMPORTED.findall(text):
        imported = re.sub(r"#.*", "", line or lines).split(",")
        found |= {f"{module}.{name.split()[0]}" for name in imported if name.split()}
    return found


def tracked(*suffixes: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", *(f"*{suffix}" for suffix in suffixes)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name]


def test_modules_of_tests_that_files_name_exist() -> None:
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in tracked(".py", ".md", ".sh", ".toml", ".ci/run")
        if path.name != "CHANGELOG.md" and path.is_file()
        for name in re.findall(r"\b((?:[a-z_]+/)+test_\w+\.py)", path.read_text())
        if not any((folder / name).is_file() for folder in (ROOT, ROOT / "tests", path.parent))
    }
    assert not missing


@pytest.mark.parametrize("suffix", [".py", ".md", ".sh", ".toml", ".yaml", ".yml", ".ipynb"])
def test_names_in_files_exist(suffix: str) -> None:
    made = {ROOT / "tests/repository" / name for name in ("test_names.py", "test_structure.py")}
    missing = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in tracked(suffix)
        if path not in made and path.name != "CHANGELOG.md" and path.is_file()
        for name in names_in(path.read_text())
        if is_missing(name)
    }
    assert not missing
