"""benchmarks/structure.py: the figures of a small tree, compared with counts made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.structure import code_lines, figures, folder_cycles, names

FILES = {
    "schemas/__init__.py": "",
    "schemas/plan.py": '''"""A plan."""

MOST = 3  # a shard more would be empty


class Plan:
    shards: int
    """At most `MOST`."""


def both(one, other, *, third=None):
    """Returns both."""
    # and no third
    return [
        one,
        other,
    ]


def third():  # used as a part of the module, which is a value
    return []
''',
    "transforms/__init__.py": "",
    "transforms/read_rows.py": """import apache_beam as beam

from recordmill.schemas.plan import MOST


class Plan(beam.PTransform):
    def expand(self, rows):
        return rows
""",
    "pipelines/__init__.py": "",
    "pipelines/convert.py": '''from recordmill.pipelines.run import lock
from recordmill.schemas import plan


def convert(table, output):
    """Converts.

    And verifies.
    """
    return plan.both(lock.take(), table)
''',
    "pipelines/run/__init__.py": "",
    "pipelines/run/lock.py": """from recordmill.pipelines import convert
from recordmill.schemas import plan

Locks = list[str]


def take():
    return convert.__name__, [plan]
""",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {**FILES, "recordmill/__init__.py": ""}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("schemas", "transforms", "pipelines"):
        (tmp_path / "recordmill" / name).symlink_to(f"../{name}")
    return tmp_path


def test_figures_of_a_small_tree(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.structure.import_graph", lambda root: {})
    assert figures(tree) == {
        "product files": 9,
        "lines of code": 24,
        "lines of docstrings": 7,
        "lines of the longest function": 7,
        "lines of the longest file": 21,
        "public functions used in no other file": 1,
        "modules with one importer": 0,
        "names with two meanings": 1,
        "import cycles between folders": 0,
    }


def test_names_of_a_small_tree(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imports = {"a.x": {"a.y"}, "a.z": {"a.w"}, "a.v": {"a.w"}}
    monkeypatch.setattr("benchmarks.structure.import_graph", lambda root: imports)
    assert names(tree) == {
        "public functions used in no other file": ["recordmill.pipelines.convert.convert"],
        "modules with one importer": ["a.y"],
        "names with two meanings": ["Plan"],
        "import cycles between folders": [],
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
        ("'''A module.'''\n\nx = 1  # why\n# why\n", 1),
        ("def f(\n    a,\n):\n    '''Does.\n\n    At length.\n    '''\n    return a\n", 4),
        ("class A:\n    x: int = 1\n    '''An attribute.'''\n", 2),
        ("x = '''two\nlines'''\n", 2),
        ("", 0),
    ],
)
def test_lines_of_code_exclude_blank_lines_comments_and_docstrings(text: str, lines: int) -> None:
    assert code_lines(text) == lines
