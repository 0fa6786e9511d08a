"""Recognizes folders whose images have annotations beside them, which are not class folders.

Pascal VOC (labelImg) and YOLO (labelImg, CVAT, Darknet) are read. Others end with a message that
names what was found and the command that works.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from recordmill.schemas.errors import UsageError
from recordmill.schemas.tables import TableFile
from recordmill.transforms.functional.images.sniffing import has_image_suffix
from recordmill.transforms.functional.sources import voc, yolo
from recordmill.transforms.functional.sources.tree import Tree

# Files that are searched: a folder of a million images is not listed twice.
_MAX_FILES = 5_000
_MAX_OPENED = 20
_HEAD_BYTES = 2**16

# Files of annotations, with the tool that writes them, and what to do.
_COCO = ("COCO annotations", "Name their folder: --input {folder}")
_CVAT = ("CVAT's annotations", "Export them from CVAT as COCO, Pascal VOC or YOLO")
_CREATE_ML = ("Create ML's annotations", "Export them as COCO, Pascal VOC or YOLO")
_VIA = ("annotations of the VGG Image Annotator", "Export them as COCO")
_YOLO = ("a dataset of YOLO", "Name its file: --input {path}")
_DARKNET = ("a dataset of YOLO", "Name its folder: --input {folder} --input_format yolo")
_NAMED = {
    "_annotations.coco.json": _COCO,
    "annotations.xml": _CVAT,
    "_annotations.createml.json": _CREATE_ML,
    "via_region_data.json": _VIA,
    "via_project.json": _VIA,
    "data.yaml": _YOLO,
    "dataset.yaml": _YOLO,
    "obj.data": _DARKNET,
    "obj.names": _DARKNET,
    "_darknet.labels": _DARKNET,
}
_KINDS = {".xml": "XML files", ".json": "JSON files", ".txt": "text files, such as captions,"}
_BESIDE = "beside the images"
_VOC = re.compile(rb"<annotation[\s>]")
_ONE_OBJECT = re.compile(r"\d+(\s+[-+.\deE]+){4,}\s*")
_CLASS_FOLDERS = "To make folders the classes instead, add --input_format folder."


def annotated_source(tree: Tree) -> tuple[TableFile, str] | None:
    """Returns a folder with annotations beside its images as a source, and a description; or None.

    Raises UsageError if the annotations cannot be read, or their class names are missing.
    """
    files = sorted(n for n in islice(tree.walk(), _MAX_FILES) if isinstance(n, str))
    if not any(map(has_image_suffix, files)):
        return None
    beside = _annotations(files)
    if xml := _first([*beside, *files], ".xml", lambda n: bool(_VOC.search(_head(tree, n)))):
        if xml in beside:
            return voc.source_of(tree), f"Pascal VOC ({xml}, …)"
        raise _error(tree, f"annotations of Pascal VOC ({xml}, …)", "Add --input_format voc")
    text = _first(beside, ".txt", lambda name: bool(_head(tree, name).strip()))
    if text and all(map(_ONE_OBJECT.fullmatch, _lines(tree, text))):
        return _yolo(tree, files, text)
    if path := next((name for name in files if posixpath.basename(name) in _NAMED), ""):
        what, remedy = _NAMED[posixpath.basename(path)]
        where = {"path": tree.path(path), "folder": tree.path(posixpath.dirname(path))}
        quoted = {key: shlex.quote(value) for key, value in where.items()}
        raise _error(tree, f"{what} ({path})", remedy.format(**quoted))
    if beside:
        raise _unread(tree, beside[0], _BESIDE)
    _check_no_other_labels(tree, files)
    return None


def _check_no_other_labels(tree: Tree, files: Sequence[str]) -> None:
    """Checks that no folder has YOLO labels, or JSON files, with the names of images in another."""
    bases = {_base(path): path for path in files}
    for name in _annotations(sorted(bases)):
        text = _lines(tree, bases[name]) if name.lower().endswith(".txt") else []
        if text and all(map(_ONE_OBJECT.fullmatch, text)):
            remedy = "Name the folders images/ and labels/, and add data.yaml or classes.txt"
            raise _error(tree, f"labels of YOLO in another folder ({bases[name]}, …)", remedy)
        if name.lower().endswith(".json"):
            raise _unread(tree, bases[name], "with the names of images")


def check_no_class_list(tree: Tree, classes: Iterable[str]) -> None:
    """Checks that class folders are the classes that a classes.txt lists, in its order.

    Raises UsageError if the ids would be others than those of the list.
    """
    if "classes.txt" not in tree.entries().files:
        return
    names = [line for line in _lines(tree, "classes.txt") if line]
    if names != sorted(classes):
        path = shlex.quote(tree.path("classes.txt"))
        remedy = f"If it lists these classes, add --input_format folder --classes {path}"
        raise _error(tree, "classes.txt with other names or another order", remedy)


def _yolo(tree: Tree, files: Sequence[str], label: str) -> tuple[TableFile, str]:
    """Returns a folder of YOLO labels as a source, with the file that has its class names."""
    lists = [name for name in files if posixpath.basename(name) in yolo.CLASS_FILES]
    declared = sorted(
        lists, key=lambda name: (name.count("/"), yolo.CLASS_FILES.index(_base(name)))
    )
    labels = f"labels of YOLO ({label}, …)"
    if not declared:
        remedy = f"Add {tree.path('classes.txt')} with one class name per line"
        raise _error(tree, f"{labels} without class names", remedy)
    first = declared[0]
    # labelImg writes a classes.txt to each folder.
    same = [name for name in declared if _base(name) == _base(first)]
    if other := next((n for n in same if _lines(tree, n) != _lines(tree, first)), ""):
        remedy = "Make them equal, or convert their folders separately"
        raise _error(tree, f"{labels} with different classes in {first} and {other}", remedy)
    return yolo.source_of(tree, first), f"YOLO ({first})"


def _annotations(files: Iterable[str]) -> list[str]:
    """Returns the files that have the name of an image in the same folder, sorted.

    >>> _annotations(["a/1.jpg", "a/1.txt", "a/2.txt", "b.png", "b.png.json"])
    ['a/1.txt', 'b.png.json']
    """
    images = {name for path in files if has_image_suffix(path) for name in (path, _stem(path))}
    return [n for n in files if n.lower().endswith(tuple(_KINDS)) and _stem(n) in images]


def _unread(tree: Tree, name: str, where: str) -> UsageError:
    """Returns the error for an annotation of an image that no format reads where it is."""
    kind = _KINDS[posixpath.splitext(name)[1].lower()]
    if kind == "JSON files" and (where != _BESIDE or b'"shapes"' in _head(tree, name)):
        remedy = "If they are annotations, as of LabelMe or Supervisely, convert them to COCO"
    elif kind == "XML files":
        remedy = "If they are annotations, export them as Pascal VOC or COCO"
    else:
        root = shlex.quote(tree.root)
        remedy = f"tar --sort=name -cf samples.tar -C {root} . packs them for --input samples.tar"
    return _error(tree, f"{kind} {where} ({name}, …)", remedy)


def _error(tree: Tree, found: str, remedy: str) -> UsageError:
    expected = "expected a folder of images per class"
    return UsageError(f"{tree.root}: {expected}, got {found}. {remedy}. {_CLASS_FOLDERS}")


def _first(
    names: Iterable[str], suffix: str, accepts: Callable[[str], bool] = lambda name: True
) -> str:
    found = (name for name in names if name.lower().endswith(suffix))
    return next(filter(accepts, islice(found, _MAX_OPENED)), "")


def _head(tree: Tree, name: str) -> bytes:
    with tree.open(name) as stream:
        return stream.read(_HEAD_BYTES)


def _lines(tree: Tree, name: str) -> list[str]:
    """Returns the complete lines at the beginning of a text file, without outer whitespace."""
    data = _head(tree, name)
    whole = data.rpartition(b"\n")[0] if len(data) == _HEAD_BYTES else data
    return [
        line.strip() for line in whole.decode("utf-8-sig", "replace").splitlines() if line.strip()
    ]


def _stem(path: str) -> str:
    return posixpath.splitext(path)[0]


def _base(path: str) -> str:
    return posixpath.basename(path)
