"""report.html is written after each run, deterministic, small, and consistent with the records."""

from __future__ import annotations

import base64
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recordmill.pipelines.report import statistics
from recordmill.pipelines.report.statistics import feature_statistics
from recordmill.schemas.shard_format import SHARD_FORMATS
from recordmill.transforms.storage.dataset import DatasetFolder
from tests.end_to_end import readers
from tests.end_to_end.command import convert, published, recordmill
from tests.end_to_end.photos import Photo
from tests.end_to_end.tables import write_table
from tests.faulty_dataset import BROKEN, draw
from tests.images import jpeg, png

SPLITS = ("--splits", "train=0.5,test=0.5")


class Page(HTMLParser):
    """A parsed page: its texts, and its images by alt text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.images: dict[str, Image.Image] = {}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        attributes = dict(attrs)
        if tag == "img":
            data = base64.b64decode(str(attributes["src"]).partition("base64,")[2])
            self.images[str(attributes["alt"])] = Image.open(io.BytesIO(data))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        """The whole text."""
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def table(folder: Path, images: list[Photo]) -> Path:
    rows = [{"image": image.path, "label": image.label} for image in images]
    return write_table(folder / "report.csv", rows)


@pytest.mark.parametrize("compression", SHARD_FORMATS)
def test_every_thumbnail_shows_the_image_of_its_record(
    compression: str, table: Path, images: list[Photo], tmp_path: Path
) -> None:
    dataset = published(table, tmp_path / "out", "--report", *SPLITS, "--compression", compression)
    page = Page(dataset / "report.html")
    split_of = {key: split for split, keys in readers.splits(dataset).items() for key in keys}
    samples = {f"{p.path}, {p.label}, {split_of[p.path]}": p for p in images}
    findings = {f"{p.path}, {split_of[p.path]}": p for p in images}  # such as a blurred image
    assert samples.keys() <= page.images.keys() <= samples.keys() | findings.keys()
    for alt, image in samples.items():
        true = Image.open(io.BytesIO(image.data)).convert("RGBA")
        on_white = Image.alpha_composite(Image.new("RGBA", true.size, "white"), true)
        assert page.images[alt].size == true.size
        difference = np.asarray(page.images[alt]).astype(int) - np.asarray(on_white)[..., :3]
        assert abs(difference).mean() < 12


def test_reports_of_two_runs_differ_only_in_the_contents_of_run_json(
    tmp_path: Path,
) -> None:
    flags = draw(tmp_path / "faults")
    pages = []
    for name in ("one", "two"):
        ended = recordmill("convert", *flags, "--output", tmp_path / name, "--name", "x")
        assert ended.code == 0, ended.err
        dataset = tmp_path / name / "x" / "1.0.0"
        run = json.loads((dataset / "run.json").read_bytes())
        assert [f["text"] for f in run["findings"] if f["kind"] == "report"] == []
        pages.append((dataset / "report.html").read_text(encoding="utf-8"))
    for volatile in (r'<section id="run".*?</section>', r'<code id="command">.*?</code>'):
        pages = [re.sub(volatile, "", page, flags=re.DOTALL) for page in pages]
    pages = [re.sub(r"<dt>duration</dt><dd>.*?</dd>", "", page) for page in pages]
    assert pages[0] == pages[1]


def test_a_run_with_too_many_rejects_has_a_report_and_no_commit_marker(tmp_path: Path) -> None:
    flags = draw(tmp_path / "faults")
    ended = recordmill("convert", *flags[:-1], "0", "--output", tmp_path / "out", "--name", "x")
    assert ended.code == 4
    assert "report.html beside it shows them" in ended.err
    dataset = tmp_path / "out" / "x" / "1.0.0"
    assert not (dataset / "_SUCCESS").exists()
    page = Page(dataset / "report.html")
    assert "Not published" in page.text
    for reason, count in BROKEN.items():
        assert f"{reason} {count}" in page.text
    damaged = [alt for alt in page.images if alt.startswith("Decoded part of cut")]
    assert len(damaged) == 6
    assert f"missing/{'x' * 50}" in page.text


def test_shares_of_images_are_those_of_all_images_with_linked_shards(tmp_path: Path) -> None:
    lines = ["image,label"]
    for number in range(12):
        suffix = "png" if number < 3 else "jpg"
        (tmp_path / f"{number}.{suffix}").write_bytes((png if number < 3 else jpeg)(seed=number))
        lines.append(f"{number}.{suffix},a")
    (tmp_path / "new.csv").write_text("\n".join([lines[0], *lines[10:]]) + "\n")
    (tmp_path / "old.csv").write_text("\n".join(lines[:10]) + "\n")
    base = published(tmp_path / "old.csv", tmp_path / "out", "--num_shards", "8")
    flags = ("--num_shards", "8", "--base", base, "--append", "--report", "--version", "1.1.0")
    assert convert(tmp_path / "new.csv", tmp_path / "out", *flags).code == 0
    page = Page(base.with_name("1.1.0") / "report.html")
    assert "without those of the base version" in page.text
    assert "Conversion Images Share Share of all images jpeg kept 9 75.0 % png kept 3 25.0 %" in (
        page.text
    )


def test_a_table_of_numbers_has_their_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": f"r{i}", "x": i / 4 - 9, "name": "<i>&" if i % 2 else ""} for i in range(100)]
    table = write_table(tmp_path / "table.csv", rows)
    dataset = published(
        table, tmp_path / "out", "--report", "--schema", "tabular", "--key_column", "id"
    )
    raw = (dataset / "report.html").read_text(encoding="utf-8")
    page = Page(dataset / "report.html")
    assert 'aria-label="x: from -9 to 15.75; peak' in raw
    assert "2 distinct, 0–4 bytes" in page.text
    assert "<i>&" in page.text
    assert "img" not in page.tags
    assert "i" not in page.tags
    assert feature_statistics(DatasetFolder.open(dataset)).records == 100
    monkeypatch.setattr(statistics, "_SAMPLE_FEATURES", 30)  # wide tables have fewer samples
    assert feature_statistics(DatasetFolder.open(dataset)).records == 10


def test_the_command_is_shown_without_secrets_and_the_report_does_not_change_the_dataset(
    table: Path, tmp_path: Path
) -> None:
    flags = ("--s3_secret_access_key=hush", "--s3_access_key_id", "hush", "--seed", "5")
    dataset = published(table, tmp_path / "with", "--report", *flags)
    run, page = (dataset / "run.json").read_text(), (dataset / "report.html").read_text()
    assert "hush" not in run + page
    command = json.loads(run)["command"]
    assert command[:4] == ["recordmill", "convert", "--input", str(table)]
    assert command[-2:] == ["--seed", "5"]
    without = published(table, tmp_path / "without", "--seed", "5")
    assert not (without / "report.html").exists()
    readers.assert_the_same(dataset, without)
    assert recordmill("verify", dataset).code == 0


def test_the_page_stays_small_with_many_rows_classes_and_shards(tmp_path: Path) -> None:
    rows = [{"id": f"r{i}", "label": f"class {i % 3000}", "x": i} for i in range(3_500)]
    table = write_table(tmp_path / "table.csv", rows)
    schema = tmp_path / "schema.yaml"
    schema.write_text(
        "name: many\nfeatures:\n"
        "  label: {kind: int64, from: 'column:label', classes: true}\n"
        "  x: {kind: int64, from: 'column:x'}\n"
    )
    flags = ("--schema", schema, "--key_column", "id", "--num_shards", "9", *SPLITS)
    dataset = published(table, tmp_path / "out", "--report", *flags)
    assert (dataset / "report.html").stat().st_size < 200_000
    text = Page(dataset / "report.html").text
    assert "The 100 most frequent and the 100 least frequent of 3,000 classes" in text
    assert "18 shards" in text


def test_a_report_that_cannot_be_rendered_is_a_warning(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recordmill.pipelines.report.write_report._render", lambda content: 1 // 0)
    ended = convert(table, tmp_path / "out", "--report")
    dataset = tmp_path / "out" / "birds" / "1.0.0"
    assert ended.code == 0
    assert "warning: report.html: the page could not be rendered: ZeroDivisionError" in ended.out
    assert (dataset / "_SUCCESS").exists()
    assert not (dataset / "report.html").exists()
