"""The parts of a report: figures, and what is found in records/.

Covers `recordmill.pipelines.report.statistics`, `recordmill.pipelines.report.findings`,
`recordmill.pipelines.report.write_report`, `recordmill.pipelines.report.rejects`.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tracemalloc
from collections import Counter, defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.pipelines.report import findings as module
from recordmill.pipelines.report import rejects as rejects_module
from recordmill.pipelines.report.findings import find_duplicates
from recordmill.pipelines.report.rejects import MEANINGS, numbered_lines, reject_groups
from recordmill.pipelines.report.samples import Budget, sample
from recordmill.pipelines.report.statistics import class_tables, of_bins, of_values, size_text
from recordmill.pipelines.report.write_report import command_text, quoted, render
from recordmill.pipelines.run.run_record import RunContext, throughput_of
from recordmill.pipelines.run.summary import content_notes
from recordmill.schemas.duplicates import DuplicateStats, Leakage
from recordmill.schemas.manifest import Manifest, ShardEntry, SplitEntry
from recordmill.schemas.masking import masked_command
from recordmill.schemas.presets import preset
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.row_counts import RowCounts
from recordmill.schemas.tallies import Timeline, edge_of
from recordmill.transforms.functional.rendering.visible_text import visible
from recordmill.transforms.storage.dataset import Dataset
from tests.images import jpeg

CLASSES = ("cat", "dog", "cow")


def shard(split, index, labels):
    counts = dict(Counter(labels))
    return ShardEntry(
        file=f"x-{split}-{index}",
        records=len(labels),
        bytes=1,
        payload=1,
        sha256="",
        crc32c=0,
        index_file=f"records/{split}-{index}.parquet",
        index_sha256="",
        classes={"label": counts},
        images={},
    )


def dataset(folder: Path, splits, contents=()):
    """Returns a dataset of which there is only records/: split to shards of (label, image)."""
    (folder / "records").mkdir(exist_ok=True)
    entries = {}
    for split, shards in splits.items():
        made = []
        for i, records in enumerate(shards):
            made.append(shard(split, i, [label for label, _ in records]))
            rows = [
                {
                    "key": f"{split}-{i}-{n}",
                    "split": split,
                    "shard": i,
                    "index": n,
                    "offset": 12,
                    "length": 1,
                    "sha256": hashlib.sha256(str(image).encode()).hexdigest(),
                    "class": CLASSES[label],
                }
                for n, (label, image) in enumerate(records)
            ]
            schema = pa.schema(
                [(n, pa.string()) for n in ("key", "split")]
                + [(n, pa.int64()) for n in ("shard", "index", "offset", "length")]
                + [(n, pa.string()) for n in ("sha256", "class")]
            )
            table = pa.Table.from_pylist(rows, schema=schema)
            pq.write_table(table, folder / made[-1].index_file, row_group_size=7)
        number = sum(len(records) for records in shards)
        entries[split] = SplitEntry(
            rows=number, records=number, rejected=0, duplicates=0, shards=tuple(made)
        )
    total = sum(entry.records for entry in entries.values())
    manifest = Manifest(
        format_version=1,
        name="x",
        version="1.0.0",
        fingerprint="",
        config={},
        dataset_schema=preset("image_classification"),
        classes={"label": CLASSES},
        input=RowCounts.of(total, entries),
        images={},
        splits=entries,
        sidecars={},
        content=DuplicateStats(duplicates={"train": 1}, leaks=contents),
    )
    return Dataset(str(folder), manifest)


RECORDS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), max_size=12)
SPLITS = st.fixed_dictionaries(
    {"test": st.lists(RECORDS, max_size=2), "train": st.lists(RECORDS, min_size=1, max_size=3)}
)


@settings(max_examples=40)
@given(SPLITS)
def test_duplicates_are_those_that_a_plain_search_finds(tmp_path_factory, splits):
    found = find_duplicates(dataset(tmp_path_factory.mktemp("x"), splits))
    expected = defaultdict(list)
    for split, shards in splits.items():
        for i, records in enumerate(shards):
            for n, (label, image) in enumerate(records):
                digest = hashlib.sha256(str(image).encode()).hexdigest()
                expected[digest].append((split, CLASSES[label], f"{split}-{i}-{n}"))
    repeated = {digest: copies for digest, copies in expected.items() if len(copies) > 1}
    assert {group.copies[0].sha256 for group in found} == repeated.keys()
    for group in found:
        copies = repeated[group.copies[0].sha256]
        assert group.records == len(copies)
        assert group.crossing == (len({split for split, _, _ in copies}) > 1)
        assert group.disputed == (len({label for _, label, _ in copies}) > 1)
        shown = {(place.split, place.classes[0], place.key) for place in group.copies}
        assert shown <= set(copies)
        assert len(shown) == min(len(copies), module.SHOWN_COPIES)
        if group.crossing:
            assert len({split for split, _, _ in shown}) > 1
    grades = [(not group.crossing, not group.disputed) for group in found]
    assert grades == sorted(grades)


def test_of_too_many_records_a_part_is_compared_and_no_pair_is_torn(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_RECORDS", 20)
    monkeypatch.setattr(module, "SHOWN_GROUPS", 100)
    splits = {"train": [[(0, i) for i in range(40)]], "test": [[(0, i) for i in range(40)]]}
    found = find_duplicates(dataset(tmp_path, splits))
    digests = sorted(hashlib.sha256(str(i).encode()).hexdigest() for i in range(40))
    chosen = [d for d in digests if int(d[:16], 16) <= 2**64 / 4]
    assert sorted(group.copies[0].sha256 for group in found) == chosen
    assert all(group.records == 2 and group.crossing for group in found)


def test_without_repeats_nothing_is_read(tmp_path):
    made = dataset(tmp_path, {"train": [[(0, 1)]]})
    plain = made.manifest.model_copy(update={"content": DuplicateStats()})
    (tmp_path / made.manifest.splits["train"].shards[0].index_file).unlink()
    assert find_duplicates(Dataset(str(tmp_path), plain)) == ()
    leaky = DuplicateStats(leaks=(Leakage(splits=("a", "b"), images=1, records=2),))
    with pytest.raises(FileNotFoundError):
        find_duplicates(Dataset(str(tmp_path), made.manifest.model_copy(update={"content": leaky})))


@settings(max_examples=40)
@given(SPLITS, st.integers(1, 3))
def test_samples_are_the_first_of_each_class_and_split(tmp_path_factory, splits, each):
    made = dataset(tmp_path_factory.mktemp("x"), splits)
    wanted = {split: dict.fromkeys(CLASSES, each) for split in splits}
    found = sample(made, wanted)
    expected = defaultdict(list)
    for split, shards in splits.items():
        for i, records in enumerate(shards):
            for n, (label, _) in enumerate(records):
                if len(expected[split, CLASSES[label]]) < each:
                    expected[split, CLASSES[label]].append(f"{split}-{i}-{n}")
    assert {at: [p.key for p in places] for at, places in found.items()} == dict(expected)


def test_classes_are_ranked_and_those_missing_are_known(tmp_path):
    splits = {"test": [[(1, 0)]], "train": [[(1, 1), (0, 2)], [(1, 3)]]}
    (table,) = class_tables(dataset(tmp_path, splits).manifest)
    assert [(row.name, row.counts) for row in table.rows] == [
        ("dog", (1, 2)),
        ("cat", (0, 1)),
        ("cow", (0, 0)),
    ]
    assert (table.missing_in(0), table.missing_in(1)) == (("cat",), ())
    assert table.totals() == (1, 3)


@given(st.dictionaries(st.integers(-30, 120), st.integers(1, 99), min_size=1, max_size=40))
def test_bins_are_merged_without_losing_any(counts):
    drawn = of_bins(counts, 4, repr)
    assert drawn.total == sum(counts.values())
    assert len(drawn.bars) <= 24
    assert float(drawn.bars[0].low) <= edge_of(min(counts), 4) * (1 + 1e-9)
    assert float(drawn.bars[-1].high) >= edge_of(max(counts) + 1, 4) * (1 - 1e-9)
    assert [bar.high for bar in drawn.bars[:-1]] == [bar.low for bar in drawn.bars[1:]]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_every_value_is_in_a_bar(values):
    drawn = of_values(values, repr)
    assert drawn.total == len(values)
    assert (float(drawn.least), float(drawn.most)) == (min(values), max(values))


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (2**20 - 1, "1.00 MiB"),
        (10**13, "9.09 TiB"),
    ],
)
def test_sizes_are_written_in_the_unit_that_fits(count, text):
    assert size_text(count) == text


def rejects_in(folder: Path, *rejects: Reject, input_format: str = "auto"):
    """Returns what a report shows of some rejects."""
    (folder / "rejects").mkdir()
    lines = "".join(f"{reject.to_json()}\n" for reject in rejects)
    (folder / "rejects/rejects-00000-of-00001.jsonl").write_text(lines)
    made, number = dataset(folder, {}), len(rejects)
    counts = RowCounts.of(number, {}, number, Counter(reject.reason.value for reject in rejects))
    manifest = made.manifest.model_copy(update={"input": counts})
    groups = reject_groups(Dataset(str(folder), manifest), Budget(10**6), input_format=input_format)
    return [shown for group in groups for shown in group.shown]


def test_a_rejected_image_within_a_file_is_the_one_that_is_shown(tmp_path):
    images = [jpeg(40 + 8 * i, 30) for i in range(3)]
    (tmp_path / "a.tar").write_bytes(b"".join(images))
    start = len(images[0])
    ref = ImageRef(
        "k", str(tmp_path / "a.tar"), 2, str(tmp_path / "a.tar"), start, start + len(images[1]), ()
    )
    (shown,) = rejects_in(tmp_path, Reject.of(ref, Reason.CORRUPT, "damaged"))
    assert (shown.thumbnail.width, shown.thumbnail.height) == (48, 30)
    assert shown.row == ""


def test_no_bytes_of_a_source_that_is_not_text_are_shown_as_a_row(tmp_path):
    signatures = {
        "a.tar": b"x",
        "b.tfrecord": b"x",
        "c.arrow": b"ARROW1",
        "d.json": b"{",
        "e": b"x",
    }
    rejects = []
    for name, data in signatures.items():
        (tmp_path / name).write_bytes(data + b" first\nsecond\n")
        rejects.append(Reject("", "", f"{tmp_path / name}:1", Reason.MALFORMED_ROW, "damaged"))
    assert {shown.row for shown in rejects_in(tmp_path, *rejects, input_format="tar")} == {""}


@pytest.mark.parametrize(("name", "said"), [("a.csv", "auto"), ("a", "csv"), ("a.json", "jsonl")])
def test_a_line_of_a_text_table_is_shown_as_it_is(tmp_path, name, said):
    (tmp_path / name).write_text("first\nsecond\n")
    reject = Reject("", "", f"{tmp_path / name}:2", Reason.MALFORMED_ROW, "damaged")
    (shown,) = rejects_in(tmp_path, reject, input_format=said)
    assert shown.row == "second"


def test_no_masked_address_is_requested(tmp_path, monkeypatch):
    def requested(*_):
        raise AssertionError

    monkeypatch.setattr(rejects_module, "read_bytes", requested)
    monkeypatch.setattr(rejects_module, "_lines", requested)
    address = "https://host/a.jpg?id=7"
    reject = Reject("k", address, "https://host/t.csv?id=8:3", Reason.CORRUPT, "damaged")
    (shown,) = rejects_in(tmp_path, reject)
    assert (shown.row, shown.thumbnail.url) == ("", "")


class _Endless(io.RawIOBase):
    """A line without end, which counts what is asked of it."""

    most = 0

    def readable(self):
        return True

    def readinto(self, buffer):
        self.most = max(self.most, len(buffer))
        buffer[:] = b"x" * len(buffer)
        return len(buffer)


def test_of_an_endless_line_the_beginning_is_read(monkeypatch):
    monkeypatch.setattr(rejects_module, "MAX_TABLE_BYTES", 10**6)
    stream = io.BufferedReader(_Endless())
    tracemalloc.start()
    ((number, text),) = numbered_lines(stream, {1})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (number, text) == (1, "x" * 400 + "…")
    assert peak < 10**6


@given(st.lists(st.text("ab\n", max_size=5)), st.sets(st.integers(1, 9), min_size=1))
def test_lines_are_numbered_as_by_a_plain_reader(lines, wanted):
    data = "\n".join(lines).encode()
    expected = {n: t for n, t in enumerate(data.decode().split("\n"), 1) if n in wanted}
    found = dict(numbered_lines(io.BytesIO(data), wanted))
    assert found == {n: t for n, t in expected.items() if n in found}
    assert found.keys() >= {n for n, t in expected.items() if t}


def test_duplicates_are_found_in_more_than_255_splits(tmp_path):
    splits = {f"s{i:03d}": [[(0, 1)]] for i in range(300)}
    (group,) = find_duplicates(dataset(tmp_path, splits))
    assert (group.records, group.crossing) == (300, True)


def test_of_many_leaking_pairs_some_are_reported_and_the_others_counted():
    leak = Leakage(splits=("a", "b"), images=1, records=2)
    lines = content_notes(DuplicateStats(leaks=(leak,) * 44_850))
    assert len(lines) == 12
    assert lines[10] == "warning: 44,840 more pairs of splits share images"


HOSTILE_WORDS = ("a b", "it's \u202e\\x", "a\nb", "\x1b]0;t\x07", "é", "")


@pytest.mark.parametrize("word", HOSTILE_WORDS)
def test_a_word_of_a_command_means_the_same_when_it_is_pasted(word):
    command = ["bash", "-c", f"printf %s {quoted(word)}"]
    environment = {"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]}
    pasted = subprocess.run(command, capture_output=True, check=True, env=environment).stdout
    assert pasted.decode() == word
    assert visible(quoted(word)) == quoted(word)


def test_every_reason_has_a_meaning():
    assert set(MEANINGS) == set(Reason)


def test_secrets_stay_out_of_a_command():
    typed = ["convert", "--s3_secret_access_key", "hush", "--azure_connection_string=hush"]
    typed += ["--key_column", "id", "--token=hush", "--s3_access_key_id=hush"]
    assert "hush" not in " ".join(masked_command(typed))
    assert RunContext.begin("x", typed).command[4:6] == ("--key_column", "id")
    assert RunContext.begin("x").folder == ""


def test_a_command_can_be_pasted_into_a_shell():
    text = command_text(["recordmill", "convert", "--input", "a b/$x.csv", "--name=y"])
    assert text == "recordmill convert \\\n    --input 'a b/$x.csv' \\\n    --name=y"


def test_throughput_counts_from_the_runs_begin():
    made = throughput_of(Timeline(2, Timeline().counts.__class__({50: 3, 52: 4})), started=97.5)
    assert (made.begins, made.interval, made.records) == (2.5, 2, (3, 0, 4))


def test_what_is_not_given_to_a_page_is_an_error_and_no_gap():
    with pytest.raises(Exception, match="undefined"):
        render({})
