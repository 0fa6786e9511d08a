"""Tests of WebDataset: samples become rows with the byte range of their image."""

from __future__ import annotations

import gzip
import io
import tarfile
from dataclasses import replace

import pytest

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import OTHER_LABELS, Items, Location, Row, SkippedInput
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.tables import Part, Probe, Projection, TableFile
from recordmill.transforms.functional.sources import webdataset
from recordmill.transforms.functional.sources.webdataset import HIDDEN, OTHER
from tests.unit.transforms.functional.sources.test_webdataset_tar import of_kind, written

ANALYZE, WHOLE = Projection(image="image"), Projection(image="image", pixels=True)


def stream_of(data, gzipped=False):
    raw = io.BytesIO(gzip.compress(data) if gzipped else data)
    return io.BufferedReader(gzip.GzipFile(fileobj=raw) if gzipped else raw)


def read(data, projection=WHOLE, gzipped=False):
    part = Part(TableFile("d/x.tar", "tar", gzipped))
    return list(webdataset.read(stream_of(data, gzipped), part, projection))


def rejects_of(data):
    """Returns the values of rows, the number and message of rejects, and skipped inputs."""
    return [plain(found) for found in read(data)]


def plain(found):
    if isinstance(found, Row):
        return dict(found.values)
    if isinstance(found, Reject):
        assert (found.key, found.uri, found.reason) == ("", "d/x.tar", Reason.MALFORMED_ROW)
        return int(found.source.removeprefix("d/x.tar:")), found.detail
    return found


SAMPLE = [
    ("a/새 1.jpg", b"\xff\xd8 first"),
    ("a/새 1.cls", b" cat \n"),
    ("a/새 1.json", b'{"score": 1.5, "tags": ["x", "y"], "label": "cat"}'),
    ("a/새 1.txt", "Ein Kätzchen | schläft\n".encode()),
]


def test_a_sample_is_a_row_with_the_byte_range_of_its_image():
    data = written([*SAMPLE, ("b.PNG", b"\x89PNG second")])
    first, second = read(data)
    assert first == Row(
        values={
            "image": "a/새 1.jpg",
            "id": "새 1",
            "__key__": "a/새 1",
            "label": "cat",
            "score": 1.5,
            "tags": ["x", "y"],
            "caption": Items(["Ein Kätzchen | schläft"]),
            "text": Items(["Ein Kätzchen | schläft"]),
        },
        file="d/x.tar",
        line=1,
        is_text=frozenset({"label"}),
        image=first.image,
    )
    assert data[first.image.start : first.image.stop] == b"\xff\xd8 first"
    assert (second.line, second.values["image"]) == (2, "b.PNG")
    assert data[second.image.start : second.image.stop] == b"\x89PNG second"


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("label", "shown"),
    [('"cat"', "'cat'"), ("[7]", "[7]"), ("7", ""), ('"7"', ""), ("null", "")],
)
def test_a_label_in_json_that_is_not_read_is_counted(label, shown, order):
    texts = [("a.cls", b"7"), ("a.json", f'{{"label": {label}}}'.encode())][::order]
    row, *skipped = read(written([("a.jpg", b"1"), *texts]))
    assert row.values["label"] == "7"
    assert skipped == [SkippedInput(OTHER_LABELS, 1, (f"a: {shown}",))] * bool(shown)
    (row,) = read(written([("a.jpg", b"1"), *texts]), Projection(("image",), "image"))
    assert row.values == {"image": "a.jpg"}


def test_columns_outside_the_projection_are_omitted():
    (row,) = read(written(SAMPLE), Projection(("label", "image"), "image"))
    assert row.values == {"label": "cat", "image": "a/새 1.jpg"}


def test_a_compressed_tar_gives_sizes_first_and_bytes_later():
    data = written([*SAMPLE, ("b.jpg", b"second"), ("b.cls", b"7")])
    (plain_rows, whole, analysis) = (
        read(data),
        read(data, WHOLE, gzipped=True),
        read(data, ANALYZE, gzipped=True),
    )
    assert [found.image for found in whole] == [b"\xff\xd8 first", b"second"]
    assert [found.values for found in whole] == [row.values for row in plain_rows]
    assert [row.image.stop - row.image.start for row in analysis] == [8, 6]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param(
            [("a.jpg", b"1"), ("a.jpeg", b"2")],
            [(1, "sample 'a': has two images, 'a.jpg' and 'a.jpeg'")],
            id="two images",
        ),
        pytest.param(
            [("a.cls", b"1")], [(1, "sample 'a': has labels but no image")], id="no image"
        ),
        pytest.param(
            [("a.jpg", b"1"), ("a.cls", b"\xff")],
            [(1, "sample 'a': 'a.cls' is not valid UTF-8: 'utf-8' codec can't decode byte 0xff "
              "in position 0: invalid start byte")],
            id="no UTF-8",
        ),
        pytest.param(
            [("a.jpg", b"1"), ("a.json", b"[1]")],
            [(1, "sample 'a': 'a.json' is not a JSON object: expected an object {…}, got list")],
            id="no object",
        ),
        pytest.param(
            [("README", b"1"), (".hidden.jpg", b"2"), ("x.npy", b"3"), ("__MACOSX/a.jpg", b"4")],
            [
                SkippedInput(OTHER, 1, ("README",)),
                SkippedInput(HIDDEN, 1, (".hidden.jpg",)),
                SkippedInput(OTHER, 1, ("x.npy",)),
                SkippedInput(HIDDEN, 1, ("__MACOSX/a.jpg",)),
            ],
            id="members that make no row",
        ),
    ],
)  # fmt: skip
def test_invalid_samples_are_rejected(files, expected):
    found = rejects_of(written(files))
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_members_out_of_order_are_reported_with_the_remedy():
    files = [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"3"), ("c.jpg", b"4")]
    found = rejects_of(written(files))
    assert [f["image"] for f in found if isinstance(f, dict)] == ["a.jpg", "b.jpg", "c.jpg"]
    ((number, detail),) = [f for f in found if isinstance(f, tuple)]
    assert number == 3
    assert "sample 'a': duplicate sample name" in detail
    assert "--sort=name" in detail


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["0.jpg", "1.jpg", "0.cls", "1.cls"], "with an image and its label, got none: sample '0'"),
        (["a/1.v2.jpg", "a/1.v2.cls"], "with an image, got none: a name has one dot"),
    ],
)
def test_archives_without_a_whole_sample_are_an_error(names, why):
    with pytest.raises(UsageError, match=f"expected samples {why}"):
        webdataset.probe(
            io.BytesIO(written([(name, b"1") for name in names])), TableFile("x.tar", "tar")
        )


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.GNUTYPE_SPARSE])
def test_images_that_are_links_or_sparse_files_are_rejected(kind):
    ((number, detail),) = rejects_of(of_kind(kind))
    assert number == 1
    assert "expected a file" in detail


def test_names_that_are_not_utf8_are_reported_readably():
    data = written([("a?.jpg", b"1")], tarfile.USTAR_FORMAT)
    info = tarfile.TarInfo.frombuf(data[:512], "ascii", "strict")
    info.name = "a\udcff.jpg"
    header = info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "surrogateescape")
    assert rejects_of(header + data[512:]) == [(1, r"sample 'a\\xff': the name is not valid UTF-8")]


@pytest.mark.parametrize("gzipped", [False, True])
def test_a_truncated_tar_gives_the_samples_before_and_one_reject(gzipped):
    data = written([("a.jpg", b"1" * 600), ("a.cls", b"3"), ("b.jpg", b"2" * 3000)])
    for projection in (WHOLE, ANALYZE):
        first, second = read(data[: 512 * 7], projection, gzipped)
        assert first.values["image"] == "a.jpg"
        assert (second.source, second.reason) == ("d/x.tar:2", Reason.LOST_ROWS)
        assert (
            "the rest of the tar file cannot be read: at byte 3072: the file ends" in second.detail
        )


def test_no_image_of_a_compressed_tar_is_read_that_is_above_the_limit():
    data = written([("a.jpg", b"1" * 600), ("b.jpg", b"2" * 601)])
    found = read(data, replace(WHOLE, max_image_bytes=600), gzipped=True)
    assert [type(row.image) for row in found] == [bytes, Location]
    assert found[1].image.stop - found[1].image.start == 601  # reading it is what rejects it


def test_a_member_that_claims_more_than_there_can_be_takes_no_memory():
    data = bytearray(written([("a.jpg", b"1"), ("b.jpg", b"2")]))
    info = tarfile.TarInfo("a.jpg")
    info.size = 64 * 2**30
    data[:512] = info.tobuf(tarfile.GNU_FORMAT)
    (reject,) = read(bytes(data), WHOLE, gzipped=True)
    assert reject.reason is Reason.LOST_ROWS


def test_a_cut_gzip_stream_is_reported():
    data = gzip.compress(written([("a.jpg", bytes(range(256)) * 40)]))
    part = Part(TableFile("d/x.tar", "tar", True))
    raw = io.BufferedReader(gzip.GzipFile(fileobj=io.BytesIO(data[:200])))
    (reject,) = webdataset.read(raw, part, WHOLE)
    assert "cannot be read" in reject.detail
    assert reject.reason is Reason.LOST_ROWS


def test_the_probe_returns_the_columns_of_the_first_samples():
    data = written([*SAMPLE, ("b.jpg", b"2"), ("b.json", b'{"more": 1}')])
    found = webdataset.probe(stream_of(data), TableFile("x.tar", "tar"))
    expected = ("image", "id", "__key__", "score", "tags", "label", "caption", "text", "more")
    assert (set(found.columns), found.has_rows) == (set(expected), True)
    assert found == Probe(found.columns, True)


def test_a_tar_without_an_image_is_rejected():
    with pytest.raises(
        UsageError, match=r"x\.tar: expected samples with an image, got none: sample 'a'"
    ):
        webdataset.probe(stream_of(written([("a.cls", b"1")])), TableFile("x.tar", "tar"))


def test_the_place_is_within_this_tar():
    data = written(SAMPLE)
    (row,) = read(data)
    assert row.image == Location("d/x.tar", data.index(b"\xff\xd8"), data.index(b"\xff\xd8") + 8)
