"""Usage errors end a command before it writes: exit code 2, one message, no traceback."""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.end_to_end.command import Ended, recordmill, recordmill_process
from tests.images import jpeg

PRESETS = ("image_classification", "landmark", "multi_label", "tabular", "tf_slim", "tf_tutorial")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with one good table and two good images."""
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        Path(f"{number}.jpg").write_bytes(jpeg(seed=number))
    Path("good.csv").write_text("image,label\n1.jpg,cat\n2.jpg,dog\n")
    return tmp_path


def convert(*flags: str, table: str = "good.csv", name: str = "birds") -> Ended:
    """Converts a table of the working folder into out/."""
    target = ("--input", table, "--output", "out", "--name", name, "--no_report")
    return recordmill("convert", *target, *flags)


def assert_usage_error(ended: Ended, *expected: str) -> None:
    """Asserts that a command ended with a usage error whose message has all words."""
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("recordmill: ")
    assert ended.err.count("\n") == 1
    assert "Traceback" not in ended.err
    for words in expected:
        assert words in ended.err
    assert not Path("out").exists()


@dataclass(frozen=True)
class Wrong:
    """Invalid flags, and the expected words of the message."""

    flags: tuple[str, ...]
    expected: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.flags)


WRONG = [
    Wrong(("--num_shard", "3"), ("--num_shard",)),
    Wrong(("--shards=3",), ("--shards",)),
    Wrong(("--splits", "train"), ("--splits", "train")),
    Wrong(("--splits", "train=a"), ("--splits", "train=0.9")),
    Wrong(("--splits", "train=-1,test=2"), ("--splits", "negative")),
    Wrong(("--splits", "train=0"), ("--splits", "above 0")),
    Wrong(("--splits", "train=1,train=2"), ("--splits", "twice")),
    Wrong(("--splits", "train=nan"), ("--splits", "finite")),
    Wrong(("--splits", "my-split=1"), ("--splits", "my-split")),
    Wrong(("--splits", "a/b=1"), ("--splits", "a/b")),
    Wrong(("--num_shards", "0"), ("--num_shards",)),
    Wrong(("--num_shards", "-1"), ("--num_shards",)),
    Wrong(("--num_shards", "1.5"), ("--num_shards", "1.5")),
    Wrong(("--num_shards", "100000"), ("--num_shards",)),
    Wrong(("--num_shards", "train=x"), ("--num_shards", "train=x")),
    Wrong(("--num_shards", "tain=2"), ("--num_shards", "tain")),
    Wrong(("--shard_size", "big"), ("--shard_size",)),
    Wrong(("--shard_size", "0"), ("--shard_size",)),
    Wrong(("--seed", "x"), ("--seed", "x")),
    Wrong(("--version", "1.0"), ("--version", "1.0")),
    Wrong(("--version", "1.0.0/../.."), ("--version",)),
    Wrong(("--max_rejects", "-1"), ("--max_rejects", "-1")),
    Wrong(("--max_rejects", "101%"), ("--max_rejects", "101%")),
    Wrong(("--max_rejects", "some"), ("--max_rejects", "some")),
    Wrong(("--compression", "zip"), ("--compression", "gzip")),
    Wrong(("--decode", "none"), ("--decode", "header")),
    Wrong(("--if_exists", "overwrite"), ("--if_exists", "replace")),
    Wrong(("--input_format", "xlsx"), ("--input_format", "csv")),
    Wrong(("--columns", "image"), ("--columns", "image")),
    Wrong(("--columns", "imag=label"), ("--columns", "imag")),
    Wrong(("--columns", "image=nowhere"), ("nowhere", "image, label")),
    Wrong(("--columns", "label=lable"), ("lable", "did you mean 'label'?")),
    Wrong(("--key_column", "imag"), ("--key_column", "did you mean 'image'?")),
    Wrong(("--split_column", "splt"), ("--split_column", "splt")),
    Wrong(("--group_column", "labels"), ("--group_column", "did you mean 'label'?")),
    Wrong(("--schema", "image_clasification"), ("image_clasification", *PRESETS)),
    Wrong(("--schema", "nowhere.yaml"), ("nowhere.yaml",)),
    Wrong(("--classes", "nowhere.txt"), ("--classes", "nowhere.txt")),
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_an_invalid_flag_is_reported(wrong: Wrong, here: Path) -> None:
    assert_usage_error(convert(*wrong.flags), *wrong.expected)


@pytest.mark.parametrize("name", ["", "my-birds", "../birds", "1birds", "a b", "vögel/x"])
def test_a_name_that_is_not_a_valid_file_name_is_reported(name: str, here: Path) -> None:
    assert_usage_error(convert(name=name), "--name")


@pytest.mark.parametrize("missing", ["--input", "--output", "--name"])
def test_a_missing_flag_is_reported(missing: str, here: Path) -> None:
    given = {"--input": "good.csv", "--output": "out", "--name": "birds"}
    flags = [word for flag, value in given.items() if flag != missing for word in (flag, value)]
    assert_usage_error(recordmill("convert", *flags), missing)


TABLES = {
    "empty.csv": (b"", ("empty",)),
    "empty.parquet": (b"", ("empty",)),
    "only_header.csv": (b"image,label\n", ("no rows",)),
    "only_header.tsv": (b"image\tlabel\n\n\n", ("no rows",)),
    "blank.jsonl": (b"\n\n", ("no rows",)),
    "no_object.jsonl": (b"[1]\n", ("JSON",)),
    "binary.csv": (jpeg(), ("binary",)),
    "image.csv": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", ("binary",)),
    "broken.parquet": (b"PAR1 and nothing more", ("cannot be read",)),
    "text.parquet": (b"image,label\n1.jpg,cat\n", ("cannot be read",)),
    "twice.csv": (b"image,label,image\n1.jpg,cat,2.jpg\n", ("twice.csv:1", "'image' occurs twice")),
    "latin1.csv": ("image,größe\n1.jpg,1\n".encode("latin-1"), ("UTF-8",)),
    "no_label.csv": (b"image,lable\n1.jpg,cat\n", ("'label'", "did you mean 'lable'?")),
    "no_image.csv": (b"img,label\n1.jpg,cat\n", ("'image'", "--columns image=")),
    "csv.jsonl": (b"image,label\n1.jpg,cat\n", ("JSON",)),
    "table.xlsx": (b"PK\x03\x04 a spreadsheet", ("Excel", "CSV")),
    "cut.csv.gz": (gzip.compress(b"image,label\n1.jpg,cat\n" * 50)[:40], ("cannot be read",)),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_file_that_is_not_a_table_is_reported(name: str, here: Path) -> None:
    data, expected = TABLES[name]
    Path(name).write_bytes(data)
    assert_usage_error(convert(table=name), f"{name}", *expected)


@pytest.mark.parametrize("table", ["nowhere.csv", "nowhere/*.csv", "*.tsv"])
def test_a_missing_table_is_reported(table: str, here: Path) -> None:
    assert_usage_error(convert(table=table), table, "no such file")


def test_a_folder_is_not_a_table(here: Path) -> None:
    Path("folder").mkdir()
    assert_usage_error(convert(table="folder"), "folder")


def test_the_same_table_twice_is_reported(here: Path) -> None:
    assert_usage_error(convert("--input", "*.csv"), "good.csv", "twice")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_table_is_reported(here: Path) -> None:
    Path("good.csv").chmod(0)
    assert_usage_error(convert(), "good.csv", "Permission denied")


def test_one_table_without_the_column_of_the_others_is_reported(here: Path) -> None:
    Path("other.csv").write_text("image,class\n1.jpg,cat\n")
    assert_usage_error(convert("--input", "other.csv"), "'label'")


SCHEMAS = {
    "no_yaml.yaml": ("features: {a: [", ("YAML",)),
    "a_list.yaml": ("- a\n- b\n", ("features",)),
    "empty.yaml": ("", ("features",)),
    "no_features.yaml": ("name: x\nfeatures: {}\n", ("features",)),
    "unknown_key.yaml": ("features: {a: {kind: int64, from: 'column:a', typ: 1}}", ("typ",)),
    "bad_kind.yaml": ("features: {a: {kind: int32, from: 'column:a'}}", ("kind", "int32")),
    "bad_source.yaml": ("features: {a: {kind: int64, from: 'label'}}", ("'label'", "column:NAME")),
    "bad_fact.yaml": ("features: {a: {kind: int64, from: 'image:size'}}", ("size", "height")),
    "bad_default.yaml": (
        "features: {a: {kind: int64, from: 'column:label', classes: true, default: 3}}",
        ("default",),
    ),
    "fact_of_other_kind.yaml": ("features: {a: {kind: int64, from: 'image:bytes'}}", ("bytes",)),
    "class_float.yaml": (
        "features: {a: {kind: float, from: 'column:label', classes: true}}",
        ("int64",),
    ),
}


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("command", ["convert", "schema"])
def test_a_file_that_is_not_a_schema_is_reported(name: str, command: str, here: Path) -> None:
    text, expected = SCHEMAS[name]
    Path(name).write_text(text)
    ended = convert("--schema", name) if command == "convert" else recordmill("schema", name)
    assert ended.code == 2
    assert "Traceback" not in ended.err
    for words in (name, *expected):
        assert words in ended.err
    assert not Path("out").exists()


CLASSES = {
    "empty.txt": (b"", "empty"),
    "twice.txt": (b"cat\ndog\ncat\n", "'cat' occurs twice"),
    "gap.txt": (b"cat\n\ndog\n", "line 2"),
    "spaces.txt": (b"cat \ndog\n", "line 1"),
    "latin1.txt": ("käse\n".encode("latin-1"), "UTF-8"),
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_file_that_is_not_a_list_of_classes_is_reported(name: str, here: Path) -> None:
    data, expected = CLASSES[name]
    Path(name).write_bytes(data)
    assert_usage_error(convert("--classes", name), "--classes", expected)


@pytest.mark.parametrize(
    "arguments",
    [
        ("covert",),
        ("verify",),
        ("verify", "out", "--decod"),
        ("verify", "out", "--decode=yes"),
        ("schema",),
        ("schema", "nothing_of_this_name"),
        ("verify", "good.csv", "--schema", "tabular"),
        ("verify", "nowhere.tfrecord", "--schema", "tf_slim"),
    ],
    ids=" ".join,
)
def test_a_wrong_command_is_reported(arguments: tuple[str, ...], here: Path) -> None:
    assert_usage_error(recordmill(*arguments))


def test_a_process_ends_with_the_same_code_and_only_the_message(here: Path) -> None:
    target = ("--output", here / "out", "--name", "birds")
    ended = recordmill_process("convert", "--input", here / "nowhere.csv", *target)
    assert_usage_error(ended, "nowhere.csv", "no such file")


def test_json_is_one_line_with_the_outcome_of_the_run(here: Path) -> None:
    target = ("--input", "good.csv", "--output", "out", "--name", "birds", "--json")
    ended = recordmill("convert", *target, "--no_report")
    assert ended.code == 0
    assert ended.out.count("\n") == 1
    run = json.loads(ended.out)
    outcome = {name: run[name] for name in ("state", "exit_code", "rows", "records", "rejected")}
    assert outcome == {"state": "published", "exit_code": 0, "rows": 2, "records": 2, "rejected": 0}
    dataset = {
        "directory": "out/birds/1.0.0",
        "report": None,
        "splits": {"train": {"rows": 2, "records": 2, "rejected": 0, "shards": 1}},
    }
    assert run == {**json.loads(Path("out/birds/1.0.0/run.json").read_bytes()), **dataset}


@pytest.mark.parametrize(("flag", "code"), [("fail", 5), ("skip", 0)])
def test_only_json_is_printed_if_nothing_is_done(flag: str, code: int, here: Path) -> None:
    assert convert().code == 0
    ended = convert("--json", "--if_exists", flag)
    assert ended.code == code
    assert all(json.loads(line)["exit_code"] == code for line in ended.out.splitlines())


def test_json_describes_a_failed_run(here: Path) -> None:
    Path("1.jpg").unlink()
    ended = convert("--json")
    assert ended.code == 4
    run = json.loads(ended.out)
    assert (run["state"], run["exit_code"], run["rejected"]) == ("failed", 4, 1)
    assert run["message"] in ended.err


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_can_be_shown(preset: str) -> None:
    ended = recordmill("schema", preset)
    assert (ended.code, ended.err) == (0, "")
    assert preset in ended.out


def test_the_summary_accounts_for_every_row(here: Path) -> None:
    Path("good.csv").write_text("image,label\n1.jpg,cat\n2.jpg,dog\nnowhere.jpg,dog\n,cat\n")
    ended = convert("--max_rejects", "2", "--num_shards", "2")
    assert ended.code == 0
    assert ["train", "3", "2", "1", "2", "0.0"] in [line.split() for line in ended.out.splitlines()]
    assert "1 missing_file, 1 missing_value" in ended.out
    assert str(Path("out/birds/1.0.0")) in ended.out
