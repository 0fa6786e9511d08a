"""Compares the members of tar files with tarfile, and detects all damage."""

from __future__ import annotations

import contextlib
import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordmill.transforms.functional.sources.webdataset import (
    BLOCK_BYTES,
    Member,
    TarError,
    _members,
)

FORMATS = {"gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT, "ustar": tarfile.USTAR_FORMAT}


def written(files, format_=tarfile.PAX_FORMAT):
    """Returns a tar of (name, data)."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=format_) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def of_kind(kind, name="a.jpg"):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, "elsewhere"
        tar.addfile(info)
    return stream.getvalue()


def read(data):
    return list(_members(io.BytesIO(data)))


def content(data):
    """Returns (name, data) of each member, read by its byte range."""
    return [(m.name, data[m.start : m.start + m.size]) for m in read(data)]


LONG = "새 " * 60 + "/" + "x" * 120 + ".jpg"


@pytest.mark.parametrize("format_", ["gnu", "pax"])
def test_names_of_any_length_and_data_of_any_size(format_):
    files = [("a.jpg", b""), (LONG, b"1" * 512), ("b [1].jpg", b"2" * 513), (LONG + "2", b"3")]
    assert content(written(files, FORMATS[format_])) == files


def test_a_name_in_two_parts_as_ustar_writes_it():
    files = [("d" * 90 + "/" + "n" * 90 + ".jpg", b"x")]
    assert content(written(files, tarfile.USTAR_FORMAT)) == files


NAMES = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=150
).filter(lambda name: name not in (".", ".."))


@settings(max_examples=60)
@given(st.lists(st.tuples(NAMES, st.binary(max_size=1500)), max_size=6), st.sampled_from([1, 2]))
def test_every_member_is_where_tarfile_finds_it(files, format_):
    data = written(files, format_)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        expected = [Member(m.name, "file", m.offset_data, m.size) for m in tar]
    assert read(data) == expected
    assert content(data) == files


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (tarfile.DIRTYPE, "folder"),
        (tarfile.SYMTYPE, "symbolic link"),
        (tarfile.LNKTYPE, "hard link"),
        (tarfile.GNUTYPE_SPARSE, "sparse file"),
        (tarfile.CONTTYPE, "file"),
        (b"Z", "file"),
    ],
)
def test_the_kinds_of_members(kind, expected):
    assert [(m.name, m.kind) for m in read(of_kind(kind))] == [("a.jpg", expected)]


def test_a_file_whose_notes_say_that_it_is_sparse():
    info = tarfile.TarInfo("GNUSparseFile.0/a.jpg")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.name": "a.jpg"}
    data = info.tobuf(tarfile.PAX_FORMAT) + bytes(2 * BLOCK_BYTES)
    assert [(m.name, m.kind) for m in read(data)] == [("a.jpg", "sparse file")]


def test_joined_archives_are_read_to_their_end():
    one, two = written([("a.jpg", b"1")]), written([("b.jpg", b"2")])
    assert content(one + two) == [("a.jpg", b"1"), ("b.jpg", b"2")]


@pytest.mark.parametrize("zeros", [0, 1, BLOCK_BYTES])
def test_an_archive_without_its_closing_zeros_may_be_cut(zeros):
    data = written([("a.jpg", b"1" * 512)])[: 2 * BLOCK_BYTES + zeros]
    if zeros:
        assert content(data) == [("a.jpg", b"1" * 512)]
    else:
        assert until_damage(data) == [Member("a.jpg", "file", BLOCK_BYTES, 512)]
        with pytest.raises(
            TarError, match="at byte 1024: the file ends without the closing zero blocks"
        ):
            read(data)


def test_every_cut_is_an_error_or_between_two_members():
    files = [(LONG, b"1" * 700), ("b.jpg", b"2" * 100)]
    data = written(files)
    ends = [m.start + m.size for m in read(data)]
    for cut in range(ends[-1]):
        whole = sum(end <= cut for end in ends)
        try:
            found = content(data[:cut])
        except TarError:
            found = [(m.name, data[m.start : m.start + m.size]) for m in until_damage(data[:cut])]
        assert found[:whole] == files[:whole], cut
        assert len(found) <= whole + 1, cut


def until_damage(data):
    """Returns the members before damage; the last may be truncated."""
    found = []
    stream = _members(io.BytesIO(data))
    with contextlib.suppress(TarError):
        found.extend(iter(lambda: next(stream), None))
    return found


@pytest.mark.parametrize("at", [0, 100, 124, 148, 156])
def test_a_damaged_header_is_reported_with_its_byte(at):
    data = bytearray(written([("a.jpg", b"1"), ("b.jpg", b"2")]))
    data[2 * BLOCK_BYTES + at] ^= 1
    stream = _members(io.BytesIO(bytes(data)))
    assert next(stream).name == "a.jpg"
    with pytest.raises(TarError, match="at byte 1024: invalid member header"):
        next(stream)


def test_what_is_no_tar_is_reported():
    with pytest.raises(TarError, match="at byte 0"):
        read(b"image,label\n1.jpg,cat\n")


@pytest.mark.parametrize("note", [b"99 path=x\n", b"path=x\n", b"9 path x\n", b"6 path=x\n"])
def test_damaged_notes_are_reported(note):
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, len(note)
    data = info.tobuf() + note.ljust(BLOCK_BYTES, b"\0") + written([("a.jpg", b"")])
    with pytest.raises(TarError, match="damaged PAX header"):
        read(data)


def test_a_note_that_would_fill_the_memory_is_rejected():
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = tarfile.XHDTYPE, 2**33
    with pytest.raises(TarError, match="an extended header of 8589934592 bytes"):
        read(info.tobuf(tarfile.GNU_FORMAT))
