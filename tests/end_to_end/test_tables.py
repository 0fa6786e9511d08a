"""The same rows in several files, by pattern, or in a second run, give the same dataset."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recordmill.transforms.functional.sources import text_ranges
from tests.end_to_end import readers
from tests.end_to_end.command import ROOT, published, recordmill
from tests.end_to_end.photos import Photo
from tests.end_to_end.tables import write_table

FLAGS = ("--splits", "train=0.5,test=0.5", "--num_shards", "2", "--seed", "7")


@pytest.fixture(scope="module")
def rows(images: list[Photo]) -> list[dict[str, str]]:
    return [{"image": p.path, "label": p.label} for p in images]


@pytest.fixture(scope="module")
def dataset(
    folder: Path, rows: list[dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    table = write_table(folder / "whole.csv", rows)
    return published(table, tmp_path_factory.mktemp("out"), *FLAGS)


ALONE = """
import sys
from recordmill.__main__ import main
from recordmill.pipelines.command_line import main as run
dataset, foreign = sys.argv.pop(1), sys.argv.pop(1)
codes = main(), run(["verify", dataset]), run(["inspect", foreign, "--sheet", foreign + ".png"])
print(*codes, "tensorflow" in sys.modules)
"""


def test_a_second_run_in_a_new_process_gives_the_same_files_but_run_json(
    dataset: Path, folder: Path, tmp_path: Path
) -> None:
    """The process also verifies them, and shows a file. Only its verifier imports TensorFlow."""
    foreign = shutil.copy(next(dataset.glob("*train.tfrecord-*")), tmp_path / "foreign.tfrecord")
    second = tmp_path / "birds" / "1.0.0"
    again = ("--input", folder / "whole.csv", "--output", tmp_path, "--name", "birds")
    command = [sys.executable, "-c", ALONE, second, foreign, "convert", *again, *FLAGS]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert ended.stdout.splitlines()[-1] == "0 0 0 False", ended.stderr
    readers.assert_the_same(second, dataset)
    assert (second / "run.json").read_bytes() != (dataset / "run.json").read_bytes()


def test_several_files_of_a_pattern_give_the_same_dataset_as_one(
    dataset: Path, folder: Path, rows: list[dict[str, str]], tmp_path: Path
) -> None:
    parts = ("parts/2.csv", "parts/10.csv", "parts/1.csv", "more/a.jsonl")
    for number, part in enumerate(parts):
        (folder / part).parent.mkdir(exist_ok=True)
        write_table(folder / part, rows[number :: len(parts)])
    patterns = ("--input", folder / "parts/*.csv", "--input", folder / "more/[a-c].jsonl")
    target = ("--output", tmp_path, "--name", "birds", "--image_root", folder)
    ended = recordmill("convert", *patterns, *target, *FLAGS)
    assert ended.code == 0, ended.err
    found, expected = readers.content(tmp_path / "birds" / "1.0.0"), readers.content(dataset)
    for differs in ("manifest.json", "_SUCCESS"):  # the tables' names, and their checksum
        assert found.pop(differs) != expected.pop(differs)
    assert found == expected


def test_tables_of_one_name_in_two_folders_keep_all_their_rows(tmp_path: Path) -> None:
    """Rows without a key are distinguished by their source location, including the folder."""
    for part in ("a", "b"):
        (tmp_path / part).mkdir()
        write_table(tmp_path / part / "part.csv", [{"x": f"{part}{i}"} for i in range(3)])
    flags = ("--schema", "tabular", "--max_rejects", "6")
    dataset = published(tmp_path / "*" / "part.csv", tmp_path / "out", *flags)
    found = sorted(example["x"] for example in readers.examples(dataset, "train"))
    assert found == [[b"a0"], [b"a1"], [b"a2"], [b"b0"], [b"b1"], [b"b2"]]


def test_a_spreadsheets_csv_with_byte_order_mark_and_crlf_is_read(tmp_path: Path) -> None:
    table = tmp_path / "sheet.csv"
    table.write_bytes('\ufeffname;x,"y, z"\r\nné,"a\r\nb"\r\n\r\nq,"""c"""\r\n'.encode())
    dataset = published(table, tmp_path / "out", "--schema", "tabular")
    found = {tuple(e["name;x"]): e["y, z"] for e in readers.examples(dataset, "train")}
    assert found == {("né".encode(),): [b"a\r\nb"], (b"q",): [b'"c"']}


def test_utf16_text_as_spreadsheets_save_it_is_read(tmp_path: Path) -> None:
    table = tmp_path / "sheet.tsv"
    table.write_text("id\tname\n1\tÜber\n2\t새\n", encoding="utf-16")
    dataset = published(table, tmp_path / "out", "--schema", "tabular")
    found = {e["id"][0]: e["name"] for e in readers.examples(dataset, "train")}
    assert found == {1: ["Über".encode()], 2: ["새".encode()]}


@pytest.mark.parametrize("range_bytes", [1000, 150])
def test_a_large_table_that_is_read_in_ranges_gives_the_same_dataset(
    range_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f'{n},"two\r\nlines, ""{n}"""' if n % 3 else f"{n},one" for n in range(300)]
    rows[70], rows[170] = '70,"x"y,"', "170,too,many"
    (tmp_path / "t.csv").write_text("\r\n".join(["\ufeffid,text", *rows]), encoding="utf-8")
    flags = ("--schema", "tabular", "--key_column", "id", "--max_rejects", "2", *FLAGS)
    whole = published(tmp_path / "t.csv", tmp_path / "whole", *flags)
    monkeypatch.setattr(text_ranges, "LARGE_BYTES", range_bytes)
    monkeypatch.setattr(text_ranges, "RANGE_BYTES", range_bytes)
    ranges = published(tmp_path / "t.csv", tmp_path / "ranges", *flags)
    readers.assert_the_same(ranges, whole)
    lines = [reject["source"].rpartition(":")[2] for reject in readers.rejects(ranges)]
    assert lines == ["118", "284"]
