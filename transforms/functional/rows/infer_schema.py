"""Infers a schema from the first rows of a table, and formats it as YAML with comments."""

from __future__ import annotations

import functools
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from recordmill.schemas.features import MASK, Feature, Missing
from recordmill.schemas.origins import Kind
from recordmill.schemas.records import Row
from recordmill.schemas.tables import SPLIT_NAMES
from recordmill.transforms.functional.images import sniffing
from recordmill.transforms.functional.rows.columns import ColumnKinds
from recordmill.transforms.functional.values.documents import parse_json

_LABEL = re.compile(
    r"(^|[_\s])(label|class|category|target|species|landmark)s?([_\s]|$)", re.IGNORECASE
)
_KEY = re.compile(r"(^|[_.])(id|key|uuid|guid)$", re.IGNORECASE)
_BOXES = re.compile(r"(^|\.)(b|bounding_?)?box(es)?$", re.IGNORECASE)
_OBJECT_LABEL = re.compile(r"labels?|class(es)?|category|categories", re.IGNORECASE)
_MAX_CLASSES = 1000
_MOST = 0.5  # the share of images above which a column has images
_SHOWN = 3


@dataclass(frozen=True)
class SampledImages:
    """Statistics of the first images of a table."""

    tried: int = 0  # the number of images, including those that cannot be opened
    formats: Counter[str] = field(default_factory=Counter)
    # The width and height of each image that can be opened, in pixels.
    sizes: Sequence[tuple[int, int]] = ()
    are_deep: bool = False  # whether all are gray of 16 bits

    def __str__(self) -> str:
        if not self.formats:
            return f"none of the first {self.tried} can be opened: check --image_root, and suffixes"
        formats = ", ".join(f"{count} {name}" for name, count in self.formats.most_common())
        (small, large) = min(self.sizes), max(self.sizes)
        sizes = f"{small[0]}x{small[1]}" + (f" to {large[0]}x{large[1]}" if small != large else "")
        lost = self.tried - self.formats.total()
        return f"{formats}, {sizes}" + (f"; {lost} cannot be opened" if lost else "")


@dataclass(frozen=True)
class InferredSchema:
    """The inferred features and roles of the columns of a table."""

    columns: tuple[str, ...]  # the columns, in the order of the table
    rows: int
    features: Mapping[str, Feature]
    # The count of each value, or of each item of lists, by column.
    values: Mapping[str, Counter[Any]]
    # The table's column of some columns of presets, as the user states them.
    stated: Mapping[str, str] = field(default_factory=dict)
    # A description of the values of each column that no feature supports.
    left_out: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None  # the column of image paths or images
    label: str | None = None
    split: str | None = None
    key: str | None = None
    # The other columns of image paths or images.
    images: tuple[str, ...] = ()

    @property
    def roles(self) -> dict[str, str]:
        """The table column of each column of the presets."""
        label = self.label and ("labels" if self.features[self.label].shape == () else "label")
        named = {"image": self.image, label or "": self.label}
        return {role: column for role, column in named.items() if role and column} | {**self.stated}


def infer_from_rows(
    columns: Sequence[str], rows: Sequence[Row], stated: Mapping[str, str] = MappingProxyType({})
) -> InferredSchema:
    """Infers a schema from rows; `stated`: table columns by preset column, such as `image`."""
    # The shapes of nested lists come first: they determine which columns are left out.
    lists = {column for column in columns if _is_list(column, rows)}
    shapes = {c: _shape([_cell(row, c, lists) for row in rows]) for c in columns}
    left_out = {column: shape for column, shape in shapes.items() if isinstance(shape, str)}
    columns = [column for column in columns if column not in left_out]
    kinds, values = ColumnKinds(), {column: Counter[Any]() for column in columns}
    for row in rows:
        items = {column: _cell(row, column, lists) for column in columns}
        items = {
            c: list(_leaves(v)) if shapes[c] and v is not None else v for c, v in items.items()
        }
        kinds.add([row._replace(values=items)])
        for column, value in items.items():
            seen = value if isinstance(value, list) else [value]
            values[column].update(v for v in seen if v is not None and v != "")
    features = {
        name: feature.model_copy(update={"shape": shapes[name]})
        if shapes[name]
        else _sized(feature, [row.values.get(name) for row in rows])
        for name, feature in kinds.features().items()
    }
    known = {role: column for role, column in stated.items() if column in values}
    found = InferredSchema(tuple(columns), len(rows), features, values, known, left_out)
    return replace(found, **_roles(found, stated))


def _roles(found: InferredSchema, stated: Mapping[str, str]) -> dict[str, Any]:
    """Returns the column of each role: of those stated, then image, split, key and label."""
    values, features = found.values, found.features
    free = sorted((c for c in found.columns if c not in stated.values()), key="image".__ne__)
    # Images rather than the names of their files.
    images = [c for c in free if any(isinstance(value, bytes) for value in values[c])]
    score = functools.partial(_image_share, values)
    image = stated.get("image") or _best(images, score) or _best(free, score)
    splits = [c for c in free if c != image and _is_split(values[c])]
    split = splits[0] if splits and len(values) > 1 else None  # a single column is a feature
    others = [c for c in free if c not in (image, split)]
    keys = (c for c in others if _KEY.search(c) and len(values[c]) == found.rows > 1)
    key = next((c for c in keys if features[c].shape is None), None)
    label = stated.get("label") or stated.get("labels")
    label = label or _label_of([c for c in others if c != key], found)
    image, label = (column if column in values else None for column in (image, label))
    single = [c for c in images or free if features[c].shape is None]
    further = tuple(c for c in single if c not in (image, label, split, key) and score(c) > _MOST)
    return {"image": image, "label": label, "split": split, "key": key, "images": further}


def schema_yaml(
    guess: InferredSchema,
    name: str,
    heading: Sequence[str],
    images: SampledImages,
    further: Mapping[str, SampledImages] = MappingProxyType({}),  # the images of other columns
    of_records: bool = False,
) -> str:
    """Formats an inferred schema as a YAML file; features `of_records` keep their names."""
    lines = [f"# {_printable(line)}".rstrip() for line in heading]
    lines += [f"name: {_quoted(name)}", "features:"]
    sizes = {} if of_records else {"height": "height", "width": "width"}
    made = {guess.image if of_records else "image": "bytes", **sizes} if guess.image else {}
    for feature, attribute in made.items():
        kind, remark = ("bytes", f"  # {images}") if attribute == "bytes" else ("int64", "")
        lines.append(f'  {_quoted(feature)}: {{kind: {kind}, from: "image:{attribute}"}}{remark}')
    columns = [c for c in guess.columns if not (of_records and c == guess.image)]
    lines += [_line(column, guess, made.keys(), further) for column in columns]
    if guess.image is not None:
        depth = ", bit_depth: 16" if images.are_deep else ""
        lines.append(f"image: {{column: {_quoted(guess.image)}{depth}}}")
    if deep := {column: {"bit_depth": 16} for column, one in further.items() if one.are_deep}:
        lines.append(f"images: {json.dumps(deep, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def _line(
    column: str, guess: InferredSchema, taken: Set[str], further: Mapping[str, SampledImages]
) -> str:
    """Returns the YAML line of a feature, commented out for the columns of images and splits."""
    feature = guess.features[column]
    name = column if column not in taken else f"{column}/value"
    pixels = f"mask:{column}" if column == MASK else f"image:{column}/bytes"
    source = pixels if column in further else f"column:{column}"
    settings = [f"kind: {feature.kind.value}", f"from: {_quoted(source)}"]
    if column == guess.label:
        settings[0] = "kind: int64"
    if feature.shape is not None:
        settings.append(f"shape: {json.dumps(feature.shape)}")
    if column == guess.label:
        settings.append("classes: true")
    if feature.missing is Missing.EMPTY and feature.shape != ():
        settings.append("missing: empty")
    remark = str(further.get(column) or _printable("; ".join(_remarks(column, guess))))
    if column in further and column != MASK:
        remark += f'; if its pixels are class ids: "mask:{column}"'
    line = f"{_quoted(name)}: {{{', '.join(settings)}}}{'  # ' if remark else ''}{remark}"
    return f"  {'# ' if column in (guess.image, guess.split) else ''}{line}"


def _remarks(column: str, guess: InferredSchema) -> Iterator[str]:
    values, feature = guess.values[column], guess.features[column]
    if column == guess.image:
        yield "the images, or their paths"
        yield from (f"or with --columns image={_word(c)} those of {c}" for c in guess.images[:1])
    elif column == guess.split:
        yield f"the split of each row: use --split_column {_word(column)}"
    elif column == guess.key:
        yield f"unique values: use --key_column {_word(column)} to make it the key"
    elif feature.shape in ((4,), (None, 4)) and _BOXES.search(column):
        yield _box_options(column, guess.columns)
    elif column == guess.label or (feature.kind is Kind.BYTES and 1 < len(values) <= _MAX_CLASSES):
        yield f"{len(values):,} values: {', '.join(_shown(values))}{' …' * (len(values) > _SHOWN)}"
    elif values:
        yield f"for example {_shown(values)[0]}"
    else:
        yield "no value in the rows read"
    if feature.missing is Missing.EMPTY:
        yield "missing in some rows, which default: VALUE would fill"


def _box_options(column: str, columns: Sequence[str]) -> str:
    """Returns a remark with the options for a column of boxes, which may be a field of objects."""
    objects = column[: column.rfind(".") + 1]
    labels = [c for c in columns if _OBJECT_LABEL.fullmatch(c.removeprefix(objects))]
    mapped = [f"bbox={column}", *(f"labels={c}" for c in labels[:1] if c.startswith(objects))]
    return (
        f"boxes: use --schema object_detection --columns {','.join(mapped)} --boxes column=bbox,"
        "order=xywh, or order=xyxy for two corners"
    )


def _shown(values: Counter[Any]) -> list[str]:
    """Returns the most frequent values, each on one line and shortened."""
    frequent = sorted(values.items(), key=lambda item: (-item[1], str(item[0])))[:_SHOWN]
    texts = (
        " ".join(text.split()) if text == text.strip() else repr(text)
        for text in (str(value) for value, _ in frequent)
    )
    return [text if len(text) <= 30 else f"{text[:30]}…" for text in texts]


def _label_of(columns: Sequence[str], found: InferredSchema) -> str | None:
    """Returns the column of class labels, by its name or by its small number of distinct values.

    Ids, such as those of patients, have few distinct values, but are no classes.
    """
    values, features = found.values, found.features
    candidates = [c for c in columns if features[c].kind is not Kind.FLOAT and values[c]]
    named = [c for c in candidates if _LABEL.search(c)]
    texts = [c for c in candidates if features[c].kind is Kind.BYTES]
    most = min(_MAX_CLASSES, found.rows / 2)
    few = [c for c in texts if 1 < len(values[c]) <= most and not _KEY.search(c)]
    # Class names before class ids.
    return next(iter([*(c for c in named if c in texts), *named, *few]), None)


def _best(columns: Sequence[str], score: Any) -> str | None:
    found = max(columns, key=score, default=None)
    return found if found is not None and score(found) > _MOST else None


def _sized(feature: Feature, values: Sequence[Any]) -> Feature:
    """Returns a feature of numeric lists with a fixed shape if all lists have the same length."""
    if feature.shape is None or feature.kind is Kind.BYTES or feature.missing is Missing.EMPTY:
        return feature
    items = [_items(value) for value in values]
    sizes = {len(item) if isinstance(item, list) else 0 for item in items}
    fixed = tuple(size for size in sizes if size > 1) if len(sizes) == 1 else ()
    return feature.model_copy(update={"shape": fixed})


def _cell(row: Row, column: str, lists: set[str]) -> Any:
    value = row.values.get(column)
    return _items(value) if column in lists else value


def _shape(values: Sequence[Any]) -> tuple[int | None, ...] | str | None:
    """Returns the shape of nested lists, whose first dimension is None for any size.

    Returns None for columns without nested lists, and a description of values that no feature
    supports.
    """
    rows = [value for value in values if isinstance(value, list)]
    if any(isinstance(value, dict) for value in values) or any(map(_has_objects, rows)):
        return "objects"
    if not any(isinstance(item, list) for row in rows for item in row):
        return None
    try:
        inner = {_sizes(item) for row in rows for item in row}
    except ValueError:
        return "both lists and single values"
    if len(inner) > 1 or 0 in (sizes := next(iter(inner))):
        return "lists of lists of different lengths: see flat: and row_lengths: in the docs"
    return (None, *sizes)


def _sizes(value: Any) -> tuple[int, ...]:
    """Returns the length of nested lists at each level; ValueError if their items differ."""
    if not isinstance(value, list):
        return ()
    inner = {_sizes(item) for item in value} or {()}
    if len(inner) > 1:
        raise ValueError("items of several shapes")
    return (len(value), *inner.pop())


def _has_objects(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(map(_has_objects, value)))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif value is not None:
        yield value


def _image_share(values: Mapping[str, Counter[Any]], column: str) -> float:
    counts = values[column]
    return sum(n for value, n in counts.items() if _is_image(value)) / max(1, counts.total())


def _is_image(value: Any) -> bool:
    if isinstance(value, bytes):
        return sniffing.sniff(value[: sniffing.HEAD_BYTES]) is not None
    return isinstance(value, str) and (
        sniffing.has_image_suffix(value) or sniffing.is_encoded(value)
    )


def _is_split(values: Counter[Any]) -> bool:
    return bool(values) and all(isinstance(v, str) and v.lower() in SPLIT_NAMES for v in values)


def _is_list(column: str, rows: Sequence[Row]) -> bool:
    """Returns whether a column of text contains lists: JSON arrays, or items separated by "|"."""
    # A "|" may occur in plain text, so more than a third of the values must contain one.
    texts = [
        t
        for row in rows
        if row.untyped(column) and isinstance(t := row.values.get(column), str) and t
    ]
    arrays = sum(t.lstrip().startswith("[") and isinstance(_items(t), list) for t in texts)
    return bool(texts) and (arrays == len(texts) or 3 * sum("|" in t for t in texts) > len(texts))


def _items(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value.lstrip().startswith("["):
        return value.split("|") if value else []
    try:
        found = parse_json(value)
    except ValueError:
        return value
    return _as_texts(found) if isinstance(found, list) else value


def _as_texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_texts(item) for item in value]
    return value if isinstance(value, dict) else str(value)


def _quoted(text: str) -> str:
    # YAML 1.1 parses "no", "on" and "y" without quotes as booleans.
    plain = re.fullmatch(r"[A-Za-z][\w/]*", text, re.ASCII)
    word = text.lower() in ("yes", "no", "on", "off", "true", "false", "null", "y", "n")
    quoted = json.dumps(text, ensure_ascii=False)
    escaped = (c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
    return text if plain and not word else "".join(escaped)


def _printable(text: str) -> str:
    """Replaces unprintable characters of a text, such as line breaks, for a YAML comment."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _word(text: str) -> str:
    return text if re.fullmatch(r"\w+", text) else f"'{text}'"


def schema_name(path: str) -> str:
    """Derives the name of a schema from the path of a table.

    >>> schema_name("data/my labels.csv.gz")
    'my_labels'
    """
    stem = os.path.basename(path.rstrip("/")).partition(".")[0]
    return re.sub(r"\W+", "_", stem).strip("_") or "custom"
