"""Usage errors with their complete messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.command import recordmill
from tests.images import jpeg

CONVERT = "convert --input good.csv --output out --name birds"
PRESETS = (
    "captioning, image_classification, image_sequence, instance_segmentation, keypoints, landmark, "
    "multi_label, object_detection, oriented_boxes, panoptic, segmentation, tabular, tf_slim, "
    "tf_tutorial"
)
USAGE_ERRORS = {
    "covert --input good.csv": "argument COMMAND: invalid choice: 'covert' (choose from 'convert', "
    "'verify', 'inspect', 'schema', 'diff', 'versions', 'forget', 'gc', 'completion') "
    "(did you mean 'convert'?); "
    "see recordmill --help",
    f"{CONVERT} --split train=1": "unknown flag --split (did you mean '--splits'?); "
    "see recordmill convert --help",
    f"{CONVERT} --num-shards 3": "unknown flag --num-shards (did you mean '--num_shards'?); "
    "see recordmill convert --help",
    "verify out --decod": "unknown flag --decod (did you mean '--decode'?); "
    "see recordmill verify --help",
    f"{CONVERT} other.csv": "other.csv: is not the value of a flag, as in --input FILE. Quote "
    "values that contain blanks or patterns, and repeat --input for each; "
    "see recordmill convert --help",
    "convert good.csv --output out": "good.csv: is not the value of a flag, as in --input FILE. "
    "Quote values that contain blanks or patterns, and repeat --input for each; "
    "see recordmill convert --help",
    f"{CONVERT} --columns label=class": "feature 'label': good.csv has no column 'class'; it has: "
    "image, label. Name it with --columns label=COLUMN.",
    "convert --input onehot.csv --output out --name birds": "onehot.csv has no columns 'image', "
    "'label'; it has: file, cat, dog. Name them with --columns image=COLUMN,label=COLUMN. For rows "
    "without images, set --schema tabular. If it has a column per class, use pandas: table = "
    "pandas.read_csv('onehot.csv', skipinitialspace=True); names = [*table.columns.drop('file')]; "
    "table['labels'] = table[names].apply(lambda row: [n for n in names if row[n]], axis=1); "
    "recordmill.convert(table, columns={'image': 'file'}, image_root=FOLDER, "
    "schema='multi_label', classes=names, …)",
    f"{CONVERT} --key_column imag": "--key_column imag: good.csv has no column 'imag' "
    "(did you mean 'image'?); it has: image, label",
    "convert --input goood.csv --output out --name birds": "--input goood.csv: no such file "
    "(did you mean 'good.csv'?). Check the path and its permissions.",
    "convert --input s3:/b/t.csv --output out --name birds": "--input s3:/b/t.csv: no such file "
    "(did you mean s3://b/t.csv?). Check the path and its permissions.",
    "convert --input good.csv --output good.csv --name birds": "--output: good.csv/birds/1.0.0 "
    "cannot be created: Not a directory, good.csv is a file. Choose a writable folder.",
    "convert --input empty.csv --output out --name birds": "--input empty.csv: the file is empty; "
    "expected a table",
    "convert --input header.csv --output out --name birds": "--input header.csv: has no rows. "
    "Add some.",
    "convert --input folder --output out --name birds": "--input folder: the folder contains "
    "no image; expected a table, or images in folders named after their classes",
    "convert --input flat --output out --name birds": "feature 'label': flat has no column "
    "'label'; it has: image, id (only images in folders have the class of their folder; for labels "
    "in a table, use --input TABLE --image_root FOLDER; write that table first if they are in file "
    "names). Name it with --columns label=COLUMN.",
    f"{CONVERT} --schema tf_slimm": "--schema tf_slimm: no such preset or file "
    f"(did you mean 'tf_slim'?); expected a YAML file or one of: {PRESETS}",
    f"{CONVERT} --schema typo.yaml": "typo.yaml:3:10: at features > image > from: unknown key "
    "'fron' (did you mean 'from'?)",
    f"{CONVERT} --splits train=0.8,test=-0.2": "--splits train=0.8,test=-0.2: split weights must "
    "not be negative, and one must be above 0",
    f"{CONVERT} --splits train=80%,test=20%": "--splits train=80%,test=20%: expected numbers, as "
    "in train=0.9,validation=0.1",
    f"{CONVERT} --max_rejects 0.5": "--max_rejects 0.5: expected a number of rows or a percentage "
    "like 0.5%, got '0.5'",
    f"{CONVERT} --shard_size big": "--shard_size big: expected a size above 0, as in 128MiB",
    "convert --input good.csv --output out --name my-birds": "--name my-birds: expected letters, "
    "digits and _, beginning with a letter",
    f"{CONVERT} --version 1.1": (
        "--version 1.1: expected three numbers without leading zeros, as in 1.0.0"
    ),
    f"{CONVERT} --homepage example.com": (
        "--homepage example.com: expected a web address, as in https://example.com/birds"
    ),
    f"{CONVERT} --labels good.csv": "--labels and --join_on: each requires the other. Set both.",
    f"{CONVERT} --image max_size=512": "--image max_size: unknown setting (did you mean "
    "'max_side'?); available: column, orientation, color, alpha, bit_depth, "
    "window, rescale, format, quality, max_side, resize, animated, max_pixels, min_side, "
    "strip_metadata, unsupported, timeout",
    f"{CONVERT} --image resize=224": "--image resize=224: expected WIDTHxHEIGHT "
    "[fit|pad|crop|exact] [filter], as in 224x224",
    f"{CONVERT} --image format=jpg": "--image format=jpg: expected 'keep', 'jpeg', 'png' or 'raw', "
    "got 'jpg' (did you mean 'jpeg'?)",
    f"{CONVERT} --boxes order=xywh": "--boxes: schema 'image_classification' has no boxes. "
    "Remove the option, or set another schema.",
    f"{CONVERT} --masks bit_depth=16": "--masks: schema 'image_classification' has no masks. "
    "Remove the option, or set another schema.",
    f"{CONVERT} --boxes order=xyhw": "--boxes order=xyhw: expected 'xyxy', 'xywh', 'yxyx' or "
    "'cxcywh', got 'xyhw' (did you mean 'xywh'?)",
    f"{CONVERT} --image quality=high": "--image quality=high: expected an integer, got 'high'",
    f"{CONVERT} --image max_side=0": "--image max_side=0: expected at least 1, got 0",
    "convert --inptu good.csv --output out --name birds": "unknown flag --inptu (did you mean "
    "'--input'?); see recordmill convert --help",
    f"{CONVERT} --runner FlinkRuner": "--runner=FlinkRuner: unknown runner (did you mean "
    "'FlinkRunner'?); available: DirectRunner, PrismRunner, FlinkRunner, SparkRunner, "
    "DataflowRunner",
    f"{CONVERT} --base folder": "--base folder: not a published dataset: it has no _SUCCESS; "
    "expected a folder DIR/NAME/VERSION that recordmill convert has published",
    "convert --input good.csv --output mine --name birds": "mine/birds/1.0.0: contains "
    "'thesis.txt', which is not part of a dataset. Choose another --output, --name or --version, "
    "or move it elsewhere.",
    "inspect nowhere": "nowhere: no such file or folder; expected TFRecord files or a dataset",
}
"""The command line, and the message. In tests/crash: a full disk, a folder that may not be written
to, and Ctrl-C; below: rejects, and a dataset that is there."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a valid table and some files that are not tables."""
    monkeypatch.chdir(tmp_path)
    Path("onehot.csv").write_text("file,cat,dog\n1.jpg,1.0,0\n")
    for number in (1, 2):
        Path(f"{number}.jpg").write_bytes(jpeg(seed=number))
    Path("good.csv").write_text("image,label\n1.jpg,cat\n2.jpg,dog\n")
    Path("gone.csv").write_text("image,label\n1.jpg,cat\nnowhere.jpg,dog\n")
    Path("empty.csv").touch()
    Path("header.csv").write_text("image,label\n")
    Path("typo.yaml").write_text("name: x\nfeatures:\n  image: {kind: bytes, fron: image:bytes}\n")
    Path("folder").mkdir()
    Path("flat").mkdir()
    Path("flat/cat.1.jpg").write_bytes(b"\xff\xd8\xff")
    Path("mine/birds/1.0.0").mkdir(parents=True)
    Path("mine/birds/1.0.0/thesis.txt").touch()
    return tmp_path


@pytest.mark.parametrize("typed", USAGE_ERRORS)
def test_a_usage_error_names_its_remedy(typed: str, here: Path) -> None:
    ended = recordmill(*typed.split())
    assert ended.err == f"recordmill: {USAGE_ERRORS[typed]}\n"
    assert (ended.code, ended.out) == (2, "")
    assert not Path("out").exists()


def test_an_empty_argument_in_place_of_a_flag() -> None:
    missing = "the following arguments are required: --input, --output, --name"
    ended = recordmill("convert", "")
    assert (ended.code, ended.err) == (2, f"recordmill: {missing}; see recordmill convert --help\n")


def test_messages_for_rejected_rows_and_an_existing_dataset(here: Path) -> None:
    flags = ("--output", "out", "--name", "birds")
    ended = recordmill("convert", "--input", "gone.csv", *flags)
    assert ended.code == 4
    assert ended.err.splitlines()[-3:] == [
        "recordmill: not published: 1 of 2 rows was rejected (1 missing_file), --max_rejects "
        "allows 0:",
        "  gone.csv:3: missing_file: nowhere.jpg: No such file or directory. Check the path and "
        "--image_root.",
        "Each is in out/birds/1.0.0/rejects with its reason, report.html beside it shows them. "
        "Fix them, or raise --max_rejects.",
    ]
    assert {path.name for path in Path("out/birds/1.0.0").iterdir()} == {
        *("run.json", "report.html", "rejects")
    }
    assert recordmill("convert", "--input", "good.csv", *flags).code == 0
    ended = recordmill("convert", "--input", "good.csv", *flags)
    assert (ended.code, ended.err) == (
        5,
        "recordmill: out/birds/1.0.0: is already published. Raise --version, or choose "
        "--if_exists skip to keep it or --if_exists replace to write it again.\n",
    )
