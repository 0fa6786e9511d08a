"""Fixtures of the engine tests, and the table that they print."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest

from tests.engines.conversion import Conversion, Ended, convert
from tests.engines.engine import Engine, engine_for
from tests.engines.inputs import KINDS, rows
from tests.engines.pause import Pause
from tests.stores import servers
from tests.stores.kinds import Store, s3


@dataclass
class Line:
    """A line of the table: an engine, a mode and the result."""

    engine: str
    mode: str
    kind: str
    seconds: float
    shuffled: float | None
    digest: str
    row_counts: str

    def cells(self) -> list[str]:
        """Returns the line as text."""
        shuffled = "-" if self.shuffled is None else f"{self.shuffled:,.0f}"
        where = [self.engine, self.mode, self.kind, f"{self.seconds:.0f}", shuffled]
        return [*where, f"`{self.digest}`", self.row_counts]


Note = Callable[[Line], None]
"""Puts a line into the table."""

Begin = Callable[..., Conversion]
"""Begins a conversion with some flags."""

Launch = Callable[..., Engine]
"""Returns an engine with the name and options of `engine_for`."""

_FEW = 300
_WAITED_FOR = "pictures/00001.jpg"  # codespell:ignore pictures
_PROPERTY = "line"
HEADER = (
    "engine",
    "Python workers",
    "input",
    "seconds",
    "shuffled B/row",
    "shards",
    "rows = records + rejected + dropped",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the tests of one engine into one process, and those of a file that share none."""
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        group = parameters.get("running", item.path.name)
        item.add_marker(pytest.mark.xdist_group(str(group)))


@dataclass(frozen=True)
class Case:
    """An input, and its dataset as converted by the DirectRunner in one thread."""

    kind: str
    flags: tuple[str, ...]
    ended: Ended

    @property
    def expected(self) -> Path:
        """The dataset."""
        return self.ended.dataset


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """Returns an input of a kind and its DirectRunner dataset; each is created once."""

    @lru_cache
    def case(kind: str) -> Case:
        flags = KINDS[kind](tmp_path_factory.mktemp(kind))
        return Case(kind, flags, convert(tmp_path_factory.mktemp(f"{kind}-direct") / "out", *flags))

    return case


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of a few images."""
    folder = tmp_path_factory.mktemp("input")
    path = folder / "labels.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, ["image", "label"])
        writer.writeheader()
        writer.writerows(rows(folder, _FEW))
    return path


@pytest.fixture(scope="module")
def expected(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The DirectRunner's dataset of the table."""
    return convert(tmp_path_factory.mktemp("direct") / "out", "--input", str(table)).dataset


@pytest.fixture
def pause(
    table: Path,
    expected: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Pause]:
    """Makes the reader of one image wait, in all processes started from now on."""
    made = Pause(table.parent / _WAITED_FOR, tmp_path_factory.mktemp("pause"))
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    yield made
    made.end()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts a conversion that is killed at the end of the test."""
    begun: list[Conversion] = []

    def one(*flags: str) -> Conversion:
        begun.append(Conversion(tmp_path / "out", flags))
        return begun[-1]

    yield one
    for conversion in begun:
        conversion.kill()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Makes engines in the test's folder, which are stopped at its end."""
    with ExitStack() as stack:

        def one(name: str, with_workers: bool = True, retries: int = 3) -> Engine:
            made = engine_for(name, with_workers, tmp_path, retries)
            stack.callback(made.stop)
            return made

        yield one


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An S3 server without objects."""
    folder = tmp_path / "store"
    folder.mkdir()
    with s3(folder, servers.versitygw) as started:
        yield started


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Note:
    """Records the result of a conversion as a property of the test, for other processes."""
    return lambda line: record_property(_PROPERTY, [line.kind, *line.cells()])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the table of docs/explanation/benchmarks.md."""
    reports = terminalreporter.getreports("passed")
    noted = [value for each in reports for name, value in each.user_properties if name == _PROPERTY]
    if noted:
        rule = ["---", "---", "---", "---:", "---:", "---", "---"]
        noted.sort(key=lambda line: line[0], reverse=True)  # a digest for each kind
        rows = [HEADER, rule, *(cells for _, *cells in noted)]
        terminalreporter.section("engines")
        for cells in rows:
            terminalreporter.write_line(f"| {' | '.join(cells)} |")
