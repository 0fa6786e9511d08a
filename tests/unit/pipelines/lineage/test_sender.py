"""Events are sent in a thread, and whatever fails is one warning."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from recordmill.pipelines.lineage import Sender, _is_configured
from recordmill.schemas.errors import UsageError


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"OPENLINEAGE_NAMESPACE": "prod"}, False),
        ({"OPENLINEAGE_URL": ""}, False),
        ({"OPENLINEAGE_URL": "http://localhost"}, True),
        ({"OPENLINEAGE_CONFIG": "/etc/openlineage.yml"}, True),
        ({"OPENLINEAGE__TRANSPORT": '{"type": "console"}'}, True),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "console"}, True),
        ({"OPENLINEAGE_URL": "http://localhost", "OPENLINEAGE_DISABLED": " True"}, False),
        ({"OPENLINEAGE_URL": "http://localhost", "OPENLINEAGE_DISABLED": "0"}, True),
    ],
)
def test_variables_of_the_client_ask_for_events(
    environment: dict[str, str], expected: bool
) -> None:
    assert _is_configured(environment) is expected


@pytest.fixture
def to_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "events.jsonl"
    for name, value in (("TYPE", "file"), ("LOG_FILE_PATH", path), ("APPEND", "true")):
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{name}", str(value))
    return path


def fail() -> None:
    raise UsageError("OPENLINEAGE_X: is wrong. Correct it.")


def test_an_event_that_cannot_be_made_is_one_warning(to_file: Path) -> None:
    sender = Sender()
    sender.send(fail)  # type: ignore[arg-type]
    sender.send(fail)  # type: ignore[arg-type]
    assert sender.close() == (
        "2 of 2 OpenLineage events were not sent: OPENLINEAGE_X: is wrong. Correct it."
    )
    assert not to_file.exists()


def test_a_slow_endpoint_is_one_warning(to_file: Path) -> None:
    release = threading.Event()
    sender = Sender()
    sender.send(release.wait)  # type: ignore[arg-type]
    assert sender.close(timeout=0.05) == (
        "1 of 1 OpenLineage events were not sent: the endpoint did not answer within 0.05 s. "
        "Check the endpoint, or set OPENLINEAGE_DISABLED=true."
    )
    release.set()


def test_a_missing_client_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    sender = Sender()
    sender.send(fail)  # type: ignore[arg-type]
    assert sender.close() == (
        "1 of 1 OpenLineage events were not sent: its client is not installed. "
        "Install recordmill[lineage], or set OPENLINEAGE_DISABLED=true."
    )


def fail_with_secrets() -> None:
    raise OSError("https://me:hush@host/a?token=hush: no such host")


def test_secrets_in_errors_are_masked(to_file: Path) -> None:
    sender = Sender()
    sender.send(fail_with_secrets)  # type: ignore[arg-type]
    assert sender.close() == (
        "1 of 1 OpenLineage events were not sent: https://***@host/a?token=***: no such host. "
        "Check the endpoint, or set OPENLINEAGE_DISABLED=true."
    )


def test_no_event_is_no_warning(to_file: Path) -> None:
    assert Sender().close() is None
