"""Fixtures: two preforked runners, a small dataset, and its expected files."""

from __future__ import annotations

import csv
from collections.abc import Iterator

import pytest

from tests.crash.preforked_runner import PreforkedRunner
from tests.crash.scenario import Scenario
from tests.images import image_bytes, jpeg, png


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--every_step`."""
    parser.addoption("--every_step", action="store_true", help="strike runs at every single step")


@pytest.fixture(scope="session")
def every_step(request: pytest.FixtureRequest) -> bool:
    """Whether to test every step, which takes more than half an hour."""
    return bool(request.config.getoption("--every_step"))


@pytest.fixture(scope="session")
def runners() -> Iterator[list[PreforkedRunner]]:
    """Two runners, one per core of the smallest machine."""
    both = [PreforkedRunner(), PreforkedRunner()]
    yield both
    for runner in both:
        runner.close()


@pytest.fixture(scope="session")
def scenario(tmp_path_factory: pytest.TempPathFactory, runners: list[PreforkedRunner]) -> Scenario:
    """Ten images in five shards; one is decoded in a separate process, one is damaged."""
    folder = tmp_path_factory.mktemp("scenario")
    rows = []
    for i in range(10):
        data = (jpeg if i % 2 else png)(16 + i, 12 + i, seed=i)
        (folder / f"{i}.jpg").write_bytes(data[:-40] if i == 3 else data)
        rows.append({"image": f"{i}.jpg", "label": "ab"[i % 2]})
    (folder / "odd.gif").write_bytes(image_bytes("GIF"))
    rows.append({"image": "odd.gif", "label": "a"})
    with (folder / "labels.csv").open("w", newline="") as stream:
        table = csv.DictWriter(stream, ["image", "label"])
        table.writeheader()
        table.writerows(rows)
    return Scenario.played(folder, runners[0])
