"""OpenLineage events of runs, at a local endpoint and in a file; they change no result."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partialmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import recordmill as api
from recordmill.pipelines import convert as conversion
from recordmill.pipelines import lineage
from recordmill.schemas.errors import RejectBudgetExceeded
from tests.end_to_end.command import ROOT, Ended, convert, recordmill
from tests.images import jpeg
from tests.openlineage_schema import validate


class Endpoint(ThreadingHTTPServer):
    """An endpoint that keeps all events, as Marquez and other backends receive them."""

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.events: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        assert self.path == "/api/v1/lineage"
        event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.events.append(event)
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


@contextmanager
def listening(status: int) -> Iterator[Endpoint]:
    endpoint = Endpoint(status)
    threading.Thread(target=endpoint.serve_forever, daemon=True).start()
    try:
        yield endpoint
    finally:
        endpoint.shutdown()
        endpoint.server_close()


@pytest.fixture(autouse=True)
def _no_configuration() -> Iterator[None]:
    """Removes the client's variables, also those that it sets itself from others."""
    before = clear_variables()
    yield
    clear_variables()
    os.environ.update(before)


def clear_variables() -> dict[str, str]:
    names = [name for name in os.environ if name.startswith("OPENLINEAGE")]
    return {name: os.environ.pop(name) for name in names}


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    with listening(201) as endpoint:
        monkeypatch.setenv("OPENLINEAGE_URL", endpoint.url)
        yield endpoint


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    lines = ["image,label"]
    for i in range(6):
        (folder / f"{i}.jpg").write_bytes(jpeg(24, 16, seed=i))
        lines.append(f"{i}.jpg,{'ab'[i % 2]}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder / "labels.csv"


def run_json(dataset: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((dataset / "run.json").read_bytes())
    return document


def statistics(dataset: dict[str, Any]) -> dict[str, Any]:
    facets = dataset.get("inputFacets") or dataset.get("outputFacets") or {}
    (facet,) = facets.values()
    return {name: value for name, value in facet.items() if not name.startswith("_")}


def test_a_conversion_and_a_removal_at_an_endpoint(
    endpoint: Endpoint, table: Path, tmp_path: Path
) -> None:
    ended = convert(table, tmp_path)
    assert (ended.code, "warning: " in ended.err) == (0, False), ended.err
    (tmp_path / "keys.txt").write_text("3.jpg\n")
    removed = recordmill("forget", tmp_path / "birds", "--keys", tmp_path / "keys.txt")
    assert removed.code == 0, removed.err

    validate(endpoint.events)
    assert [(e["job"]["name"], e["eventType"]) for e in endpoint.events] == [
        ("convert.birds", "START"),
        ("convert.birds", "COMPLETE"),
        ("forget.birds", "START"),
        ("forget.birds", "COMPLETE"),
    ]
    records = [run_json(tmp_path / "birds" / version) for version in ("1.0.0", "1.0.1")]
    ids = [str(UUID(record["run_id"])) for record in records for _ in range(2)]
    assert [event["run"]["runId"] for event in endpoint.events] == ids
    (read,), (written,) = (endpoint.events[1][side] for side in ("inputs", "outputs"))
    assert (read["namespace"], read["name"]) == ("file", str(table))
    assert statistics(read) == {"rowCount": 6, "size": table.stat().st_size, "fileCount": 1}
    (shard,) = (tmp_path / "birds/1.0.0").glob("*.tfrecord*")
    assert statistics(written) == {"rowCount": 6, "size": shard.stat().st_size, "fileCount": 1}

    # The version that is removed from is the input, and has the name of the output.
    (read,), (then,) = (endpoint.events[3][side] for side in ("inputs", "outputs"))
    assert read["name"] == then["name"] == written["name"] == str(tmp_path / "birds")
    assert [one["facets"]["version"]["datasetVersion"] for one in (written, read, then)] == [
        "1.0.0",
        "1.0.0",
        "1.0.1",
    ]
    assert statistics(read) == {"rowCount": 5}
    checksums = [one["facets"]["tags"]["tags"][0]["value"] for one in (written, then)]
    assert checksums == [record["manifest_sha256"] for record in records]


def test_a_failed_run(endpoint: Endpoint, table: Path, tmp_path: Path) -> None:
    bad = table.with_name("bad.csv")
    bad.write_text(table.read_text() + "missing.jpg,a\n")
    ended = convert(bad, tmp_path)
    assert ended.code == 4
    validate(endpoint.events)
    assert [event["eventType"] for event in endpoint.events] == ["START", "FAIL"]
    facets = endpoint.events[1]["run"]["facets"]
    assert facets["errorMessage"]["message"] == run_json(tmp_path / "birds/1.0.0")["message"]
    tags = {tag["key"]: tag["value"] for tag in facets["tags"]["tags"]}
    assert (tags["exit_code"], tags["runner"]) == ("4", "DirectRunner")
    (output,) = endpoint.events[1]["outputs"]
    assert (output["name"], output["facets"]) == (str(tmp_path / "birds"), {})


def test_an_interrupted_run(
    endpoint: Endpoint, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "build", lambda *_: signal.raise_signal(signal.SIGTERM))
    assert convert(table, tmp_path).code == 143
    validate(endpoint.events)
    assert [event["eventType"] for event in endpoint.events] == ["START", "ABORT"]
    message = endpoint.events[1]["run"]["facets"]["errorMessage"]["message"]
    assert message.startswith("interrupted by SIGTERM")


def test_the_library_sends_the_same_events(
    endpoint: Endpoint, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.convert(table, output=str(tmp_path), name="birds", report=False)
    none = table.with_name("none.csv")
    none.write_text("image,label\nmissing.jpg,a\n")
    with pytest.raises(RejectBudgetExceeded):
        api.convert(none, output=str(tmp_path), name="bees", report=False)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(conversion, "build", interrupt)
    with pytest.raises(KeyboardInterrupt):
        api.convert(table, output=str(tmp_path), name="bats", report=False)
    validate(endpoint.events)
    assert [(e["job"]["name"], e["eventType"]) for e in endpoint.events] == [
        ("convert.birds", "START"),
        ("convert.birds", "COMPLETE"),
        ("convert.bees", "START"),
        ("convert.bees", "FAIL"),
        ("convert.bats", "START"),
        ("convert.bats", "ABORT"),
    ]


def test_a_command_that_does_not_run_a_conversion_sends_nothing(
    endpoint: Endpoint, without_events: tuple[Ended, Path], table: Path
) -> None:
    _, output = without_events
    assert convert(table, output, "--dry_run", name="planned").code == 0
    assert convert(table, output, "--if_exists", "skip").code == 0
    assert convert(table, output, "--schema", "no").code == 2
    assert endpoint.events == []


def test_events_in_a_file(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = {"type": "file", "log_file_path": str(tmp_path / "events"), "append": True}
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT", json.dumps(transport))
    ended = convert(table, tmp_path)
    assert ended.code == 0, ended.err
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    validate(events)
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    assert not any("sourceCodeLocation" in event["job"]["facets"] for event in events)


def test_nothing_is_imported_and_no_thread_starts_without_variables(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openlineage", None)
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    threads = {thread.name for thread in threading.enumerate()}
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    ended = convert(table, tmp_path)
    assert (ended.code, "OpenLineage" in ended.err) == (0, False), ended.err
    assert "lineage" not in {thread.name for thread in threading.enumerate()} - threads


@contextmanager
def broken_endpoint(kind: str) -> Iterator[str]:
    """Yields the URL of an endpoint that is closed, fails, or never answers."""
    if kind == "failing":
        with listening(500) as endpoint:
            yield endpoint.url
        return
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if kind == "silent":
            listener.listen()
        yield f"http://me:hush@127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(scope="module")
def without_events(table: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Path]:
    """What a conversion without an endpoint prints, and its output folder."""
    output, before = tmp_path_factory.mktemp("without"), clear_variables()
    ended = convert(table, output)
    os.environ.update(before)
    return ended, output


@pytest.mark.parametrize("kind", ["closed", "failing", "silent"])
def test_a_broken_endpoint_is_one_warning_and_changes_nothing(
    kind: str,
    without_events: tuple[Ended, Path],
    table: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The exit code, the dataset and the rest of the output are those of a run without events."""
    expected, output = without_events
    with broken_endpoint(kind) as url:
        if kind == "silent":  # the process exits, too
            ended = convert_in_process(table, tmp_path, OPENLINEAGE_URL=url)
        else:
            monkeypatch.setenv("OPENLINEAGE_URL", url)
            monkeypatch.setattr(lineage.Sender, "close", partialmethod(lineage.Sender.close, 1.0))
            ended = convert(table, tmp_path)
    assert (ended.code, expected.code) == (0, 0)
    assert "hush" not in ended.err
    assert lines(ended) == lines(expected)
    (warning,) = (line for line in ended.out.splitlines() if line.startswith("warning: "))
    assert warning.startswith("warning: 2 of 2 OpenLineage events were not sent: ")
    assert contents(output) == contents(tmp_path)


def convert_in_process(table: Path, output: Path, **variables: str) -> Ended:
    """Runs the command in a process of its own, with environment variables."""
    flags = ("--input", table, "--output", output, "--name", "birds", "--no_report")
    ended = subprocess.run(
        [sys.executable, "-m", "recordmill", "convert", *map(str, flags)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **variables},
        timeout=300,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def lines(ended: Ended) -> set[str]:
    """Returns the lines on standard error, without those of progress."""
    return {line for line in ended.err.splitlines() if not re.match(r"\d+ s: ", line)}


def contents(output: Path) -> dict[str, bytes]:
    folder = output / "birds/1.0.0"
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "run.json"
    }
