"""What formats share that have one annotation file per image, which names the image.

Tools move and rename images without their annotations, so a name is looked for as it is written,
without the folders of the machine that wrote it, with the suffixes of images, and at last as the
name of the annotation file itself.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from recordmill.schemas import records
from recordmill.schemas.errors import UsageError
from recordmill.schemas.findings import Finding, finding, some
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.tables import SPLIT, Part, Probe, Projection, Sources, TableFile
from recordmill.transforms.functional.images.sniffing import TRIED_SUFFIXES, has_image_suffix
from recordmill.transforms.functional.sources.tree import (
    NO_SPLIT,
    SEVERAL_SPLITS,
    Tree,
    Use,
    parts_of,
    split_folders,
    split_named,
    stem_of,
)

_OF_MASKS = "images in folders of masks"
# SegmentationClass and SegmentationObject of VOC, annotations/trimaps of Oxford's pets.
_MASKS = re.compile(r"(?:^|/)(?:segmentation\w*|masks?|trimaps?)/", re.IGNORECASE)
UNLISTED = "annotations of images that no list in ImageSets/Main names"

# The largest annotation file.
_MAX_BYTES = 64 * 2**20


@dataclass(frozen=True)
class AnnotatedOptions:
    """What is known of a folder of annotations before it is read."""

    has_split_folders: bool = False  # whether folders named like splits are the splits


@dataclass(frozen=True)
class Annotated:
    """A format with one annotation file per image; what is not like in others is a field."""

    format: str
    suffix: str  # of the annotations, in lower case
    columns: tuple[str, ...]
    expected: str  # a folder of the format, for messages
    # (data, drops_boxes, others) → values by column; `others` collects the kinds of other shapes.
    parse: Callable[..., Mapping[str, Any]]
    preset: str = "object_detection"
    # Whether a folder can have annotations, and its path is a part of the keys of its images, which
    # those of other folders may have, too.
    is_annotated: Callable[[str], object] = lambda folder: True
    is_key: Callable[[str], bool] = lambda folder: True
    # The common id of an image and its annotation, and whether a file is a list of images.
    id_of: Callable[[str], str] = lambda name: posixpath.splitext(name)[0]
    is_list: Callable[[str], bool] = lambda name: False
    # The folder of the images of a folder of annotations, and the splits of each id in its lists,
    # which precede those of folders.
    images_of: Callable[[Tree, str], str] = lambda tree, folder: folder
    listed_in: Callable[[Tree, str], Mapping[str, Sequence[str]]] = lambda tree, folder: {}

    def is_annotation(self, name: str) -> bool:
        """Returns whether a file is an annotation by its suffix and its folder."""
        in_folder = self.is_annotated(posixpath.dirname(name))
        return name.lower().endswith(self.suffix) and bool(in_folder)

    def sources_in(self, tree: Tree) -> Sources:
        """Returns a folder of annotations as a source."""
        options = AnnotatedOptions(bool(split_folders(tree, self.is_annotation)))
        return Sources((TableFile(tree.root, self.format, options=options),))

    def first(self, tree: Tree) -> str:
        """Returns an annotation of a folder; raises UsageError if there is none."""
        for name in tree.walk():
            if isinstance(name, str) and self.is_annotation(name):
                return name
        kind = self.suffix[1:].upper()
        raise UsageError(f"{tree.root}: has no {kind} file; expected {self.expected}")

    def probe(self, tree: Tree, file: TableFile, listed: Sequence[str] = ()) -> Probe:
        """Returns the columns, and the splits: those of lists, or else of folders."""
        self.first(tree)
        has_folders = file.options_of(AnnotatedOptions).has_split_folders and not listed
        splits = split_folders(tree, self.is_annotation) if has_folders else tuple(listed)
        return Probe(self.columns, has_rows=True, splits=splits, preset=self.preset)

    def parts(self, tree: Tree, file: TableFile) -> Iterator[Part | Reject | records.SkippedInput]:
        """Yields parts of the annotations, then rejects and skipped inputs."""
        # An image and its annotation have one id. Lists of images are neither read nor skipped.
        images: dict[str, str] = {}  # {id: file}
        annotated: set[str] = set()

        def use_of(name: str) -> Use:
            if self.is_annotation(name):
                annotated.add(self.id_of(name))
                return "read"
            if has_image_suffix(name):
                images[self.id_of(name)] = name
                return "with another"
            return "with another" if self.is_list(name) else "skipped"

        yield from parts_of(tree, file, use_of)
        # Without a common id, the annotation says which image is meant.
        if images.keys() & annotated:
            bare = [images[id_] for id_ in images.keys() - annotated]
            masks = {*filter(_MASKS.search, bare)}
            found = {_OF_MASKS: masks, records.UNANNOTATED: {*bare} - masks}
            yield from (
                records.SkippedInput.named(kind, names) for kind, names in found.items() if names
            )

    def read(
        self, tree: Tree, part: Part, projection: Projection
    ) -> Iterator[records.Row | Reject | records.SkippedInput]:
        """Yields the row of each annotated image or its reject, and what is not read."""
        images_of = cache(partial(self.images_of, tree))
        listed_in = cache(partial(self.listed_in, tree))
        has_splits = part.file.options_of(AnnotatedOptions).has_split_folders
        by_folder = has_splits and projection.has(SPLIT)
        for name in part.names:
            folder = posixpath.dirname(name)
            lists = listed_in(folder) if projection.has(SPLIT) else {}
            splits = lists.get(stem_of(name), ()) if lists else (split_named(name),)
            if (lists or by_folder) and not (splits and splits[0]):
                # Lists name the images of the task: half of VOC2012.
                yield records.SkippedInput.named(UNLISTED if lists else NO_SPLIT, [name])
                continue
            if len(splits) > 1:
                yield records.SkippedInput.named(SEVERAL_SPLITS, [name])
            split = splits[0] if lists or by_folder else None
            is_key = has_splits or self.is_key(folder)
            yield from self._row(tree, name, projection, images_of(folder), split, is_key)

    def _row(
        self,
        tree: Tree,
        name: str,
        projection: Projection,
        folder: str,
        split: str | None,
        has_folders: bool,
    ) -> Iterator[records.Row | Reject | records.SkippedInput]:
        path, own, image, others = tree.path(name), stem_of(name), None, list[str]()
        try:
            with tree.open(name) as stream:
                data = stream.read(_MAX_BYTES + 1)
            if len(data) > _MAX_BYTES:
                what = f"expected an annotation of at most {_MAX_BYTES:,} bytes, got more"
                raise RecordError(Reason.MALFORMED_ROW, what)
            values = dict(self.parse(data, drops_boxes=projection.drops_boxes, others=others))
            stated = values["image"] or ""
            # With an image root, paths are resolved, and confined to it, as those in tables are.
            if projection.image_root is not None:
                values["image"] = _below(folder, stated or own, has_folders)
            else:
                found = image_named(tree, folder, stated, own)
                values["image"] = _below(folder, found, has_folders)
                image = records.Location(tree.path(posixpath.join(folder, found)))
                if stated and stem_of(_base(found)) not in (_base(stated), stem_of(_base(stated))):
                    yield records.SkippedInput.named(records.OTHER_NAMES, [f"{name}: {stated}"])
        except RecordError as error:
            yield Reject("", "", path, error.reason, error.detail)
            return
        except OSError as error:
            yield Reject("", "", path, Reason.READ_ERROR, str(error.strerror or error))
            return
        yield records.Row(
            projection.apply({"id": own, SPLIT: split, **values}), path, 0, image=image
        )
        if others:
            yield records.SkippedInput.named(
                records.OTHER_SHAPES, [f"{name}: {kind}" for kind in others]
            )


# What tools write for attributes that annotators have left as they were.
_UNSET = ("", "false", "0", "0.0", "none", "[]", "{}")


def unread_values(attributes: Iterable[tuple[Any, Any]], groups: Iterable[Any] = ()) -> list[str]:
    """Returns the attributes that are set, except rotations, and the groups of several shapes."""
    found = (name for name, value in attributes if str(value).strip().lower() not in _UNSET)
    counts = Counter(f"group {id_}" for id_ in groups if str(id_).lower() not in _UNSET)
    named = [f"attribute {name}" for name in found if name != "rotation"]
    return named + [group for group, number in counts.items() if number > 1]


def unread_fields(path: str, annotations: Iterable[Any], read: Sequence[str]) -> Iterator[Finding]:
    """Yields the fields of annotations in JSON, and their attributes, that are set but not read."""
    objects = [found for found in annotations if isinstance(found, dict)]
    fields = [field for found in objects for field in found.items() if field[0] not in read]
    attributes = (found.get("attributes") for found in objects)
    fields += (field for found in attributes if isinstance(found, dict) for field in found.items())
    if names := [*dict.fromkeys(unread_values(fields))]:
        text = f"{path}: annotations have values that are not stored: {some(names)}"
        yield finding("note", "unread_values", text, examples=names)


def side_of(text: str | None) -> int | None:
    """Returns a stated height or width in pixels; None if it is missing or not a number."""
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _below(folder: str, image: str, has_folders: bool) -> str:
    return posixpath.normpath(posixpath.join(folder, image)) if has_folders else image


def image_named(tree: Tree, folder: str, stated: str, own: str) -> str:
    """Returns the path of an image below the folder of images; if none exists, the stated one."""
    # Paths of Windows have backslashes.
    written = stated.replace("\\", "/")
    names = dict.fromkeys((stated, written, _base(written))) if stated else ()
    for name in names:
        if tree.has(posixpath.join(folder, name)):
            return name
    stems = (*(name for name in names if not has_image_suffix(name)), own)
    for stem in dict.fromkeys(stems):
        tried = (stem + suffix for suffix in TRIED_SUFFIXES)
        found = [name for name in tried if tree.has(posixpath.join(folder, name))]
        if len(found) > 1:  # on some systems, 1.jpg exists also as 1.JPG
            listed = tree.entries(posixpath.dirname(posixpath.join(folder, stem))).files
            found = [name for name in found if _base(name) in listed]
        if len(found) > 1:
            what = f"expected one image named {stem!r}, got {', '.join(found)}"
            raise RecordError(Reason.MALFORMED_ROW, f"{what}. Name one of them in the annotation")
        if found:
            return found[0]
    if not stated:
        what = f"does not name its image, and none is named {own!r} in {tree.path(folder)}"
        raise RecordError(Reason.MALFORMED_ROW, what)
    return written


def _base(path: str) -> str:
    return posixpath.basename(path.replace("\\", "/"))
