"""How to convert several images per record: runs the page, and checks each value exactly."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from recordmill.pipelines.dataset.load import load
from recordmill.pipelines.dataset.records import Records
from tests.docs.pages import DOCS, blocks
from tests.docs.test_tutorials import of_python, of_shell
from tests.end_to_end import readers
from tests.end_to_end.command import published, recordmill
from tests.images import jpeg, png

PAIRS = range(8)
_PAGE = DOCS / "how-to" / "several-images.md"


def depth(number: int) -> np.ndarray:
    """Returns depth that uses all 16 bits: uint16, (32, 48)."""
    return np.arange(32 * 48, dtype=np.uint16).reshape(32, 48) * 42 + np.uint16(number)


def png_of(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the page is run, with eight pairs."""
    root = tmp_path_factory.mktemp("several")
    for name in ("left", "right", "depth"):
        (root / name).mkdir()
    rows = ["left,right,depth,label"]
    for i in PAIRS:
        (root / f"left/{i}.jpg").write_bytes(jpeg(48, 32, i))
        (root / f"right/{i}.jpg").write_bytes(jpeg(96, 64, 100 + i))
        (root / f"depth/{i}.png").write_bytes(png_of(depth(i)))
        rows.append(f"left/{i}.jpg,right/{i}.jpg,depth/{i}.png,{'near' if i % 2 else 'far'}")
    (root / "pairs.csv").write_text("\n".join(rows) + "\n")
    (root / "stereo.yaml").write_text(blocks(_PAGE, "yaml")[0], "utf-8")
    return root


@pytest.fixture(scope="module")
def dataset(folder: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        ended = of_shell(blocks(_PAGE, "sh")[0])
        assert ended.code == 0, ended.err
    return folder / "datasets/pairs/1.0.0"


def test_the_page_reads_it(folder: Path, dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    printed = of_python(blocks(_PAGE, "python")[0]).out.splitlines()
    assert "(32, 48, 3) (43, 64, 3) <dtype: 'uint16'>" in printed
    assert printed[-2:] == ["uint16", "Image(shape=(None, None, 1), dtype=uint16)"]


def test_the_columns_of_all_images_are_listed(folder: Path) -> None:
    printed = recordmill("schema", folder / "stereo.yaml").out
    assert "\nColumns: left, right, depth, label\n" in printed


def test_each_image_has_its_settings(folder: Path, dataset: Path) -> None:
    found = [e for split in ("train", "test") for e in readers.examples(dataset, split)]
    assert len(found) == len(PAIRS)
    for example in found:
        (left,), (right,), (deep,) = example["left"], example["right"], example["depth"]
        (number,) = (i for i in PAIRS if (folder / f"left/{i}.jpg").read_bytes() == left)
        assert deep == (folder / f"depth/{number}.png").read_bytes()  # kept byte for byte
        assert Image.open(io.BytesIO(right)).size == (64, 43)  # of 96 x 64
        assert (example["left/width"], example["right/width"]) == ([48], [64])


def test_tfds_and_records_return_exact_depth(dataset: Path) -> None:
    builder = tfds.builder_from_directory(dataset)
    read = [pair for split in ("train", "test") for pair in builder.as_dataset(split=split)]
    deep = sorted(int(pair["depth"][0, 0, 0]) for pair in read)
    assert deep == list(PAIRS)
    for pair in (*read, *Records(dataset)):
        pixels = np.asarray(pair["depth"])
        assert np.array_equal(pixels[:, :, 0], depth(int(pixels[0, 0, 0])))
        assert (np.asarray(pair["right"]).shape, pixels.dtype) == ((43, 64, 3), np.uint16)


def test_the_index_has_the_hash_of_every_image(dataset: Path) -> None:
    for split in ("train", "test"):
        index = pq.read_table(sorted((dataset / "records").glob(f"*{split}*"))).to_pylist()
        for row, example in zip(index, readers.examples(dataset, split), strict=True):
            found = [(one["image"], one["sha256"]) for one in row["other_images"]]
            assert found == [
                (name, hashlib.sha256(example[name][0]).hexdigest()) for name in ("right", "depth")
            ]
            assert row["sha256"] == hashlib.sha256(example["left"][0]).hexdigest()
            assert [one["width"] for one in row["other_images"]] == [64, 48]


def test_one_bad_image_rejects_its_row_and_is_named(folder: Path, dataset: Path) -> None:
    bad = folder / "bad"
    bad.mkdir()
    (bad / "8bit.png").write_bytes(png_of(np.zeros((4, 4), np.uint8)))
    (bad / "cut.jpg").write_bytes(jpeg(96, 64, 1)[:-40])
    rows = [
        "left,right,depth,label",
        "left/0.jpg,right/0.jpg,depth/0.png,near",
        "left/1.jpg,bad/cut.jpg,depth/1.png,near",
        "left/2.jpg,right/2.jpg,bad/8bit.png,near",
        "left/3.jpg,,depth/3.png,near",
        "left/4.jpg,right/4.jpg,gone.png,near",
    ]
    table = folder / "bad.csv"
    table.write_text("\n".join(rows) + "\n")
    schema = ("--schema", folder / "stereo.yaml", "--max_rejects", "100%", "--no_report")
    ended = recordmill(
        "convert", "--input", table, "--output", folder / "o", "--name", "b", *schema
    )
    assert ended.code == 0, ended.err
    lines = next((folder / "o/b/1.0.0/rejects").iterdir()).read_text().splitlines()
    rejects = {r["source"][-1]: (r["reason"], r["detail"]) for r in map(json.loads, lines)}
    cut = rejects.pop("3")
    assert cut[0] == "truncated"
    assert cut[1].startswith(f"right {bad}/cut.jpg: ")
    assert rejects == {
        "4": (
            "unsupported_feature",
            f"depth {bad}/8bit.png: expected one channel of 16 bits (bit_depth: 16), "
            "got 1 of 8 bits",
        ),
        "5": ("missing_value", "column 'right': empty; expected text"),
        "6": ("missing_file", f"depth {folder}/gone.png: No such file or directory"),
    }


STEPS = {"a": 3, "b": 5, "bad": 2}  # by episode


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a dataset of episodes; a step of the last one has no image."""
    root = tmp_path_factory.mktemp("episodes")
    rows = list[dict[str, object]]()
    for episode, count in STEPS.items():
        for step in range(count):
            row = {"front": f"front_{episode}_{step}.png", "wrist": f"wrist_{episode}_{step}.png"}
            for seed, name in enumerate(row.values()):
                if name != "wrist_bad_1.png":
                    (root / name).write_bytes(png(16, 12, 10 * step + seed))
            row |= {"action": [step / 2, -1.0], "reward": step / 4, "is_terminal": episode == "b"}
            rows.append({"episode": episode, "step": step, **row})
    lines = map(json.dumps, reversed(rows))
    (root / "steps.jsonl").write_text("\n".join(lines) + "\n")
    (root / "robot.yaml").write_text(blocks(_PAGE, "yaml")[1], "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        ended = of_shell(blocks(_PAGE, "sh")[1].rstrip() + " --max_rejects 2")
        assert ended.code == 0, ended.err
    return root


def test_tfds_reads_episodes_of_steps(episodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(episodes)
    printed = of_python(blocks(_PAGE, "python")[1]).out
    assert printed == "(12, 16, 3) (2,) <dtype: 'bool'>\n" * 8
    builder = tfds.builder_from_directory(episodes / "datasets/robot/1.0.0")
    read = {e["episode_id"].numpy().decode(): list(e["steps"]) for e in builder.as_dataset("train")}
    assert read.keys() == {"a", "b"}
    for episode, steps in read.items():
        assert [s["action"].numpy().tolist() for s in steps] == [
            [i / 2, -1.0] for i in range(STEPS[episode])
        ]
        ends = [(bool(s["is_first"]), bool(s["is_last"]), bool(s["is_terminal"])) for s in steps]
        last = len(steps) - 1
        assert ends == [(i == 0, i == last, episode == "b") for i in range(len(steps))]
        for i, step in enumerate(steps):
            for name, pixels in step["observation"].items():
                expected = Image.open(episodes / f"{name}_{episode}_{i}.png")
                assert np.array_equal(pixels, np.asarray(expected))


def test_load_and_records_return_the_steps_of_an_episode(episodes: Path) -> None:
    dataset = episodes / "datasets/robot/1.0.0"
    for episode in (Records(dataset)["b"], *load(dataset).take(1)):
        wrist = np.asarray(episode["steps/observation/wrist"])
        count = len(wrist)
        assert wrist.shape == (count, 12, 16, 3)
        assert np.asarray(episode["steps/action"]).tolist() == [[i / 2, -1] for i in range(count)]
        assert np.asarray(episode["steps/is_last"]).tolist() == [0] * (count - 1) + [1]


def test_a_sheet_has_the_images_of_the_first_step(episodes: Path, tmp_path: Path) -> None:
    sheet, dataset = tmp_path / "sheet.png", episodes / "datasets/robot/1.0.0"
    ended = recordmill("inspect", dataset, "--sheet", sheet)
    assert ended.code == 0, ended.err
    pair = [Image.open(episodes / f"{image}_a_0.png") for image in ("front", "wrist")]
    drawn = np.concatenate([np.asarray(pair[0]), np.full((12, 4, 3), 255), pair[1]], axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(np.asarray(Image.open(sheet)), drawn.shape)
    # All episodes begin with the same images.
    assert (windows == drawn).all(axis=(3, 4, 5)).sum() == 2


def test_lists_of_an_episode_are_ragged(episodes: Path, tmp_path: Path) -> None:
    schema = tmp_path / "tagged.yaml"
    tags = '  tags: {kind: bytes, from: "column:tags", shape: [], missing: empty}\n'
    schema.write_text((episodes / "robot.yaml").read_text().replace("\nimage:", f"\n{tags}image:"))
    tagged = {"a": ["door", "red"], "b": None}
    lines = (episodes / "steps.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["episode"] in tagged]
    table = episodes / "tagged.jsonl"
    table.write_text("".join(json.dumps(r | {"tags": tagged[r["episode"]]}) + "\n" for r in rows))
    dataset = published(table, tmp_path, "--schema", schema)
    read = {e["episode_id"].numpy(): e["tags"].numpy().tolist() for e in load(dataset)}
    assert read == {b"a": [b"door", b"red"], b"b": []}
    (batch,) = load(dataset, batch_size=2, features=["tags", "steps/reward"])
    assert sorted(batch["tags"].to_list()) == [[], [b"door", b"red"]]


def test_an_episode_is_complete_or_rejected(episodes: Path) -> None:
    dataset = episodes / "datasets/robot/1.0.0"
    lines = next((dataset / "rejects").iterdir()).read_text().splitlines()
    rejects = sorted((r["reason"], r["detail"]) for r in map(json.loads, lines))
    assert [reason for reason, _ in rejects] == ["missing_file", "sequence_broken"]
    assert rejects[0][1].startswith("wrist wrist_bad_1.png: ")
    (row,) = (r for r in pq.read_table(dataset / "records").to_pylist() if r["key"] == "a")
    assert (row["frames"], [one["image"] for one in row["other_images"]]) == (3, ["wrist"] * 3)
