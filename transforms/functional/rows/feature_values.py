"""Converts the values of table columns to those of features: numbers, text, lists and class ids.

A class name becomes the id of its class, and an integer stays as it is. Files of class names are
lines of text, JSON, or label maps of TensorFlow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

from recordmill.schemas.config import MAX_CLASSES
from recordmill.schemas.errors import UsageError
from recordmill.schemas.features import AS_NUMBERS, NO_LABEL, Feature, Missing, Schema
from recordmill.schemas.origins import NO_COLUMN, OUTLINES, POINTS, Origin
from recordmill.schemas.plan import ClassIds, ResolvedSchema
from recordmill.schemas.records import FeatureValue
from recordmill.schemas.rejects import Reason, RecordError
from recordmill.schemas.sums import Summed
from recordmill.schemas.tables import NO_CLASSES, DeclaredClasses
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.values import typed
from recordmill.transforms.functional.values.documents import parse_json
from recordmill.transforms.functional.values.typed import short_repr

# Sources whose values are read elsewhere, if at all from a column.
_WITHOUT_COLUMN = (*NO_COLUMN, Origin.MASK, *OUTLINES, *POINTS)

# Returns the values of a feature, of rows, their keys, and the keys of their records.
ValueReader: TypeAlias = Callable[[RowBatch, Sequence[str], Sequence[str]], Sequence[FeatureValue]]


def value_readers(
    resolved: ResolvedSchema, columns: Mapping[str, str], image_suffix: str
) -> tuple[ValueReader, ...]:
    """Returns the reader of each feature's values, in the order of the schema.

    Decisions that depend only on the schema are made here, once, and not for each row.
    """
    return tuple(
        _column_reader(name, feature, resolved, columns, image_suffix)
        if feature.source.origin not in _WITHOUT_COLUMN
        else _key_reader(feature)
        if feature.source.origin is Origin.KEY
        # until the image is read, or the sequence complete
        else lambda rows, *_: [None] * len(rows)
        for name, feature in resolved.schema.features.items()
    )


def _key_reader(feature: Feature) -> ValueReader:
    of_records = feature.per == "record"
    return lambda rows, keys, records: [k.encode() for k in (records if of_records else keys)]


def _column_reader(
    name: str,
    feature: Feature,
    resolved: ResolvedSchema,
    columns: Mapping[str, str],
    image_suffix: str,
) -> ValueReader:
    column = columns.get(feature.source.name, feature.source.name)
    convert = _converter(name, feature, resolved)
    missing = _missing_value(feature)
    names_image = feature.source.name == resolved.schema.image.column
    is_plain = (
        feature.shape is None and feature.source.origin is Origin.COLUMN and not feature.classes
    )

    def read(rows: RowBatch, keys: Sequence[str], records: Sequence[str]) -> Sequence[FeatureValue]:
        values, is_text = rows.column(column), rows.untyped(column)
        if names_image:
            values = [
                key if value is None and image is not None else value
                for image, key, value in zip(rows.images, keys, values, strict=True)
            ]  # the key of an embedded image without a path
            if image_suffix:
                values = [str(v) if isinstance(v, int) else v for v in values]
        if is_plain and (plain := typed.plain_column(values, feature.kind, is_text)) is not None:
            return plain
        if feature.shape is not None:  # a list is not shared between rows
            return [read_one(value, is_text) for value in values]
        return typed.by_value(lambda value: read_one(value, is_text), values)

    def read_one(value: Any, is_text: bool) -> FeatureValue:
        try:
            value = value if feature.shape is not None else typed.single_value(value)
            if typed.is_missing(value, feature, is_text):
                return missing()
            return _shaped(value, feature, is_text, convert)
        except RecordError as error:
            raise RecordError(error.reason, f"column {column!r}: {error.detail}") from None

    return read


def _shaped(value: Any, feature: Feature, is_text: bool, convert: typed.Converter) -> FeatureValue:
    if feature.shape is None:
        single: FeatureValue = convert(value, is_text)
        return single
    items = typed.items_of(value, feature, is_text)
    if feature.source.origin is Origin.ROW_LENGTHS:
        return typed.row_lengths(items)
    nested = (None, None) if feature.source.origin is Origin.FLAT else feature.shape
    if nested and not (is_text and items and isinstance(items[0], str)):
        items = typed.flattened(items, nested)
    elif nested:  # text split at its separators is flat: only the number of items can be checked
        typed.check_count(len(items), nested)
    return [convert(item, is_text) for item in items]


def _converter(name: str, feature: Feature, resolved: ResolvedSchema) -> typed.Converter:
    if feature.classes:
        ids = resolved.class_ids[name]
        return lambda value, is_text: class_id(value, is_text, ids)
    if feature.source.origin is Origin.CLASS_NAME:
        return _name_converter(feature.source.name, resolved)
    return typed.CONVERTERS[feature.kind]


def _name_converter(column: str, resolved: ResolvedSchema) -> typed.Converter:
    labels = resolved.class_feature_of(column)
    if labels is None or not resolved.classes.get(labels):
        return _label_text
    names, ids = resolved.classes[labels], resolved.class_ids[labels]
    return lambda value, is_text: names[class_id(value, is_text, ids)].encode("utf-8")


def _missing_value(feature: Feature) -> Callable[[], FeatureValue]:
    if feature.default is not None:
        default: FeatureValue = typed.CONVERTERS[feature.kind](feature.default, False)
        return lambda: default
    return (lambda: []) if feature.missing is Missing.EMPTY else _reject_missing


def _reject_missing() -> FeatureValue:
    raise RecordError(Reason.MISSING_VALUE, "empty; the schema requires a value")


# Limit for the characters of all their names together.
MAX_CLASS_TEXT = 2**26

# The beginning of objects in JSON, as tools write regions of images in a column.
_OBJECT = re.compile(r'\[?\s*\{\s*["}]')

# The name of class 0 in schemas whose labels have an offset of 1.
BACKGROUND = "background"


def class_id(value: Any, is_text: bool, ids: ClassIds) -> int:
    """Returns the id of a label; raises RecordError (unknown_label or wrong_type) if it has none.

    Without `ids`, the labels are integers without names.
    """
    number = typed.without_fraction(value)
    if isinstance(value, str) and _OBJECT.match(value):
        raise _not_a_class(value)
    if not ids:
        if not isinstance(number, str | int):
            raise _not_a_class(number)
        if isinstance(number, str) and not (is_class_name(number) or number.strip().isdigit()):
            raise _not_a_name(number)
        found = typed.to_int64(number, is_text)
        if 0 < ids.first > found or found > 2**63 - 1 - ids.offset:
            detail = f"{found} is not a label from {ids.first} on with an offset of {ids.offset}"
            raise RecordError(Reason.WRONG_TYPE, detail)
        return found - ids.first + ids.offset
    if ids.by_id and isinstance(value, int):
        return _known_id(int(value), ids)
    # An integer may be a class name, since the labels of a table may mix numerals and names.
    name = str(int(value)) if isinstance(value, int) else value
    name = str(value) if isinstance(value, float) else name
    if isinstance(name, str) and name in ids:
        return ids[name]
    # Other integers are ids, unless some class names look like integers.
    if typed.looks_integer(number, is_text) and not ids.has_numerals:
        return _known_id(int(number), ids)
    if not isinstance(value, str | int):
        raise _not_a_class(value)
    if isinstance(value, str) and not is_class_name(value):
        raise _not_a_name(value)
    detail = f"{typed.short_repr(value)} is not one of the {len(ids)} classes{_hint(value)}"
    raise RecordError(Reason.UNKNOWN_LABEL, detail)


def _not_a_name(value: str) -> RecordError:
    detail = "expected a class name without outer whitespace or line breaks, "
    detail += f"got {typed.short_repr(value)}. Fix the label; --classes cannot have it either."
    return RecordError(Reason.UNKNOWN_LABEL, detail)


def _not_a_class(value: Any) -> RecordError:
    hint = ". For several labels, set --schema multi_label." * isinstance(value, list)
    hint += ". Name a field, as in --columns label=label.name." * isinstance(value, dict)
    if isinstance(value, float) and math.isfinite(value):
        hint = f". For labels that are quantities, {AS_NUMBERS}."
    detail = f"expected a class name or id, got {typed.short_repr(value)}{hint}"
    return RecordError(Reason.WRONG_TYPE, detail)


def _label_text(value: Any, is_text: bool) -> bytes:
    """Returns a label without a class name as text, with integers in decimal."""
    value = typed.without_fraction(value)
    number = isinstance(value, int) and not isinstance(value, bool)
    return typed.to_bytes(str(value) if number else value, is_text)


@dataclass
class FoundLabels(Summed):
    """The distinct labels of a class feature; as many as a feature can have."""

    feature: str
    found: set[str | int] = field(default_factory=set)  # class names, and integers as such
    text: int = 0  # the number of characters of the class names

    @classmethod
    def sum_of(cls, parts: Iterable[FoundLabels]) -> FoundLabels:
        """Returns the labels of several parts, one at least."""
        first, *others = parts
        total = cls(first.feature, {*first.found}, first.text)
        for part in others:
            total.add(part.found)
        return total

    def add(self, labels: Iterable[str | int]) -> None:
        """Adds labels, except for text that is no class name; UsageError for too many."""
        for label in labels:
            if label in self.found:
                continue
            if isinstance(label, str):
                if not is_class_name(label):
                    continue
                self.text += len(label)
            self.found.add(label)
        # Checked here, not in the plan, to bound what a worker collects.
        if len(self.found) > MAX_CLASSES or self.text > MAX_CLASS_TEXT:
            examples = ", ".join(
                typed.short_repr(label) for label in sorted(map(str, self.found))[:3]
            )
            raise UsageError(
                f"feature {self.feature!r}: expected at most {MAX_CLASSES:,} classes with "
                f"{MAX_CLASS_TEXT // 2**20} Mi characters of names, got more, such as {examples}. "
                "Map a column that holds classes with --columns, or use a schema in which this "
                "feature is a plain value, without classes: true."
            )


def _sorted_class_names(labels: Iterable[str | int]) -> tuple[str, ...]:
    """Returns the sorted class names among labels; none if all labels are integers.

    >>> [_sorted_class_names(labels) for labels in (["dog", "cat"], [3, 1], ["1.0"])]
    [('cat', 'dog'), (), ()]
    """
    found = {label for label in labels if is_class_name(str(label))}
    if all(isinstance(typed.without_fraction(label), int) for label in found):
        return ()
    # A row with -1 has no label, and is rejected.
    return tuple(sorted({str(label) for label in found} - {str(NO_LABEL)}))


def with_background(names: tuple[str, ...], offset: int) -> tuple[str, ...]:
    """Adds the background class before the class names of a schema with a label offset of 1.

    >>> with_background(("cat", "dog"), 1)
    ('background', 'cat', 'dog')
    """
    if not names or not offset:
        return names
    return BACKGROUND, *(name for name in names if name != BACKGROUND)


def with_classes(schema: Schema, names: tuple[str, ...] | None) -> ResolvedSchema:
    """Returns a schema with the classes of `--classes`, if it is set."""
    offsets = ((name, schema.features[name].label_offset) for name in schema.named_features)
    return ResolvedSchema(schema, {n: with_background(names or (), at) for n, at in offsets})


def merged_class_names(
    labels: Iterable[str | int], known: Sequence[str] | None, declared: DeclaredClasses = NO_CLASSES
) -> tuple[str, ...]:
    """Appends new class names to those of the base version, which keep their ids.

    `known` are those of the base version; empty if its labels are integers. Classes that
    the source declares come first. Raises UsageError if only the table has names.

    >>> merged_class_names(["ant", "dog"], ("cat", "dog"))
    ('cat', 'dog', 'ant')
    >>> merged_class_names(["ant"], None, DeclaredClasses(((1, "cat"), (7, "bee"))))
    ('cat', 'bee', 'ant')
    """
    if declared.are_names and known != ():  # a base version may have integers as ids
        labels = chain(map(str, labels), declared.unused)
    if declared.by_id:
        labels = (label for label in labels if isinstance(label, str))
    found = (name for _, name in declared.names if is_class_name(name))
    names = tuple(dict.fromkeys((*found, *_sorted_class_names(labels))))
    if known is None:
        return names
    if names and not known:
        raise UsageError(
            f"--base: expected integer labels as in the base version, got {names[0]!r}. Use "
            "integer labels, or create a dataset without --base."
        )
    # A dict keeps the order, in linear time: there can be 100,000 classes.
    return tuple(dict.fromkeys((*known, *names)))


def is_class_name(text: str) -> bool:
    """Returns whether a text is a line of labels.txt, which TFDS strips, and no JSON object."""
    one_line = bool(text) and text == text.strip() and len(text.splitlines()) == 1
    return one_line and not _OBJECT.match(text) and not typed.has_surrogates(text)


def _hint(label: Any) -> str:
    """Returns a hint for a label that usually means that a row has none; "" for others."""
    if label not in (NO_LABEL, str(NO_LABEL)):
        return ""
    return (
        f"; {NO_LABEL} usually means that a row has no label: declare default: {NO_LABEL} for this "
        "feature in a schema"
    )


def _known_id(number: int, ids: ClassIds) -> int:
    first, last = ids.first, ids.first + len(ids) - ids.offset - 1
    if not first <= number <= last:
        hint = _hint(number)
        if number == last + 1 and not first:
            hint = "; ids count from 0: where they count from 1, set --first_label 1"
        detail = f"id {number} is not within {first} to {last}{hint}"
        raise RecordError(Reason.UNKNOWN_LABEL, detail)
    return number - first + ids.offset


_ITEM = re.compile(r"item\s*\{(.*?)\}", re.DOTALL)
_ID = re.compile(r"\bid\s*:\s*(\d+)")
_WITH_ID = re.compile(r"(\d+)[\s,;:](.*)|(.*)[,;:\t] ?(\d+)")
_NAME = re.compile(r"""\b(?:name|display_name)\s*:\s*(?:'([^'\\]*)'|"([^"\\]*)")""")


def label_map(text: str) -> dict[int, str]:
    """Returns the names in a label map by id; ValueError for an id or name that occurs twice."""
    names, lines = dict[int, str](), dict[int | str, int]()
    for item in _ITEM.finditer(text):
        id_, name = _ID.search(item[1]), _NAME.search(item[1])
        if id_ and name:
            number, named = int(id_[1]), name[1] or name[2] or ""
            line, names[number] = text.count("\n", 0, item.start()) + 1, named
            if what := [one for one in (number, named) if one in lines]:
                both = (
                    f"{what[0]!r} occurs twice, in the items of lines {lines[what[0]]} and {line}"
                )
                raise ValueError(f"{both}. Give each class an id and a name of its own")
            lines |= {number: line, named: line}
    return names


def names_in(text: str, path: str) -> tuple[list[str], int]:
    """Returns the names in a file by id, and the first id, 0 or 1; raises ValueError for gaps."""
    kind = path.lower().partition("?")[0].rpartition(".")[2]
    if kind in ("yaml", "yml"):
        raise ValueError("is YAML")
    if kind not in ("pbtxt", "json"):
        # Empty lines at the end of a file are no class; elsewhere they are an error.
        lines = text.rstrip("\r\n").splitlines()
        if len(lines) == 1 and lines[0].count(",") > 1:
            raise ValueError("has several names in one line. Write each on a line of its own")
        matches = [match for match in map(_WITH_ID.fullmatch, lines) if match]
        ids, names = sorted(int(m[1] or m[4]) for m in matches), {m[2] or m[3] for m in matches}
        if len(names) == len(ids) >= max(2, len(lines) - 1) and ids == [
            *range(ids[0], ids[-1] + 1)
        ]:
            raise ValueError("has an id in each line. Order the names by id, and remove the ids")
        return lines, 0
    found = label_map(text) if kind == "pbtxt" else _names_of_json(parse_json(text))
    ids = sorted(found)
    if ids and (ids[0] > 1 or ids[-1] != ids[0] + len(ids) - 1):
        raise ValueError(f"expected ids from 0 or 1 without gaps, got {short_repr(ids)}")
    return [found[id_] for id_ in ids], ids[0] if ids else 0


def _names_of_json(found: Any) -> Mapping[int, str]:
    """Returns names by id: of a list, or of an object from ids to names or from names to ids."""
    items = list(enumerate(found) if isinstance(found, list) else _items(found))
    names = {id_: name for id_, name in items if isinstance(name, str)}
    if not items or len(names) < len(items):
        expected = "a list of names, or an object with an id for each"
        raise ValueError(f"expected {expected}, got {short_repr(found)}")
    return names


def _items(found: Any) -> list[tuple[int, Any]]:
    pairs = found.items() if isinstance(found, dict) else ()
    if pairs and all(type(value) is int and value >= 0 for _, value in pairs):
        return [(id_, name) for name, id_ in pairs]
    return [(int(id_), name) for id_, name in pairs if id_.isascii() and id_.isdigit()]
