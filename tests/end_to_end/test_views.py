"""Views of a dataset: --where, --rename, --per_class and --folds, counted by plain readers."""

from __future__ import annotations

import json
import random
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.end_to_end import readers
from tests.end_to_end.command import published, recordmill
from tests.images import jpeg

LABELS = {f"{i:02}.jpg": "ant" if i < 30 else "bee" if i < 42 else "cow" for i in range(48)}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 images: 30 ants, 12 bees and 6 cows."""
    root = tmp_path_factory.mktemp("views")
    for seed, name in enumerate(LABELS):
        (root / name).write_bytes(jpeg(16, 12, seed))
    rows = "".join(f"{name},{label}\n" for name, label in LABELS.items())
    (root / "t.csv").write_text(f"image,label\n{rows}")
    return published(root / "t.csv", root / "sets")


def labels_of(dataset: Path) -> dict[str, dict[str, str]]:
    """Returns {split: {key: class name}}, by a plain reader."""
    names = (dataset / "label.labels.txt").read_text().splitlines()
    return {
        split: {
            found["image/filename"][0].decode(): names[found["label"][0]]
            for found in readers.examples(dataset, split)
        }
        for split in json.loads((dataset / "manifest.json").read_bytes())["splits"]
    }


def lines_of(dataset: Path) -> list[str]:
    """Returns the texts of the findings."""
    return [one["text"] for one in json.loads((dataset / "run.json").read_bytes())["findings"]]


def test_a_view_has_the_rows_and_classes_that_were_asked_for(dataset: Path, tmp_path: Path) -> None:
    where = ("--where", "label in ('ant', 'cow')", "--rename", "cow=cattle,dog=pet")
    view = published(dataset, tmp_path, *where, "--rename", "ant=insect", name="view")
    names = {"ant": "insect", "cow": "cattle"}
    expected = {name: names[label] for name, label in LABELS.items() if label in names}
    assert labels_of(view) == {"train": expected}
    # A class keeps its place in the order, and one without rows its name.
    assert (view / "label.labels.txt").read_text().split() == ["insect", "bee", "cattle"]
    assert [text for text in lines_of(view) if "label" in text or "--where" in text][:4] == [
        "skipped: rows outside of --where (12)",
        "6 rows with the label 'cow' in label, renamed to 'cattle'",
        "--rename dog=pet: no row has the label 'dog' in label",
        "30 rows with the label 'ant' in label, renamed to 'insect'",
    ]
    # Values of rows that are left out are not published.
    assert b"'bee'" not in (view / "run.json").read_bytes()


def test_classes_with_one_name_are_one_class(dataset: Path, tmp_path: Path) -> None:
    view = published(dataset, tmp_path, "--rename", "ant=bee,bee=ant,cow=bee", name="view")
    swapped = {"ant": "bee", "bee": "ant", "cow": "bee"}
    assert labels_of(view)["train"] == {name: swapped[label] for name, label in LABELS.items()}
    assert (view / "label.labels.txt").read_text().split() == ["bee", "ant"]


@pytest.mark.parametrize("number", [10, 99])
def test_each_class_has_its_first_rows_by_rank(number: int, dataset: Path, tmp_path: Path) -> None:
    view = published(dataset, tmp_path, "--per_class", str(number), "--seed", "7", name="view")
    ranked = sorted(LABELS, key=lambda name: sha256(f"7\0sample\0{name}".encode()).digest()[:8])
    first = [[n for n in ranked if LABELS[n] == c][:number] for c in ("ant", "bee", "cow")]
    expected = {name: LABELS[name] for names in first for name in names}
    assert labels_of(view) == {"train": expected}
    counts = json.loads((view / "manifest.json").read_bytes())["input"]
    left_out = {"rows beyond --per_class": 48 - len(expected)} if len(expected) < 48 else {}
    assert (counts["rows"], counts["asides"]) == (len(expected), left_out)


def test_the_order_of_rows_and_the_source_do_not_matter(dataset: Path, tmp_path: Path) -> None:
    """The same options select the same records of a shuffled table."""
    rows = [f"{name},{label}\n" for name, label in LABELS.items()]
    random.Random(3).shuffle(rows)
    table = dataset.parents[2] / "shuffled.csv"
    table.write_text("image,label\n" + "".join(rows))
    flags = ("--per_class", "9", "--folds", "3", "--split_method", "stratified")
    one = published(dataset, tmp_path / "one", *flags, name="view")
    other = published(table, tmp_path / "other", *flags, name="view")
    assert labels_of(one) == labels_of(other)
    folds = labels_of(one)
    assert [*folds] == ["fold0", "fold1", "fold2"]
    assert [Counter(found.values()) for found in folds.values()] == [
        {"ant": 3, "bee": 3, "cow": 2}
    ] * 3


def test_groups_stay_in_one_fold(dataset: Path, tmp_path: Path) -> None:
    table = dataset.parents[2] / "groups.csv"
    rows = "".join(f"{name},{label},{int(name[:2]) // 4}\n" for name, label in LABELS.items())
    table.write_text(f"image,label,group\n{rows}")
    flags = ("--folds", "4", "--split_method", "exact", "--group_column", "group")
    folds = labels_of(published(table, tmp_path, *flags, name="view"))
    assert [len(found) for found in folds.values()] == [12] * 4
    assert (
        sorted(len({int(name[:2]) // 4 for name in found}) for found in folds.values()) == [3] * 4
    )


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_rows_of_several_classes(suffix: str, dataset: Path, tmp_path: Path) -> None:
    draw = random.Random(5)
    rows = {name: sorted(draw.sample("abcde", draw.randint(0, 3))) for name in LABELS}
    table = dataset.parents[2] / f"several.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.table({"image": [*rows], "labels": [*rows.values()]}), table)
    else:
        texts = {
            "csv": [f"{name},{'|'.join(found)}\n" for name, found in rows.items()],
            "jsonl": [
                json.dumps({"image": n, "labels": found}) + "\n" for n, found in rows.items()
            ],
        }
        table.write_text("image,labels\n" * (suffix == "csv") + "".join(texts[suffix]))
    flags = ("--schema", "multi_label", "--rename", "a=z,b=z", "--per_class", "4")
    view = published(table, tmp_path, *flags, name="view")
    names = (view / "labels.labels.txt").read_text().splitlines()
    assert names == ["c", "d", "e", "z"]
    images = {(table.parent / name).read_bytes(): name for name in LABELS}
    found = {
        images[one["image"][0]]: {names[label] for label in one["labels"]}
        for one in readers.examples(view, "train")
    }
    renamed = {name: {"z" if c in "ab" else c for c in labels} for name, labels in rows.items()}
    ranked = sorted(renamed, key=lambda name: sha256(f"0\0sample\0{name}".encode()).digest()[:8])
    first = {c: [n for n in ranked if c in renamed[n]][:4] for c in names}
    assert found == {n: c for n, c in renamed.items() if all(n in first[one] for one in c)}


def test_integers_that_are_written_as_floats_are_those_of_one_class(tmp_path: Path) -> None:
    table, labels = tmp_path / "t.jsonl", [1, 1.0, 1, 1.0, 2, 2.0]
    rows = [json.dumps({"image": f"{n}.jpg", "label": label}) for n, label in enumerate(labels)]
    for number in range(len(rows)):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg(16, 12, number))
    table.write_text("\n".join(rows))
    few = published(table, tmp_path / "out", "--per_class", "2")
    found = [one["label"] for one in readers.examples(few, "train")]
    assert sorted(found) == [[1], [1], [2], [2]]
    view = published(table, tmp_path / "out", "--rename", "1=one,2.0=two,2=deux", name="view")
    assert Counter(labels_of(view)["train"].values()) == {"one": 4, "two": 1, "deux": 1}


def test_class_ids_of_the_source_are_not_renamed(tmp_path: Path) -> None:
    feature = {"label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}
    metadata = {"huggingface": json.dumps({"info": {"features": feature}})}
    table = pa.table({"image": [jpeg()], "label": [1]}).replace_schema_metadata(metadata)
    pq.write_table(table, tmp_path / "t.parquet")
    flags = ("--output", tmp_path / "out", "--name", "view", "--rename", "dog=pet")
    ended = recordmill("convert", "--input", tmp_path / "t.parquet", *flags)
    assert (ended.code, ended.err) == (
        2,
        "recordmill: --rename: column 'label' has class ids, whose names are in its metadata; "
        "expected names. Convert it, and rename the classes of the dataset: "
        "--input DIR/NAME/VERSION.\n",
    )


@pytest.mark.parametrize("more", [(), ("--dry_run",)])
def test_a_condition_that_holds_for_no_row_is_named(
    more: tuple[str, ...], dataset: Path, tmp_path: Path
) -> None:
    flags = ("--output", tmp_path / "out", "--name", "view", "--where", "label == 'cat'", *more)
    ended = recordmill("convert", "--input", dataset, *flags)
    assert ended.code == 2
    message = (
        f"--input {dataset}: --where holds for none of its rows, which have label == 'ant' or "
        "label == 'bee' or label == 'cow'. Check its values, as in --where \"label == 'ant'\".\n"
    )
    assert ended.err.endswith(f"recordmill: {'' if more else 'not published: '}{message}")


def test_splits_whose_rows_stay_in_the_base_version_have_rows(
    dataset: Path, tmp_path: Path
) -> None:
    again = published(dataset, tmp_path, "--base", dataset, "--version", "2.0.0")
    texts = lines_of(again.with_name("2.0.0"))
    assert [text for text in texts if "has no row" in text] == []


@pytest.mark.parametrize(
    ("columns", "named"), [("image", "{0}/b.csv"), ("image,size", "{0}/a.csv or {0}/b.csv")]
)
def test_the_tables_that_may_lack_a_column_are_named(
    columns: str, named: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("image,label\na.jpg,cat\n")
    (tmp_path / "b.csv").write_text(f"{columns}\nb.jpg{',1' * columns.count(',')}\n")
    inputs = ("--input", tmp_path / "a.csv", "--input", tmp_path / "b.csv")
    ended = recordmill("convert", *inputs, "--output", tmp_path / "out", "--name", "both")
    assert (ended.code, ended.err) == (
        2,
        f"recordmill: feature 'label': {named.format(tmp_path)} has no column 'label'; it has: "
        "image. Name it with --columns label=COLUMN.\n",
    )
