"""Images and lines of rejected rows."""

from __future__ import annotations

import io
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.pipelines.report import rejects
from recordmill.pipelines.report.rejects import _numbered_lines, reject_groups
from recordmill.pipelines.report.samples import ThumbnailBudget
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.row_counts import RowCounts
from recordmill.transforms.storage.dataset import Dataset
from tests.images import jpeg
from tests.unit.pipelines.report.index_only import dataset


def rejects_in(folder: Path, *rejects: Reject, input_format: str = "auto"):
    """Returns the rejects as a report shows them."""
    (folder / "rejects").mkdir()
    lines = "".join(f"{reject.to_json()}\n" for reject in rejects)
    (folder / "rejects/rejects-00000-of-00001.jsonl").write_text(lines)
    made, number = dataset(folder, {}), len(rejects)
    counts = RowCounts.of(number, {}, number, Counter(reject.reason.value for reject in rejects))
    manifest = made.manifest.model_copy(update={"input": counts})
    groups = reject_groups(
        Dataset(str(folder), manifest), ThumbnailBudget(10**6), input_format=input_format
    )
    return [shown for group in groups for shown in group.shown]


def test_the_thumbnail_is_that_of_the_rejected_image_within_a_file(tmp_path):
    images = [jpeg(40 + 8 * i, 30) for i in range(3)]
    (tmp_path / "a.tar").write_bytes(b"".join(images))
    start = len(images[0])
    ref = ImageRef(
        "k", str(tmp_path / "a.tar"), 2, str(tmp_path / "a.tar"), start, start + len(images[1]), ()
    )
    (shown,) = rejects_in(tmp_path, Reject.of(ref, Reason.CORRUPT, "damaged"))
    assert (shown.thumbnail.width, shown.thumbnail.height) == (48, 30)
    assert shown.row == ""


def test_bytes_of_binary_sources_are_not_shown(tmp_path):
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


@pytest.mark.parametrize(
    ("name", "input_format"), [("a.csv", "auto"), ("a", "csv"), ("a.json", "jsonl")]
)
def test_the_line_of_a_text_table_is_shown(tmp_path, name, input_format):
    (tmp_path / name).write_text("first\nsecond\n")
    reject = Reject("", "", f"{tmp_path / name}:2", Reason.MALFORMED_ROW, "damaged")
    (shown,) = rejects_in(tmp_path, reject, input_format=input_format)
    assert shown.row == "second"


def test_masked_urls_are_not_requested(tmp_path, monkeypatch):
    def requested(*_):
        raise AssertionError

    monkeypatch.setattr(rejects, "read_bytes", requested)
    monkeypatch.setattr(rejects, "_lines", requested)
    address = "https://host/a.jpg?id=7"
    reject = Reject("k", address, "https://host/t.csv?id=8:3", Reason.CORRUPT, "damaged")
    (shown,) = rejects_in(tmp_path, reject)
    assert (shown.row, shown.thumbnail.url) == ("", "")


class _Endless(io.RawIOBase):
    """An endless line, which records the largest read."""

    most = 0

    def readable(self):
        return True

    def readinto(self, buffer):
        self.most = max(self.most, len(buffer))
        buffer[:] = b"x" * len(buffer)
        return len(buffer)


def test_only_the_beginning_of_an_endless_line_is_read(monkeypatch):
    monkeypatch.setattr(rejects, "MAX_TABLE_BYTES", 10**6)
    stream = io.BufferedReader(_Endless())
    tracemalloc.start()
    ((number, text),) = _numbered_lines(stream, {1})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (number, text) == (1, "x" * 400 + "…")
    assert peak < 10**6


@given(st.lists(st.text("ab\n", max_size=5)), st.sets(st.integers(1, 9), min_size=1))
def test_lines_are_numbered_as_by_a_plain_reader(lines, numbers):
    data = "\n".join(lines).encode()
    expected = {n: t for n, t in enumerate(data.decode().split("\n"), 1) if n in numbers}
    found = dict(_numbered_lines(io.BytesIO(data), numbers))
    assert found == {n: t for n, t in expected.items() if n in found}
    assert found.keys() >= {n for n, t in expected.items() if t}
