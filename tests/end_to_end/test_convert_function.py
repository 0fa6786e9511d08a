"""`convert()` and `dry_run()` do what the command does, without side effects."""

from __future__ import annotations

import gc
import hashlib
import inspect
import json
import logging
import signal
import sys
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow_datasets as tfds

from recordmill.pipelines import convert as conversion
from recordmill.pipelines.api import convert, dry_run
from recordmill.pipelines.dataset.dataset import open_dataset
from recordmill.schemas.config import ConvertConfig, SchemaOverrides
from recordmill.schemas.dataset_info import ShardVerification
from recordmill.schemas.errors import (
    DatasetExists,
    RejectBudgetExceeded,
    UsageError,
    VerificationFailed,
)
from recordmill.schemas.findings import lines
from recordmill.schemas.option import options_of
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.storage.shard_files import ShardFiles
from recordmill.transforms.verification import verifier_process
from tests.end_to_end.command import recordmill
from tests.images import jpeg


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for number in range(6):
        (tmp_path / f"{number}.jpg").write_bytes(jpeg(seed=number))
    rows = "".join(f"{number}.jpg,{'cat' if number % 2 else 'dog'}\n" for number in range(6))
    (tmp_path / "labels.csv").write_text(f"file,class_name\n{rows}")
    return tmp_path / "labels.csv"


def manifest(folder: Path) -> str:
    return hashlib.sha256((folder / "birds/1.0.0/manifest.json").read_bytes()).hexdigest()


def test_convert_writes_the_same_dataset_as_the_command(
    table: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flags = (
        "--columns image=file,label=class_name --splits train=0.5,test=0.5 --num_shards train=2 "
        "--shard_size 1MiB --max_rejects 1 --image max_side=32,format=jpeg --label_offset 1 "
        "--image_timeout 9 --no_report --index --seed 3"
    )
    command = recordmill(
        *(
            "convert",
            "--input",
            table,
            "--output",
            tmp_path / "a",
            "--name",
            "birds",
            *flags.split(),
        )
    )
    assert command.code == 0, command.err
    capfd.readouterr()
    before = (signal.getsignal(signal.SIGINT), gc.isenabled(), sys.stdout, sys.excepthook)
    logs = (logging.getLogger().level, list(logging.getLogger().handlers))
    dataset = convert(
        table,
        output=tmp_path / "b",
        name="birds",
        columns={"image": "file", "label": "class_name"},
        splits={"train": 0.5, "test": Decimal("0.5")},
        num_shards={"train": 2},
        shard_size=2**20,
        max_rejects=1,
        image={"max_side": 32, "format": "jpeg"},
        label_offset=1,
        image_timeout=9,
        schema=preset("image_classification"),
        report=False,
        index=True,
        seed=3,
    )
    assert manifest(tmp_path / "a") == manifest(tmp_path / "b")
    assert dataset.directory == str(tmp_path / "b/birds/1.0.0")
    assert capfd.readouterr() == ("", "")
    assert before == (signal.getsignal(signal.SIGINT), gc.isenabled(), sys.stdout, sys.excepthook)
    assert logs == (logging.getLogger().level, list(logging.getLogger().handlers))


NAMED = {"columns": {"image": "file", "label": "class_name"}, "report": False}


def test_convert_can_be_called_repeatedly_and_from_threads(table: Path, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two", "three")]
    records = []

    def make(folder: Path) -> None:
        records.append(
            convert([table], output=folder, name="birds", **NAMED).manifest.input.records
        )

    threads = [threading.Thread(target=make, args=(folder,)) for folder in folders[:2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    make(folders[2])
    assert records == [6, 6, 6]
    assert len({manifest(folder) for folder in folders}) == 1


def test_an_existing_dataset_is_an_error_or_is_returned(table: Path, tmp_path: Path) -> None:
    made = convert(table, output=tmp_path / "out", name="birds", **NAMED)
    with pytest.raises(DatasetExists, match=r"birds/1\.0\.0: is already published"):
        convert(table, output=tmp_path / "out", name="birds", **NAMED)
    again = convert(table, output=tmp_path / "out", name="birds", if_exists="skip", **NAMED)
    assert again.manifest_sha256 == made.manifest_sha256


def test_rejects_and_findings_are_logged_and_stay_with_the_dataset(
    table: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "1.jpg").write_bytes((tmp_path / "0.jpg").read_bytes())
    (tmp_path / "2.jpg").unlink()
    made = convert(table, output=tmp_path / "out", name="birds", max_rejects=1, **NAMED)
    run = json.loads((tmp_path / "out/birds/1.0.0/run.json").read_bytes())
    conflict = "1 image has more than one label (0.jpg = 1.jpg). Check which label is right."
    assert run["warnings"] == [conflict]
    rejects = (
        f"rejected: 1 missing_file\n  {table}:4: missing_file: {tmp_path}/2.jpg: No such file or "
        "directory. Check the path and --image_root."
    )
    logged = [r.getMessage() for r in caplog.records if r.name == "recordmill"]
    assert logged == [conflict, rejects]
    assert repr(made).splitlines() == [
        f"Dataset({made.directory!r}): train 5 records",
        "rejected: 1 missing_file",
        *lines(made.findings),
    ]
    (found,) = (finding for finding in made.findings if finding.severity == "warning")
    assert found.examples == (("0.jpg", "1.jpg"),)
    assert found.figures == {"images": 1, "records": 2}
    texts = [finding.text for finding in made.findings]
    assert [finding["text"] for finding in run["findings"]] == texts
    (tmp_path / "out/birds/1.0.0/run.json").unlink()
    again = open_dataset(tmp_path / "out/birds/1.0.0").findings
    assert [finding.text for finding in again] == texts


def test_a_table_whose_first_images_are_all_rejected_stops_with_its_rejects(
    table: Path, tmp_path: Path
) -> None:
    for number in range(6):
        (tmp_path / f"{number}.jpg").write_bytes(b"")
    with pytest.raises(RejectBudgetExceeded, match="stopped before the conversion") as caught:
        convert(table, output=tmp_path / "out", name="birds", fail_fast=3, **NAMED)
    assert caught.value.reject_reasons == {"empty_file": 3}
    assert [r["key"] for r in caught.value.first_rejects] == ["0.jpg"]
    assert Path(caught.value.directory, "rejects").is_dir()


def test_rejects_above_the_budget(table: Path, tmp_path: Path) -> None:
    (tmp_path / "3.jpg").write_bytes(b"")
    with pytest.raises(
        RejectBudgetExceeded, match=r"1 of 6 rows was rejected \(1 empty_file\)"
    ) as caught:
        convert(table, output=tmp_path / "out", name="birds", **NAMED)
    error = caught.value
    assert error.reject_reasons == {"empty_file": 1}
    assert [(r["key"], r["source"]) for r in error.first_rejects] == [("3.jpg", f"{table}:5")]
    assert json.loads(Path(error.directory, "run.json").read_bytes())["rejected"] == 1
    made = convert(table, output=tmp_path / "out", name="birds", max_rejects="20%", **NAMED)
    assert made.manifest.input.records == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"splits": {"a/b": 1}}, "--splits a/b=1: 'a/b' cannot name a split"),
        ({"schema": "tf_slimm"}, r"tf_slimm: no such preset .* \(did you mean 'tf_slim'\?\)"),
        ({"columns": {"image": "fil"}}, "no columns 'fil', 'label'; it has: file, class_name"),
        ({"beam_options": ["--runer=X"]}, r"unknown flag --runer \(did you mean '--runner'\?\)"),
        ({"beam_options": {"runner": "X"}}, "--runner=X: unknown runner"),
        ({"split": {"train": 1}}, r"unknown option 'split' \(did you mean 'splits'\?\)"),
        ({"max_rejects": 0.5}, "--max_rejects 0.5: expected a number of rows or a percentage"),
        ({"num_shards": 0}, "--num_shards 0: expected auto, a number from 1 to 99,999, or"),
        ({"classes": ["a", "a"]}, "--classes: 'a' occurs twice"),
        ({"label_offset": 2}, "--label_offset 2: expected 0 or 1"),
        (
            {"beam_options": ["--runner=DataflowRunner", "--no_wait_until_finish"]},
            "--no_wait_until_finish: convert",
        ),
    ],
)
def test_invalid_usage(
    options: dict[str, object], message: str, table: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        convert(table, output=tmp_path / "out", name="birds", **{**NAMED, **options})
    assert not (tmp_path / "out").exists()


def test_a_dataset_that_differs_from_what_was_written(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify = verifier_process.verify

    def damaged(files: ShardFiles, *rest: Any) -> ShardVerification:
        shard = Path(files.directory, files.file)
        shard.write_bytes(shard.read_bytes()[:-1])
        return verify(files, *rest)

    monkeypatch.setattr(verifier_process, "verify", damaged)
    with pytest.raises(VerificationFailed, match="verification failed"):
        convert(table, output=tmp_path / "out", name="birds", **NAMED)


def test_ctrl_c_of_the_host_ends_the_run_and_reaches_the_host(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(conversion, "build", interrupted)
    with pytest.raises(KeyboardInterrupt):
        convert(table, output=tmp_path / "out", name="birds", **NAMED)
    record = json.loads((tmp_path / "out/birds/1.0.0/run.json").read_bytes())
    assert (record["state"], record["message"]) == ("failed", "interrupted")
    monkeypatch.undo()
    assert convert(table, output=tmp_path / "out", name="birds", **NAMED).manifest.input.rows == 6


def test_help_and_notebooks_show_every_keyword() -> None:
    shown = inspect.signature(convert).parameters
    options = {o.name: o for o in options_of(ConvertConfig, SchemaOverrides)}
    assert [*shown] == ["input", "beam_options", "progress", *(n for n in options if n != "input")]
    assert {name for name, p in shown.items() if p.default is p.empty} == {
        "input",
        "output",
        "name",
    }
    assert shown["schema"].default == "image_classification"
    assert (shown["seed"].default, shown["report"].default, shown["columns"].default) == (
        0,
        True,
        {},
    )


def test_a_dry_run_writes_nothing(table: Path, tmp_path: Path) -> None:
    forecast = dry_run(table, output=tmp_path / "out", name="birds", **NAMED)
    assert (forecast.rows, forecast.records("train"), forecast.rejected) == (6, 6, 0)
    assert not (tmp_path / "out").exists()


def test_tfds_reads_the_metadata_and_the_number_of_integer_classes(
    table: Path, tmp_path: Path
) -> None:
    rows = "".join(f"{number}.jpg,{number}\n" for number in range(6))
    (tmp_path / "ids.csv").write_text(f"image,label\n{rows}")
    metadata = {
        "description": "Six\nbirds.",
        "citation": "@misc{birds}",
        "license": "CC0-1.0",
        "homepage": "https://example.com",
        "creator": "Ada",
    }
    options = {"output": tmp_path, "name": "birds", "num_classes": 5, "max_rejects": 1}
    dataset = convert(tmp_path / "ids.csv", **options, **metadata, report=False)
    (reject,) = dataset.rejects()
    detail = "column 'label': '5' is not one of the 5 classes"
    assert (reject["reason"], reject["detail"]) == ("unknown_label", detail)
    assert metadata.items() <= dataset.manifest.config.items()
    builder = tfds.builder_from_directory(dataset.directory)
    assert (builder.info.citation, builder.info.homepage) == ("@misc{birds}", "https://example.com")
    assert builder.info.features["label"].num_classes == 5
    data = builder.as_dataset(split="train", as_supervised=True)
    assert sorted(int(label) for _, label in data) == [0, 1, 2, 3, 4]


def test_rows_in_memory_give_the_dataset_of_the_equal_parquet_file(tmp_path: Path) -> None:
    rows = [
        {"image": jpeg(seed=number), "label": "cat" if number % 2 else "dog"} for number in range(6)
    ]
    rows[3]["image"] = b"no image"
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    options: dict[str, Any] = {"name": "birds", "max_rejects": 1, "report": False}
    file = convert(tmp_path / "rows.parquet", output=tmp_path / "a", **options)
    memory = convert(rows, output=tmp_path / "b", **options)
    assert [shard.sha256 for shard in file.shards().values()] == [
        shard.sha256 for shard in memory.shards().values()
    ]
    assert [reject["source"] for reject in memory.rejects()] == ["row 4"]
    assert [path.name for path in (tmp_path / "b/birds").iterdir()] == ["1.0.0"]


def test_nan_and_infinity_are_stored_alike_by_all_sources_and_are_a_finding(tmp_path: Path) -> None:
    values = [float("nan"), float("inf"), float("-inf"), 1.5]
    table, parquet = tmp_path / "t.csv", tmp_path / "t.parquet"
    table.write_text("id,t\na,NaN\nb,inf\nc,-Infinity\nd,1.5\n")
    columns = {"id": [*"abcd"], "t": values, "list": [[value] for value in values]}
    pq.write_table(pa.table(columns), parquet)
    schema = tmp_path / "s.yaml"
    schema.write_text('name: s\nfeatures: {t: {kind: float, from: "column:t"}}\n')
    nested = tmp_path / "l.yaml"
    nested.write_text('name: l\nfeatures: {list: {kind: float, from: "column:list", shape: []}}\n')
    inputs = {
        "csv": (table, schema),
        "parquet": (parquet, schema),
        "arrow": (pa.table(columns), schema),
        "list": (parquet, nested),
        "dicts": (pa.table(columns).to_pylist(), nested),
        "pandas": (pa.table(columns).to_pandas(), nested),
    }
    for name, (rows, features) in inputs.items():
        target = {"output": tmp_path / "out", "name": name, "report": False}
        dataset = convert(rows, **target, schema=features, key_column="id")
        (feature,) = dataset.load("train").element_spec
        assert [one.text for one in dataset.findings if one.severity == "warning"] == [
            f"3 values of {feature!r} are not finite (NaN or infinite)"
        ], name
        assert dataset.manifest.not_finite == {feature: 3}, name
        assert not dataset.verify()
        found = [record[feature] for record in dataset.load("train").as_numpy_iterator()]
        assert sorted(str(one.item()) for one in found) == ["-inf", "1.5", "inf", "nan"], name
