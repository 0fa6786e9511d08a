"""The number and the options of the version without the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from recordmill.pipelines.forget import _config_without, _next_version
from recordmill.schemas.errors import UsageError
from tests.unit.pipelines.versions.birds import dataset


@pytest.mark.parametrize(
    ("version", "following"),
    [("1.0.0", "1.0.1"), ("1.2.9", "1.2.10"), ("2026.11.20", "2026.11.21")],
)
def test_the_next_version(version: str, following: str) -> None:
    assert _next_version(version) == following


def test_the_options_are_those_of_the_base_version(tmp_path: Path) -> None:
    of = dataset(tmp_path, [("a", "A", None)], seed=7, report=True)
    config = _config_without(of, "1.0.10")
    assert (config.inputs, config.base) == ((of.directory,), of.directory)
    assert config.directory == str(tmp_path / "birds/1.0.10")
    assert (config.seed, config.report) == (7, False)  # it has no report.html


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("1.0.0", "--version 1.0.0: expected a version after 1.0.0."),
        ("0.9.9", "--version 0.9.9: expected a version after 1.0.0."),
        ("1.0", "--version 1.0: expected three numbers, as in 1.0.1."),
        ("1.0.²", "--version 1.0.²: expected three numbers, as in 1.0.1."),
    ],
)
def test_a_version_that_is_not_later_is_an_error(
    version: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        _config_without(dataset(tmp_path, [("a", "A", None)]), version)
    assert str(caught.value) == message


def test_unknown_options_of_the_base_version_are_an_error(tmp_path: Path) -> None:
    of = dataset(tmp_path, [("a", "A", None)], novelty=1)
    with pytest.raises(UsageError) as caught:
        _config_without(of, "1.0.1")
    assert str(caught.value).startswith(f"{of.directory}/manifest.json: at config > novelty: ")
    assert str(caught.value).endswith(" Convert again.")
