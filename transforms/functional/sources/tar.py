"""Tar files: the members with their place, from their headers alone.

Blocks of 512 bytes: a header, the data, and so on. Formats: ustar, GNU and PAX, as in
https://www.gnu.org/software/tar/manual/html_node/Standard.html and POSIX.1-2008 `pax`. Python's
tarfile reads single headers here; its own loop ends in silence at a header that is damaged.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

BLOCK_BYTES = 512
MAX_NOTE_BYTES = 2**20
"""Of what GNU and PAX write before a header that is too small for it: names, mostly."""


class TarError(Exception):
    """A tar file cannot be read on.

    Attributes:
        offset: the byte at which the damage begins.
    """

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"at byte {offset}: {what}")
        self.offset = offset


@dataclass(frozen=True)
class Member:
    """One member.

    Attributes:
        name: as written.
        kind: "file", "folder", or what else it is.
        start: the first byte of its data.
        size: bytes.
    """

    name: str
    kind: str
    start: int
    size: int


_KINDS = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.CONTTYPE: "file",
    tarfile.DIRTYPE: "folder",
    tarfile.LNKTYPE: "hard link",
    tarfile.SYMTYPE: "symbolic link",
    tarfile.GNUTYPE_SPARSE: "sparse file",
}
_WITH_DATA = ("file", "sparse file")
_NOTES = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_LONG = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


def members(stream: BinaryIO) -> Iterator[Member]:
    """Yields every member, in order; the caller may read its data from the stream meanwhile.

    A member whose data is cut short is yielded, too: the error comes after it.

    Raises:
        TarError: at the first header that is damaged, and where the file ends too early, which
            between two members only the missing zeros of its end show.
    """
    position, everywhere = 0, dict[str, str]()
    notes: dict[str, str] = {}
    closed = False
    while header := _header(stream, position):
        closed = isinstance(header, int)
        if isinstance(header, int):  # blocks of zeros: the end, or between two joined archives
            position = header
            continue
        size = _size(header, notes, position)
        start = position + BLOCK_BYTES
        position = start + -(-size // BLOCK_BYTES) * BLOCK_BYTES
        if header.type in (*_NOTES, *_LONG):
            found = _notes(stream, header, size, start)
            (everywhere if header.type == tarfile.XGLTYPE else notes).update(found)
            continue
        yield _member(header, {**everywhere, **notes}, start, size)
        notes = {}
        _check_end(stream, start + size, start)
    if not closed:
        raise TarError(position, "the file ends without the zeros that close a tar")


def _header(stream: BinaryIO, position: int) -> tarfile.TarInfo | int | None:
    """Returns the header there, the position after a block of zeros, or None at the end."""
    stream.seek(position)
    block = stream.read(BLOCK_BYTES)
    if not block:
        return None
    if not any(block):
        return position + len(block)
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError) as error:
        raise TarError(position, f"no member's header: {error}") from error


def _size(header: tarfile.TarInfo, notes: dict[str, str], position: int) -> int:
    """Returns how many bytes follow a header: none except for files and notes."""
    if header.type in (*_NOTES, *_LONG):
        if not 0 <= header.size <= MAX_NOTE_BYTES:
            raise TarError(position, f"a name or note of {header.size} bytes")
        return header.size
    if _KINDS.get(header.type, "file") not in _WITH_DATA:
        return 0
    size = header.size
    if "size" in notes:
        if not notes["size"].isascii() or not notes["size"].isdigit():
            raise TarError(position, f"a size that is no number: {notes['size']!r}")
        size = int(notes["size"][:20])
    if not 0 <= size < 2**63:
        raise TarError(position, f"a member of {size} bytes")
    return size


def _notes(stream: BinaryIO, header: tarfile.TarInfo, size: int, start: int) -> dict[str, str]:
    data = stream.read(size)
    if len(data) < size:
        raise TarError(start, "the file ends within a member's name or notes")
    if header.type == tarfile.GNUTYPE_LONGNAME:
        return {"path": data.partition(b"\0")[0].decode("utf-8", "surrogateescape")}
    return {} if header.type == tarfile.GNUTYPE_LONGLINK else _records(data, start)


def _records(data: bytes, start: int) -> dict[str, str]:
    """Returns the records of a PAX header: each is "LENGTH KEY=VALUE" and a line break."""
    found, at = {}, 0
    while at < len(data):
        digits, space, _ = data[at : at + 20].partition(b" ")
        length = int(digits) if space and digits.isdigit() else 0
        record = data[at : at + length]
        key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
        if not equals or len(record) < length or not record.endswith(b"\n"):
            raise TarError(start + at, "a PAX note that is damaged")
        name = key.decode("utf-8", "backslashreplace")
        found[name] = value.decode("utf-8", "surrogateescape")
        at += length
    return found


def _member(header: tarfile.TarInfo, notes: dict[str, str], start: int, size: int) -> Member:
    kind = _KINDS.get(header.type, "file")  # POSIX: unknown types are files
    sparse = any(name.startswith("GNU.sparse.") for name in notes)
    name = notes.get("GNU.sparse.name") or notes.get("path") or header.name
    if kind == "file" and header.name.endswith("/"):
        kind = "folder"  # as in archives older than folders' own type
    return Member(name.rstrip("/"), "sparse file" if sparse else kind, start, size)


def _check_end(stream: BinaryIO, stop: int, start: int) -> None:
    """Sees that a member's last byte is there, unless the caller has read that far."""
    if stream.tell() >= stop:
        return
    stream.seek(stop - 1)
    if not stream.read(1):
        raise TarError(start, "the file ends within this member's data")
