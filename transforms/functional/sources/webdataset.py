"""Reads WebDataset tar files: members with the same name up to its first dot form a sample.

The adjacent members `a/001.jpg`, `a/001.cls` and `a/001.json` form the sample `a/001`. The image is
not copied, but referenced by its byte range. Format:
https://github.com/webdataset/webdataset#the-webdataset-format.
"""

from __future__ import annotations

import posixpath
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, BinaryIO

from recordmill.schemas.errors import UsageError
from recordmill.schemas.records import OTHER_LABELS, Items, Location, Row, SkippedInput
from recordmill.schemas.rejects import Reason, Reject
from recordmill.schemas.shard_format import DAMAGED_STREAM
from recordmill.schemas.tables import Part, Probe, Projection, TableFile
from recordmill.transforms.functional.images.sniffing import IMAGE_SUFFIXES
from recordmill.transforms.functional.sources.json_lines import parse_object
from recordmill.transforms.functional.sources.tree import is_hidden
from recordmill.transforms.functional.values.typed import has_surrogates, short_repr

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


def _members(stream: BinaryIO) -> Iterator[Member]:
    """Yields each member in order; the caller may read from the stream between two members.

    Raises TarError at a damaged header, or after a member with truncated data. A file truncated
    between two members is detected by its missing zero blocks.
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
    """Returns the size of the data after a header; only files and extended headers have data."""
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
    kind = _KINDS.get(header.type, "file")  # POSIX: read unknown types as regular files
    sparse = any(name.startswith("GNU.sparse.") for name in fields)
    name = fields.get("GNU.sparse.name") or fields.get("path") or header.name
    if kind == "file" and header.name.endswith("/"):
        kind = "folder"  # before ustar, folders had no type of their own
    return Member(name.rstrip("/"), "sparse file" if sparse else kind, start, size)


def _check_end(stream: BinaryIO, start: int, size: int) -> None:
    """Raises TarError if the file ends within the data of a member."""
    # The caller may have read the data already.
    if stream.tell() >= start + size:
        return
    stream.seek(start + size - 1)
    if not stream.read(1):
        raise TarError(start, "the file ends within this member's data")


_UNSORTED = "duplicate sample name; expected adjacent members. Create the tar with --sort=name"
OTHER = "members of tar files that are neither images nor labels"
HIDDEN = "hidden members of tar files, and those of systems and tools"

MAX_TEXT_BYTES = 16 * 2**20

_HEAD_SAMPLES = 50
_NAME = re.compile(r"((?:.*/)?[^./]+)\.([^/]*)", re.DOTALL)
_LABEL, _TEXT, _JSON = ("cls", "class"), ("txt", "text", "caption"), ("json", "jsn")
_DAMAGE = (TarError, OSError, *DAMAGED_STREAM)


@dataclass
class _Sample:
    """The members whose names are equal up to the first dot."""

    key: str
    image: Member | None = None
    data: bytes = b""  # the bytes of the image, if the tar file is compressed
    values: dict[str, Any] = field(default_factory=dict)
    fault: str = ""
    truncated: bool = False  # whether the tar file is damaged within this sample
    others: list[str] = field(default_factory=list)
    label: Any = None  # that of the JSON member, if it differs from that of the .cls


def probe(stream: BinaryIO, file: TableFile) -> Probe:
    """Returns the columns of the first samples; UsageError if none has an image."""
    rows = read(stream, Part(file), Projection())
    first = list(islice((row for row in rows if not isinstance(row, SkippedInput)), _HEAD_SAMPLES))
    found = [row for row in first if isinstance(row, Row)]
    columns = dict.fromkeys(column for row in found for column in row.values)
    faults = [row.detail for row in first if isinstance(row, Reject)]
    is_unsorted = any(_UNSORTED in fault for fault in faults)
    if not found or (is_unsorted and columns.keys() == {"image", "id", "__key__"}):
        faults += ["a name has one dot, before its suffix"]
        expected = f"expected samples with an image{' and its label' * is_unsorted}, got none"
        raise UsageError(f"{file.path}: {expected}: {faults[0]}")
    return Probe(tuple(columns), has_rows=True)


def read(
    stream: BinaryIO, part: Part, projection: Projection
) -> Iterator[Row | Reject | SkippedInput]:
    """Yields the row of each sample or its reject, and the number of skipped members."""
    # Rows are numbered by their sample, from 1.
    path, number, seen = part.file.path, 0, set[str]()
    # A compressed tar file has no byte ranges to reference: images up to the limit are read now,
    # and larger ones are rejected later.
    is_read = part.file.gzipped and projection.pixels
    limit = projection.max_image_bytes if is_read else -1
    for sample in _samples(stream, limit):
        if isinstance(sample, SkippedInput):
            yield sample
            continue
        if sample.image is None and not sample.values and not sample.fault:
            yield SkippedInput.named(OTHER, sample.others)  # for example a README
            continue
        number += 1
        if sample.key in seen:
            sample.fault = sample.fault or _UNSORTED
        seen.add(sample.key)
        yield _row(sample, path, number, projection, limit)
        if sample.others:
            yield SkippedInput.named(OTHER, sample.others)
        if sample.label is not None and projection.has("label"):
            shown = f"{_escaped(sample.key)}: {short_repr(sample.label)}"
            yield SkippedInput.named(OTHER_LABELS, [shown])


def _samples(stream: BinaryIO, limit: int) -> Iterator[_Sample | SkippedInput]:
    """Yields the samples in order; damage of the tar file is a fault of the last sample."""
    sample: _Sample | None = None
    try:
        for member in _members(stream):
            if member.kind == "folder":
                continue
            key, suffix = _key_and_suffix(member.name)
            if not key:
                kind = HIDDEN if _in_hidden(member.name) else OTHER
                yield SkippedInput.named(kind, [_escaped(member.name)])
                continue
            # The members of a sample are adjacent, so a new key begins the next sample.
            if sample is None or key != sample.key:
                if sample is not None:
                    yield sample
                sample = _Sample(key)
            _add(sample, member, suffix.lower(), stream, limit)
    except _DAMAGE as error:
        sample = sample or _Sample("")
        sample.fault = f"the rest of the tar file cannot be read: {error}"
        sample.truncated = True
    if sample is not None:
        yield sample


def _key_and_suffix(name: str) -> tuple[str, str]:
    """Splits the path of a member at the first dot of its file name; ("", "") if it has none.

    >>> _key_and_suffix("v1.0/a.seg.png"), _key_and_suffix("README"), _key_and_suffix("a/.b.jpg")
    (('v1.0/a', 'seg.png'), ('', ''), ('', ''))
    """
    match = None if _in_hidden(name) else _NAME.fullmatch(name.removeprefix("./"))
    return (match[1], match[2]) if match else ("", "")


def _in_hidden(name: str) -> bool:
    return any(is_hidden(part) for part in name.removeprefix("./").split("/"))


def _add(sample: _Sample, member: Member, suffix: str, stream: BinaryIO, limit: int) -> None:
    """Adds a member to its sample, with its data if that is text, or an image up to the limit."""
    if f".{suffix}" not in IMAGE_SUFFIXES and suffix not in (*_LABEL, *_TEXT, *_JSON):
        sample.others.append(_escaped(member.name))
    elif member.kind != "file":
        sample.fault = f"{_shown(member.name)} is a {member.kind}; expected a file"
    elif f".{suffix}" in IMAGE_SUFFIXES:
        if sample.image is not None:
            first = _shown(sample.image.name)
            sample.fault = f"has two images, {first} and {_shown(member.name)}"
        sample.image = member
        if member.size <= limit:
            stream.seek(member.start)
            sample.data = stream.read(member.size)
    elif member.size > MAX_TEXT_BYTES:
        got = f"got {member.size:,} bytes"
        sample.fault = f"{_shown(member.name)}: expected at most {MAX_TEXT_BYTES:,} bytes, {got}"
    else:
        stream.seek(member.start)
        _add_text(sample, member.name, suffix, stream.read(member.size))


def _add_text(sample: _Sample, name: str, suffix: str, data: bytes) -> None:
    try:
        if suffix in _JSON:
            found = parse_object(data)
        elif suffix in _LABEL:
            found = {"label": data.decode("utf-8").strip()}
        else:
            found = dict.fromkeys(("caption", "text"), Items([data.decode("utf-8").strip()]))
    except ValueError as error:
        what = "a JSON object" if suffix in _JSON else "valid UTF-8"
        sample.fault = f"{_shown(name)} is not {what}: {error}"
        return
    labels = [values.get("label") for values in (sample.values, found)]
    if None not in labels and str(labels[0]) != str(labels[1]):
        sample.label = labels[suffix in _JSON]
    if suffix in _JSON:  # members of their own have precedence over fields of the JSON member
        sample.values = {**found, **sample.values}
    else:
        sample.values.update(found)


def _row(
    sample: _Sample, path: str, number: int, projection: Projection, limit: int
) -> Row | Reject:
    """Returns the row of a sample, or its reject; `number` is that of the sample, from 1."""
    member = sample.image
    if member is None and not sample.fault:
        sample.fault = "has labels but no image"
    if has_surrogates(sample.key) or (member and has_surrogates(member.name)):
        sample.fault = "the name is not valid UTF-8"
    if sample.fault or member is None:
        detail = f"sample {_shown(sample.key)}: {sample.fault}"
        reason = Reason.LOST_ROWS if sample.truncated else Reason.MALFORMED_ROW
        return Reject("", path, f"{path}:{number}", reason, detail)
    name = member.name.removeprefix("./")
    # The JSON member may override the id and the key, but not the image.
    own = {"id": posixpath.basename(sample.key), "__key__": sample.key}
    values = projection.apply({"image": name, **own, **sample.values} | {"image": name})
    untyped = frozenset({"label"} if isinstance(values.get("label"), str) else ())
    location = Location(path, member.start, member.start + member.size)
    return Row(values, path, number, untyped, sample.data if member.size <= limit else location)


def _shown(name: str) -> str:
    return repr(_escaped(name))


def _escaped(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
