"""Recognizes the layout of a folder: COCO, tables beside images, or class folders.

A folder becomes one source, or one for each annotation file. Only names are read, except for small
files and the beginning of JSON files.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from recordmill.schemas.findings import Finding, some
from recordmill.schemas.plan import TableSnapshot
from recordmill.schemas.statistics import EXAMPLES
from recordmill.schemas.tables import SPLIT, SPLIT_NAMES, TableFile
from recordmill.transforms.functional.sources import class_folder, coco
from recordmill.transforms.functional.sources.annotated_images import (
    annotated_source,
    check_no_class_list,
)
from recordmill.transforms.functional.sources.tables_beside_images import (
    check_has_classes,
    metadata_files,
    tables_beside,
)
from recordmill.transforms.functional.sources.tree import Tree

# Kinds of annotations in the names of COCO's files, from the preferred one; "" are other names.
_KINDS = ("instances", "", "person_keypoints", "captions")
_KIND = re.compile(r"(instances|person_keypoints|captions|stuff|panoptic|image_info)_(?=.)")
_YEAR = re.compile(r"[-_]?\d{4}$")
_ROBOFLOW = "_annotations.coco"
_COCO_LISTS = re.compile(rb'"(images|annotations|categories)"\s*:\s*\[')
_HEAD_BYTES = 2**16


class Layout(NamedTuple):
    """What a folder was recognized as."""

    files: tuple[TableFile, ...]
    text: str = ""  # a description for users; "" for plain class folders
    snapshot: TableSnapshot | None = None
    findings: tuple[Finding, ...] = ()


def layout_of(tree: Tree, has_labels: bool = False) -> Layout:
    """Returns the layout of a folder that is not one of a format of folders.

    `has_labels`: whether its rows are joined to a table, so that others in it do not matter. Raises
    UsageError if the folder has several layouts, or its tables have the labels.
    """
    return coco_layout(tree) or (class_folders if has_labels else _with_tables)(tree)


def _with_tables(tree: Tree) -> Layout:
    """Returns the layout of a folder with images, or with images and tables."""
    tables = tables_beside(tree)
    if metadata := metadata_files(tree, tables):
        names = ", ".join(file.path.removeprefix(f"{tree.root}/") for file in metadata)
        splits = [name for name in tree.entries().folders if name.lower() in SPLIT_NAMES]
        unsplit = "" if any(file.partition for file in metadata) else ", ".join(splits)
        note = f"; {unsplit}: not splits, because they have no metadata file" if unsplit else ""
        return Layout(metadata, f"Hugging Face ImageFolder ({names}{note})")
    if annotated := annotated_source(tree):
        return Layout((annotated[0],), annotated[1])
    found = class_folders(tree)
    check_no_class_list(tree, class_folder.names_of(tree))
    if not tables:
        return found
    if not found.files[0].options_of(class_folder.FolderOptions).has_split_folders:
        check_has_classes(tree, tables)
    text = f"{found.text or 'class folders'}; not read: {', '.join(tables)}"
    return found._replace(text=text)


def class_folders(tree: Tree) -> Layout:
    """Returns the layout of a folder with images in class folders."""
    splits = class_folder.split_folders(tree)
    findings = tuple(_doubtful_classes(tree, splits))
    file = class_folder.source_of(tree)
    if splits:
        return Layout((file,), "class folders within split folders", findings=findings)
    names = tree.entries().folders
    named = [name for name in names if name.lower() in SPLIT_NAMES]
    if not named:
        return Layout((file,), findings=findings)
    others = [name for name in names if name not in named]
    why = f"{others[0]!r} is not the name of a split" if others else "they contain no folders"
    what = "classes, not splits" if len(named) > 1 else "a class, not a split"
    text = f"{', '.join(named)}: {what}, because {why}"
    if len(named) < 2:
        return Layout((file,), f"class folders; {text}", findings=findings)
    doubtful = Finding(
        kind="splits_as_classes",
        severity="warning",
        text=f"{tree.root}: {text}",
        hint="for labels in a table: --input TABLE --image_root DIR; for images without labels: "
        "--split_column label, and a schema without classes",
        examples=tuple(named[:EXAMPLES]),
    )
    return Layout((file,), "class folders", findings=(*findings, doubtful))


def _doubtful_classes(tree: Tree, splits: Sequence[str]) -> Iterator[Finding]:
    """Yields a warning if folders below the class folders look like the classes."""
    if found := class_folder.only_class(tree, splits):
        label, folder, below = found
        each = "each split as in " if splits else ""
        yield Finding(
            kind="only_class",
            severity="warning",
            text=f"{tree.root}: all images have the same class, {label!r}, "
            f"although they are in different folders ({some(below)}). If these are the classes, "
            f"convert {each}--input {shlex.quote(tree.path(folder))}",
            examples=below[:EXAMPLES],
        )
    elif repeated := class_folder.repeated_folders(tree, splits):
        folder, below = repeated
        yield Finding(
            kind="repeated_folders",
            severity="warning",
            text=f"{tree.root}: the folders of different classes contain the same folders "
            f"({some(below)}). If these are the classes, convert each as in --input "
            f"{shlex.quote(tree.path(folder))}, or name the upper folders like splits: train, test",
            examples=below[:EXAMPLES],
        )


def coco_layout(tree: Tree) -> Layout | None:
    """Returns the layout of a folder with COCO annotations, or None.

    Of several kinds of annotations for the same images, one is chosen.
    """
    by_kind: dict[str, list[str]] = {}
    for name in _json_files(tree):
        match = _KIND.match(posixpath.basename(name))
        by_kind.setdefault(match[1] if match else "", []).append(name)
    kind = next((kind for kind in _KINDS if kind in by_kind), None)
    if kind is None:
        return None
    found = {name: coco_file(tree, name) for name in by_kind[kind]}
    if any(file.partition for file in found.values()):
        # Beside train.json and val.json, all.json has the same images, or those of no split.
        found = {name: file for name, file in found.items() if file.partition}
    files = _with_key_prefixes(list(found.values()))
    others = sorted(n for names in by_kind.values() for n in names if n not in found)
    unread = f"; not read: {', '.join(others)}" if others else ""
    return Layout(files, f"COCO ({', '.join(found)}{unread})")


def coco_file(tree: Tree, name: str) -> TableFile:
    """Returns a COCO file as a source, with its split and the folder of its images."""
    folder, stem = posixpath.dirname(name), posixpath.splitext(posixpath.basename(name))[0]
    stem = _KIND.sub("", stem)
    named = (_YEAR.sub("", stem), posixpath.basename(folder))
    split = next((name for name in named if name.lower() in SPLIT_NAMES), "")
    names = tuple(dict.fromkeys(n for n in (stem, split) if n and not n.startswith("_")))
    images = _image_folder(tree, name, names)
    partition = ((SPLIT, split),) if split else ()
    options = coco.CocoOptions(tree.path(images))
    return TableFile(tree.path(name), "coco", partition=partition, options=options)


def _with_key_prefixes(files: Sequence[TableFile]) -> tuple[TableFile, ...]:
    """Returns COCO files whose keys begin with the folder of the images, if these have several.

    Tools that export each split to a folder of its own number the images of each from 1.
    """
    folders = [file.options_of(coco.CocoOptions).images or "" for file in files]
    top = posixpath.commonpath(folders)
    below = [posixpath.relpath(folder, top) for folder in folders]
    prefixes = ["" if name == "." else f"{name}/" for name in below]
    return tuple(replace(f, key_prefix=p) for f, p in zip(files, prefixes, strict=True))


def _image_folder(tree: Tree, name: str, names: tuple[str, ...]) -> str:
    """Returns the folder, below that of the dataset, to which the paths in a COCO file refer.

    `names`: names that a folder of its images may have.
    """
    folder = posixpath.dirname(name)
    below = [posixpath.join(top, n) for top in ("", "images") for n in names]
    inner = posixpath.join(folder, "data")
    candidates = [folder, *below, inner, "images", "data", "JPEGImages", ""]
    with tree.open(name) as stream:
        first = coco.first_image(stream)
    if first is None:
        return folder
    return next((f for f in candidates if tree.has(posixpath.join(f, first))), folder)


def _json_files(tree: Tree) -> Iterator[str]:
    """Yields the paths of COCO files: in the folder, in annotations/, or beside their images."""
    top = tree.entries()
    for folder in ("", *(name for name in top.folders if _may_annotate(name))):
        files = top.files if not folder else tree.entries(folder).files
        for name in files:
            path = posixpath.join(folder, name)
            if name.lower().endswith(".json") and _is_coco(tree, path):
                yield path


def _may_annotate(folder: str) -> bool:
    return folder.lower() in SPLIT_NAMES or folder.lower() in ("annotations", "labels")


def _is_coco(tree: Tree, name: str) -> bool:
    with tree.open(name) as stream:
        return _COCO_LISTS.search(stream.read(_HEAD_BYTES)) is not None
