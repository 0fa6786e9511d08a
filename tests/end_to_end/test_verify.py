"""`recordmill verify` reports every damage with file, record and byte."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from recordmill.pipelines.dataset.verify import verify_dataset
from recordmill.schemas.dataset_info import Problem
from tests.end_to_end import readers
from tests.end_to_end.command import ROOT, published, recordmill
from tests.end_to_end.photos import Photo
from tests.end_to_end.readers import Frame
from tests.end_to_end.tables import write_table

SHARD = "birds-train.tfrecord-00000-of-00002"
OTHER = "birds-train.tfrecord-00001-of-00002"
INDEX = "records/records-train-00000-of-00002.parquet"
SIDECARS = (
    "features.json",
    "dataset_info.json",
    "schema.pbtxt",
    "label.labels.txt",
    "croissant.json",
    "README.md",
    "manifest.json",
    "_SUCCESS",
)


@pytest.fixture(scope="module")
def table(folder: Path, images: list[Photo]) -> Path:
    rows = [{"image": p.path, "label": p.label} for p in images]
    rows += [{"image": "not there.jpg", "label": "cat"}]
    return write_table(folder / "verify.csv", rows)


@pytest.fixture(scope="module")
def made(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two shards of images, with one reject."""
    flags = ("--num_shards", "2", "--max_rejects", "1")
    return published(table, tmp_path_factory.mktemp("out"), *flags)


@pytest.fixture
def dataset(made: Path, tmp_path: Path) -> Path:
    """A copy of the dataset, to be damaged."""
    return Path(shutil.copytree(made, tmp_path / "birds" / "1.0.0"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of one shard of some 80 bytes."""
    folder = tmp_path_factory.mktemp("tiny")
    table = write_table(folder / "t.csv", [{"n": i, "x": "y" * i} for i in range(2)])
    return published(table, folder / "out", "--schema", "tabular")


def problems(dataset: Path) -> list[Problem]:
    """Returns all problems that verification reports."""
    return verify_dataset(str(dataset), "parse")[1]


def errors_of(dataset: Path) -> str:
    """Returns the errors of `recordmill verify`, which must fail."""
    ended = recordmill("verify", dataset)
    assert ended.code == 3
    assert ended.out == ""
    assert "Traceback" not in ended.err
    return ended.err


def flip(path: Path, byte: int, bit: int) -> None:
    """Flips one bit of a file."""
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(data)


def frame_at(frames: list[Frame], byte: int) -> tuple[int, int]:
    """Returns the number and the offset of the record that contains a byte."""
    return next((i, f.start) for i, f in enumerate(frames) if f.start <= byte < f.stop)


def test_a_published_dataset_is_verified(made: Path) -> None:
    ended = recordmill("verify", made)
    assert (ended.code, ended.err) == (0, "")
    assert "12 records" in ended.out


def test_several_datasets_are_verified_and_decoded(made: Path, tiny: Path) -> None:
    ended = recordmill("verify", "--decode", made, f"{tiny}/")
    assert (ended.code, ended.err) == (0, "")
    assert "14 records" in ended.out


def test_a_relative_path_is_verified(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made.parent)
    assert recordmill("verify", "1.0.0").code == 0
    assert recordmill("verify", "./1.0.0/").code == 0
    monkeypatch.chdir(made)
    assert recordmill("verify", ".").code == 0
    (made / "birds-train.tfrecord-00002-of-00003").write_bytes(b"")
    try:
        assert "birds-train.tfrecord-00002-of-00003" in errors_of(Path())
    finally:
        (made / "birds-train.tfrecord-00002-of-00003").unlink()


def test_every_single_byte_of_a_shard_is_verified(tiny: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(tiny, tmp_path / "copy"))
    (shard,) = readers.shards(copy, "train")
    whole = shard.read_bytes()
    frames = readers.frames(whole)
    assert len(frames) == 2
    for byte in range(len(whole)):
        flip(shard, byte, byte % 8)
        found = [(p.file, p.record, p.offset) for p in problems(copy)]
        assert found == [(shard.name, *frame_at(frames, byte))], f"byte {byte}"
        shard.write_bytes(whole)
    assert problems(copy) == []


@pytest.mark.parametrize("part", [0.0, 0.11, 0.37, 0.5, 0.74, 0.99])
def test_a_flipped_bit_is_reported_with_file_record_and_byte(dataset: Path, part: float) -> None:
    shard = dataset / SHARD
    frames = readers.frames(shard.read_bytes())
    byte = int(part * shard.stat().st_size)
    record, offset = frame_at(frames, byte)
    flip(shard, byte, bit=3)
    assert f"{SHARD}: record {record} at byte {offset}: " in errors_of(dataset)


@pytest.mark.parametrize("inside", [5, 12, 30, -2], ids=["length", "data", "data", "checksum"])
def test_a_shard_truncated_within_a_record_is_reported_with_record_and_byte(
    dataset: Path, inside: int
) -> None:
    shard = dataset / SHARD
    data = shard.read_bytes()
    frame = readers.frames(data)[2]
    shard.write_bytes(data[: (frame.start if inside > 0 else frame.stop) + inside])
    assert f"{SHARD}: record 2 at byte {frame.start}: " in errors_of(dataset)


@pytest.mark.parametrize("left", [0, 2])
def test_a_shard_truncated_between_records_is_reported_by_name(dataset: Path, left: int) -> None:
    shard = dataset / SHARD
    data = shard.read_bytes()
    shard.write_bytes(data[: readers.frames(data)[left].start])
    assert SHARD in errors_of(dataset)


def test_records_in_another_order_are_reported(dataset: Path) -> None:
    shard = dataset / SHARD
    data = shard.read_bytes()
    first, second, *_ = readers.frames(data)
    swapped = data[second.start : second.stop] + data[: first.stop] + data[second.stop :]
    shard.write_bytes(swapped)
    assert SHARD in errors_of(dataset)


def test_bytes_after_the_last_record_are_reported(dataset: Path) -> None:
    size = (dataset / SHARD).stat().st_size
    count = len(readers.frames((dataset / SHARD).read_bytes()))
    with (dataset / SHARD).open("ab") as shard:
        shard.write(b"\0\0\0\0")
    assert f"{SHARD}: record {count} at byte {size}: " in errors_of(dataset)


@pytest.mark.parametrize("name", [SHARD, OTHER, INDEX])
def test_a_missing_file_is_reported(dataset: Path, name: str) -> None:
    (dataset / name).unlink()
    assert f"{name}: is missing" in errors_of(dataset)


def test_swapped_shards_are_reported(dataset: Path) -> None:
    (dataset / SHARD).rename(dataset / "kept")
    (dataset / OTHER).rename(dataset / SHARD)
    (dataset / "kept").rename(dataset / OTHER)
    errors = errors_of(dataset)
    assert SHARD in errors
    assert OTHER in errors


def test_a_shard_of_another_run_is_reported_with_its_first_foreign_record(
    dataset: Path, table: Path, tmp_path: Path
) -> None:
    flags = ("--num_shards", "2", "--max_rejects", "1", "--seed", "5")
    other = published(table, tmp_path / "other", *flags)
    shutil.copy(other / SHARD, dataset / SHARD)
    assert recordmill("verify", other).code == 0
    assert f"{SHARD}: record 0 at byte 0: " in errors_of(dataset)


def test_a_shard_and_its_index_of_another_run_are_reported(
    dataset: Path, table: Path, tmp_path: Path
) -> None:
    flags = ("--num_shards", "2", "--max_rejects", "1", "--seed", "5")
    other = published(table, tmp_path / "other", *flags)
    for name in (SHARD, INDEX):
        shutil.copy(other / name, dataset / name)
    assert {SHARD, INDEX} <= {problem.file for problem in problems(dataset)}


def test_a_label_that_was_changed_with_its_checksums_is_reported(dataset: Path) -> None:
    """A forged record is consistent in itself; only the published digest reveals it."""
    shard = dataset / SHARD
    forged = []
    for frame in readers.frames(shard.read_bytes()):
        example = tf.train.Example.FromString(frame.data)
        labels = example.features.feature["label"].int64_list.value
        labels[0] = (labels[0] + 1) % 3
        forged.append(example.SerializeToString(deterministic=True))
    assert [len(data) for data in forged] == [
        len(frame.data) for frame in readers.frames(shard.read_bytes())
    ]
    with tf.io.TFRecordWriter(str(shard)) as writer:
        for data in forged:
            writer.write(data)
    assert SHARD in errors_of(dataset)


@pytest.mark.parametrize("name", SIDECARS)
def test_a_sidecar_that_was_edited_is_reported(dataset: Path, name: str) -> None:
    flip(dataset / name, (dataset / name).stat().st_size - 2, bit=0)
    assert ("manifest.json" if name == "_SUCCESS" else name) in errors_of(dataset)


@pytest.mark.parametrize("name", SIDECARS)
def test_a_sidecar_that_was_removed_is_reported(dataset: Path, name: str) -> None:
    (dataset / name).unlink()
    assert name in errors_of(dataset)


def test_swapped_class_names_are_reported(dataset: Path) -> None:
    names = (dataset / "label.labels.txt").read_text().splitlines()
    (dataset / "label.labels.txt").write_text("".join(f"{name}\n" for name in reversed(names)))
    assert "label.labels.txt" in errors_of(dataset)


def _edit_counts(manifest: dict[str, object]) -> None:
    manifest["input"]["rows"] += 1  # type: ignore[index]


def _edit_path(manifest: dict[str, object]) -> None:
    manifest["splits"]["train"]["shards"][0]["file"] = OTHER  # type: ignore[index]


@pytest.mark.parametrize("edit", [_edit_counts, _edit_path, dict.clear])
def test_a_manifest_that_was_edited_is_reported(
    dataset: Path, edit: Callable[[dict[str, object]], None]
) -> None:
    path = dataset / "manifest.json"
    manifest = json.loads(path.read_bytes())
    edit(manifest)
    path.write_text(json.dumps(manifest))
    assert "manifest.json" in errors_of(dataset)


@pytest.mark.parametrize(
    "stray",
    [
        "birds-train.tfrecord-00002-of-00003",
        "birds-test.tfrecord-00000-of-00001",
        "birds-train.tfrecord-00000-of-00002.gz",
        "records/records-train-00002-of-00003.parquet",
    ],
)
def test_a_stray_file_that_readers_would_find_is_reported(dataset: Path, stray: str) -> None:
    shutil.copy(dataset / (INDEX if stray.startswith("records") else SHARD), dataset / stray)
    assert f"{stray}: " in errors_of(dataset)


@pytest.mark.parametrize("column", ["key", "shard", "index", "offset", "length", "sha256", "class"])
def test_an_index_whose_values_were_edited_is_reported(dataset: Path, column: str) -> None:
    table = pq.read_table(dataset / INDEX)
    values = table[column].to_pylist()
    values[1] = values[1] + 1 if isinstance(values[1], int) else values[1][::-1]
    position = table.schema.get_field_index(column)
    field = table.schema.field(position)
    edited = table.set_column(position, field, pa.array(values, field.type))
    pq.write_table(edited, dataset / INDEX)
    assert f"{INDEX}: " in errors_of(dataset)


@pytest.mark.parametrize("part", [0.0, 0.2, 0.5, 0.8, 0.999])
def test_an_index_with_a_flipped_bit_is_reported(dataset: Path, part: float) -> None:
    flip(dataset / INDEX, int(part * (dataset / INDEX).stat().st_size), bit=0)
    assert f"{INDEX}: " in errors_of(dataset)


def _remove(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _duplicate_line(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)


def _garble(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20] + b"\n")


def _change_reason(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"missing_file"', b'"truncated"'))


@pytest.mark.parametrize("edit", [_remove, _empty, _duplicate_line, _garble, _change_reason])
def test_rejects_that_were_edited_are_reported(dataset: Path, edit: Callable[[Path], None]) -> None:
    (rejects,) = (dataset / "rejects").iterdir()
    edit(rejects)
    assert "rejects" in errors_of(dataset)


def test_a_folder_that_is_not_a_dataset_is_reported(tmp_path: Path) -> None:
    assert "_SUCCESS" in errors_of(tmp_path)
    assert f"{tmp_path / 'nowhere'}: no such file or folder" in errors_of(tmp_path / "nowhere")


def test_plain_tfrecord_files_are_checked_against_a_schema(dataset: Path, tmp_path: Path) -> None:
    schema = ("--schema", "image_classification")
    for paths in ([dataset / SHARD, dataset / OTHER], [dataset], [dataset / "*.tfrecord-*"]):
        ended = recordmill("verify", *paths, *schema)
        assert (ended.code, ended.err) == (0, "")
        assert "12 records" in ended.out
    frames = readers.frames((dataset / SHARD).read_bytes())
    flip(dataset / SHARD, frames[1].start + 20, bit=0)
    ended = recordmill("verify", dataset / SHARD, *schema)
    assert ended.code == 3
    assert f"{SHARD}: record 1 at byte {frames[1].start}: " in ended.err
    ended = recordmill("verify", dataset / OTHER, "--schema", "tf_slim")
    assert ended.code == 3
    assert f"{OTHER}: record 0 at byte 0: " in ended.err


@pytest.mark.parametrize("more", [b"\0", b"\0" * 11, b"\0" * 12, b"more than a header"])
def test_bytes_after_the_last_record_of_a_plain_file_are_reported(
    dataset: Path, more: bytes
) -> None:
    data = (dataset / SHARD).read_bytes()
    (dataset / SHARD).write_bytes(data + more)
    ended = recordmill("verify", dataset / SHARD, "--schema", "image_classification")
    assert ended.code == 3
    record = len(readers.frames(data))
    assert f"{SHARD}: record {record} at byte {len(data)}: " in ended.err


def test_a_dataset_can_be_moved(made: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(made, tmp_path / "else where" / "v[1]"))
    ended = recordmill("verify", moved)
    assert (ended.code, ended.err) == (0, "")
    assert not moved.is_relative_to(ROOT)
