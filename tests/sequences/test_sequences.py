"""Tests of sequences: the rows of a group become one SequenceExample, or rejects."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from PIL import Image
from tensorflow_metadata.proto.v0 import schema_pb2

from recordmill.pipelines.dataset.load import load
from recordmill.pipelines.dataset.records import Records
from tests.end_to_end import readers
from tests.end_to_end.command import convert, published, recordmill
from tests.images import jpeg, png

WHOLE = {
    "swim": ("sport", ["30", "0", "10", "1000"]),  # with gaps, and not in order
    "jump/ü 1": ("sport", ["b10", "b9"]),  # texts
    "rest": ("idle", [f"{i / 10}" for i in range(11, 4, -1)]),  # reversed, with fractions
    "walk": ("idle", ["7"]),  # one frame
}
ORDERED = {
    "swim": ["0", "10", "30", "1000"],
    "jump/ü 1": ["b9", "b10"],
    "rest": ["0.5", "0.6", "0.7", "0.8", "0.9", "1.0", "1.1"],
    "walk": ["7"],
}
FRAMES = sum(len(frames) for _, frames in WHOLE.values())
FLAGS = (
    *("--schema", "image_sequence", "--columns", "sequence=clip,frame=at,label=action"),
    *("--splits", "train=0.5,test=0.5", "--num_shards", "train=2,test=1", "--no_report"),
)
REJECTS = {  # key: (the row's number in its own clip, reason)
    "cut 1.jpg": "sequence_broken",
    "cut 2.jpg": "truncated",
    "cut 3.jpg": "sequence_broken",
    "twice 1.jpg": "duplicate_order",
    "twice 2.jpg": "sequence_broken",
    "twice 01.jpg": "duplicate_order",
    "mixed 1.jpg": "context_differs",
    "mixed 2.jpg": "context_differs",
    "unlabelled 1.jpg": "sequence_broken",
    "unlabelled 2.jpg": "missing_value",
    "unordered 1.jpg": "sequence_broken",
    "unordered .jpg": "missing_value",
    "alone 1.jpg": "missing_value",
}


def name_of(clip: str, at: str) -> str:
    return f"{clip.replace('/', '_')} {at}.jpg"


def draw(folder: Path, clip: str, at: str) -> None:
    number = int(hashlib.sha256(f"{clip} {at}".encode()).hexdigest()[:6], 16)
    width = 16 + len(clip)  # another size for each clip
    (folder / name_of(clip, at)).write_bytes(jpeg(width, 12, seed=number % 999))


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return path


def row(clip: str, at: str, action: str = "sport") -> dict[str, str]:
    return {"image": name_of(clip, at), "clip": clip, "at": at, "action": action}


def whole_rows(folder: Path) -> list[dict[str, str]]:
    """Draws the frames of all intact clips, with the rows of different clips mixed."""
    rows = [row(clip, at, action) for clip, (action, frames) in WHOLE.items() for at in frames]
    for each in rows:
        draw(folder, each["clip"], each["at"])
    return sorted(rows, key=lambda each: hashlib.sha256(each["image"].encode()).digest())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clips")


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[dict[str, str]]:
    return whole_rows(folder)


@pytest.fixture(scope="module")
def table(folder: Path, rows: list[dict[str, str]]) -> Path:
    return write(folder / "clips.csv", rows)


@pytest.fixture(scope="module")
def dataset(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The intact clips, with an index for DALI and every frame decoded by TensorFlow."""
    output = tmp_path_factory.mktemp("out")
    return published(table, output, *FLAGS, "--verify", "decode", "--index", "--report")


@pytest.fixture(scope="module")
def bad_rows(folder: Path, rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The same, and clips that are broken in every possible way."""
    more = [
        *(row("cut", str(i)) for i in (3, 1, 2)),
        *(row("twice", at) for at in ("1", "2", "01")),
        *(row("mixed", str(i), ("sport", "idle")[i % 2]) for i in (1, 2)),
        *(row("unlabelled", str(i), ("", "sport")[i % 2]) for i in (1, 2)),
        *(row("unordered", at) for at in ("1", "")),
        {**row("alone", "1"), "clip": ""},
    ]
    for each in more:
        draw(folder, each["image"].split()[0], each["at"])
    cut = folder / "cut 2.jpg"
    cut.write_bytes(cut.read_bytes()[:-100])
    return [*more[:7], *rows, *more[7:]]


def manifest(dataset: Path) -> dict[str, Any]:
    return json.loads((dataset / "manifest.json").read_bytes())


def sequences(dataset: Path, split: str) -> list[tf.train.SequenceExample]:
    return [tf.train.SequenceExample.FromString(r) for r in readers.records(dataset, split)]


def values(feature: tf.train.Feature) -> list[Any]:
    return list(getattr(feature, feature.WhichOneof("kind")).value)


def as_dicts(sequence: tf.train.SequenceExample) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Returns the context and the lists, with one value each."""
    lists = sequence.feature_lists.feature_list
    return (
        {name: values(feature)[0] for name, feature in sequence.context.feature.items()},
        {name: [values(f)[0] for f in listed.feature] for name, listed in lists.items()},
    )


def expected_lists(folder: Path, clip: str) -> dict[str, list[Any]]:
    names = [name_of(clip, at) for at in ORDERED[clip]]
    return {
        "image/encoded": [(folder / name).read_bytes() for name in names],
        "image/format": [b"jpeg"] * len(names),
        "image/height": [12] * len(names),
        "image/width": [16 + len(clip)] * len(names),
        "image/filename": [name.encode() for name in names],
    }


def all_told(dataset: Path) -> dict[str, tuple[dict[str, Any], dict[str, list[Any]]]]:
    found = {}
    for split in manifest(dataset)["splits"]:
        names = readers.keys(dataset, split)
        found |= dict(zip(names, map(as_dicts, sequences(dataset, split)), strict=True))
    return found


def test_each_clip_is_one_record_with_all_its_frames_in_order(dataset: Path, folder: Path) -> None:
    assert (dataset / "label.labels.txt").read_text().split() == ["idle", "sport"]
    assert all_told(dataset) == {
        clip: (
            {"sequence/id": clip.encode(), "label": ["idle", "sport"].index(action)},
            expected_lists(folder, clip),
        )
        for clip, (action, _) in WHOLE.items()
    }


def test_rows_and_records_are_counted_apart(dataset: Path) -> None:
    document = manifest(dataset)
    row_counts = document["input"]
    assert (row_counts["rows"], row_counts["records"], row_counts["frames"]) == (
        FRAMES,
        len(WHOLE),
        FRAMES,
    )
    for split, entry in document["splits"].items():
        clips = readers.keys(dataset, split)
        frames = [len(WHOLE[clip][1]) for clip in clips]
        assert [row["frames"] for row in readers.index_rows(dataset, split)] == frames
        assert (entry["rows"], entry["records"], entry["frames"]) == (
            sum(frames),
            len(clips),
            sum(frames),
        )
        assert sum(shard["frames"] for shard in entry["shards"]) == sum(frames)
    labels = Counter[str]()
    for entry in document["splits"].values():
        labels.update(entry["classes"]["label"])
    assert labels == {"0": 2, "1": 2}  # once a clip
    assert sum(document["images"].values()) == FRAMES
    run = json.loads((dataset / "run.json").read_bytes())
    assert (run["rows"], run["records"]) == (FRAMES, len(WHOLE))


def test_the_index_has_the_location_and_digest_of_records(dataset: Path, folder: Path) -> None:
    for split in manifest(dataset)["splits"]:
        files = [path.read_bytes() for path in readers.shards(dataset, split)]
        records = readers.records(dataset, split)
        for entry, record in zip(readers.index_rows(dataset, split), records, strict=True):
            start, stop = entry["offset"], entry["offset"] + entry["length"]
            assert files[entry["shard"]][start:stop] == record
            images = expected_lists(folder, entry["key"])["image/encoded"]
            digests = b"".join(hashlib.sha256(image).digest() for image in images)
            assert entry["sha256"] == hashlib.sha256(digests).hexdigest()
            assert entry["class"] == WHOLE[entry["key"]][0]


def test_there_is_no_metadata_of_tfds_and_a_schema_of_tfx(dataset: Path) -> None:
    names = {path.name for path in dataset.iterdir()}
    assert not names & {"features.json", "dataset_info.json"}
    schema = text_format.Parse((dataset / "schema.pbtxt").read_text(), schema_pb2.Schema())
    assert [feature.name for feature in schema.feature] == ["label", "sequence/id", "##SEQUENCE##"]
    frames = {f.name: f for f in schema.feature[2].struct_domain.feature}
    assert sorted(frames) == [
        *("image/encoded", "image/filename", "image/format", "image/height", "image/width"),
    ]
    counts = {(f.value_count.min, f.value_count.max) for f in frames.values()}
    assert counts == {(1, 1)}
    assert frames["image/encoded"].HasField("image_domain")


def test_it_is_verified_again_and_a_flipped_bit_or_a_torn_list_is_reported(
    dataset: Path, tmp_path: Path
) -> None:
    verified = recordmill("verify", dataset, "--decode")
    assert verified.code == 0, verified.err
    shutil.copytree(dataset, tmp_path / "copy")
    shard = max((tmp_path / "copy").glob("*.tfrecord-*"), key=lambda path: path.stat().st_size)
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 4
    shard.write_bytes(data)
    broken = recordmill("verify", tmp_path / "copy")
    assert broken.code == 3
    assert f"{shard.name}: record " in broken.err + broken.out


def test_any_files_of_sequences_are_held_to_a_schema(dataset: Path, tmp_path: Path) -> None:
    uneven = tmp_path / "uneven.tfrecord"
    made = sequences(dataset, "train")[0]
    del made.feature_lists.feature_list["image/height"].feature[0]
    with tf.io.TFRecordWriter(str(uneven)) as writer:
        writer.write(made.SerializeToString())
    shard = max(dataset.glob("*train.tfrecord-*"), key=lambda path: path.stat().st_size)
    whole = recordmill("verify", shard, "--schema", "image_sequence", "--decode")
    assert whole.code == 0, whole.err
    ended = recordmill("verify", uneven, "--schema", "image_sequence")
    assert ended.code == 3
    assert "its lists do not have one item per frame" in ended.err + ended.out
    assert recordmill("verify", shard, "--schema", "image_classification").code == 3


def test_a_frame_whose_size_is_not_the_recorded_one_is_reported(
    dataset: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.tfrecord"
    made = sequences(dataset, "train")[0]
    made.feature_lists.feature_list["image/height"].feature[-1].int64_list.value[0] = 99
    with tf.io.TFRecordWriter(str(wrong)) as writer:
        writer.write(made.SerializeToString())
    assert recordmill("verify", wrong, "--schema", "image_sequence").code == 0
    ended = recordmill("verify", wrong, "--schema", "image_sequence", "--decode")
    assert ended.code == 3
    assert "recorded 99" in ended.err + ended.out


def pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def test_load_gives_frames_in_a_dimension_of_their_own(dataset: Path, folder: Path) -> None:
    for example in load(dataset, "train+test"):
        clip = example["sequence/id"].numpy().decode()
        lists = expected_lists(folder, clip)
        assert example["image/filename"].numpy().tolist() == lists["image/filename"]
        assert example["image/width"].numpy().tolist() == lists["image/width"]
        expected = np.stack([tf.io.decode_jpeg(data).numpy() for data in lists["image/encoded"]])
        np.testing.assert_array_equal(example["image/encoded"].numpy(), expected)


def test_load_pads_what_a_batch_has_ragged(dataset: Path) -> None:
    (batch,) = load(dataset, "train+test", batch_size=4, image_size=(6, 8))
    lengths = [len(ORDERED[clip.decode()]) for clip in batch["sequence/id"].numpy()]
    images = batch["image/encoded"]
    assert images.row_lengths().numpy().tolist() == lengths
    assert images.to_tensor().shape == (4, max(lengths), 6, 8, 3)
    assert batch["label"].shape == (4,)
    (stored,) = load(dataset, "train+test", batch_size=4, decode=False)
    assert [len(clip) for clip in stored["image/encoded"].numpy()] == lengths
    for clip, label in load(dataset, "test", as_supervised=True).take(1):
        assert (clip.shape.rank, label.shape.rank) == (4, 0)


def test_records_gives_a_clip_by_its_key(dataset: Path, folder: Path) -> None:
    records = Records(dataset, "train+test")
    assert sorted(records.keys()) == sorted(WHOLE)
    for clip in WHOLE:
        found, lists = records[clip], expected_lists(folder, clip)
        assert found["sequence/id"] == clip.encode()
        assert found["image/height"].tolist() == lists["image/height"]
        assert found["image/filename"] == lists["image/filename"]
        for image, data in zip(found["image/encoded"], lists["image/encoded"], strict=True):
            np.testing.assert_array_equal(image, pixels(data))


def test_it_can_be_looked_at(dataset: Path, tmp_path: Path) -> None:
    shown = recordmill("inspect", dataset, "--key", "jump/ü 1")
    assert shown.code == 0, shown.err
    assert shown.out.index("jump_ü 1 b9.jpg") < shown.out.index("jump_ü 1 b10.jpg")
    assert recordmill("inspect", dataset, "--sheet", tmp_path / "sheet.png").code == 0
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert min(sheet.size) > 100
    sheet_of_schema = recordmill("schema", "image_sequence").out
    assert "Columns: image, sequence, frame, label" in sheet_of_schema
    assert "tf.io.parse_single_sequence_example(record, context, frames)" in sheet_of_schema


@pytest.mark.parametrize(
    "flags",
    [
        ("--direct_runner_bundle_repeat=1",),
        ("--direct_running_mode=multi_threading", "--direct_num_workers=2"),
    ],
)
def test_another_order_of_rows_and_another_way_of_running_give_the_same_bytes(
    flags: tuple[str, ...],
    folder: Path,
    rows: list[dict[str, str]],
    dataset: Path,
    tmp_path: Path,
) -> None:
    (folder / "again").mkdir(exist_ok=True)
    other = write(folder / "again" / "clips.csv", rows[::-1])
    where = ("--image_root", folder, "--index")
    again = published(other, tmp_path, *FLAGS, *where, *flags)
    assert readers.shard_bytes(again) == readers.shard_bytes(dataset)
    for kind in ("records", "idx"):
        files = {path.name: path.read_bytes() for path in (again / kind).iterdir()}
        assert files == {path.name: path.read_bytes() for path in (dataset / kind).iterdir()}


def test_nothing_of_a_broken_clip_is_written_and_each_row_has_its_reason(
    folder: Path, bad_rows: list[dict[str, str]], dataset: Path, tmp_path: Path
) -> None:
    table = write(folder / "bad.csv", bad_rows)
    ended = convert(table, tmp_path, *FLAGS)
    assert ended.code == 4
    ended = convert(table, tmp_path, *FLAGS, "--max_rejects", len(REJECTS))
    assert ended.code == 0, ended.err
    assert "resumed: kept " in ended.out + ended.err
    made = tmp_path / "birds" / "1.0.0"
    lines = {row["image"]: number for number, row in enumerate(bad_rows, start=2)}
    assert sorted(readers.reject_reasons(made)) == sorted(
        (key, f"bad.csv:{lines[key]}", reason) for key, reason in REJECTS.items()
    )
    details = {reject["key"]: reject["detail"] for reject in readers.rejects(made)}
    assert details["cut 1.jpg"] == "sequence 'cut': its frame 'cut 2.jpg' is rejected: truncated"
    assert "'idle'" in details["mixed 1.jpg"]
    assert "'sport'" in details["mixed 1.jpg"]
    assert all_told(made) == all_told(dataset)
    row_counts = manifest(made)["input"]
    assert row_counts["rows"] == len(bad_rows) == row_counts["frames"] + len(REJECTS)
    assert row_counts["reasons"] == dict(sorted(Counter(REJECTS.values()).items()))
    assert recordmill("verify", made, "--decode").code == 0


def test_a_dry_run_shows_records_and_certain_rejects(
    folder: Path, bad_rows: list[dict[str, str]], tmp_path: Path
) -> None:
    table = write(folder / "dry.csv", bad_rows)
    ended = recordmill(
        *("convert", "--input", table, "--output", tmp_path, "--name", "birds", *FLAGS),
        *("--dry_run", "--json", "--max_rejects", "20"),
    )
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    certain = {reason: entry["rows"] for reason, entry in found["rejected"].items()}
    assert certain == {
        **{"context_differs": 2, "duplicate_order": 2, "missing_value": 3},
        "sequence_broken": 3,
    }
    assert found["rows"] == len(bad_rows)
    assert sum(split["records"] for split in found["splits"].values()) == len(WHOLE) + 1
    assert [reject["reason"] for reject in found["tried"]["rejected"]] == ["truncated"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("column", ["--split_column", "--group_column"])
def test_a_clip_stays_in_one_split_or_is_rejected(
    column: str, folder: Path, rows: list[dict[str, str]], tmp_path: Path
) -> None:
    """All frames of a clip must have the same split and the same group."""
    given = {"swim": "train", "jump/ü 1": "test", "rest": "test"}
    marked = [{**row, "part": given.get(row["clip"], "train")} for row in rows]
    torn = [row("torn", str(i)) | {"part": ("train", "test")[i % 2]} for i in (1, 2)]
    for each in torn:
        draw(folder, each["clip"], each["at"])
    table = write(folder / f"{column}.csv", [*marked, *torn])
    made = published(table, tmp_path, *FLAGS, column, "part", "--max_rejects", 2)
    reasons = {(key, reason) for key, _, reason in readers.reject_reasons(made)}
    assert reasons == {("torn 1.jpg", "context_differs"), ("torn 2.jpg", "context_differs")}
    assert (
        "'part' is 'test' in one row, and 'part' is 'train' in another"
        in (readers.rejects(made)[0]["detail"])
    )
    homes = [set(keys) for keys in readers.splits(made).values()]
    assert any({"jump/ü 1", "rest"} <= keys for keys in homes)
    assert any({"swim", "walk"} <= keys for keys in homes)
    if column == "--split_column":
        assert readers.splits(made) == {"test": {"jump/ü 1", "rest"}, "train": {"swim", "walk"}}
    assert manifest(made)["input"]["unplaced"] == 2


def test_clips_stay_where_a_base_has_them_and_whole_shards_are_taken(
    folder: Path, rows: list[dict[str, str]], dataset: Path, table: Path, tmp_path: Path
) -> None:
    more = [row("new", str(i)) for i in range(3)]
    for each in more:
        draw(folder, each["clip"], each["at"])
    grown = write(folder / "grown.csv", [*more, *rows])
    flags = (*FLAGS, "--version", "1.1.0", "--base", dataset, "--seed", "5", "--verify", "decode")
    ended = convert(grown, tmp_path, *flags)
    assert ended.code == 0, ended.err
    made = tmp_path / "birds" / "1.1.0"
    before, after = readers.splits(dataset), readers.splits(made)
    assert {split: keys - {"new"} for split, keys in after.items()} == before
    assert set.union(*after.values()) == {*WHOLE, "new"}
    assert manifest(made)["base"]["shards_unchanged"] == 3
    assert json.loads((made / "run.json").read_bytes())["shards_linked"] == 3
    assert recordmill("verify", made, "--decode").code == 0
    other = convert(grown, tmp_path / "other", "--schema", "tabular", "--base", dataset)
    assert other.code == 2
    assert "--base has one record per 'clip', but this run would write one record per" in other.err


def test_labels_are_joined_on_the_clip_and_on_nothing_else(
    folder: Path, rows: list[dict[str, str]], dataset: Path, tmp_path: Path
) -> None:
    actions = [{"clip": clip, "action": action} for clip, (action, _) in WHOLE.items()]
    labels = write(folder / "actions.csv", actions)
    bare = [{k: v for k, v in row.items() if k != "action"} for row in rows]
    table = write(folder / "bare.csv", bare)
    joined = published(table, tmp_path, *FLAGS, "--labels", labels, "--join_on", "clip")
    assert readers.shard_bytes(joined) == readers.shard_bytes(dataset)
    by_image = [{"image": row["image"], "action": row["action"]} for row in rows]
    other = write(folder / "by_image.csv", by_image)
    ended = convert(table, tmp_path, *FLAGS, "--labels", other, "--join_on", "image", name="b")
    assert ended.code == 2
    assert "--join_on image: a frame without labels would be missing" in ended.err


def test_the_sequence_may_come_from_the_labels(
    folder: Path, rows: list[dict[str, str]], dataset: Path, tmp_path: Path
) -> None:
    """An image without a label is in no known sequence, so only its row is rejected."""
    draw(folder, "nowhere", "1")
    images = [{"image": row["image"]} for row in rows] + [{"image": "nowhere 1.jpg"}]
    table = write(folder / "images.csv", images)
    labels = write(folder / "all.csv", rows)
    join = ("--labels", labels, "--join_on", "image", "--max_rejects", 1)
    joined = published(table, tmp_path, *FLAGS, *join)
    assert readers.shard_bytes(joined) == readers.shard_bytes(dataset)
    assert [reject["reason"] for reject in readers.rejects(joined)] == ["unmatched_join"]


def test_folders_of_frames_are_sequences_and_may_be_gzipped_one_a_file(tmp_path: Path) -> None:
    for clip, count in (("a", 11), ("b", 2), ("c", 1)):
        (tmp_path / "in" / clip).mkdir(parents=True)
        for i in range(count):
            (tmp_path / "in" / clip / f"f{i}.jpg").write_bytes(jpeg(8, 8, seed=i))
    made = published(
        tmp_path / "in",
        tmp_path / "out",
        *("--schema", "image_sequence", "--columns", "sequence=label,frame=image"),
        *("--compression", "gzip", "--records_per_shard", "1", "--no_report"),
    )
    shards = readers.shards(made, "train")
    assert len(shards) == 3
    assert recordmill("verify", made, "--decode").code == 0
    found = {example["sequence/id"].numpy(): example for example in load(made)}
    assert sorted(found) == [b"a", b"b", b"c"]
    names = [b"a/f%d.jpg" % i for i in range(11)]
    assert found[b"a"]["image/filename"].numpy().tolist() == names


def test_repeated_frames_are_no_repeats_and_repeated_clips_are_reported(
    folder: Path, rows: list[dict[str, str]], table: Path, tmp_path: Path
) -> None:
    ended = convert(table, tmp_path, *FLAGS, "--deduplicate", "content")
    assert ended.code == 2
    assert "--deduplicate content: would drop single frames" in ended.err
    again = [{**row, "clip": "copy"} for row in rows if row["clip"] == "swim"]
    still = {**row("walk", "8", "idle"), "image": name_of("walk", "7")}
    repeated = write(folder / "repeated.csv", [*rows, *again, still])
    made = published(repeated, tmp_path, *FLAGS, "--splits", "train=1", "--num_shards", "1")
    assert manifest(made)["content"]["duplicates"] == {"train": 1}
    assert manifest(made)["content"]["images"] == len(WHOLE)
    assert all_told(made)["copy"][1] == expected_lists(folder, "swim")
    assert len(all_told(made)["walk"][1]["image/encoded"]) == 2


def test_two_datasets_of_clips_are_compared_frame_by_frame(
    folder: Path, rows: list[dict[str, str]], dataset: Path, tmp_path: Path
) -> None:
    swapped = [{**row, "at": {"b9": "b10", "b10": "b9"}.get(row["at"], row["at"])} for row in rows]
    other = published(write(folder / "swapped.csv", swapped), tmp_path, *FLAGS)
    ended = recordmill("diff", dataset, other, "--json")
    assert ended.code == 3
    assert "jump/ü 1" in ended.out
    assert "image/encoded" in ended.out
    assert recordmill("diff", dataset, dataset).code == 0


SCHEMA = """
name: pedestrians
sequence: {group: clip, order: at}
features:
  clip: {kind: bytes, from: "column:clip"}
  tags: {kind: bytes, from: "column:tags", shape: []}
  image: {kind: bytes, from: "image:bytes", per: frame}
  at: {kind: float, from: "column:at", per: frame}
  pose: {kind: float, from: "column:pose", shape: [2], per: frame}
  boxes/xmin: {kind: float, from: "box:xmin", shape: [], per: frame}
  boxes/label:
    {kind: int64, from: "column:labels", shape: [], per_box: true, classes: true, per: frame}
  mask: {kind: bytes, from: "mask:mask", per: frame}
  note: {kind: int64, from: "column:note", missing: empty, per: frame}
boxes: {units: normalized}
"""


def test_a_schema_of_its_own_has_boxes_masks_and_lists_for_each_frame(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(png(8, 6, seed=i))
        (tmp_path / f"m{i}.png").write_bytes(png(8, 6, seed=i, mode="L"))
    lines = [
        "image,clip,at,tags,pose,xmin,ymin,xmax,ymax,labels,mask,note",
        "2.png,a,0.25,x|y,5|6,,,,,,m2.png,",
        "0.png,a,0.125,x|y,1|2,0|0.5,0|0,0.5|1,1|1,car|dog,m0.png,9",
        "1.png,b,7,,3|4,0.25,0,1,1,dog,m1.png,",
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "s.yaml").write_text(SCHEMA)
    schema = ("--schema", tmp_path / "s.yaml", "--verify", "decode")
    made = published(tmp_path / "t.csv", tmp_path / "out", *schema)
    a, b = (Records(made)[key] for key in "ab")
    assert (a["tags"], b["tags"]) == ([b"x", b"y"], [])
    assert a["at"].tolist() == [0.125, 0.25]
    assert a["pose"].tolist() == [[1.0, 2.0], [5.0, 6.0]]
    assert [sides.tolist() for sides in a["boxes/xmin"]] == [[0.0, 0.5], []]
    assert [labels.tolist() for labels in a["boxes/label"]] == [[0, 1], []]
    assert [note.tolist() for note in a["note"]] == [[9], []]
    assert [mask.shape for mask in a["mask"]] == [(6, 8, 1)] * 2
    assert [entry["class"] for entry in readers.index_rows(made, "train")].count(["dog"]) == 1
    counts = manifest(made)["splits"]["train"]["classes"]
    assert counts == {"boxes/label": {"0": 1, "1": 2}}
    loaded = {example["clip"].numpy(): example for example in load(made)}
    example = loaded[b"a"]
    assert example["boxes/xmin"].to_list() == [[0.0, 0.5], []]
    assert example["pose"].numpy().tolist() == [[1.0, 2.0], [5.0, 6.0]]
    assert example["mask"].shape == (2, 6, 8, 1)
    np.testing.assert_array_equal(example["mask"].numpy(), np.stack(a["mask"]))
    np.testing.assert_array_equal(example["image"].numpy(), np.stack(a["image"]))
    (batch,) = load(made, batch_size=2)
    assert sorted(batch["boxes/xmin"].to_list()) == [[[0.0, 0.5], []], [[0.25]]]


def test_images_of_several_sizes_in_a_clip_need_one_size_to_be_loaded(tmp_path: Path) -> None:
    lines = ["image,sequence,frame,label"]
    for i in range(2):
        (tmp_path / f"{i}.png").write_bytes(png(8 + i, 6, seed=i))
        lines.append(f"{i}.png,a,{i},x")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    made = published(tmp_path / "t.csv", tmp_path / "out", "--schema", "image_sequence")
    with pytest.raises(tf.errors.InvalidArgumentError, match="have different sizes: resize"):
        list(load(made))
    (example,) = load(made, image_size=4)
    assert example["image/encoded"].shape == (2, 4, 4, 3)
    assert [image.shape for image in Records(made)["a"]["image/encoded"]] == [
        (6, 8, 3),
        (6, 9, 3),
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "the sequences: {table} has no column 'sequence'; it has: image, clip, at, action. "),
        (
            ("--columns", "sequence=clip,frame=a,label=action"),
            "the sequences: {table} has no column 'a' (did you mean 'at'?)",
        ),
        (
            ("--columns", "sequence=clip,frame=at,label=action,fame=at"),
            "--columns fame=…: schema 'image_sequence' has no such column (did you mean 'frame'?)",
        ),
    ],
)
def test_a_table_without_a_sequence_column_is_rejected(
    flags: tuple[str, ...], message: str, table: Path, tmp_path: Path
) -> None:
    label = () if flags else ("--columns", "label=action")
    ended = convert(table, tmp_path, "--schema", "image_sequence", *label, *flags)
    assert ended.code == 2
    assert message.format(table=table) in ended.err
