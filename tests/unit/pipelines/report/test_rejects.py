"""Images of rejected rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from recordmill.pipelines.report import samples
from recordmill.pipelines.report.samples import ThumbnailBudget, reject_groups
from recordmill.schemas.records import ImageRef
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.row_counts import RowCounts
from recordmill.transforms.storage.dataset import DatasetFolder
from recordmill.transforms.storage.local_files import ImageRootGuard
from tests.images import jpeg
from tests.unit.pipelines.report.index_only import dataset


def rejects_in(folder: Path, *rejects: Reject):
    """Returns the rejects as a report shows them."""
    (folder / "rejects").mkdir()
    lines = "".join(f"{reject.to_json()}\n" for reject in rejects)
    (folder / "rejects/rejects-00000-of-00001.jsonl").write_text(lines)
    made, number = dataset(folder, {}), len(rejects)
    counts = RowCounts.of(number, {}, number, Counter(reject.reason.value for reject in rejects))
    manifest = made.manifest.model_copy(update={"input": counts})
    groups = reject_groups(
        DatasetFolder(str(folder), manifest), ThumbnailBudget(10**6), ImageRootGuard()
    )
    return [thumbnail for group in groups for _, thumbnail in group.shown]


def test_the_thumbnail_is_that_of_the_rejected_image_within_a_file(tmp_path):
    images = [jpeg(40 + 8 * i, 30) for i in range(3)]
    (tmp_path / "a.tar").write_bytes(b"".join(images))
    start = len(images[0])
    ref = ImageRef(
        "k", str(tmp_path / "a.tar"), 2, str(tmp_path / "a.tar"), start, start + len(images[1]), ()
    )
    (shown,) = rejects_in(tmp_path, Reject.of(ref, Reason.CORRUPT, "damaged"))
    assert (shown.width, shown.height) == (48, 30)


def test_masked_urls_are_not_requested(tmp_path, monkeypatch):
    def requested(*_):
        raise AssertionError

    monkeypatch.setattr(samples, "read_bytes", requested)
    address = "https://host/a.jpg?id=7"
    reject = Reject("k", address, "https://host/t.csv?id=8:3", Reason.CORRUPT, "damaged")
    (shown,) = rejects_in(tmp_path, reject)
    assert shown.url == ""
