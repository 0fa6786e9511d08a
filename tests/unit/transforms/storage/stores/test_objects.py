"""Stores without a server: parsing of URLs, retries and waits."""

from __future__ import annotations

import io
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from types import SimpleNamespace
from typing import NamedTuple

import obstore
import obstore.store
import pytest
from apache_beam.io.aws.clients.s3.boto3_client import get_http_error_code
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions, S3Options

from recordmill.schemas.errors import UsageError
from recordmill.transforms.storage.stores import beam, objects
from recordmill.transforms.storage.stores import store as store_module
from recordmill.transforms.storage.stores.beam import use_pipeline_options
from recordmill.transforms.storage.stores.clients import _connection, iceberg_settings
from recordmill.transforms.storage.stores.objects import ObjectPath, parse
from recordmill.transforms.storage.stores.options import (
    StoreOptions,
    current_options,
    use_options,
)
from recordmill.transforms.storage.stores.store import (
    TooLargeError,
    TooSlowError,
    TransientError,
    is_transient_status,
    persist,
    seconds_of,
)

PATHS = {
    "s3://birds/a/b.jpg": ObjectPath("s3", "", "birds", "a/b.jpg"),
    "gs://birds": ObjectPath("gs", "", "birds", ""),
    "gs://birds/": ObjectPath("gs", "", "birds", ""),
    "azfs://account/container/a b#?.jpg": ObjectPath("azfs", "account", "container", "a b#?.jpg"),
    "s3://birds/folder/": ObjectPath("s3", "", "birds", "folder/"),
    "s3://birds//a.jpg": None,
    "s3://birds/a//b.jpg": None,
    "s3://birds/../b.jpg": None,
    "s3://birds/./b.jpg": None,
    "s3://birds/a\nb.jpg": None,
    "hdfs://a/b": None,
    "http://h/a": None,
    "a/b": None,
}


@pytest.mark.parametrize("uri", PATHS)
def test_urls_are_parsed_unless_obstore_rejects_the_key(uri: str) -> None:
    assert parse(uri) == PATHS[uri]


def test_transient_errors_are_retried_with_increasing_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(store_module._attempts, "sleep", waits.append)
    asked = iter([0.0, 0.0, 90.0, 500.0, 0.0, 0.0, 0.0, 0.0])

    def fails() -> None:
        raise TransientError("503", next(asked))

    with pytest.raises(OSError, match=r"^503; given up after 8 attempts in \d+\.\d s$"):
        persist(fails)
    assert len(waits) == 7
    assert waits[2:4] == [90.0, 120.0]  # as asked, within limits
    longest = [0.25, 0.5, 90, 120, 4, 8, 16]
    assert all(most / 2 <= wait <= most for wait, most in zip(waits, longest, strict=True))


def test_every_request_outlasts_an_outage_of_fifteen_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for _ in range(50):
        waits: list[float] = []
        monkeypatch.setattr(store_module._attempts, "sleep", waits.append)
        with pytest.raises(OSError, match="given up"):
            persist(_raise_transient)
        assert 15 <= sum(waits) <= 32


def test_a_long_outage_is_logged_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(store_module, "_log_due", 0.0)
    monkeypatch.setattr(store_module._attempts, "sleep", lambda _: None)

    def fails(seconds: float) -> None:
        now[0] += seconds
        raise TransientError("timed out")

    for seconds in (1, 25):
        with pytest.raises(OSError, match="given up after 8 attempts"):
            persist(partial(fails, seconds))
    assert caplog.messages == [f"retrying for {n} s: timed out" for n in (25, 100, 175)]


def _raise_transient() -> None:
    raise TransientError("503")


@pytest.mark.parametrize(
    "response",
    [
        {"ResponseMetadata": {"HTTPStatusCode": 503, "HTTPHeaders": {"retry-after": "6"}}},
        SimpleNamespace(headers={"Retry-After": "6"}),
    ],
    ids=["boto3", "google and azure"],
)
def test_clients_of_beam_wait_as_stores_ask(response: object) -> None:
    error = beam._translate_error(CodedError("busy", status_code=503, response=response))
    assert isinstance(error, TransientError)
    assert error.wait == 6


def test_the_result_of_the_last_attempt_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module._attempts, "sleep", lambda _: None)
    attempts: list[int] = []

    def succeeds_the_third_time() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise TransientError("not yet")
        return "done"

    assert persist(succeeds_the_third_time) == "done"
    assert len(attempts) == 3


def test_permanent_errors_are_raised_without_retries() -> None:
    attempts: list[int] = []

    def fails() -> None:
        attempts.append(1)
        raise FileNotFoundError("gone")

    with pytest.raises(FileNotFoundError, match=r"^gone$"):
        persist(fails)
    assert attempts == [1]


def test_transient_statuses() -> None:
    found = [status for status in range(400, 600) if is_transient_status(status)]
    assert found == [408, 425, 429, 500, *range(502, 600)]


class CodedError(Exception):
    """An exception like those of store clients."""

    def __init__(self, text: str, **attributes: object) -> None:
        super().__init__(text)
        vars(self).update(attributes)


FAILURES = {
    "boto3": (
        CodedError("no", response={"ResponseMetadata": {"HTTPStatusCode": 403}}),
        PermissionError,
    ),
    "beam": (CodedError("no", code=404), FileNotFoundError),
    "azure": (CodedError("busy", status_code=503), TransientError),
    "google": (CodedError("slow down", code=429), TransientError),
    "google's text": (CodedError("404 GET http://h/o: not found"), TransientError),
    "a text with the status": (CodedError("failed with HTTP 403"), PermissionError),
    "a request that is wrong": (CodedError("bad", code=400), OSError),
    "a broken connection": (ConnectionResetError("reset"), TransientError),
    "a mistake": (ValueError("hdfs_host is not set"), OSError),
}


@pytest.mark.parametrize("case", FAILURES)
def test_client_errors_are_translated_to_actionable_messages(case: str) -> None:
    error, expected = FAILURES[case]
    assert type(beam._translate_error(error)) is expected
    wrapped = CodedError("operation failed", exception_details={"s3://b/k": error})
    assert type(beam._translate_error(wrapped)) is expected


def test_a_broken_connection_is_transient_where_beam_fails_to_find_its_status() -> None:
    """`get_http_error_code` of Beam asks for the response of an error that has none."""

    def fails() -> None:
        try:
            raise CodedError("Connection was closed", response=None)
        except CodedError as error:
            get_http_error_code(error)

    with pytest.raises(AttributeError) as raised:
        fails()
    assert type(beam._translate_error(raised.value)) is TransientError
    assert type(beam._translate_error(AttributeError("a mistake"))) is OSError


def test_azure_connection_strings_are_parsed() -> None:
    text = "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=k==;BlobEndpoint=http://h/a;"
    assert _connection(text) == {"account_key": "k==", "endpoint": "http://h/a"}
    text = "BlobEndpoint=https://a.blob.core.windows.net;SharedAccessSignature=sv=1&sig=x%3D"
    assert _connection(text) == {
        "sas_key": "sv=1&sig=x%3D",
        "endpoint": "https://a.blob.core.windows.net",
    }
    text = "AccountName=a;AccountKey=k;EndpointSuffix=core.chinacloudapi.cn"
    assert _connection(text)["endpoint"] == "https://a.blob.core.chinacloudapi.cn"


def test_pyiceberg_has_the_flags_that_are_given() -> None:
    assert iceberg_settings(StoreOptions()) == {}
    given = {"s3_endpoint_url": "http://host:1", "s3_access_key_id": "a", "s3_session_token": "b"}
    assert iceberg_settings(StoreOptions(**given)) == {
        "s3.endpoint": "http://host:1",
        "s3.access-key-id": "a",
        "s3.session-token": "b",
    }


def test_hosts_can_ask_for_a_wait() -> None:
    assert [seconds_of(text) for text in (None, "", "7", "soon")] == [0.0, 0.0, 7.0, 0.0]
    assert seconds_of("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert seconds_of("Wed, 21 Oct 2115 07:28:00 GMT") > 10**9


def test_store_flags_apply_to_commands_without_a_pipeline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"paths": ["x"], "allow_private_hosts": True, "http_connections": 3}
    use_options(StoreOptions.of(given))
    assert current_options() == StoreOptions(allow_private_hosts=True, http_connections=3)
    # A store of Beam gets the same ones.
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)  # put back afterwards
    beam._request(lambda: None)
    assert FileSystems._pipeline_options.view_as(beam.WebOptions).http_connections == 3
    use_options(None)


@pytest.mark.parametrize("flag", ["--max_image_bytes", "--http_max_bytes"])
def test_the_flag_of_the_image_limit_has_two_names(flag: str) -> None:
    use_pipeline_options(PipelineOptions([f"{flag}=7"]))
    assert current_options().max_image_bytes == 7
    use_pipeline_options(PipelineOptions([]))
    assert current_options().max_image_bytes == 256 * 2**20


def test_options_are_sent_to_workers() -> None:
    sent = PipelineOptions(["--allow_private_hosts", "--http_connections=5"]).get_all_options()
    use_pipeline_options(PipelineOptions.from_dictionary(sent))
    assert current_options() == StoreOptions(allow_private_hosts=True, http_connections=5)


def test_options_may_be_set_in_python() -> None:
    options = PipelineOptions(["--s3_region_name=eu-west-1", "--other=x"])
    options.view_as(S3Options).s3_endpoint_url = "http://host:1"
    use_pipeline_options(options)
    expected = StoreOptions(s3_region_name="eu-west-1", s3_endpoint_url="http://host:1")
    assert current_options() == expected
    assert current_options() is current_options()


def test_threads_share_one_client_for_each_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make(path: ObjectPath, *_: object) -> str:
        made.append(path.bucket)
        time.sleep(0.1)  # as long as the others need to request it, too
        return path.bucket

    monkeypatch.setattr(objects, "_make", make)
    use_pipeline_options(PipelineOptions([]))  # or each thread begins with options of its own
    names = ["one", "other"] * 2
    with ThreadPoolExecutor(len(names)) as executor:
        found = executor.map(objects._Clients().of, [ObjectPath("s3", "", n, "k") for n in names])
    assert [*found] == names
    assert sorted(made) == ["one", "other"]


def test_an_object_above_the_limit_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = obstore.store.MemoryStore()
    obstore.put(store, "k", bytes(1000))
    monkeypatch.setattr(objects._CLIENTS, "of", lambda *_: store)
    path = "s3://b/k"
    assert objects.OBJECTS.read(path, limit=1000)[0] == bytes(1000)
    assert objects.OBJECTS.read(path, (1, 11), limit=10)[0] == bytes(10)
    for span in (None, (0, 1000)):
        with pytest.raises(TooLargeError):
            objects.OBJECTS.read(path, span, limit=999)


def test_entries_of_a_folder_are_listed_without_those_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = obstore.store.MemoryStore()
    for key in ("pets/train/cat/1.jpg", "pets/val/2.jpg", "pets/a b.txt", "petshop/3.jpg", "top"):
        obstore.put(store, key, b"x")
    monkeypatch.setattr(objects._CLIENTS, "of", lambda *_, **__: store)
    for key in ("pets", "pets/"):
        assert objects.OBJECTS.entries(f"s3://b/{key}") == (["train", "val"], ["a b.txt"])
    assert objects.OBJECTS.entries("s3://b") == (["pets", "petshop"], ["top"])
    assert objects.OBJECTS.entries("s3://b/pe") == ([], [])


def test_hdfs_reads_have_a_limit_and_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    assert beam._content(io.BytesIO(bytes(1000)), 1000) == bytes(1000)
    assert beam._content(io.BytesIO(bytes(1000)), sys.maxsize) == bytes(1000)
    with pytest.raises(TooLargeError):
        beam._content(io.BytesIO(bytes(1000)), 999)
    monkeypatch.setattr(beam, "_MAX_SECONDS", 0.05)
    with pytest.raises(TooSlowError, match=r"^not read within 0\.05 s$"):
        beam._content(Endless(), sys.maxsize)


class Endless:
    """A file that arrives byte by byte."""

    def read(self, _: int) -> bytes:
        return b"x"


@pytest.mark.parametrize("error", [TooLargeError(1), TooSlowError(1)])
def test_too_large_or_too_slow_files_are_not_retried(error: OSError) -> None:
    attempts = iter(repeat(error, 1))

    def fails() -> None:
        raise next(attempts)

    with pytest.raises(type(error)):
        beam._request(fails)


def test_no_attempt_starts_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module._attempts, "sleep", lambda _: None)
    now = iter([0.0, 100.0, 200.0, 301.0])
    clock = SimpleNamespace(monotonic=lambda: next(now))
    monkeypatch.setattr(store_module, "time", clock)

    def fails() -> None:
        raise TransientError("503")

    with pytest.raises(TooSlowError, match=r"^503; not read within 300 s$"):
        persist(fails, 300)


class Answer(NamedTuple):
    """An answer of obstore to a range request."""

    data: bytes
    range: tuple[int, int]
    size: int

    @property
    def meta(self) -> dict[str, object]:
        return {"size": self.size, "e_tag": "x"}

    def bytes(self) -> SimpleNamespace:
        return SimpleNamespace(to_bytes=lambda: self.data)


def test_a_body_that_is_shorter_than_the_range_is_requested_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_module._attempts, "sleep", lambda _: None)
    monkeypatch.setattr(objects._CLIENTS, "of", lambda *_: None)
    short, empty, whole = (Answer(data, (2, 6), 9) for data in (b"23", b"", b"2345"))
    stated = Answer(b"23", (2, 4), 9)  # as if the object ended there
    end = Answer(b"78", (7, 9), 9)
    answers = iter([short, empty, stated, whole, end])
    monkeypatch.setattr(obstore, "get", lambda *_, **__: next(answers))
    path = "s3://b/k"
    assert objects.OBJECTS.read(path, (2, 6))[0] == b"2345"
    assert objects.OBJECTS.read(path, (7, 12))[0] == b"78"


CONFLICTS = {
    "ConditionalRequestConflict": TransientError,
    "OperationAborted": TransientError,
    "BlobAlreadyExists": FileExistsError,
}


@pytest.mark.parametrize("code", CONFLICTS)
def test_a_conflict_with_another_request_is_transient(code: str) -> None:
    text = f"Object at k already exists: status code: 409 Conflict: <Code>{code}</Code>"
    error = obstore.exceptions.AlreadyExistsError(text)
    path = ObjectPath("s3", "", "b", "k")
    assert type(objects._translate_error(error, path)) is CONFLICTS[code]


def test_errors_of_a_library_while_it_finds_credentials_are_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def s3_store(*_: object) -> None:
        raise ValueError("no profile nope")

    monkeypatch.setattr(objects.clients, "s3_store", s3_store)
    with pytest.raises(UsageError) as raised:
        objects._make(ObjectPath("s3", "", "birds", "x"), StoreOptions(), None)
    expected = "s3://birds: check the credentials of the store: no profile nope"
    assert str(raised.value) == expected
