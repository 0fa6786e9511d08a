"""Reads YOLO labels: a folder of images with one text file per image, next to it or in labels/.

A line is `class x-center y-center width height`, or `class x1 y1 x2 y2 x3 y3 …` for an outline, in
fractions of the image size; an outline of four points may be an oriented box. With `kpt_shape` in
data.yaml, keypoints follow the box. Format: https://docs.ultralytics.com/datasets/detect/ and
/segment/, /obb/, /pose/.
Class names are in data.yaml, or one per line in classes.txt. The splits are the folders or lists of
images that data.yaml names, or else folders such as train and val. Darknet and CVAT write obj.data
instead of data.yaml, with the paths of lists and of a file of class names:
https://docs.cvat.ai/docs/dataset_management/formats/format-yolo/.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from recordmill.schemas import records, tables
from recordmill.schemas.errors import UsageError
from recordmill.schemas.findings import Finding, counted, finding
from recordmill.schemas.masking import masked_url
from recordmill.schemas.records import KEYPOINTS, ORIENTED, UNLABELED, Location, Row, SkippedInput
from recordmill.schemas.rejects import Reason, RecordError, Reject
from recordmill.schemas.yaml_files import load_yaml
from recordmill.transforms.functional.images.masks import box_of_outline
from recordmill.transforms.functional.images.sniffing import has_image_suffix, tool_of
from recordmill.transforms.functional.sources.tree import (
    NO_SPLIT,
    SEVERAL_SPLITS,
    SHARED_LABELS,
    Tree,
    Use,
    head_of,
    parts_of,
    split_folders,
    split_named,
    stem_of,
)
from recordmill.transforms.functional.values.boxes import (
    BOX_COLUMNS,
    NORMALIZED,
    TO_CORNERS,
    box_columns,
    number_of,
)
from recordmill.transforms.functional.values.typed import short_repr

_OBJECTS = ("labels", "segmentation", "corners", "keypoints", "keypoint_names")
COLUMNS = ("image", "id", *BOX_COLUMNS, *_OBJECTS, tables.SPLIT)

_YAML = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
_DARKNET = ("obj.data",)
_TEXTS = ("classes.txt", "obj.names", "classes.names", "labels/classes.txt")
CLASS_FILES = (*_YAML, *_DARKNET, "classes.txt", "obj.names", "classes.names", "_darknet.labels")
_NO_LABELS = re.compile(r"(?i)(classes|train|val|valid|test|readme.*)\.txt")
_SPLITS = ("train", "val", "test")  # the keys of data.yaml with the images of a split
_MAX_BYTES = 16 * 2**20
_PATH = re.compile(rb"\s*\S*/")  # a line of a list of images
_CLASS_ID = re.compile(r"""(["']?)([0-9]{1,9})(?:\.0*)?\1""")
_DRIVE = re.compile(r"[A-Za-z]:/")


@dataclass(frozen=True)
class YoloOptions:
    """What is known of a folder of YOLO labels before it is read."""

    yaml: str = ""  # the file with the classes, such as data.yaml, relative to the folder, or ""
    has_split_folders: bool = False  # whether folders named like splits are the splits


_MAX_POINT = 1.5  # beyond the image, but by no more than is taken for a fraction of it
# A class and four numbers, or four points.
_BOX_FIELDS, _ORIENTED_FIELDS = 5, 9


class Classes(NamedTuple):
    """The classes that a dataset declares."""

    names: dict[int, str]
    # The number of keypoints after a box, and of numbers of each, 2 or 3; None without keypoints.
    keypoints: tuple[int, int] | None = None
    keypoint_names: Mapping[int, list[str]] = MappingProxyType({})  # of each class id
    # The folders, or text files with lists of images, of each split.
    splits: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    path: str = ""
    number: int | None = None  # of classes, as `nc` of data.yaml states it


def probe(tree: Tree, file: tables.TableFile) -> tables.Probe:
    """Returns the columns of labels; UsageError if there are no images or no class names."""
    options, dataset = file.options_of(YoloOptions), _Dataset(tree, file)
    classes, missing = dataset.classes, dataset.missing
    if not any(isinstance(found, str) and has_image_suffix(found) for found in tree.walk()):
        raise UsageError(f"{file.path}: has no image; expected images/ and labels/")
    folders = split_folders(tree, has_image_suffix) if options.has_split_folders else ()
    splits = tuple(classes.splits) or folders
    if missing:
        shown = "; ".join(f"{name}: {', '.join(paths)}" for name, paths in missing.items())
        what = f"{file.path}: the splits of {options.yaml} do not exist ({shown})"
        if len(missing) == len(splits):
            raise UsageError(f"{what}; expected folders, or lists of images. Correct their paths.")
    return tables.Probe(
        COLUMNS,
        has_rows=True,
        classes={"labels": tables.DeclaredClasses(tuple(sorted(classes.names.items())))},
        splits=splits,
        preset="keypoints" if classes.keypoints else "object_detection",
        findings=tuple(_contradictions(tree, options.yaml, classes)),
    )


def _contradictions(tree: Tree, yaml: str, classes: Classes) -> Iterator[Finding]:
    """Yields warnings if `nc`, or a list of names beside data.yaml, differs from its names."""
    what, shown = f"{tree.path(yaml)}: 'names' has", counted(len(classes.names), "class")
    if classes.number not in (None, len(classes.names)):
        text = f"{what} {shown}, but 'nc' is {classes.number}; other ids are rejected"
        yield finding("warning", "number_of_classes", text, "Correct either")
    for name in filter(tree.has, _TEXTS if yaml and yaml not in _DARKNET else ()):
        lines = _content(tree, name).decode("utf-8-sig", "replace").splitlines()
        if {i: line.strip() for i, line in enumerate(lines) if line.strip()} != classes.names:
            text = f"{what} other names than {name}, which is not read"
            yield finding("warning", "other_class_names", text, "Correct either, or remove it")


def recognize_folder(tree: Tree) -> tables.Sources | None:
    """Returns a folder with class names and labels of YOLO, and a description; None for others."""
    if (yaml := _yaml_of(tree)) or _has_labels(tree):
        return sources_in(tree, yaml)._replace(text=f"YOLO ({yaml})" if yaml else "YOLO")
    return None


def sources_in(tree: Tree, yaml: str | None = None) -> tables.Sources:
    """Returns a folder of labels as a source.

    `yaml` is its file of classes, "" if it has none; it is looked for by default.
    """
    yaml = _yaml_of(tree) if yaml is None else yaml
    options = YoloOptions(yaml, bool(split_folders(tree, has_image_suffix)))
    return tables.Sources((tables.TableFile(tree.root, "yolo", options=options),))


def _yaml_of(tree: Tree) -> str:
    """Returns the name of a folder's data.yaml, or of Darknet's obj.data; "" if there is none."""
    files = tree.entries().files
    names = [name for name in files if name.lower().endswith((".yaml", ".yml"))]
    preferred = [name for name in _YAML if name in names][:1]
    found = [name for name in preferred or names if _has_names(tree, name)]
    if len(found) > 1:
        raise UsageError(
            f"{tree.root}: has several files with YOLO class names: {', '.join(found)}. Name one "
            f"of them, as in --input {tree.path(found[0])}"
        )
    return "".join(found) or next((name for name in _DARKNET if name in files), "")


def _has_names(tree: Tree, name: str) -> bool:
    try:
        _, document = load_yaml(_content(tree, name), tree.path(name))
    except (UsageError, OSError):
        return False
    return isinstance(document, dict) and "names" in document


def _has_labels(tree: Tree) -> bool:
    """Returns whether a folder without data.yaml has labels of YOLO, in a folder beside images/."""
    tops = ("", *(name for name in tree.entries().folders if name.lower() in tables.SPLIT_NAMES))
    for top in tops:
        if {"images", "labels"} <= set(tree.entries(top).folders):
            labels = posixpath.join(top, "labels")
            folders = (labels, *(posixpath.join(labels, n) for n in tree.entries(labels).folders))
            found = (posixpath.join(f, n) for f in folders for n in tree.entries(f).files)
            first = next(filter(_is_label, found), "")
            head = head_of(tree, first) if first else b""
            return bool(first) and not (_PATH.match(head) or tool_of(head)[0])
    files = tree.entries().files
    stems = {stem_of(name) for name in files if has_image_suffix(name)}
    beside = [n for n in files if _is_label(n) and stem_of(n) in stems]
    return bool(beside) and any(name in files for name in _TEXTS)


def parts(tree: Tree, file: tables.TableFile) -> Iterator[tables.Part | Reject | SkippedInput]:
    """Yields parts of the images, then rejects and skipped inputs, such as labels of no image."""
    lists = _Dataset(tree, file).lists
    described = {*_YAML, *_DARKNET, *_TEXTS, file.options_of(YoloOptions).yaml, *lists}
    images, labels = list[str](), set[str]()

    def use_of(name: str) -> Use:
        if has_image_suffix(name):
            images.append(name)
            return "read"
        if _is_label(name) and name not in lists:
            labels.add(name)
            return "with another"
        return "with another" if name in described else "skipped"

    yield from parts_of(tree, file, use_of)
    used, shared = set[str](), list[str]()
    for name in sorted(images):
        label = next((label for label in _label_paths(name) if label in labels), None)
        if label in used:
            shared.append(name)
        elif label is not None:
            used.add(label)
    if images and labels and not used:
        expected = next(_label_paths(min(images)))
        detail = f"no image has a label file: expected one such as {expected}, got {min(labels)}"
        yield Reject("", "", tree.root, Reason.MISSING_FILE, detail)
    skipped = {SHARED_LABELS: shared, records.UNMATCHED_FILES: labels - used}
    yield from (SkippedInput.named(kind, names) for kind, names in skipped.items() if names)


def read(
    tree: Tree, part: tables.Part, projection: tables.Projection
) -> Iterator[Row | Reject | SkippedInput]:
    """Yields the row of each image or its reject, and skipped inputs."""
    dataset = _Dataset(tree, part.file)
    for name in part.names:
        yield from _row(tree, name, dataset, projection)


def _classes_of(tree: Tree, yaml: str = "") -> Classes:
    """Reads the classes of a dataset from data.yaml, or what else has them if it is not named."""
    for name in (yaml,) if yaml else (*_YAML, *_DARKNET, *_TEXTS):
        if yaml or tree.has(name):
            data, where = _content(tree, name), tree.path(name)
            if name.lower().endswith((".yaml", ".yml")):
                return _parse_yaml(data, where)
            if posixpath.basename(name) in _DARKNET:
                return _darknet(tree, data, where)
            return _parse_classes(data, where)
    raise UsageError(
        f"{tree.root}: no class names for YOLO labels; expected data.yaml with 'names', or "
        "classes.txt. For class folders, set --input_format folder"
    )


def sources_of_file(tree: Tree, name: str) -> tables.Sources:
    """Returns the folder that a data.yaml describes."""
    root = _root_of(tree, name)
    found = sources_in(tree.at(root), posixpath.relpath(tree.path(name), root))
    return found._replace(text=f"YOLO, with images and labels in {masked_url(root)}")


def _root_of(yaml: Tree, name: str) -> str:
    """Returns the folder of the images and labels that a data.yaml describes."""
    path = posixpath.normpath(_classes_of(yaml, name).path or ".")
    found = path if path.startswith("/") else yaml.path(path)
    # A `path` may be that of another machine, or relative to a setting of Ultralytics.
    return found if path != "." and yaml.has(path) else yaml.root


def _parse_yaml(data: bytes, where: str) -> Classes:
    _, document = load_yaml(data, where, ("names", "kpt_names"))
    names = document.get("names") if isinstance(document, dict) else None
    # A list of names has the ids 0, 1, 2 …
    if isinstance(names, list):
        names = dict(enumerate(names))
    if not isinstance(names, dict) or not names:
        raise UsageError(f"{where}: has no 'names'; expected a list, or ids with their names")
    for id_, name in names.items():
        if isinstance(id_, bool) or not isinstance(id_, int):
            raise UsageError(f"{where}: 'names': expected integers as ids, got {short_repr(id_)}")
        # YAML parses an unquoted `no` as false.
        if not isinstance(name, str):
            raise UsageError(
                f"{where}: 'names': {id_}: expected a name, got {short_repr(name)}. Quote it."
            )
    found = _classes(names, where)
    shape = _keypoint_shape(document.get("kpt_shape"), where)
    return found._replace(
        keypoints=shape,
        keypoint_names=_keypoint_names(document.get("kpt_names"), shape, where),
        splits={key: paths for key in _SPLITS if (paths := _paths_of_split(document.get(key)))},
        path=path.replace("\\", "/") if isinstance(path := document.get("path"), str) else "",
        number=number if isinstance(number := document.get("nc"), int) else None,
    )


def _keypoint_shape(value: Any, where: str) -> tuple[int, int] | None:
    if value is None:
        return None
    is_shape = isinstance(value, list) and len(value) == 2 and all(type(n) is int for n in value)
    if not is_shape or value[0] < 1 or value[1] not in (2, 3):
        what = "expected the number of keypoints, and 2 or 3 numbers of each, as in [17, 3]"
        raise UsageError(f"{where}: 'kpt_shape': {what}; got {short_repr(value)}")
    return value[0], value[1]


def _keypoint_names(value: Any, shape: tuple[int, int] | None, where: str) -> dict[int, list[str]]:
    """Returns the names of the keypoints of each class id; other values are ignored."""
    found = value if isinstance(value, dict) else {}
    names = {id_: [*map(str, names)] for id_, names in found.items() if isinstance(names, list)}
    for id_, listed in names.items():
        if shape and listed and len(listed) != shape[0]:
            what = f"expected {shape[0]} names, one per keypoint of kpt_shape, got {len(listed)}"
            raise UsageError(f"{where}: 'kpt_names': {short_repr(id_)}: {what}. Correct either.")
    return names


def _darknet(tree: Tree, data: bytes, where: str) -> Classes:
    """Reads the classes and splits that Darknet's obj.data names."""
    pairs = (line.partition("=") for line in data.decode("utf-8-sig", "replace").splitlines())
    values = {key.strip(): value.strip() for key, _, value in pairs}
    names = _below(tree, values.get("names") or "obj.names", "")
    if not tree.has(names):
        raise UsageError(f"{where}: its file of class names, {names}, does not exist. Add it.")
    classes = _parse_classes(_content(tree, names), tree.path(names))
    lists = {split: values.get(split, "") for split in ("train", "valid", "val", "test")}
    return classes._replace(splits={split: (path,) for split, path in lists.items() if path})


def _paths_of_split(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(path for path in values if isinstance(path, str) and path)


def _parse_classes(data: bytes, where: str) -> Classes:
    """Parses the classes in classes.txt: the id of a class is its line number, counted from 0."""
    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: byte {error.start} is not valid UTF-8") from error
    return _classes({i: line.strip() for i, line in enumerate(lines) if line.strip()}, where)


def _classes(names: dict[int, str], where: str) -> Classes:
    if repeated := [name for name, count in Counter(names.values()).items() if count > 1]:
        name = short_repr(repeated[0])
        raise UsageError(f"{where}: class {name} occurs twice. Rename one of the two.")
    return Classes(names)


def _parse(text: str, classes: Classes) -> dict[str, Any]:
    boxes, labels, outlines, points = [], [], [], []
    lines = text.splitlines()
    are_alike = len({len(line.split()) for line in lines} - {0}) == 1  # unlike most outlines
    for number, line in enumerate(lines, start=1):
        fields = line.split()
        if not fields:
            continue
        if "," in line:
            what = "expected numbers with a point, separated by spaces, got a comma"
            detail = f"line {number}: {what}: {short_repr(line)}"
            raise RecordError(Reason.MALFORMED_ROW, detail)
        numbers = [number_of(value, f"line {number}") for value in fields[1:]]
        labels.append(_class_name(fields[0], number, classes))
        # 4 numbers are a box. An even number from 6 is an outline, or in a pose dataset a box and
        # its keypoints.
        outline = len(numbers) >= 6 and len(numbers) % 2 == 0 and not classes.keypoints
        if outline and (max(numbers) > _MAX_POINT or (are_alike and _is_box(numbers, fields[-1]))):
            what = f"expected points from 0 to 1, got {short_repr(line)}"
            detail = f"line {number}: {what}; a box with a confidence and a track id is not read"
            detail += ", nor keypoints without kpt_shape in data.yaml"
            raise RecordError(Reason.MALFORMED_ROW, detail)
        if classes.keypoints:
            points.append(_keypoints(numbers, classes.keypoints, number))
        elif not outline and len(numbers) != 4:
            detail = f"line {number}: expected a class and 4 numbers, or an outline of 3 or more"
            other = "; the confidence of a prediction, or an angle, is not read"
            detail += f" points; got {len(fields)} fields{other * (len(numbers) == 5)}"
            raise RecordError(Reason.MALFORMED_ROW, detail)
        boxes.append(box_of_outline([numbers]) if outline else TO_CORNERS["cxcywh"](*numbers[:4]))
        outlines.append([numbers] if outline else [])  # a list of polygons per object
    values = {**box_columns(boxes, NORMALIZED), "labels": labels, "segmentation": outlines}
    if classes.keypoints:
        ids = {name: id_ for id_, name in classes.names.items()}
        names = [classes.keypoint_names.get(ids[label], []) for label in labels]
        return {**values, "keypoints": points, "keypoint_names": names if all(names) else None}
    return {**values, "corners": [outline[0] if outline else [] for outline in outlines]}


def _is_box(numbers: list[float], last: str) -> bool:
    """Returns whether an outline may be a box with the track id 1, or near visible keypoints."""
    x, y, width, height, *rest = numbers
    is_inside = max(abs(x - 0.5) + width / 2, abs(y - 0.5) + height / 2) <= 0.501
    points = [*zip(rest[::3], rest[1::3], rest[2::3], strict=False)]
    is_near = all(abs(a - x) < width and abs(b - y) < height for a, b, flag in points if flag)
    has_flags = len(rest) % 3 == 0 and {flag for _, _, flag in points} <= {0, 1}
    return is_inside and is_near and (last == "1" if len(rest) == 2 else has_flags)


def _keypoints(numbers: list[float], shape: tuple[int, int], line: int) -> list[float]:
    """Returns x, y and visibility of each keypoint; all are 0 for a line with only a box.

    As in Ultralytics, a keypoint without a visibility is visible unless a coordinate is negative;
    tools write 0 0 for one that is not labeled.
    """
    count, dimensions = shape
    if len(numbers) not in (4, 4 + count * dimensions):
        what = f"4 numbers and {count} keypoints of {dimensions}, as kpt_shape says"
        detail = f"line {line}: expected a class, {what}; got {1 + len(numbers)} fields"
        raise RecordError(Reason.MALFORMED_ROW, detail)
    numbers = numbers[4:] or [0.0] * dimensions * count
    if dimensions == 3:
        return numbers
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return [
        number
        for x, y in pairs
        for number in ((x, y, 2.0) if min(x, y) >= 0 and (x or y) else (0.0, 0.0, 0.0))
    ]


class _Dataset:
    """The classes, and the splits of images; if these are declared, other images are in none."""

    def __init__(self, tree: Tree, file: tables.TableFile) -> None:
        options = file.options_of(YoloOptions)
        self.classes = classes = _classes_of(tree, options.yaml)
        self._tree, self._base = tree, classes.path
        self._folders: list[tuple[str, str]] = []  # [(folder, split)], the deepest first
        self._listed: dict[str, str] = {}  # {image: split}
        self.repeated: set[str] = set()  # images in the lists of several splits
        self.lists = set[str]()
        self.missing: dict[str, tuple[str, ...]] = {}
        self._by_name = options.has_split_folders and not classes.splits
        self.are_declared = self._by_name or bool(classes.splits)
        for name, paths in classes.splits.items():
            found = [_below(tree, path, self._base) for path in paths]
            if not any(map(tree.has, found)):
                self.missing[name] = paths
            for path in filter(tree.has, found):
                if path.endswith(".txt"):
                    self._add_list(path, name)
                else:
                    self._folders.append((path, name))
        self._folders.sort(key=lambda found: -len(found[0]))

    def _add_list(self, path: str, split: str) -> None:
        self.lists.add(path)
        folders: dict[str, str] = {}  # {folder as written: folder below the root}
        for line in _content(self._tree, path).decode("utf-8-sig").splitlines():
            above, _, image = line.strip().replace("\\", "/").rpartition("/")
            if image and above not in folders:
                # Only the first image of a folder is looked up: a list can have a million lines.
                found = _below(self._tree, line, self._base, posixpath.dirname(path))
                folders[above] = posixpath.dirname(found)
            if image:
                name = posixpath.join(folders[above], image)
                if self._listed.setdefault(name, split) != split:
                    self.repeated.add(name)

    def splits_of(self, name: str) -> list[str]:
        """Returns the splits that name an image; the first one is its split."""
        listed = [self._listed[name]] if name in self._listed else []
        folders = [s for f, s in self._folders if f == "." or name.startswith(f"{f}/")]
        # Else the name of a folder at any level: images/train, train/images.
        named = [split_named(name)] if self._by_name else []
        return [*dict.fromkeys(filter(None, (*listed, *folders, *named)))]


def _below(tree: Tree, path: str, base: str, folder: str = "") -> str:
    """Returns a path in data.yaml, or in a list of images, relative to the folder of the dataset.

    A path of the machine that exported the dataset, maybe with backslashes, is found by its end.
    `base` is `path` in data.yaml, which may name the folder on another machine.
    """
    path = path.strip().replace("\\", "/")
    for top in (tree.root, base):
        if top and path.startswith(f"{top.rstrip('/')}/"):
            return posixpath.normpath(path[len(top.rstrip("/")) + 1 :])
    found = posixpath.normpath(path if _DRIVE.match(path) else posixpath.join(folder, path))
    if base and not base.startswith("/") and tree.has(posixpath.join(base, found)):
        # `../pets` in the folder pets is this folder.
        return posixpath.relpath(tree.path(posixpath.join(base, found)), tree.root)
    # As Ultralytics does, read ../train of a Roboflow export as train.
    while found.startswith("../"):
        found = found[3:]
    if not found.startswith("/") and tree.has(found):
        return found
    parts = found.split("/")
    ends = ("/".join(parts[start:]) for start in range(1, len(parts)))
    return next(filter(tree.has, ends), found)


def _row(
    tree: Tree, name: str, dataset: _Dataset, projection: tables.Projection
) -> Iterator[Row | Reject | SkippedInput]:
    label = next((label for label in _label_paths(name) if tree.has(label)), None)
    found, classes = dataset.splits_of(name), dataset.classes
    split = found[0] if found else None
    if split is None and dataset.are_declared and projection.has(tables.SPLIT):
        yield SkippedInput.named(NO_SPLIT, [name])
        return
    if projection.has(tables.SPLIT) and (name in dataset.repeated or len(found) > 1):
        yield SkippedInput.named(SEVERAL_SPLITS, [name])
    if label is None:
        yield SkippedInput.named(UNLABELED, [name])
    image = tree.path(name)
    try:
        text = _content(tree, label).decode("utf-8-sig") if label is not None else ""
        values = _parse(text, classes)
    except (RecordError, OSError, UnicodeError) as error:
        yield _reject(error, name, image, tree.path(label or name))
        return
    if kind := _left_out(text, classes, projection):
        yield SkippedInput.named(kind, [name])
    values = {"image": name, "id": stem_of(name), tables.SPLIT: split, **values}
    yield Row(projection.apply(values), tree.path(label or name), 0, image=Location(image))


def _left_out(text: str, classes: Classes, projection: tables.Projection) -> str:
    """Returns the kind of an image of whose objects the schema lacks a part; "" for others."""
    counts = {len(line.split()) for line in text.splitlines()} - {0}
    if classes.keypoints:
        is_left_out = any(count > _BOX_FIELDS for count in counts)
        return KEYPOINTS if is_left_out and not projection.has("keypoints") else ""
    is_outline = projection.has("corners") or projection.has("segmentation")
    return ORIENTED if counts == {_ORIENTED_FIELDS} and not is_outline else ""


def _reject(error: Exception, name: str, image: str, source: str) -> Reject:
    """Returns the reject of an image, whose key is its path below the folder."""
    if isinstance(error, RecordError):
        return Reject(name, image, source, error.reason, error.detail)
    reason = Reason.READ_ERROR if isinstance(error, OSError) else Reason.MALFORMED_ROW
    return Reject(name, image, source, reason, str(error))


def _label_paths(image: str) -> Iterator[str]:
    """Yields the possible paths of the label file of an image.

    >>> list(_label_paths("images/train/1.jpg"))
    ['labels/train/1.txt', 'images/train/1.txt']
    """
    text = posixpath.splitext(image)[0] + ".txt"
    # As Ultralytics does, replace the last folder named images by labels.
    head, found, tail = f"/{text}".rpartition("/images/")
    if found:
        yield f"{head}/labels/{tail}".lstrip("/")
    yield text


def _is_label(name: str) -> bool:
    return name.endswith(".txt") and not _NO_LABELS.fullmatch(posixpath.basename(name))


def _content(tree: Tree, name: str) -> bytes:
    with tree.open(name) as stream:
        data = stream.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise OSError(f"{tree.path(name)}: expected at most {_MAX_BYTES:,} bytes, got more")
    return data


def _class_name(field: str, line: int, classes: Classes) -> str:
    # Some tools write ids as floats, or in quotes.
    match = _CLASS_ID.fullmatch(field)
    id_ = int(match[2]) if match else -1
    if id_ not in classes.names:
        count = len(classes.names)
        detail = f"line {line}: class id {field[:40]!r} is not one of the {count} declared classes"
        raise RecordError(Reason.UNKNOWN_LABEL, detail)
    return classes.names[id_]
