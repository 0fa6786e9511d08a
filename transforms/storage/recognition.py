"""Recognizes what a file or folder contains: its format, and the sources in it.

Only names and the first bytes of files are read; the columns of a source are probed by its format.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from recordmill.schemas.errors import UsageError
from recordmill.schemas.layout import is_web
from recordmill.schemas.masking import masked_url
from recordmill.schemas.tables import TableFile
from recordmill.transforms.functional.sources import coco, yolo
from recordmill.transforms.functional.sources.folder_layouts import (
    Layout,
    class_folders,
    coco_file,
    coco_layout,
    layout_of,
)
from recordmill.transforms.functional.sources.foreign_files import describe
from recordmill.transforms.functional.sources.text_ranges import TEXT_FORMATS
from recordmill.transforms.storage.compression import HEAD_BYTES, unpacker_of
from recordmill.transforms.storage.files import open_binary, ranged_size
from recordmill.transforms.storage.formats import (
    FORMATS,
    FileTree,
    folder_source,
    format_of,
    recognized_folder,
)
from recordmill.transforms.storage.lakehouse.address import DELTA, TableAddress
from recordmill.transforms.storage.lakehouse.delta import open_delta
from recordmill.transforms.storage.lakehouse.iceberg import open_iceberg
from recordmill.transforms.storage.listing import is_folder

_GZIP = b"\x1f\x8b"

# The formats in which an empty file is a table without rows.
_WITHOUT_HEADER = ("jsonl", "tfrecord")


def sources_of(
    path: str,
    input_format: str,
    has_images: bool,
    has_labels: bool = False,
    since: Mapping[str, int] = MappingProxyType({}),
) -> Layout:
    """Returns the sources of a path, and what it was recognized as.

    `path` is a file or folder. `input_format` is its format, or "auto". `has_images`: whether the
    images of a COCO file are needed, as those of labels are not. `has_labels`: whether the rows are
    joined to a table of labels. `since` is the snapshots of lakehouse tables whose rows are not
    read, by the id of the table. Raises UsageError if the format is not known, or does not match
    the path. Raises OSError if the path cannot be read.
    """
    if address := TableAddress.parse(path):
        return _lakehouse_table(address, input_format, since)
    if is_folder(path):
        return _folder(path, input_format, has_labels)
    if path.lower().endswith((".yaml", ".yml")) and input_format in ("auto", "yolo"):
        return _yolo(path)
    return _file(path, input_format, has_images)


def _lakehouse_table(address: TableAddress, input_format: str, since: Mapping[str, int]) -> Layout:
    if input_format not in ("auto", "parquet"):
        raise address.error("a table has no other format. Remove --input_format.")
    return (open_delta if address.kind == DELTA else open_iceberg)(address, since)


def _folder(path: str, input_format: str, has_labels: bool) -> Layout:
    root = path.rstrip("/") or "/"
    tree = FileTree(root)
    if input_format == "auto":
        if found := recognized_folder(tree):
            return Layout((found[0],), found[1])
        layout = layout_of(tree, has_labels)
        return layout._replace(files=tuple(map(_with_size, layout.files)))
    if input_format == "folder":
        return class_folders(tree)
    if input_format == "coco" and (of_coco := coco_layout(tree)):
        return of_coco
    if source := folder_source(tree, input_format):
        return Layout((source,))
    raise UsageError(
        f"{path}: is a folder; expected a file of format {input_format}, or a pattern of them"
    )


def _with_size(file: TableFile) -> TableFile:
    """Returns a text table with its size, so that byte ranges of it can be read."""
    return replace(file, size=ranged_size(file.path)) if file.format in TEXT_FORMATS else file


def _yolo(path: str) -> Layout:
    """Returns the folder that YOLO's data.yaml describes."""
    folder, name = posixpath.split(path)
    root = yolo.root_of(FileTree(folder or "."), name)
    text = f"YOLO, with images and labels in {masked_url(root)}"
    return Layout((yolo.source_of(FileTree(root), posixpath.relpath(path, root)),), text)


def _coco(path: str) -> Layout:
    """Returns a COCO file with its split, and the folder of its images if that is another one."""
    folder, name = posixpath.split(path)
    if posixpath.basename(folder).lower() in ("annotations", "labels"):
        folder, name = posixpath.dirname(folder), posixpath.join(posixpath.basename(folder), name)
    file = coco_file(FileTree(folder or "."), name)
    images = file.options_of(coco.CocoOptions).images
    if images == FileTree(folder or ".").path(posixpath.dirname(name)):
        return Layout((replace(file, path=path, options=None),))
    text = f"COCO, with images in {images}"
    return Layout((replace(file, path=path),), text)


def _file(path: str, input_format: str, has_images: bool) -> Layout:
    with open_binary(path) as stream:
        head = stream.read(HEAD_BYTES)
    found = format_of(path, head) if input_format == "auto" else input_format
    if found is None:
        what = describe(path, head)
        why = f"is {what}" if what else "unknown format. Set --input_format."
        raise UsageError(f"{path}: {why}")
    if FORMATS[found].is_folder:
        raise UsageError(f"{path}: is a file; expected a folder of format {found}")
    if not head and (found not in _WITHOUT_HEADER or path.endswith(".gz")):
        raise UsageError(f"{path}: the file is empty; expected a table")
    is_gzipped = bool(unpacker_of(head)) and (found == "tfrecord" or head.startswith(_GZIP))
    if found == "coco" and has_images and not is_gzipped and not is_web(path):
        return _coco(path)
    size = ranged_size(path) if found in TEXT_FORMATS else None
    return Layout((TableFile(path, found, is_gzipped, size),))
