"""Recognizes what a file or folder contains: its format, and the sources in it.

Only names and the first bytes of files are read; the columns of a source are probed by its format.

Of a folder in no layout of a format, what lies beside its images decides: Pascal VOC (labelImg),
YOLO (labelImg, CVAT, Darknet) and the metadata of Hugging Face's ImageFolder are read. Other
annotations and tables end with a message that names what was found and the command that works:
`train.csv` beside `train/` would make one class of all images, since class folders ignore tables.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from posixpath import basename
from types import MappingProxyType
from typing import NamedTuple
from unicodedata import normalize

from recordmill.schemas.errors import UsageError
from recordmill.schemas.findings import Finding, finding, some
from recordmill.schemas.input_formats import INPUT_FORMATS
from recordmill.schemas.layout import is_web
from recordmill.schemas.tables import (
    FILE_NAME,
    NO_EXCLUSION,
    SPLIT_NAMES,
    Exclusion,
    Sources,
    TableFile,
)
from recordmill.transforms.functional.images.masks import are_runs
from recordmill.transforms.functional.images.sniffing import has_image_suffix, sniff, tool_of
from recordmill.transforms.functional.records.framing import SNIFFED_BYTES, unpacker_of
from recordmill.transforms.functional.rows.columns import separator_in
from recordmill.transforms.functional.rows.feature_values import names_in
from recordmill.transforms.functional.sources import class_folder, voc, yolo
from recordmill.transforms.functional.sources.box_rows import columns_of_boxes
from recordmill.transforms.functional.sources.delimited import DelimitedOptions
from recordmill.transforms.functional.sources.text_ranges import TEXT_FORMATS
from recordmill.transforms.functional.sources.tree import Tree, first_files, first_lines, head_of
from recordmill.transforms.inputs.file_tree import FileTree
from recordmill.transforms.inputs.formats import FORMATS, code_of, first_row, format_of
from recordmill.transforms.inputs.paths import is_folder, is_table, partition_of
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
    return _sources_beside(tree, level)


def _with_size(file: TableFile) -> TableFile:
    """Returns a text table with its size, so that byte ranges of it can be read."""
    return replace(file, size=ranged_size(file.path)) if file.format in TEXT_FORMATS else file


def _file(path: str, input_format: str, has_images: bool) -> Sources:
    with open_binary(path) as stream:
        head = stream.read(SNIFFED_BYTES)
    found = format_of(path, head) if input_format == "auto" else input_format
    if found is None:
        what = _describe(path, head, is_input=has_images)
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
    return Sources((_with_size(TableFile(path, found, is_gzipped)),))


def _describe(path: str, head: bytes, is_input: bool = True) -> str:
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
    remedy = "Set --input_format csv" if is_input else "Name it .csv"  # a table of labels
    text = f"a text file. {remedy}, with --delimiter and --header where they differ"
    fields = head.partition(b"\n")[0].decode("utf-8", "replace").split()
    if len(fields) == 2 and has_image_suffix(fields[0]):  # as in lists of Caffe
        mark = "tab" if b"\t" in head else "' '"
        text += f": here, --delimiter {mark} --header image,label"
    return f"{text}." if name.endswith(_TEXT_SUFFIXES) else ""


_MAX_OPENED = 20

# Files of annotations, with the tool that writes them, and what to do.
_YOLO = ("a dataset of YOLO", "Name its file: --input {path}")
_DARKNET = ("a dataset of YOLO", "Name its folder: --input {folder} --input_format yolo")
_NAMED = {
    "_annotations.coco.json": ("COCO annotations", "Name their folder: --input {folder}"),
    "annotations.xml": ("annotations of CVAT", "Name their folder: --input {folder}"),
    **dict.fromkeys(("data.yaml", "dataset.yaml"), _YOLO),
    **dict.fromkeys(("obj.data", "obj.names", "_darknet.labels"), _DARKNET),
}
_KINDS = {".xml": "XML files", ".json": "JSON files", ".txt": "text files, such as captions,"}
_BESIDE = "beside the images"
_ANNOTATIONS = ("annotations", "annotation", "ann")
_VOC = re.compile(rb"<(\w+:)?annotation[\s>]")
# Commas are named when it is read, as are ids that are no classes.
_ONE_OBJECT = re.compile(r"""["']?\d+(\.0*)?["']?([\s,]+[-+.\deE]+){4,}[\s,]*""")
_CLASS_FOLDERS = "To make folders the classes instead, add --input_format folder."

# The end of the name of a mask, and a folder of masks with the names of the images beside it.
_MASK = re.compile(r"_(mask|segmentation)(_?\d+)?$", re.IGNORECASE)
_MASKS = re.compile(
    r"(?:^|/)((?:masks?|annotations?|labels?|gts?|ground_?truth)/)(.+)", re.IGNORECASE
)
_IMAGES_BESIDE = ("", "images/", "image/", "imgs/", "img/")

# The names that ImageFolder reads, and that of Roboflow; each is in the folder to which its paths
# are relative, which are in a column.
_IMAGE_FOLDER = ("Hugging Face ImageFolder", FILE_NAME)
_METADATA = {
    **dict.fromkeys(("metadata.csv", "metadata.jsonl", "metadata.parquet"), _IMAGE_FOLDER),
    "_annotations.csv": ("Roboflow CSV", "filename"),
}

# The folder of the splits in repositories of Hugging Face.
_DATA = "data"

# Most class folders are more; of fewer folders, each is searched for tables.
_MAX_FOLDERS = 8

# Tables of Kaggle without labels.
_UNLABELED = re.compile(r"sample|submission|test", re.IGNORECASE)
_MAX_TABLES = 8
_MAX_LIST = 2**22  # bytes of a list of classes


def _sources_beside(tree: Tree, class_level: int | None = None) -> Sources:
    """Returns the sources of a folder with images: what lies beside them, or class folders.

    Raises UsageError for tables or annotations that would have the labels, and are not read.
    """
    tables = _tables_beside(tree)
    if metadata := _metadata_files(tree, tables):
        names = ", ".join(file.path.removeprefix(f"{tree.root}/") for file in metadata)
        splits = [name for name in tree.entries().folders if name.lower() in SPLIT_NAMES]
        unsplit = "" if any(file.partition for file in metadata) else ", ".join(splits)
        note = f"; {unsplit}: not splits, because they have no metadata file" if unsplit else ""
        return Sources(metadata, f"{_METADATA[basename(metadata[0].path)][0]} ({names}{note})")
    if annotated := _annotated_source(tree):
        return annotated
    found = class_folder.sources_in(tree, class_level)
    if class_level is None:
        options = found.files[0].options_of(class_folder.FolderOptions)
        if tables and not options.split_level:
            _check_has_classes(tree, tables)
        doubts = [one for one in found.findings if one.severity == "warning"]
        if doubts:
            texts = (text for doubt in doubts for text in (doubt.text, doubt.hint) if text)
            raise UsageError(f"{'. '.join(text.rstrip('.') for text in texts)}.")
    _check_no_class_list(tree, found.files[0])
    found = found._replace(findings=(*found.findings, *_unread_lists(tree, found.files[0])))
    if not tables:
        return found
    text = f"{found.text or 'class folders'}; not read: {', '.join(tables)}"
    return found._replace(text=text)


def _annotated_source(tree: Tree) -> Sources | None:
    files = sorted(first_files(tree))
    if not any(map(has_image_suffix, files)):
        if tars := _ending(files, ".tar"):
            pattern = shlex.quote(tree.path(posixpath.join(posixpath.dirname(tars[0]), "*.tar")))
            what = f"expected images, or only tars, got other files beside {tars[0]}"
            raise UsageError(f"{tree.root}: {what}. For tars of WebDataset, use --input {pattern}.")
        return None
    beside = _annotations(files)
    if xml := _first([*beside, *files], ".xml", lambda n: _is_voc(tree, n)):
        if xml in beside:
            return voc.sources_in(tree)._replace(text=f"Pascal VOC ({xml}, …)")
        raise _error(tree, f"annotations of Pascal VOC ({xml}, …)", "Add --input_format voc")
    text = _first(beside, ".txt", lambda name: bool(head_of(tree, name).strip()))
    if text and _is_yolo(tree, text):
        return _yolo(tree, files, text)
    if path := next((name for name in files if basename(name) in _NAMED), ""):
        what, remedy = _NAMED[basename(path)]
        where = {"path": tree.path(path), "folder": tree.path(posixpath.dirname(path))}
        quoted = {key: shlex.quote(value) for key, value in where.items()}
        raise _error(tree, f"{what} ({path})", remedy.format(**quoted))
    json_files, tables = _ending(files, ".json"), _ending(files, ".csv", ".jsonl", ".ndjson")
    for name in chain(*(of[:_MAX_OPENED] for of in (json_files, tables, _ending(files, ".txt")))):
        tool, remedy = tool_of(head_of(tree, name))
        if tool:
            raise _error(tree, f"annotations of {tool} ({name})", remedy)
    if beside:
        raise _unread(tree, beside[0], _BESIDE)
    _check_no_other_labels(tree, files)
    if found := next(_masks([*filter(has_image_suffix, files)]), None):
        remedy = "List both in a table with the columns image and mask, for --schema segmentation; "
        remedy += f"or leave out the masks with --exclude {shlex.quote(found[1])}"
        raise _error(tree, f"masks beside their images ({found[0]}, …)", remedy)
    is_flat = any(map(has_image_suffix, tree.entries().files))
    for name in json_files:
        top, _, below = name.partition("/")
        if top.lower() in _ANNOTATIONS if below else is_flat:
            remedy = "If it has annotations, export them as COCO"
            raise _error(tree, f"a JSON file ({name})", remedy)
    return None


def _masks(images: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the images that are masks of others, by their names, with patterns that exclude them.

    >>> [*_masks(["a/1.jpg", "b/1_mask.png", "c/images/2.jpg", "c/Masks/2.png", "mask/2.jpg"])]
    [('b/1_mask.png', '*_mask*'), ('c/Masks/2.png', 'Masks/')]
    """
    stems = {*map(_stem, images)}
    bases = {*map(basename, stems)}
    for name in images:
        stem = _stem(name)
        if (end := _MASK.search(stem)) and basename(stem[: end.start()]) in bases:
            yield name, f"*_{end[1]}*"
        elif found := _MASKS.search(stem):
            above = stem[: found.start(1)]
            if any(f"{above}{folder}{found[2]}" in stems for folder in _IMAGES_BESIDE):
                yield name, found[1]


def _check_no_other_labels(tree: Tree, files: Sequence[str]) -> None:
    """Checks that no folder has YOLO labels, or JSON files, with the names of images in another."""
    bases = {basename(path): path for path in files}
    for name in _annotations(sorted(bases)):
        if name.lower().endswith(".txt") and _is_yolo(tree, bases[name]):
            remedy = "Name the folders images/ and labels/, and add data.yaml or classes.txt"
            raise _error(tree, f"labels of YOLO in another folder ({bases[name]}, …)", remedy)
        if name.lower().endswith(".json"):
            raise _unread(tree, bases[name], "with the names of images")


def _check_no_class_list(tree: Tree, folder: TableFile) -> None:
    """Checks that no file lists the class folders in another order; classes.txt must list them."""
    classes = sorted(class_folder.names_of(tree, folder))
    for name in _ending(tree.entries().files, ".txt", ".names", ".json", ".pbtxt"):
        names = list[str]()
        with suppress(ValueError), tree.open(name) as stream:
            names += map(str.strip, names_in(stream.read(_MAX_LIST).decode("utf-8-sig"), name)[0])
        are_listed = {*classes} <= {*names}
        if [*filter(None, names)] != classes and (are_listed or name == "classes.txt"):
            path = shlex.quote(tree.path(name))
            remedy = f"If it lists these classes, add --input_format folder --classes {path}"
            remedy = remedy if are_listed else "Its lines are not the names of the folders"
            raise _error(tree, f"{name} with other names or another order", remedy)


def _yolo(tree: Tree, files: Sequence[str], label: str) -> Sources:
    """Returns a folder of YOLO labels as a source, with the file that has its class names."""
    lists = [name for name in files if basename(name) in yolo.CLASS_FILES]
    declared = sorted(
        lists, key=lambda name: (name.count("/"), yolo.CLASS_FILES.index(basename(name)))
    )
    labels = f"labels of YOLO ({label}, …)"
    if not declared:
        remedy = f"Add {tree.path('classes.txt')} with one class name per line"
        raise _error(tree, f"{labels} without class names", remedy)
    first = declared[0]
    # labelImg writes a classes.txt to each folder.
    same = [name for name in declared if basename(name) == basename(first)]
    if other := next((n for n in same if first_lines(tree, n) != first_lines(tree, first)), ""):
        remedy = "Make them equal, or convert their folders separately"
        raise _error(tree, f"{labels} with different classes in {first} and {other}", remedy)
    return yolo.sources_in(tree, first)._replace(text=f"YOLO ({first})")


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
    if kind == "JSON files" and (where != _BESIDE or b'"shapes"' in head_of(tree, name)):
        remedy = "If they are annotations, convert them to COCO"
    elif kind == "XML files":
        remedy = "If they are annotations, export them as Pascal VOC or COCO"
    else:
        root = shlex.quote(tree.root)
        remedy = f"tar --sort=name -cf samples.tar -C {root} . packs them for --input samples.tar"
    return _error(tree, f"{kind} {where} ({name}, …)", remedy)


def _error(tree: Tree, found: str, remedy: str) -> UsageError:
    expected = "expected a folder of images per class"
    return UsageError(f"{tree.root}: {expected}, got {found}. {remedy}. {_CLASS_FOLDERS}")


def _ending(names: Iterable[str], *suffixes: str) -> list[str]:
    return [name for name in names if name.lower().endswith(suffixes)]


def _first(names: Iterable[str], suffix: str, accepts: Callable[[str], bool]) -> str:
    return next(filter(accepts, _ending(names, suffix)[:_MAX_OPENED]), "")


def _is_voc(tree: Tree, name: str) -> bool:
    # UTF-16 has a zero byte beside each letter.
    return bool(_VOC.search(head_of(tree, name).replace(b"\0", b"")))


def _is_yolo(tree: Tree, name: str) -> bool:
    lines = first_lines(tree, name)
    return bool(lines) and all(map(_ONE_OBJECT.fullmatch, lines))


def _stem(path: str) -> str:
    return posixpath.splitext(path)[0]


# Names of lists of the images of a split, in words.
_LIST = re.compile(
    r"(?i)(.*[^a-z])?(train|val|valid|test)(val|ing|idation|list)?([^a-z].*)?\.(txt|json|csv|lst|mat)"
)


def _unread_lists(tree: Tree, folder: TableFile) -> Iterator[Finding]:
    """Yields a warning on files that may list images of splits, as of Food-101, beside folders."""
    lists = sorted(name for name in _files_beside(tree) if _LIST.fullmatch(basename(name)))
    if len(lists) > 1 and not folder.options_of(class_folder.FolderOptions).split_level:
        text = f"the files that may list the images of splits are not read ({some(lists)})"
        hint = "write a table with the columns image, label and split, for --split_column split"
        yield finding("warning", "unused_splits", text, hint, examples=lists)


def _tables_beside(tree: Tree) -> tuple[str, ...]:
    return tuple(filter(is_table, _files_beside(tree)))


def _files_beside(tree: Tree) -> Iterator[str]:
    """Yields the files in a folder, in its folders if these are few, and in data/SPLIT/."""
    top = tree.entries()
    folders = ["", *(top.folders if len(top.folders) <= _MAX_FOLDERS else ())]
    if _DATA in folders:
        below = (n for n in tree.entries(_DATA).folders if n.lower() in SPLIT_NAMES)
        folders += [posixpath.join(_DATA, name) for name in below]
    for folder in folders:
        yield from (posixpath.join(folder, name) for name in tree.entries(folder).files)


def is_metadata(path: str) -> bool:
    """Returns whether a table has a name of ImageFolder's metadata."""
    return basename(path) in _METADATA


def _metadata_files(tree: Tree, tables: Sequence[str]) -> tuple[TableFile, ...]:
    """Returns the tables that name the images beside them, with the splits of their folders."""
    found = list[TableFile]()
    for name in tables:
        if is_metadata(name):
            folder = posixpath.dirname(name)
            file = TableFile(
                tree.path(name),
                format_of(name, b"") or "",
                partition=partition_of(name),
                key_prefix=f"{folder}/" if folder else "",
                image_folder=tree.root,
            )
            if _METADATA[basename(name)][1] in FORMATS[file.format].probe(file).columns:
                found.append(file)
    return tuple(found)


def _check_has_classes(tree: Tree, tables: Sequence[str]) -> None:
    """Checks that the folders of a folder with tables can be classes."""
    entries = ((name, *tree.entries(name)) for name in tree.entries().folders)
    folders = [name for name, below, files in entries if below or not all(map(is_table, files))]
    if len(folders) > 1 and not all(map(class_folder.has_all_images, folders)):
        return
    images = {folder: _names_and_stems(tree, folder) for folder in ("", *folders)}
    labeled_first = sorted(tables, key=lambda name: bool(_UNLABELED.search(name)))[:_MAX_TABLES]
    guesses = [_guess(tree, name, images) for name in labeled_first]
    best = max(guesses, key=lambda guess: guess.is_complete)  # the first one of the best
    places = " in " + " and ".join(f"{name}/" for name in folders) if folders else ""
    raise UsageError(
        f"{tree.root}: expected a folder per class, got images{places} beside "
        f"{' and '.join(tables)}. To read a table, use {best.options}. To make folders the "
        "classes, add --input_format folder."
    )


def _names_and_stems(tree: Tree, folder: str) -> frozenset[str]:
    files = [name for name in tree.entries(folder).files if not is_table(name)]
    return frozenset(normalize("NFC", name) for name in (*files, *map(_stem, files)))


class _Guess(NamedTuple):
    options: str
    is_complete: bool


def _guess(tree: Tree, table: str, images: dict[str, frozenset[str]]) -> _Guess:
    """Returns the options that read a table, by its first row and the images of each folder."""
    file = TableFile(tree.path(table), format_of(table, b"") or "")
    mark = separator_in(first_row(file))
    file = replace(file, options=DelimitedOptions(mark)) if mark else file
    row = first_row(file)
    # Deeper folders first: a path may exist in the folder of the table, too. Of two with the name,
    # the one of the table is meant.
    own = posixpath.dirname(table)
    folders = [own] * bool(own in images and own) + [*reversed(images)]
    found = (
        (column, folder)
        for folder in folders
        for column, value in row.items()
        if normalize("NFC", value) in images[folder]
        or ("/" in value and tree.has(posixpath.join(folder, value)))
    )
    image, folder = next(found, ("COLUMN", next(reversed(images))))
    others = [column for column in row if column != image]
    label = "label" if "label" in others else others[0] if len(others) == 1 else "COLUMN"
    if code := code_of(file)[1]:
        return _Guess(code, image != "COLUMN")
    names, order = {"image": image, "label": label}, ""
    rest = [column for column in others if not _has_runs(column, row[column])]
    if len(rest) < len(others):  # Airbus has no classes
        schema = "segmentation" if rest else "FILE (with instance_ids:segmentation)"
        names = {"image": image, "segmentation": next(c for c in others if c not in rest)}
        names |= {"labels": rest[0] if len(rest) == 1 else "COLUMN"} if rest else {}
        order = f"--schema {schema} --masks run_order=ORDER (columns, rows)"
    elif image != "COLUMN" and (boxes := columns_of_boxes(row, {"image": image})):
        names = {"image": image, "labels": boxes.names.get("labels", "COLUMN")}
        order = f"--boxes order=ORDER ({', '.join(boxes.orders)})" if len(boxes.orders) > 1 else ""
    mapped = ",".join(f"{role}={column}" for role, column in names.items() if role != column)
    options = (
        f"--input {shlex.quote(tree.path(table))}",
        f"--delimiter {shlex.quote(mark)}" if mark else "",
        "" if folder == own else f"--image_root {shlex.quote(tree.path(folder))}",
        f"--columns {shlex.quote(mapped)}" if mapped else "",
        f"(columns: {', '.join(row)})" if row and "COLUMN" in names.values() else "",
        order,
    )
    return _Guess(" ".join(filter(None, options)), image != "COLUMN" and bool(others))


def _has_runs(column: str, value: str) -> bool:
    return are_runs(value) or (not value and column in ("EncodedPixels", "rle_mask", "rle"))
