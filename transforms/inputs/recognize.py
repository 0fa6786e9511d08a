"""Recognizes what a file or folder contains: its format, and the sources in it.

Only names and the first bytes of files are read; the columns of a source are probed by its format.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from recordmill.schemas.errors import UsageError
from recordmill.schemas.input_formats import INPUT_FORMATS
from recordmill.schemas.layout import is_web
from recordmill.schemas.tables import NO_EXCLUSION, Exclusion, Sources, TableFile
from recordmill.transforms.functional.images.sniffing import sniff, tool_of
from recordmill.transforms.functional.records.compression import HEAD_BYTES, unpacker_of
from recordmill.transforms.functional.sources import class_folder
from recordmill.transforms.functional.sources.text_ranges import TEXT_FORMATS
from recordmill.transforms.functional.sources.tree import Tree
from recordmill.transforms.inputs.beside_images import sources_beside
from recordmill.transforms.inputs.file_tree import FileTree
from recordmill.transforms.inputs.formats import FORMATS, format_of
from recordmill.transforms.inputs.paths import is_folder
from recordmill.transforms.storage.files import open_binary, ranged_size
from recordmill.transforms.storage.lakehouse import DELTA, TableAddress, open_delta, open_iceberg

_GZIP = b"\x1f\x8b"

# The formats in which an empty file is a table without rows.
_WITHOUT_HEADER = ("jsonl", "tfrecord")

# Files that are not tables, and what to do with them.
_EXCEL = "an Excel workbook. Save the sheet as CSV (UTF-8)."
_ARCHIVE = "an archive. Unpack it, and set --input to the table or the folder in it."
_ZIP_SUFFIXES = {
    **dict.fromkeys((".xlsx", ".xlsm"), _EXCEL),
    ".ods": "an OpenDocument spreadsheet. Save the sheet as CSV (UTF-8).",
    ".npz": "a NumPy archive. Write its arrays as Parquet.",
    ".docx": "a Word document. Save its table as CSV (UTF-8).",
}
_SIGNATURES = {
    b"\xd0\xcf\x11\xe0": _EXCEL,
    b"SQLite format 3": "an SQLite database. Export the table as CSV or Parquet.",
    b"\x89HDF": "an HDF5 file. Write its tables as Parquet.",
    b"\x93NUMPY": "a NumPy array. Write it as Parquet.",
    b"Obj\x01": "an Avro file. Write it as Parquet.",
    b"ORC": "an ORC file. Write it as Parquet.",
    b"%PDF": "a PDF document. Save its table as CSV (UTF-8).",
    **dict.fromkeys((b"7z\xbc\xaf", b"Rar!"), _ARCHIVE),
    b"BZh": "compressed with bzip2. Decompress it, or use gzip.",
    b"\xfd7zXZ": "compressed with xz. Decompress it, or use gzip.",
    b"\x28\xb5\x2f\xfd": "compressed with zstd. Decompress it, or use gzip.",
    **{b"\x80" + bytes([n]): "a Python pickle. Write its table as Parquet." for n in range(2, 6)},
}
_TEXT_SUFFIXES = (".txt", ".text", ".dat", ".data", ".lst", ".list")


def sources_of(
    path: str,
    input_format: str,
    has_images: bool,
    has_labels: bool = False,
    since: Mapping[str, int] = MappingProxyType({}),
    exclude: tuple[str, ...] = (),
    class_level: int | None = None,
) -> Sources:
    """Returns the sources of a path, and what it was recognized as.

    `has_images`: whether the images of a COCO file are needed, as those of labels are not.
    `has_labels`: whether the rows are joined to a table of labels. Raises UsageError if the format
    is not known, or does not match the path.
    """
    if address := TableAddress.parse(path):
        return _lakehouse_table(address, input_format, since)
    if is_folder(path):
        return _folder(path, input_format, has_labels, exclude, class_level)
    suffix = path.lower().rpartition(".")[2]
    for name, known in INPUT_FORMATS.items():
        if input_format in ("auto", name) and suffix in known.described_by:
            return _described(path, name)
    return _file(path, input_format, has_images)


def _described(path: str, name: str) -> Sources:
    folder, file = posixpath.split(path)
    return FORMATS[name].sources_of_file(FileTree(folder or "."), file)


def _lakehouse_table(address: TableAddress, input_format: str, since: Mapping[str, int]) -> Sources:
    if input_format not in ("auto", "parquet"):
        raise address.error("a table has no other format. Remove --input_format.")
    return (open_delta if address.kind == DELTA else open_iceberg)(address, since)


def _folder(
    path: str, input_format: str, has_labels: bool, exclude: tuple[str, ...], level: int | None
) -> Sources:
    root = path.rstrip("/") or "/"
    exclusion = Exclusion(root, exclude) if exclude else NO_EXCLUSION
    tree = FileTree(root, exclusion)
    if input_format == "auto":
        found: Sources | None = _recognized(tree, has_labels, level)
    elif input_format == "folder":
        found = class_folder.sources_in(tree, level)
    else:
        found = FORMATS[input_format].sources_in(tree)
    if not found:
        raise UsageError(
            f"{path}: is a folder; expected a file of format {input_format}, or a pattern of them"
        )
    if level and found.files[0].format != "folder":
        what = found.text or found.files[0].format
        raise UsageError(f"{path}: has no class folders, but {what}. Remove --class_level.")
    files = (replace(_with_size(file), exclusion=exclusion) for file in found.files)
    return found._replace(files=tuple(files))


def _recognized(tree: Tree, has_labels: bool, level: int | None) -> Sources:
    """Returns the sources in a folder: by the first format that recognizes it, or class folders.

    `has_labels`: whether its rows are joined to a table, so that others in it do not matter.
    """
    for known in FORMATS.values():
        if found := known.recognize_folder(tree):
            return found
    if has_labels:
        return class_folder.sources_in(tree, level)._replace(findings=())
    return sources_beside(tree, level)


def _with_size(file: TableFile) -> TableFile:
    """Returns a text table with its size, so that byte ranges of it can be read."""
    return replace(file, size=ranged_size(file.path)) if file.format in TEXT_FORMATS else file


def _file(path: str, input_format: str, has_images: bool) -> Sources:
    with open_binary(path) as stream:
        head = stream.read(HEAD_BYTES)
    found = format_of(path, head) if input_format == "auto" else input_format
    if found is None:
        what = _describe(path, head)
        why = f"is {what}" if what else "unknown format. Set --input_format."
        raise UsageError(f"{path}: {why}")
    if INPUT_FORMATS[found].is_folder:
        raise UsageError(f"{path}: is a file; expected a folder of format {found}")
    if not head and (found not in _WITHOUT_HEADER or path.endswith(".gz")):
        raise UsageError(f"{path}: the file is empty; expected a table")
    is_gzipped = bool(unpacker_of(head)) and (found == "tfrecord" or head.startswith(_GZIP))
    if has_images and not is_gzipped and not is_web(path) and FORMATS[found].has_images_beside:
        described = _described(path, found)
        return described._replace(files=tuple(replace(f, path=path) for f in described.files))
    size = ranged_size(path) if found in TEXT_FORMATS else None
    return Sources((TableFile(path, found, is_gzipped, size),))


def _describe(path: str, head: bytes) -> str:
    r"""Returns the description of a file and a remedy; "" if it is unknown.

    >>> _describe("labels.xlsx", b"PK\x03\x04")
    'an Excel workbook. Save the sheet as CSV (UTF-8).'
    """
    name = path.lower()
    if head.startswith(b"PK\x03\x04"):
        suffixes = (text for suffix, text in _ZIP_SUFFIXES.items() if name.endswith(suffix))
        folder = shlex.quote(posixpath.splitext(posixpath.basename(path))[0])
        unzip = f"as with python -m zipfile -e {shlex.quote(path)} {folder}"
        return next(suffixes, _ARCHIVE.replace("it,", f"it, {unzip},"))
    if found := next((text for mark, text in _SIGNATURES.items() if head.startswith(mark)), ""):
        return found
    if sniff(head) is not None:
        return "an image. Name its folder, or a table with the paths of images."
    tool, remedy = tool_of(head)
    if tool:
        return f"a file of annotations of {tool}. {remedy}."
    text = "a text file. Set --input_format csv, with --delimiter and --header where they differ."
    return text if name.endswith(_TEXT_SUFFIXES) else ""
