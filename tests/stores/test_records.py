"""The requests of `Records`: one per record, and one per shard for a batch of its neighbors."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest

import recordmill
from recordmill.pipelines.dataset.records import Records
from recordmill.schemas.errors import UsageError
from recordmill.transforms.storage.stores import options
from tests.stores.kinds import Store


def options_of(store: Store) -> options.StoreOptions:
    return options.StoreOptions(**dict(flag[2:].split("=", 1) for flag in store.reading_flags))


@pytest.fixture
def records(s3_store: Store, local: Path) -> Iterator[Records]:
    s3_store.upload(local, "records/1.0.0")
    options.use_options(options_of(s3_store))
    yield Records(f"{s3_store.root}/records/1.0.0", "all")
    options.use_options(None)


def requested(store: Store) -> list[tuple[str, int]]:
    """Returns the requests for shards since the last call, with their number."""
    counts = store.proxy.counts()
    store.proxy.set()
    return sorted((name.rpartition("/")[2], n) for name, n in counts.items() if "tfrecord" in name)


def test_records_take_one_request_each_and_neighbors_one_request_per_shard(
    s3_store: Store, records: Records, local: Path
) -> None:
    here = Records(local, "all")
    assert requested(s3_store) == []
    assert records[5]["label"] == here[5]["label"]
    assert [count for _, count in requested(s3_store)] == [1]
    batch = records.__getitems__(range(len(records)))
    assert [record["label"] for record in batch] == [record["label"] for record in here]
    shards = sorted(path.name for path in local.glob("*tfrecord*"))
    assert requested(s3_store) == [(shard, 1) for shard in shards]
    assert len(shards) == 7


def test_the_newest_version_is_read(object_store: Store, local: Path) -> None:
    for version in ("1.9.0", "1.10.0"):
        object_store.upload(local, f"newest/{version}")
    object_store.upload(local / "records", "newest/1.11.0/records")  # not published
    options.use_options(options_of(object_store))
    dataset = recordmill.open(f"{object_store.root}/newest")
    assert dataset.directory == f"{object_store.root}/newest/1.10.0"
    assert len(Records(f"{object_store.root}/newest/", "all")) == len(Records(local, "all"))
    options.use_options(None)


def label(records: Records, number: int) -> int:
    return records[number]["label"]


def test_a_forked_process_reports_what_to_do_instead_of_waiting_forever(records: Records) -> None:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        answer = pool.apply_async(label, (records, 5))
        with pytest.raises(UsageError, match='multiprocessing_context="spawn"'):
            answer.get(60)
