"""benchmarks/structure.py: the figures of a small tree, compared with counts made by hand."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.structure import code_lines, comment_lines, figures, folder_cycles, lacks_args

FILES = {
    "schemas/__init__.py": "",
    "schemas/plan.py": '''"""A plan."""

MOST = 3  # a shard more would be empty


def both(one, other, *, third=None):
    """Returns both."""
    # and no third
    return [
        one,
        other,
    ]
''',
    "transforms/__init__.py": "",
    "transforms/read_rows.py": """import apache_beam as beam

from schemas.plan import MOST


class ReadRows(beam.PTransform):
    def expand(self, rows):
        return rows
""",
    "transforms/cores.py": """def num_cores(): return 1  # noqa: E704
""",
    "pipelines/__init__.py": "",
    "pipelines/convert.py": '''from pipelines.run import lock
from transforms import read_rows


def convert(table, output):
    """Converts.

    Args:
        table: the rows.
        output: the dataset.
    """
''',
    "pipelines/run/__init__.py": "",
    "pipelines/run/lock.py": """from pipelines import convert
""",
}


def test_figures_of_a_small_tree(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert figures(tmp_path) == {
        "functions: median / p90 / max lines": "4.5 / 7 / 7",
        "files per 1,000 lines": f"{9 / 33 * 1000:.1f}",
        "product files": "9",
        "product lines": "33",
        "lines of code (without blank lines, comments and docstrings)": "16",
        "import cycles between folders": "1 (pipelines.convert, pipelines.run)",
        "modules in `transforms/` that are not PTransforms": "1 (cores); of 2",
        "comment lines": f"{2 / 33:.1%}",
        "public functions with ≥ 2 parameters and no `Args:`": "1 of 2, 50%",
        "top-level packages": "3",
    }


def test_a_cycle_between_modules_is_not_a_cycle_between_folders() -> None:
    assert folder_cycles({"a.x": {"a.y"}, "a.y": {"a.x"}, "a": set()}) == []


def test_imports_of_any_module_in_a_folder_count_for_the_folder() -> None:
    imports = {"a.b.x": {"a.c.y"}, "a.c.y": set(), "a.c.d.z": {"a.b.w"}, "a.b.w": set()}
    assert folder_cycles({**imports, "a": set(), "a.e": {"a.b.x"}}) == [["a.b", "a.c"]]


def test_a_chain_of_folders_is_not_a_cycle() -> None:
    assert folder_cycles({"a.b.x": {"a.c.y"}, "a.c.y": {"a.d.z"}, "a.d.z": set()}) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("# Copyright\n# of somebody\n\n'''A module.'''\nx = 1  # why\n", 1),
        ("x = 1\n# why\n# at length\n", 2),
        ("x = 1  # noqa: E1\ny = 1  # type: ignore\n", 0),
        ("x = '# no comment'\n", 0),
        ("", 0),
    ],
)
def test_comments_are_counted_by_line(text: str, lines: int) -> None:
    assert comment_lines(text) == lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("'''A module.'''\n\nx = 1  # why\n# why\n", 1),
        ("def f(\n    a,\n):\n    '''Does.\n\n    At length.\n    '''\n    return a\n", 4),
        ("class A:\n    x: int = 1\n    '''An attribute.'''\n", 2),
        ("x = '''two\nlines'''\n", 2),
        ("", 0),
    ],
)
def test_lines_of_code_exclude_blank_lines_comments_and_docstrings(text: str, lines: int) -> None:
    assert code_lines(text) == lines


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("def f(a): ...", None),
        ("def f(self, a): ...", None),
        ("def f(a, b): ...", True),
        ("def f(a, *, b): '''Does.'''", True),
        ("def f(a, b):\n    '''Does.\n\n    Args:\n        a: one.\n    '''", False),
    ],
)
def test_functions_of_two_parameters_need_args(text: str, lacks: bool | None) -> None:
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    assert lacks_args(function) is lacks
