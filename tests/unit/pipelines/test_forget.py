"""Which records are removed, what the certificate states of them, and the new version's options."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.forget import (
    Forgotten,
    Selection,
    SimilarRecord,
    check_keys,
    config_without,
    links_message,
    next_version,
    purge,
    removed_records,
    similar_records,
)
from recordmill.pipelines.versions import Holder, Version
from recordmill.schemas.errors import UsageError
from recordmill.schemas.manifest import Manifest, ShardEntry, SplitEntry
from recordmill.schemas.removal import digest_of_key
from recordmill.schemas.row_counts import RowCounts
from recordmill.schemas.statistics import DuplicateStats
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.storage.dataset import Dataset

PHASH = "0" * 64
NEAR = "0" * 62 + "ff"
FAR = "f" * 64
CONFIG = {"inputs": ["/in/t.csv"], "output": "/out", "name": "birds"}


class Birds(Dataset):
    """A dataset with one split and shard, of which only the index is on disk."""

    def rejects(self) -> Iterator[dict[str, Any]]:
        yield {"key": "rejected.jpg"}

    def dropped(self) -> Iterator[dict[str, Any]]:
        yield {"key": "dropped.jpg", "repeats": "a.jpg"}


def dataset(folder: Path, rows: list[tuple[str, str, str | None]], **config: Any) -> Birds:
    """Returns a dataset with records (key, sha256, phash)."""
    index = folder / "birds/1.0.0/records/records-train-00000-of-00001.parquet"
    index.parent.mkdir(parents=True)
    names = ("key", "sha256", "phash")
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    pq.write_table(pa.table({**columns, "index": list(range(len(rows)))}), index)
    shard = ShardEntry(
        file="birds-train.tfrecord-00000-of-00001",
        records=len(rows),
        bytes=0,
        payload=0,
        sha256="",
        crc32c=0,
        index_file=f"records/{index.name}",
        index_sha256=hashlib.sha256(index.read_bytes()).hexdigest(),
        images={},
    )
    train = SplitEntry(rows=len(rows), records=len(rows), rejected=0, duplicates=0, shards=(shard,))
    manifest = Manifest(
        format_version=1,
        name="birds",
        version="1.0.0",
        fingerprint="",
        config={**CONFIG, **config},
        dataset_schema=preset("image_classification"),
        classes={},
        input=RowCounts.of(len(rows), {"train": train}),
        images={},
        splits={"train": train},
        sidecars={},
        content=DuplicateStats(duplicates={}, leaks=()),
    )
    return Birds(str(folder / "birds/1.0.0"), manifest)


def selection(of: Birds, keys: tuple[str, ...], images: tuple[str, ...], **more: Any) -> Selection:
    return Selection(
        of, {("train", 0): keys}, frozenset(images), (PHASH,), **{"missing": (), **more}
    )


def test_copies_and_similar_images_of_removed_records_are_found(tmp_path: Path) -> None:
    rows: list[tuple[str, str, str | None]] = [
        ("a", "A", PHASH),
        ("b", "B", NEAR),
        ("c", "C", FAR),
        ("d", "A", PHASH),
        ("e", "E", None),
    ]
    chosen = selection(dataset(tmp_path, rows), ("a",), ("A",))
    similar = similar_records(chosen)
    assert similar == [
        SimilarRecord("d", "train", 0, is_same=True, sha256="A"),
        SimilarRecord("b", "train", 8, is_same=False, sha256="B"),
    ]
    # The image of "a" remains as that of "d", and the certificate states so.
    removed = removed_records(chosen, similar)
    assert removed.keys_sha256 == (digest_of_key("a"),)
    assert (removed.images_sha256, removed.remaining_images_sha256) == ((), ("A",))


def test_the_certificate_states_keys_and_images_in_the_order_of_digests(tmp_path: Path) -> None:
    rows = [(key, key.upper(), PHASH) for key in "abcd"]
    removed = removed_records(selection(dataset(tmp_path, rows), ("b", "a"), ("B", "A")), [])
    assert removed.keys_sha256 == tuple(sorted(map(digest_of_key, "ab")))
    assert (removed.images_sha256, removed.remaining_images_sha256) == (("A", "B"), ())


def test_keys_without_a_record_are_explained(tmp_path: Path) -> None:
    of = dataset(tmp_path, [("a", "A", None)])
    check_keys(selection(of, ("a",), ()))
    missing = ("dropped.jpg", "rejected.jpg", "u", "v", "w", "x", "y")
    with pytest.raises(UsageError) as caught:
        check_keys(selection(of, ("a",), (), missing=missing))
    assert str(caught.value) == (
        f"{of.directory}: has no record with 7 of the keys in --keys:\n"
        "  'dropped.jpg' (dropped: the record 'a.jpg' has its image)\n"
        "  'rejected.jpg' (rejected: it has no record)\n"
        "  'u'\n"
        "  'v'\n"
        "  'w'\n"
        "  and 2 more\n"
        "Correct them; keys are those in records/. Or add --allow_missing to pass over them."
    )


@pytest.mark.parametrize(
    ("version", "following"),
    [("1.0.0", "1.0.1"), ("1.2.9", "1.2.10"), ("2026.11.20", "2026.11.21")],
)
def test_the_next_version(version: str, following: str) -> None:
    assert next_version(version) == following


def test_the_options_are_those_of_the_base_version(tmp_path: Path) -> None:
    of = dataset(tmp_path, [("a", "A", None)], seed=7, report=True)
    config = config_without(of, "1.0.10")
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
        config_without(dataset(tmp_path, [("a", "A", None)]), version)
    assert str(caught.value) == message


def test_unknown_options_of_the_base_version_are_an_error(tmp_path: Path) -> None:
    of = dataset(tmp_path, [("a", "A", None)], novelty=1)
    with pytest.raises(UsageError) as caught:
        config_without(of, "1.0.1")
    assert str(caught.value).startswith(f"{of.directory}/manifest.json: at config > novelty: ")
    assert str(caught.value).endswith(" Convert again.")


def holder(links: tuple[tuple[str, int, int], ...]) -> Holder:
    version = Version("/out/birds/1.0.0", Manifest.model_construct(version="1.0.0"), 0, 0)
    return Holder(version, 1, links)


def test_a_result_names_its_certificate_and_the_links_that_remain(tmp_path: Path) -> None:
    links = (("/out/birds/1.0.0/x", 5, 1), ("/out/birds/1.0.0/y", 6, 2))
    done = Forgotten(
        "/out/birds/1.0.1", "/out/birds/1.0.0", 1, 3, (), (holder(links[:1]), holder(links[1:]))
    )
    assert (done.certificate, done.folder) == ("/out/birds/1.0.1/removal.json", "/out/birds")
    assert done.links == list(links)
    assert links_message(done) == ("2 deleted files with removed records have hard links elsewhere")
    none = Forgotten("1.0.0", "1.0.0", 0, 0, (), ())
    assert (none.certificate, none.folder, none.links) == (None, ".", [])
    purge(none)  # deletes nothing
