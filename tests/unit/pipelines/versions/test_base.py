"""Base versions are rejected if they were changed, or do not match the other options."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.pipelines.base_version import check_base, newest_findings, open_base
from recordmill.pipelines.run.run_record import RunContext, finished_record
from recordmill.schemas import layout
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.dataset_info import DatasetInfo, ShardVerification, manifest_of
from recordmill.schemas.errors import UsageError
from recordmill.schemas.manifest import Base, ShardEntry
from recordmill.schemas.plan import Plan, ResolvedSchema
from recordmill.schemas.row_counts import RowCounts, SplitCounts
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.shards import base_shards
from recordmill.transforms.shards.base_shards import base_shard_lookup
from recordmill.transforms.storage.published import commit_marker

KEYS = {("test", 0): ["a", "b"], ("train", 0): [], ("train", 1): ["c"]}
SCHEMA = preset("image_classification")


@pytest.fixture(autouse=True)
def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_shards, "_by_manifest", {})


def config(folder: Path, **options: object) -> ConvertConfig:
    return ConvertConfig(
        inputs=("t.csv",), output=str(folder), name="birds", schema=SCHEMA, **options
    )


def checked(asked: ConvertConfig) -> Base:
    """Opens the base version of a conversion, and checks it."""
    base = open_base(asked)
    assert base is not None
    check_base(base, asked)
    return base


def shard_entry(file: str, index_file: str, index_sha256: str, records: int) -> ShardEntry:
    counts = {"records": records, **dict.fromkeys(("bytes", "payload", "crc32c"), 0)}
    names = {"file": file, "index_file": index_file, "index_sha256": index_sha256, "sha256": ""}
    return ShardEntry.model_validate({**names, **counts, "images": {}})


def published(folder: Path, **options: object) -> Path:
    """Writes the manifest and the indexes of a dataset, and returns its folder."""
    asked = config(folder, **options)
    dataset = Path(asked.directory)
    (dataset / "records").mkdir(parents=True)
    shards = []
    for (split, index), keys in KEYS.items():
        name = layout.records_name(split, index, 2)
        pq.write_table(pa.table({"key": pa.array(keys, pa.string())}), dataset / name)
        digest = hashlib.sha256((dataset / name).read_bytes()).hexdigest()
        entry = shard_entry(f"{split}-{index}", name, digest, len(keys))
        shards.append(ShardVerification(split, index, entry, 0))
    plan = Plan(ResolvedSchema(SCHEMA), {"test": 1, "train": 2}, 0)
    none = SplitCounts(rows=0, records=0, rejected=0, duplicates=0)
    splits = dict.fromkeys(plan.shards, none)
    info = DatasetInfo(plan, RowCounts.of(0, splits), splits, tuple(shards), ())
    manifest = manifest_of(info, asked, {}).to_json()
    (dataset / layout.MANIFEST).write_bytes(manifest)
    (dataset / layout.SUCCESS).write_bytes(commit_marker(manifest))
    return dataset


@pytest.mark.parametrize("version", ["2026.11.24", "2026.11.231", "2026.12.1"])
def test_a_version_that_sorts_before_the_newest_is_a_warning(version: str, tmp_path: Path) -> None:
    newest = published(tmp_path, version="2026.11.231")
    asked = config(tmp_path, version=version)
    text = f"{newest} sorts after {version}, so it stays the newest version"
    hint = f"Choose a later --version, or name {asked.directory} wherever it is read"
    expected = [("warning", text, hint)] * (version == "2026.11.24")
    assert [(f.severity, f.text, f.hint) for f in newest_findings(asked, None)] == expected


def test_each_key_is_found_in_the_shard_of_its_index(tmp_path: Path) -> None:
    base = checked(config(tmp_path, version="1.1.0", base=str(published(tmp_path))))
    found = {key: base_shard_lookup(base)(key) for key in "abcd"}
    assert found == {"a": ("test", 0), "b": ("test", 0), "c": ("train", 1), "d": None}


def other_keys(path: Path) -> None:
    pq.write_table(pa.table({"key": ["d", "e"]}), path)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def folder_in_place(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [other_keys, cut, Path.unlink, folder_in_place])
def test_an_index_that_differs_from_the_published_one_is_a_usage_error(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    dataset = published(tmp_path)
    damaged = dataset / layout.records_name("test", 0, 2)
    damage(damaged)
    with pytest.raises(UsageError, match="choose another --base, or omit it") as caught:
        checked(config(tmp_path, version="1.1.0", base=str(dataset)))
    assert str(damaged) in str(caught.value)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("config",), {}),
        (("config", "columns"), [1]),
        (("config", "group_column"), 5),
        (("config", "splits"), "train"),
        (("config", "seed"), "x"),
        (("classes",), {"none": ["a"]}),
    ],
)
def test_an_invalid_manifest_with_a_valid_checksum_is_a_usage_error(
    place: tuple[str, ...], value: object, tmp_path: Path
) -> None:
    dataset = published(tmp_path)
    document = json.loads((dataset / layout.MANIFEST).read_text())
    inner = document if len(place) == 1 else document[place[0]]
    inner[place[-1]] = value
    data = json.dumps(document).encode()
    (dataset / layout.MANIFEST).write_bytes(data)
    (dataset / layout.SUCCESS).write_bytes(commit_marker(data))
    with pytest.raises(UsageError, match=r"manifest\.json: at (config|classes)"):
        open_base(config(tmp_path, version="1.1.0", base=str(dataset)))


@pytest.mark.parametrize("path", ["birds/../birds/1.0.0", "link", "birds//1.0.0"])
def test_the_dataset_to_be_written_is_rejected_as_its_own_base(path: str, tmp_path: Path) -> None:
    dataset = published(tmp_path)
    (tmp_path / "link").symlink_to(dataset)
    with pytest.raises(UsageError, match=r"is the dataset to be written\. Raise --version\."):
        open_base(config(tmp_path, base=f"{tmp_path}/{path}"))


def test_fingerprints_are_those_of_the_run_that_published_the_manifest(tmp_path: Path) -> None:
    """A run.json of another version, such as from a backup, is ignored."""
    dataset = published(tmp_path)
    checksum = hashlib.sha256((dataset / layout.MANIFEST).read_bytes()).hexdigest()
    known = {"train-1": "fingerprint"}
    for own, expected in ((checksum, known), ("another", {}), ("", {})):
        record = finished_record(RunContext("id", 0.0, "DirectRunner"), None, None)
        update = {"fingerprints": known, "manifest_sha256": own}
        (dataset / layout.RUN).write_bytes(record.model_copy(update=update).to_json())
        base = checked(config(tmp_path, version="1.1.0", base=str(dataset)))
        assert base.fingerprints == expected


GROUPED = {"group_column": "patient", "splits": {"train": "0.5", "test": "0.5"}}


@pytest.mark.parametrize(
    ("of_base", "of_run", "remedy"),
    [
        (GROUPED, {}, "Add --group_column patient"),
        (GROUPED, {**GROUPED, "group_column": "site"}, "Use the same --group_column"),
        (GROUPED, {**GROUPED, "seed": 1}, "Use the same --seed"),
        ({}, GROUPED, "Use the same --group_column"),
        ({}, {**GROUPED, "split_method": "exact"}, "Use the same --group_column"),
        ({**GROUPED, "split_method": "exact"}, GROUPED, "Use the same --split_method"),
        (GROUPED, {**GROUPED, "split_method": "exact", "seed": 1}, None),
        (GROUPED, GROUPED, None),
        ({}, {}, None),
    ],
)
def test_new_rows_of_a_group_can_join_its_existing_rows(
    of_base: dict[str, object], of_run: dict[str, object], remedy: str | None, tmp_path: Path
) -> None:
    asked = config(tmp_path, version="1.1.0", base=str(published(tmp_path, **of_base)), **of_run)
    if remedy is None:
        checked(asked)
    else:
        with pytest.raises(UsageError, match=remedy):
            checked(asked)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {"seed": 7}, r"written with --seed 0, but this run has 7\. Use the same --seed"),
        (
            {},
            {"splits": {"train": 1}},
            "written with --splits None, but this run has {'train': '1'}",
        ),
        ({}, {"compression": "gzip"}, "written with --compression 'none'"),
        ({}, {"split_method": "exact"}, "written with --split_method 'hash'"),
        (
            {},
            {"num_shards": {"train": 3}},
            r"2 shards of 'train', but --num_shards asks for 3: .* number\. Use",
        ),
        ({"deduplicate": "content"}, {}, "combined with --deduplicate content"),
        ({"records_per_shard": 5}, {}, "combined with --records_per_shard"),
        ({}, {"near_duplicates": "drop"}, "combined with --near_duplicates drop, .* report"),
        ({}, {"near_duplicates": "keep_together"}, "with --near_duplicates keep_together, "),
        ({"group_column": "g", "split_method": "exact"}, {}, "groups of the records in --base"),
    ],
)
def test_an_increment_needs_the_options_of_its_base(
    old: dict[str, object], new: dict[str, object], expected: str, tmp_path: Path
) -> None:
    shards = {} if "records_per_shard" in old else {"num_shards": {"train": 2}}
    dataset = published(tmp_path, **old)
    options = {**shards, **old, **new, "base": str(dataset), "append": True}
    with pytest.raises(UsageError, match=f"^--append: .*{expected}"):
        checked(config(tmp_path, version="1.1.0", **options))
