"""Lists the members of tar files and their byte ranges, reading only the headers.

A tar file is a sequence of 512-byte blocks: a header, the data of the member, and so on. Formats:
ustar, GNU and PAX, see https://www.gnu.org/software/tar/manual/html_node/Standard.html and `pax` in
POSIX.1-2008. Python's tarfile parses each header; its own iteration ends silently at a damaged one.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

BLOCK_BYTES = 512

# Size limit of a GNU or PAX extended header, which mostly contains a long name.
MAX_EXTENDED_HEADER_BYTES = 2**20


class TarError(Exception):
    """Damage in a tar file that prevents reading the rest."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(f"at byte {offset}: {what}")
        self.offset = offset


@dataclass(frozen=True)
class Member:
    """A member of a tar file."""

    name: str  # the name as written, with invalid UTF-8 as surrogate escapes
    kind: str  # "file", "folder", "hard link", and so on
    start: int  # the byte offset of its data in the tar file
    size: int  # the size of its data in bytes


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
_PAX = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_EXTENDED = (*_PAX, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


def members(stream: BinaryIO) -> Iterator[Member]:
    """Yields each member in order; the caller may read from the stream between two members.

    A member with truncated data is yielded before the error is raised. Raises TarError: at a
    damaged header, or if the file is truncated. A file truncated between two members is detected by
    its missing zero blocks.
    """
    offset, global_fields = 0, dict[str, str]()
    fields: dict[str, str] = {}
    closed = False
    while header := _header(stream, offset):
        closed = isinstance(header, int)
        # A block of zeros: the end of the archive, or padding before a concatenated archive.
        if isinstance(header, int):
            offset = header
            continue
        size = _size(header, fields, offset)
        start = offset + BLOCK_BYTES
        # Data is padded to whole blocks: round the size up.
        offset = start + -(-size // BLOCK_BYTES) * BLOCK_BYTES
        # POSIX pax: an extended header ("x") applies to the next member, a global one ("g") to all
        # that follow. GNU tar writes long names as members of their own ("L", "K").
        if header.type in _EXTENDED:
            found = _extended_header(stream, header, size, start)
            (global_fields if header.type == tarfile.XGLTYPE else fields).update(found)
            continue
        yield _member(header, {**global_fields, **fields}, start, size)
        fields = {}
        _check_end(stream, start, size)
    if not closed:
        raise TarError(offset, "the file ends without the closing zero blocks")


def _header(stream: BinaryIO, offset: int) -> tarfile.TarInfo | int | None:
    """Returns the header at an offset, the offset after a block of zeros, or None at the end."""
    stream.seek(offset)
    block = stream.read(BLOCK_BYTES)
    if not block:
        return None
    if not any(block):
        return offset + len(block)
    try:
        return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError) as error:
        raise TarError(offset, f"invalid member header: {error}") from error


def _size(header: tarfile.TarInfo, fields: dict[str, str], offset: int) -> int:
    """Returns the size of the data after a header; only files and extended headers have data.

    Raises TarError if the size is invalid or over the limit.
    """
    if header.type in _EXTENDED:
        if not 0 <= header.size <= MAX_EXTENDED_HEADER_BYTES:
            raise TarError(offset, f"an extended header of {header.size} bytes")
        return header.size
    if _KINDS.get(header.type, "file") not in _WITH_DATA:
        return 0
    size = header.size
    # The header states up to 8 GiB in octal digits; PAX states larger sizes as a decimal number.
    if "size" in fields:
        if not fields["size"].isascii() or not fields["size"].isdigit():
            raise TarError(offset, f"invalid size: {fields['size']!r}")
        # 20 digits are more than 2**63: enough to detect an invalid size without parsing it all.
        size = int(fields["size"][:20])
    if not 0 <= size < 2**63:
        raise TarError(offset, f"a member of {size} bytes")
    return size


def _extended_header(
    stream: BinaryIO, header: tarfile.TarInfo, size: int, start: int
) -> dict[str, str]:
    """Returns the fields of a PAX header, or a GNU long name as the field `path`."""
    data = stream.read(size)
    if len(data) < size:
        raise TarError(start, "the file ends within an extended header")
    if header.type == tarfile.GNUTYPE_LONGNAME:
        return {"path": data.partition(b"\0")[0].decode("utf-8", "surrogateescape")}
    return {} if header.type == tarfile.GNUTYPE_LONGLINK else _pax_fields(data, start)


def _pax_fields(data: bytes, start: int) -> dict[str, str]:
    """Parses a PAX header: records "LENGTH KEY=VALUE", each with a line break."""
    fields, offset = {}, 0
    while offset < len(data):
        digits, space, _ = data[offset : offset + 20].partition(b" ")
        # The length includes its own digits, the space and the line break.
        length = int(digits) if space and digits.isdigit() else 0
        record = data[offset : offset + length]
        key, equals, value = record[len(digits) + 1 : -1].partition(b"=")
        if not equals or len(record) < length or not record.endswith(b"\n"):
            raise TarError(start + offset, "damaged PAX header")
        name = key.decode("utf-8", "backslashreplace")
        fields[name] = value.decode("utf-8", "surrogateescape")
        offset += length
    return fields


def _member(header: tarfile.TarInfo, fields: dict[str, str], start: int, size: int) -> Member:
    """Returns the member of a header and its extended fields.

    `size` is the size of the data in bytes.
    """
    kind = _KINDS.get(header.type, "file")  # POSIX: read unknown types as regular files
    sparse = any(name.startswith("GNU.sparse.") for name in fields)
    name = fields.get("GNU.sparse.name") or fields.get("path") or header.name
    if kind == "file" and header.name.endswith("/"):
        kind = "folder"  # before ustar, folders had no type of their own
    return Member(name.rstrip("/"), "sparse file" if sparse else kind, start, size)


def _check_end(stream: BinaryIO, start: int, size: int) -> None:
    """Checks that the file contains all data of a member.

    `size` is the size of the data in bytes. Raises TarError if the file ends within the data.
    """
    # The caller may have read the data already.
    if stream.tell() >= start + size:
        return
    stream.seek(start + size - 1)
    if not stream.read(1):
        raise TarError(start, "the file ends within this member's data")
