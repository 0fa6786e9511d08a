"""Members of tar files with their byte ranges, from the headers alone.

A tar file is a sequence of 512-byte blocks: a header, its data, and so on. Formats: ustar, GNU and
PAX, see https://www.gnu.org/software/tar/manual/html_node/Standard.html and POSIX.1-2008 `pax`.
Python's tarfile only parses single headers here: its own loop ends silently at a damaged header.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

BLOCK_BYTES = 512
MAX_NOTE_BYTES = 2**20
"""The largest GNU or PAX extended header; these mostly hold long names."""


class TarError(Exception):
    """Damage in a tar file that prevents reading further.

    Attributes:
        offset: the byte offset of the damage.
    """

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"at byte {offset}: {what}")
        self.offset = offset


@dataclass(frozen=True)
class Member:
    """A member of a tar file.

    Attributes:
        name: as written.
        kind: "file", "folder", "hard link", and so on.
        start: the byte offset of its data.
        size: the size of its data in bytes.
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
    """Yields every member in order; the caller may read its data from the stream meanwhile.

    A member with truncated data is yielded before the error.

    Raises:
        TarError: at a damaged header, or if the file is truncated. A file that is cut between two
            members lacks only the closing zero blocks.
    """
    position, everywhere = 0, dict[str, str]()
    notes: dict[str, str] = {}
    closed = False
    while header := _header(stream, position):
        closed = isinstance(header, int)
        if isinstance(header, int):  # zero blocks: the end, or between concatenated archives
            position = header
            continue
        size = _size(header, notes, position)
        start = position + BLOCK_BYTES
        # Data is padded to whole blocks.
        position = start + -(-size // BLOCK_BYTES) * BLOCK_BYTES
        # Extended headers apply to the next member, or, if global, to all that follow.
        if header.type in (*_NOTES, *_LONG):
            found = _notes(stream, header, size, start)
            (everywhere if header.type == tarfile.XGLTYPE else notes).update(found)
            continue
        yield _member(header, {**everywhere, **notes}, start, size)
        notes = {}
        _check_end(stream, start + size, start)
    if not closed:
        raise TarError(position, "the file ends without the closing zero blocks")


def _header(stream: BinaryIO, position: int) -> tarfile.TarInfo | int | None:
    """Returns the header at a position, the position after a block of zeros, or None at the end."""
    stream.seek(position)
    block = stream.read(BLOCK_BYTES)
    if not block:
        return None
    if not any(block):
        return position + len(block)
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError) as error:
        raise TarError(position, f"invalid member header: {error}") from error


def _size(header: tarfile.TarInfo, notes: dict[str, str], position: int) -> int:
    """Returns the size of the data after a header; only files and extended headers have some."""
    if header.type in (*_NOTES, *_LONG):
        if not 0 <= header.size <= MAX_NOTE_BYTES:
            raise TarError(position, f"a name or note of {header.size} bytes")
        return header.size
    if _KINDS.get(header.type, "file") not in _WITH_DATA:
        return 0
    size = header.size
    if "size" in notes:
        if not notes["size"].isascii() or not notes["size"].isdigit():
            raise TarError(position, f"invalid size: {notes['size']!r}")
        size = int(notes["size"][:20])
    if not 0 <= size < 2**63:
        raise TarError(position, f"a member of {size} bytes")
    return size


def _notes(stream: BinaryIO, header: tarfile.TarInfo, size: int, start: int) -> dict[str, str]:
    data = stream.read(size)
    if len(data) < size:
        raise TarError(start, "the file ends within an extended header")
    if header.type == tarfile.GNUTYPE_LONGNAME:
        return {"path": data.partition(b"\0")[0].decode("utf-8", "surrogateescape")}
    return {} if header.type == tarfile.GNUTYPE_LONGLINK else _records(data, start)


def _records(data: bytes, start: int) -> dict[str, str]:
    """Returns the records of a PAX header: each is "LENGTH KEY=VALUE" and a line break."""
    found, at = {}, 0
    while at < len(data):
        digits, space, _ = data[at : at + 20].partition(b" ")
        # The length counts itself, the space and the line break.
        length = int(digits) if space and digits.isdigit() else 0
        record = data[at : at + length]
        key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
        if not equals or len(record) < length or not record.endswith(b"\n"):
            raise TarError(start + at, "damaged PAX header")
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
