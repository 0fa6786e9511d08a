"""Reading of objects: ranges, names, listings and error messages."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from recordmill.schemas.errors import RecordmillError, UsageError
from recordmill.schemas.rejects import RecordError
from recordmill.transforms.shards.base_shards import _publish_link
from recordmill.transforms.storage import files
from recordmill.transforms.storage.drafts import Draft
from recordmill.transforms.storage.stores import store as store_module
from recordmill.transforms.storage.stores.beam import use_pipeline_options
from recordmill.transforms.storage.stores.store import Version, stop_after_attempt
from tests.stores.kinds import Store
from tests.stores.text_table import TABLE, in_ranges, read_at_once

NAMES = ("plain.jpg", "a b.jpg", "a#b?c.jpg", "a%20b.jpg", "a[1].jpg", "ü/x+y.jpg", "q'&;=.jpg")


def test_objects_and_ranges_are_read_with_one_request(store: Store) -> None:
    use_pipeline_options(PipelineOptions(store.flags))
    for name in NAMES:
        store.put(f"names/{name}", f"content of {name}".encode())
    for name in NAMES:
        store.proxy.set()
        uri, content = f"{store.root}/names/{name}", f"content of {name}".encode()
        assert files.read_bytes(uri) == content
        assert files.read_bytes(uri, 3, 7) == content[3:7]
        assert files.read_bytes(uri, len(content) - 2, len(content) + 9) == content[-2:]
        assert sum(store.proxy.counts().values()) == 3
        assert files.read_bytes(uri, 5, 5) == b""
        assert files.file_size(uri) == len(content)
        assert files.exists(uri)
        assert files.expand(uri) == [uri]
    found = files.files_below(f"{store.root}/names", "**")
    assert found == sorted(NAMES)
    folders, names = files.entries(f"{store.root}/names")
    assert (folders, sorted(names)) == (["ü"], sorted(set(NAMES) - {"ü/x+y.jpg"}))
    assert files.files_below(f"{store.root}/names", "*") == sorted(set(NAMES) - {"ü/x+y.jpg"})
    for prefix in ("a", "a b.jpg", "z"):
        assert files.expand(f"{store.root}/names/{prefix}*") == [
            f"{store.root}/names/{name}" for name in sorted(NAMES) if name.startswith(prefix)
        ]
    assert files.expand(f"{store.root}/name?/*/x*.jpg") == [f"{store.root}/names/ü/x+y.jpg"]


def committed(folder: str, data: bytes, replaced: Version | None = None) -> Version:
    """Gives a draft with some bytes the name `shard`."""
    draft = Draft(folder, "shard")
    with draft.open() as stream:
        stream.write(data)
    return draft.commit(replaced)


def test_of_several_attempts_one_gives_an_object_its_name(object_store: Store) -> None:
    """By one request; those that are late compare, and change nothing."""
    store = object_store
    use_pipeline_options(PipelineOptions(store.flags))
    folder = f"{store.root}/drafts"
    for data in (b"", b"first"):
        store.proxy.set()
        first = committed(folder, data, {} if data else None)
        assert store.proxy.counts() == {f"PUT {store.url_path}drafts/shard": 1}
        assert committed(folder, data) == first
        with pytest.raises(RecordmillError, match="another attempt has written it with other byt"):
            committed(folder, b"other")
        assert store.get("drafts/shard") == data

    second = committed(folder, b"second", first)  # of an earlier run
    assert store.get("drafts/shard") == b"second"
    assert committed(folder, b"second", first) == second  # and so has another attempt
    with pytest.raises(RecordmillError, match="another attempt has written it with other bytes"):
        committed(folder, b"first", first)
    assert store.get("drafts/shard") == b"second"


def test_files_of_a_base_version_are_copied_within_the_store(object_store: Store) -> None:
    store = object_store
    use_pipeline_options(PipelineOptions(store.flags))
    for name in NAMES:
        content = bytes(range(256)) * 4096 + name.encode()
        store.put(f"base/{name}", content)
        source = f"{store.root}/base/{name}"
        for replaced in (None, {"e_tag": "of an object that is not there anymore"}):
            store.proxy.set()
            _publish_link(source, f"{store.root}/copies", name, replaced, len(content))
            assert store.get(f"copies/{name}") == content
            methods = Counter(request.split()[0] for request in store.proxy.counts())
            if not store.root.startswith("gs:"):  # its emulator writes an empty object instead
                assert methods == {"HEAD": 2, "PUT": 1}
    with pytest.raises(UsageError, match=r"plain\.jpg: expected 3 bytes, got 1,048,585\. Restore"):
        _publish_link(f"{store.root}/base/{NAMES[0]}", f"{store.root}/copies", "new", None, 3)
    with pytest.raises(UsageError, match=r"/none: is missing\. Restore it from a backup"):
        _publish_link(f"{store.root}/base/none", f"{store.root}/copies", "new", None)
    assert store.names("copies/new") == []


def test_a_folder_exists_if_any_object_is_below_it(store: Store) -> None:
    use_pipeline_options(PipelineOptions(store.flags))
    store.put("folder/x/1", b"1")
    store.put("folder.txt", b"2")
    assert files.exists(f"{store.root}/folder")
    assert files.exists(f"{store.root}/folder/")
    assert not files.exists(f"{store.root}/fold")
    files.delete(f"{store.root}/folder")
    assert not files.exists(f"{store.root}/folder")
    assert store.names("folder") == ["folder.txt"]
    files.delete(f"{store.root}/folder")  # deleted already
    files.write_bytes(f"{store.root}/folder.txt", b"new")
    files.write_bytes(f"{store.root}/folder.txt", b"newer")
    assert store.get("folder.txt") == b"newer"


def test_tables_are_seekable(store: Store) -> None:
    use_pipeline_options(PipelineOptions(store.flags))
    table = pa.table({"number": list(range(10_000))})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=1000)
    store.put("table.parquet", sink.getvalue().to_pybytes())
    with files.open_binary(f"{store.root}/table.parquet") as stream:
        assert pq.read_table(stream).equals(table)


def test_a_text_table_is_read_in_byte_ranges(store: Store) -> None:
    use_pipeline_options(PipelineOptions(store.flags))
    store.put("table.csv", TABLE)
    assert in_ranges(f"{store.root}/table.csv", 1000) == read_at_once(TABLE)


def test_missing_objects_are_reported_without_retries(store: Store) -> None:
    use_pipeline_options(PipelineOptions(store.flags))
    store.proxy.set()
    with pytest.raises(RecordError, match=r"names/none\.jpg: no such (object \(404|file: File)"):
        files.read_bytes(f"{store.root}/names/none.jpg")
    assert sum(store.proxy.counts().values()) == 1


def test_a_missing_bucket_is_reported_without_retries(object_store: Store) -> None:
    store = object_store
    use_pipeline_options(PipelineOptions(store.flags))
    nowhere = store.root.removesuffix("birds") + "nowhere"
    with pytest.raises(RecordError, match=r"no such (bucket: nowhere|object)"):
        files.read_bytes(f"{nowhere}/a.jpg")


def test_forbidden_objects_are_reported_without_retries(object_store: Store) -> None:
    store = object_store
    use_pipeline_options(PipelineOptions(store.flags))
    store.put("names/plain.jpg", b"1")
    store.proxy.set(percent=100, faults=["403"])
    with pytest.raises(RecordError, match=r"access denied \(403\)\. Check credentials"):
        files.read_bytes(f"{store.root}/names/plain.jpg")
    assert sum(store.proxy.counts().values()) == 1


REPORTED = {
    "429": "the store responds with 429",
    "500": "the store responds with 500",
    "503": "the store responds with 503",
    "reset": "Connection reset by peer",
    "cut": "HTTP error: ",
}


@pytest.mark.parametrize("fault", REPORTED)
def test_temporary_errors_are_retried_and_then_reported(
    fault: str, object_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = object_store
    use_pipeline_options(PipelineOptions(store.flags))
    store.put("names/plain.jpg", b"some content")
    monkeypatch.setattr(store_module._attempts, "stop", stop_after_attempt(3))
    store.proxy.set(percent=100, faults=[fault])
    with pytest.raises(RecordError, match=r"given up after 3 attempts in \d+\.\d s$") as caught:
        files.read_bytes(f"{store.root}/names/plain.jpg")
    assert caught.value.reason == "read_error"
    assert sum(store.proxy.counts().values()) == 3
    assert REPORTED[fault] in caught.value.detail
    store.proxy.set()
    assert files.read_bytes(f"{store.root}/names/plain.jpg") == b"some content"


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("AWS_PROFILE", "The config profile (one) could not be found"),
        (
            "AWS_ACCESS_KEY_ID",
            "Partial credentials found in env, missing: AWS_SECRET_ACCESS_KEY",
        ),
    ],
)
def test_wrong_credentials_are_reported_without_a_request(
    variable: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, "one")
    use_pipeline_options(PipelineOptions([]))
    with pytest.raises(UsageError) as raised:
        files.exists("s3://birds-of-another/x")
    assert (
        str(raised.value) == f"s3://birds-of-another: check the credentials of the store: {message}"
    )
