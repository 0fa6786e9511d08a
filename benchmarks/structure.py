"""Measures the structure of the code: sizes, import cycles, comments, missing `Args:`.

Usage, on this checkout or on one of another commit: `python -m benchmarks.structure [PATH]`.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import grimp

FOLDERS = ("pipelines", "transforms", "schemas")
SHARED = {"__init__", "elements"}
"""Modules of a folder of PTransforms that define the types of their elements."""

PRAGMA = re.compile(r"#\s*(noqa|type:|mypy:|pragma)")
BEAM_BASES = {"PTransform", "WriteToTFRecord"}
"""Base classes of PTransforms."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def product_files(root: Path) -> list[Path]:
    """Returns the source files of the product."""
    inside = [path for name in FOLDERS for path in sorted((root / name).rglob("*.py"))]
    return [*sorted((root / "recordmill").glob("*.py")), *inside]


def functions_of(tree: ast.Module) -> Iterator[Function]:
    """Yields all functions of a module, including methods and nested functions."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def public_functions(tree: ast.Module) -> Iterator[Function]:
    """Yields the public functions of a module and the public methods of its public classes."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]
    for body in (tree.body, *(one.body for one in classes)):
        yield from (node for node in body if isinstance(node, Function) and node.name[0] != "_")


def lacks_args(function: Function) -> bool | None:
    """Returns whether a function lacks `Args:`; None if it has fewer than two parameters."""
    given = function.args
    names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    if len([name for name in names if name not in ("self", "cls")]) < 2:
        return None
    return "Args:" not in (ast.get_docstring(function) or "")


def comment_lines(text: str) -> int:
    """Returns the number of lines with a comment, without license headers and pragmas."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    kinds = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING)
    body = next((i for i, token in enumerate(tokens) if token.type not in kinds), len(tokens))
    return sum(t.type == tokenize.COMMENT and not PRAGMA.match(t.string) for t in tokens[body:])


def code_lines(text: str) -> int:
    """Returns the number of lines that are not blank, comments or docstrings."""
    docstrings = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    # A token without text is an indent, a dedent or the end of the file.
    kept = (t for t in tokens if t.type != tokenize.COMMENT and t.string.strip())
    lines = {line for t in kept for line in range(t.start[0], t.end[0] + 1)}
    return len(lines - docstrings)


def is_ptransform_module(tree: ast.Module) -> bool:
    """Returns whether a module defines a PTransform."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    methods = [node for one in classes for node in one.body if isinstance(node, Function)]
    bases = [ast.unparse(base).rpartition(".")[2] for one in classes for base in one.bases]
    return bool(BEAM_BASES & {*bases}) or any(method.name == "expand" for method in methods)


def import_graph(root: Path) -> dict[str, set[str]]:
    """Returns the names of the modules that each module of a checkout imports."""
    linked = (root / "recordmill" / FOLDERS[0]).exists()
    sys.path.insert(0, str(root))
    try:
        names = ("recordmill",) if linked else FOLDERS
        graph = grimp.build_graph(*names, cache_dir=None)
    finally:
        sys.path.remove(str(root))
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}


def folder_cycles(imports: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Returns the import cycles among the modules and folders of one folder.

    An import of or by a module within a folder counts as an import of or by the folder.

    Args:
        imports: the modules that each module imports.
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


def figures(root: Path) -> dict[str, str]:
    """Returns the figures of a checkout by name."""
    texts = {path.relative_to(root): path.read_text("utf-8") for path in product_files(root)}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lines = sum(text.count("\n") for text in texts.values())
    code = sum(map(code_lines, texts.values()))
    sizes = [f.end_lineno - f.lineno + 1 for t in trees.values() for f in functions_of(t)]  # type: ignore[operator]
    documented = [lacks_args(f) for tree in trees.values() for f in public_functions(tree)]
    several = [lacks for lacks in documented if lacks is not None]
    stages = [p for p in trees if p.parent == Path("transforms") and p.stem not in SHARED]
    others = sorted(path.stem for path in stages if not is_ptransform_module(trees[path]))
    cycles = folder_cycles(import_graph(root))
    comments = sum(map(comment_lines, texts.values()))
    packages = ["recordmill"] if (root / "recordmill").is_dir() else FOLDERS
    p90 = statistics.quantiles(sizes, n=10, method="inclusive")[-1]
    return {
        "functions: median / p90 / max lines": f"{statistics.median(sizes):g} / {p90:g} / "
        f"{max(sizes)}",
        "files per 1,000 lines": f"{len(texts) / lines * 1000:.1f}",
        "product files": f"{len(texts)}",
        "product lines": f"{lines:,}",
        "lines of code (without blank lines, comments and docstrings)": f"{code:,}",
        "import cycles between folders": _count(", ".join(cycle) for cycle in cycles),
        "modules in `transforms/` that are not PTransforms": f"{_count(others)}; of {len(stages)}",
        "comment lines": f"{comments / lines:.1%}",
        "public functions with ≥ 2 parameters and no `Args:`": f"{sum(several)} of {len(several)}, "
        f"{sum(several) / len(several):.0%}",
        "top-level packages": f"{len(packages)}",
    }


def _count(names: Iterable[str]) -> str:
    """Returns the number of names, followed by the names."""
    listed = list(names)
    return f"{len(listed)} ({'; '.join(listed)})" if listed else "0"


def main() -> None:
    """Prints the figures as a Markdown table."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    print(f"| {root.name} | |\n|---|--:|")
    for name, value in figures(root).items():
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main()
