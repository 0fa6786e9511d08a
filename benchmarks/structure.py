"""Measures how much of the code has to be held in one head: sizes, names, import cycles.

Usage, on this checkout or on one of another commit: `python -m benchmarks.structure [PATH]`.
`tests/repository/test_ratchet.py` holds the figures of this checkout below budgets.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import grimp

FOLDERS = ("pipelines", "transforms", "schemas")
# Functions of modules that are found by name: of scripts, commands, services and input formats.
_OF_FORMATS = {
    "recognize",
    "recognize_folder",
    "sources_in",
    "sources_of_file",
    "named_images",
    "probe",
    "parts",
    "read",
}
_OF_BEAM_YAML = {"read_tables", "build_examples", "verify_records"}  # named in a file of providers
ENTRY_POINTS = {"main", "run", "serve", "gc", *_OF_FORMATS, *_OF_BEAM_YAML}
GENERATED = {"example_pb2"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def product_files(root: Path) -> list[Path]:
    """Returns the source files of the product."""
    inside = [path for name in FOLDERS for path in sorted((root / name).rglob("*.py"))]
    return [*sorted((root / "recordmill").glob("*.py")), *inside]


@cache
def parsed(text: str) -> ast.Module:
    """Returns the tree of a module."""
    return ast.parse(text)


@cache
def nodes_of(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Returns all nodes of a tree, which are slow to find."""
    return tuple(ast.walk(tree))


def functions_of(tree: ast.Module) -> Iterator[Function]:
    """Yields all functions of a module, including methods and nested functions."""
    return (node for node in nodes_of(tree) if isinstance(node, Function))


def docstring_lines(tree: ast.Module) -> set[int]:
    """Returns the numbers of the lines that docstrings and strings below attributes take."""
    return {
        line
        for node in nodes_of(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def code_lines(text: str) -> int:
    """Returns the number of lines that are not blank, comments or docstrings."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    # A token without text is an indent, a dedent or the end of the file.
    kept = (t for t in tokens if t.type != tokenize.COMMENT and t.string.strip())
    lines = {line for t in kept for line in range(t.start[0], t.end[0] + 1)}
    return len(lines - docstring_lines(parsed(text)))


def module_of(path: Path) -> str:
    """Returns the name of a module: `recordmill.schemas.plan` for `schemas/plan.py`."""
    parts = path.with_suffix("").parts
    return ".".join(["recordmill", *(parts[1:] if parts[0] == "recordmill" else parts)])


EVERY_NAME = "*"

_USES = (ast.Attribute, ast.ImportFrom, ast.Name)

# An import in the code of another process, which is a string.
_IN_STRING = re.compile(r"\bfrom (recordmill[\w.]*) import (\w+)")


def uses(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yields the modules and the names in them that a module imports or reads as attributes.

    A module that is itself a value implements a protocol: `FORMATS = {"voc": voc}` uses all of it.
    """
    modules: dict[str, str] = {}
    nodes = [node for node in nodes_of(tree) if isinstance(node, _USES)]
    read = {node.value for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield node.module, alias.name
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in nodes_of(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _IN_STRING.findall(node.value)
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield modules.get(node.value.id, ""), node.attr
        elif isinstance(node, ast.Name) and node.id in modules and node not in read:
            yield modules[node.id], EVERY_NAME


def unused_elsewhere(trees: Mapping[Path, ast.Module]) -> list[str]:
    """Returns the public functions that no other module of the product uses."""
    used = {use for tree in trees.values() for use in uses(tree)}
    return [
        f"{module}.{node.name}"
        for path, tree in trees.items()
        for module in [module_of(path)]
        for node in tree.body
        if isinstance(node, Function) and node.name[0] != "_" and node.name not in ENTRY_POINTS
        if not used & {(module, node.name), (module, EVERY_NAME)}
    ]


def names_with_two_meanings(trees: Mapping[Path, ast.Module]) -> list[str]:
    """Returns the names of public types that two or more modules define."""
    meanings = Counter(name for tree in trees.values() for name in {*_types(tree)})
    return sorted(name for name, count in meanings.items() if count > 1)


def _types(tree: ast.Module) -> Iterator[str]:
    """Yields the public classes of a module, and its aliases of types."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from [node.name] if node.name[0] != "_" else []
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            # An alias is named like a type: `Row = Mapping[str, Value]`, unlike `ROWS = 3`.
            if name[0].isupper() and not name.isupper() and isinstance(node.value, _ALIASES):
                yield name


_ALIASES = (ast.Subscript, ast.BinOp, ast.Name, ast.Attribute)


def import_graph(root: Path) -> dict[str, set[str]]:
    """Returns the names of the modules that each module of a checkout imports."""
    linked = (root / "recordmill" / FOLDERS[0]).exists()
    sys.path.insert(0, str(root))
    try:
        packages = ("recordmill",) if linked else FOLDERS
        graph = grimp.build_graph(*packages, cache_dir=None)
    finally:
        sys.path.remove(str(root))
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}


def with_one_importer(imports: Mapping[str, Iterable[str]]) -> list[str]:
    """Returns the modules that exactly one other module imports."""
    importers: dict[str, set[str]] = defaultdict(set)
    for module, imported in imports.items():
        for other in imported:
            importers[other].add(module)
    return sorted(module for module, found in importers.items() if len(found) == 1)


def folder_cycles(imports: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Returns the import cycles among the modules and folders of one folder.

    An import of or by a module within a folder counts as an import of or by the folder.
    """
    packages = {name.rpartition(".")[0] for name in imports} - {""}
    edges: dict[str, dict[str, set[str]]] = {package: {} for package in packages}
    for one, others in imports.items():
        for other in others:
            package, here, there = _part(one, other)
            if package in edges and here != there:
                edges[package].setdefault(here, set()).add(there)
    circles = [circle for siblings in edges.values() for circle in _circles(siblings)]
    return sorted(circle for circle in circles if packages & set(circle))


def _part(one: str, other: str) -> tuple[str, str, str]:
    """Returns the lowest common package of two modules, and the child that contains each."""
    ours, theirs = one.split("."), other.split(".")
    depth = 0
    while depth < min(len(ours), len(theirs)) and ours[depth] == theirs[depth]:
        depth += 1
    return ".".join(ours[:depth]), ".".join(ours[: depth + 1]), ".".join(theirs[: depth + 1])


def _circles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Returns the strongly connected components of more than one node."""
    reached = {node: _reachable(node, edges) for node in edges}
    circles = {
        frozenset(other for other in reached[node] if node in reached.get(other, ()))
        for node in edges
    }
    return [sorted(circle) for circle in circles if len(circle) > 1]


def _reachable(node: str, edges: Mapping[str, Iterable[str]]) -> set[str]:
    """Returns the nodes that can be reached by one or more edges."""
    seen: set[str] = set()
    waiting = list(edges.get(node, ()))
    while waiting:
        if (other := waiting.pop()) not in seen:
            seen.add(other)
            waiting += edges.get(other, ())
    return seen


def names(root: Path) -> dict[str, list[str]]:
    """Returns the names that the figures of names count."""
    trees = {
        path.relative_to(root): parsed(path.read_text("utf-8"))
        for path in product_files(root)
        if path.stem not in GENERATED
    }
    imports = import_graph(root)
    return {
        "public functions used in no other file": unused_elsewhere(trees),
        "modules with one importer": with_one_importer(imports),
        "names with two meanings": names_with_two_meanings(trees),
        "import cycles between folders": [", ".join(cycle) for cycle in folder_cycles(imports)],
    }


def figures(root: Path) -> dict[str, int]:
    """Returns the figures of a checkout by name."""
    texts = [p.read_text("utf-8") for p in product_files(root) if p.stem not in GENERATED]
    trees = list(map(parsed, texts))
    sizes = [f.end_lineno - f.lineno + 1 for tree in trees for f in functions_of(tree)]  # type: ignore[operator]
    return {
        "product files": len(product_files(root)),
        "lines of code": sum(map(code_lines, texts)),
        "lines of docstrings": sum(len(docstring_lines(tree)) for tree in trees),
        "lines of the longest function": max(sizes),
        "lines of the longest file": max(text.count("\n") for text in texts),
        **{name: len(found) for name, found in names(root).items()},
    }


def main() -> None:
    """Prints the figures as a Markdown table, then with `--names` what they count."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--names"]
    root = Path(arguments[0] if arguments else ".").resolve()
    print(f"| {root.name} | |\n|---|--:|")
    for name, value in figures(root).items():
        print(f"| {name} | {value:,} |")
    if "--names" in sys.argv:
        for name, found in names(root).items():
            print(f"\n{name}:", *found, sep="\n  ")


if __name__ == "__main__":
    main()
