"""Resolves the sources of a schema to the columns of a table, and infers the kinds of columns.

Kinds are inferred for schemas that include every column. Untyped text becomes numbers if all values
of its column are numeric; identifiers with leading zeros or over 64 bits stay text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType, NoneType
from typing import Any, TypeVar

from recordmill.schemas.condition import Condition
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.errors import UsageError, did_you_mean
from recordmill.schemas.features import Feature, Missing, Schema
from recordmill.schemas.findings import Finding, finding, some
from recordmill.schemas.origins import NO_COLUMN, OUTLINES, POINTS, Kind, Origin, Source
from recordmill.schemas.records import Items, Row
from recordmill.schemas.settings import SIZE_COLUMNS, AnnotationSettings, BoxSettings
from recordmill.schemas.sums import Summed
from recordmill.schemas.tables import IMAGES
from recordmill.transforms.functional.images.sniffing import has_image_suffix, not_a_table
from recordmill.transforms.functional.rows.batches import RowBatch
from recordmill.transforms.functional.values import typed

_OF_BOXES = re.compile(r"(?i)(^|[._])(bbox|bboxes|boxes|xmin|x_min)$")
_OF_LABELS = re.compile(r"(?i)(labels?|classes|categories|(class|category)(_?(ids?|names?))?)$")
_FOR_BOXES = " For boxes, set --schema object_detection."
_PIXELS = re.compile(r"(?i)pixels?[ _]?\d*")
_OF_PIXELS = (
    " (if it has pixels, use pandas: table['image'] = [numpy.array(row, 'uint8').reshape(HEIGHT, "
    "WIDTH) for row in {}]; recordmill.convert(table, …))"
)
_NO_IMAGES = " For rows without images, set --schema tabular."
_Settings = TypeVar("_Settings", bound=AnnotationSettings)


def resolve_sources(
    schema: Schema, present: Collection[str], config: ConvertConfig, where: str = "the table"
) -> Schema:
    """Resolves each feature to its first source in a table; UsageError if a column is missing."""
    table = _Table(dict.fromkeys(present), config, where)
    _check_mapping(schema, config)
    _check_several(schema, table)
    features = {n: _resolved_feature(n, feature, table) for n, feature in schema.features.items()}
    named = {
        "--key_column": config.key_column,
        "--split_column": config.split_column,
        "--group_column": config.group_column,
    }
    for flag, column in named.items():
        if column is not None and column not in table.columns:
            raise UsageError(f"{flag} {column}: {missing_column(column, table.columns, where)}")
    table.check("the image path", _image_columns(schema))
    _check_sequence(schema, table)
    update: dict[str, Any] = {"features": features, "boxes": _resolved_boxes(schema, table)}
    resolved = schema.model_copy(update=update)
    if resolved.has_outlines:
        masks = _with_optional(schema.masks, resolved, table)
        resolved = resolved.model_copy(update={"masks": masks})
    table.check("the labels of outlines", (schema.masks.labels,) * resolved.draws_classes)
    return resolved


@dataclass(frozen=True)
class _Table:
    """The columns of a table, and how they are named."""

    # A dict for fast lookups that keeps the order: a table can have 100,000 columns.
    columns: Mapping[str, None]
    config: ConvertConfig
    where: str  # in messages

    def has(self, name: str) -> bool:
        return self.config.column(name) in self.columns

    def has_source(self, source: Source) -> bool:
        return source.origin in NO_COLUMN or self.has(source.name)

    def check(self, what: str, names: Iterable[str]) -> None:
        """Raises UsageError if the table lacks a column of a schema."""
        if name := next((name for name in names if not self.has(name)), ""):
            missing = missing_column(self.config.column(name), self.columns, self.where)
            remedy = f"Name it with --columns {name}=COLUMN.{_NO_IMAGES * (name == 'image')}"
            remedy += _for_boxes(self.columns) if name in ("label", "labels") else ""
            raise UsageError(f"{what}: {missing}. {remedy}")


def assumed_columns(schema: Schema, config: ConvertConfig) -> tuple[str, ...]:
    """Returns the columns to assume for rows without a table that could be inspected.

    A feature with several sources is assumed to use a column that `columns` maps, or else a source
    other than a column, or else its first source.
    """
    names = [schema.image.column, *_image_columns(schema), *config.columns]
    names += _sequence_columns(schema)
    for feature in schema.features.values():
        sources = feature.sources
        if not any(s.origin in NO_COLUMN or s.name in config.columns for s in sources):
            names.append(sources[0].name)
    boxes = schema.boxes
    if schema.has_boxes and boxes.column not in config.columns:
        names += boxes.columns or (str(boxes.column),)
    names += [*boxes.optional_columns, schema.masks.labels, *schema.masks.optional_columns]
    others = (config.key_column, config.split_column, config.group_column)
    return (*map(config.column, names), *(name for name in others if name is not None))


def needed_columns(schema: Schema, config: ConvertConfig) -> tuple[str, ...] | None:
    """Returns the table columns to read, sorted; None for all columns."""
    if schema.every_column:
        return None
    names = {config.column(f.column) for f in schema.features.values() if f.column is not None}
    # Besides features: columns of the image, its annotations and its sequence, and of flags.
    others = (_image_columns(schema), _annotation_columns(schema), _sequence_columns(schema))
    names |= set(map(config.column, chain.from_iterable(others)))
    flags = (config.key_column, config.split_column, config.group_column)
    names |= {column for column in flags if column is not None}
    compared = Condition(config.where).columns if config.where is not None else ()
    return tuple(sorted({*names, *compared, *(config.join_columns or ())}))


def _image_columns(schema: Schema) -> tuple[str, ...]:
    first = (schema.image.column,) if schema.has_image else ()
    return (*first, *(schema.image_settings[name].column for name in schema.image_names))


def image_columns(schema: Schema, config: ConvertConfig) -> tuple[str, ...]:
    """Returns the table columns of images and masks, the first image first."""
    return tuple(map(config.column, (*_image_columns(schema)[:1], *schema.other_columns.values())))


def required_columns(schema: Schema, config: ConvertConfig) -> tuple[str, ...]:
    """Returns the columns without which no row can become a record."""
    images = _image_columns(schema)
    features = (f for f in schema.features.values() if f.column is not None)
    values = [f.source.name for f in features if not _is_optional(f)]
    keys = [config.key_column] if config.key_column is not None else []
    return tuple(dict.fromkeys((*keys, *map(config.column, (*images, *values)))))


def typed_columns(schema: Schema, config: ConvertConfig) -> tuple[str, ...] | None:
    """Returns the columns to read that must have a supported type: all except for outlines."""
    columns = needed_columns(schema, config)
    features = schema.features.values()
    nested = {
        config.column(f.source.name) for f in features if f.source.origin in (*OUTLINES, *POINTS)
    }
    return columns if columns is None else tuple(name for name in columns if name not in nested)


def check_types(
    unsupported: Mapping[str, str],
    columns: tuple[str, ...] | None,
    images: Collection[str] = (),
    structs: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> None:
    """Raises UsageError, with all names, if columns to read have a type that no feature supports.

    `unsupported` is the type of each such column. `columns` are those to read (None: all), with
    fields in place of structs. `structs` are the fields of each column of structs.
    """
    read = unsupported.keys() - structs.keys() if columns is None else {*columns}
    wrong = {
        name: type_ for name, type_ in unsupported.items() if name in read and name not in images
    }
    if images_elsewhere := [name for name, type_ in wrong.items() if type_ == IMAGES]:
        name = images_elsewhere[0]
        raise UsageError(
            f"column {name!r}: contains images, which only the image of a schema can be. Use "
            f"a schema with an image, and --columns image={name}."
        )
    if not wrong:
        return
    names = ", ".join(f"{name!r}" for name in wrong)
    remedies = [f"Name one of {', '.join(structs[name])}." for name in wrong if name in structs]
    if wrong.keys() - structs.keys():
        what = "others" if remedies else "column" if len(wrong) == 1 else "columns"
        remedies.append(f"Cast or drop the {what}.")
    raise UsageError(
        f"column{'s' * (len(wrong) > 1)} {names}: expected numbers, booleans, text, dates, bytes, "
        f"or lists of these, got {', '.join(wrong.values())}. {' '.join(remedies)}"
    )


def _check_several(schema: Schema, table: _Table) -> None:
    """Names all columns that features lack, if there are several; one has a message of its own."""
    lacking = dict[str, str]()  # {schema column: table column}
    for feature in schema.features.values():
        if not (_is_optional(feature) or any(map(table.has_source, feature.sources))):
            name = feature.sources[0].name
            lacking[name] = table.config.column(name)
    if len(lacking) > 1:
        names = ", ".join(f"{column!r}" for column in lacking.values())
        listed = f"it has: {', '.join(table.columns) or 'none'}{hint_at_header(table.columns)}"
        remedy = ",".join(f"{name}=COLUMN" for name in lacking)
        raise UsageError(
            f"{table.where} has no columns {names}; {listed}. Name them with --columns {remedy}."
            f"{_NO_IMAGES * ('image' in lacking)}{_for_boxes(table.columns)}"
        )


def _for_boxes(present: Collection[str]) -> str:
    box = next(filter(_OF_BOXES.search, present), "")
    objects = box[: box.rfind(".") + 1]
    if not objects:
        return _FOR_BOXES * bool(box)
    fields = (name for name in present if name.startswith(objects) and _OF_LABELS.search(name))
    mapped = f"--columns bbox={box},labels={next(fields, 'COLUMN')}"
    return f"{_FOR_BOXES[:-1]} {mapped} --boxes order=ORDER (xywh, xyxy, cxcywh or yxyx)."


def _is_optional(feature: Feature) -> bool:
    return feature.missing is Missing.EMPTY or feature.default is not None


def _resolved_feature(name: str, feature: Feature, table: _Table) -> Feature:
    """Returns a feature with its first existing source; an optional one may have none."""
    first = feature.sources[0]
    source = next(filter(table.has_source, feature.sources), first)
    if not (_is_optional(feature) or table.has_source(source)):
        table.check(f"feature {name!r}", [first.name])
    return feature.model_copy(update={"sources": (source,)})


def _resolved_boxes(schema: Schema, table: _Table) -> BoxSettings:
    """Returns the box settings with the four columns if they exist, or else with the one column."""
    boxes = schema.boxes
    if not schema.has_boxes:
        return _with_optional(boxes, schema, table) if schema.has_points else boxes
    absent = [name for name in boxes.columns or () if not table.has(name)]
    if boxes.columns is not None and not absent:
        return _with_optional(boxes.model_copy(update={"column": None}), schema, table)
    if boxes.column is not None and table.has(boxes.column):
        return _with_optional(boxes.model_copy(update={"columns": None}), schema, table)
    names = absent or [boxes.column or ""]
    what = missing_column(table.config.column(names[0]), table.columns, table.where)
    remedy = f"Name them with --columns {','.join(f'{name}=COLUMN' for name in names)}"
    if boxes.columns:
        remedy += ", and --boxes order=xywh if they are left, top, width, height"
        remedy += f"; or a column of four numbers {boxes.column}=COLUMN" * bool(boxes.column)
    raise UsageError(f"the boxes: {what}. {remedy}.")


def _with_optional(settings: _Settings, schema: Schema, table: _Table) -> _Settings:
    """Returns settings with those columns of units and of the annotated size that exist."""
    config, present = table.config, table.columns
    for name in settings.optional_columns:
        if name in config.columns and not table.has(name):
            raise UsageError(missing_column(config.columns[name], present, "the table"))
    units, sizes = settings.units_column, settings.size_columns
    if units is not None and not table.has(units):
        units = None
    # Widths and heights of boxes are not those of images.
    of_boxes = {*(schema.boxes.columns or ())} if schema.has_boxes else set()
    of_boxes |= {f.source.name for f in schema.features.values() if f.of_boxes}
    others = {*present}.difference(map(config.column, of_boxes))
    pairs = [sizes] if sizes else []
    pairs += _size_columns(others) if sizes == SIZE_COLUMNS else []
    sizes = next((p for p in pairs if {*map(config.column, p)} <= others), None)
    return settings.model_copy(update={"units_column": units, "size_columns": sizes})


# How programs and people name the width and height of an image, without case and separators. Those
# of boxes are often named w and h.
_SIDES = [("width", "height")]
_SIDES += [
    (f"{image}{width}", f"{image}{height}")
    for image in ("image", "img", "im", "orig", "original", "size", "imagesize")
    for width, height in (("width", "height"), ("w", "h"))
]


def _size_columns(present: Collection[str]) -> list[tuple[str, str]]:
    """Returns the pairs of columns whose names are those of image sizes, such as `ImageWidth`."""
    names = {re.sub(r"[\W_]", "", name).casefold(): name for name in reversed([*present])}
    return [(names[w], names[h]) for w, h in _SIDES if w in names and h in names]


_MAYBE_SIZE = re.compile(r"(image|img|im|orig|original)?_?(size|shape|resolution)", re.IGNORECASE)


def uncompared_sizes(
    schema: Schema, present: Collection[str], config: ConvertConfig
) -> Iterator[Finding]:
    """Yields a warning on columns that may be image sizes, but with which no image is compared."""
    # `w` can be the width of an image, or that of a box; and a list `size` can have either order.
    stated = config.dataset_schema
    used = needed_columns(schema, config)
    others = [name for name in present if used is None or name not in used]
    sides = [name for name in others if name.casefold() in ("w", "h")]
    found = sides if len(sides) == 2 else [n for n in others if _MAYBE_SIZE.fullmatch(n)]
    for block, resolved in schema.annotations.items():
        if found and resolved.size_columns is None and getattr(stated, block).size_columns:
            names = " and ".join(map(repr, found))
            pair = f"width={found[0]},height={found[1]}" if len(sides) == 2 else "width=W,height=H"
            what = f"{names} may be the sizes of the annotated images, which are not compared with"
            text = f"{what} the files: images resized since then would have wrong annotations"
            columns = f"if they are, name columns with one number each: --columns {pair}"
            hint = f"{columns}; otherwise set --{block} size_columns=none"
            yield finding("warning", "uncompared_sizes", text, hint, examples=found)


def _check_sequence(schema: Schema, table: _Table) -> None:
    """Checks that the columns of sequences exist, and that no flag would drop single frames."""
    config = table.config
    table.check("the sequences", _sequence_columns(schema))
    if schema.sequence is not None and config.deduplicate != "none":
        raise UsageError(
            f"--deduplicate {config.deduplicate}: would drop single frames from the sequences of "
            f"schema {schema.name!r}. Omit the flag: duplicate sequences are always reported."
        )
    if schema.sequence is not None and config.near_duplicates == "drop":
        raise UsageError(
            "--near_duplicates drop: would drop single frames from the sequences of schema "
            f"{schema.name!r}. Choose keep_together, which keeps similar sequences in one split."
        )


def _sequence_columns(schema: Schema) -> tuple[str, ...]:
    settings = schema.sequence
    return () if settings is None else (settings.group, settings.order)


def _annotation_columns(schema: Schema) -> tuple[str, ...]:
    boxes = schema.boxes.all_columns if schema.has_boxes else ()
    if schema.has_points:
        boxes = (*boxes, *schema.boxes.optional_columns)
    if not schema.has_outlines:
        return boxes
    labels = (schema.masks.labels,) if schema.draws_classes else ()
    return (*boxes, *labels, *schema.masks.optional_columns)


def missing_column(column: str, present: Collection[str], where: str) -> str:
    """Returns the message for a column that a table lacks, with those that it has."""
    guess = did_you_mean(column, present)
    listed = f"it has: {', '.join(present) or 'none'}{hint_at_header(present)}"
    return f"{where} has no column {column!r}{guess}; {listed}"


def hint_at_header(present: Collection[str]) -> str:
    """Returns a hint if columns look like a row of data, or like several columns."""
    first = next(iter(present), "")
    names = "".join(f'"{name}":' for name in present)
    if what := not_a_table(f"{first}\n{names}".encode()):
        return f" ({what})"
    if first.lower().startswith("sep="):
        mark = first[4:5] or ","
        return f" (the line {first!r} is of Excel: remove it, and set --delimiter {mark!r})"
    if mark := separator_in(present):
        return f" (if {mark!r} separates its fields, add --delimiter {mark!r})"
    if pixels := [name for name in present if _PIXELS.fullmatch(name)]:
        many, one = "table.filter(like='pixel').to_numpy()", f"table[{pixels[0]!r}].str.split()"
        return _OF_PIXELS.format(one if len(pixels) == 1 else many)
    if any(has_image_suffix(name) for name in present):
        return " (if its first row is not a header, set --header none)"
    if {*present} == {"image", "id"}:
        return (
            " (only images in folders have the class of their folder; for labels in a table, use "
            "--input TABLE --image_root FOLDER; write that table first if they are in file names)"
        )
    return ""


def separator_in(present: Collection[str]) -> str:
    """Returns the separator in the name of a single column that is several; "" for others."""
    return next((mark for mark in ";\t|" if len(present) == 1 and mark in next(iter(present))), "")


def columns_of(schema: Schema) -> set[str]:
    """Returns the columns that a schema names, which --columns may map."""
    sources: list[Source] = [s for f in schema.features.values() for s in f.sources]
    known = {s.name for s in sources if s.origin not in NO_COLUMN}
    return {
        *known,
        *_image_columns(schema),
        *_annotation_columns(schema),
        *_sequence_columns(schema),
    }


def _check_mapping(schema: Schema, config: ConvertConfig) -> None:
    """Checks that the schema uses each entry of --columns, so that typos are reported."""
    known = columns_of(schema)
    remedy = f".{_FOR_BOXES}" * any(map(_OF_BOXES.search, config.columns))
    for name in config.columns:
        if name not in known:
            expected = ", ".join(sorted(known)) or "no columns"
            raise UsageError(
                f"--columns {name}=…: schema {schema.name!r} has no such column"
                f"{did_you_mean(name, sorted(known))}; it has {expected}{remedy}"
            )


_TYPES = {bool: "bool", int: "int", float: "float", str: "text", bytes: "text"}


@dataclass
class ColumnKinds(Summed):
    """The types of the values in each column."""

    # The types of the values of each column: "int", "float", "bool", "text" or "empty".
    seen: dict[str, set[str]] = field(default_factory=dict)
    untyped: set[str] = field(default_factory=set)
    lists: set[str] = field(default_factory=set)
    filled: Counter[str] = field(default_factory=Counter)
    floats: dict[str, set[str]] = field(default_factory=dict)  # how numbers are written
    scores: Counter[str] = field(default_factory=Counter)  # of texts that may be numbers
    rows: int = 0  # the number of all rows; columns with fewer values are optional

    def add(self, rows: Sequence[Row]) -> None:
        """Adds the values of rows."""
        batch = RowBatch.of(rows)
        self.rows += len(batch)
        for column in batch.names:
            values = batch.column(column)
            types = set(map(type, values))
            if Items in types:
                values = list(map(_single, values))
            if not types.isdisjoint((Items, NoneType)):
                values = [value for value in values if value is not None]
            self._add_column(column, values, batch.untyped(column))

    def _add_column(self, column: str, values: Sequence[Any], untyped: bool) -> None:
        types = self.seen.setdefault(column, set())
        self.filled[column] += len(values)
        if untyped and values:
            self.untyped.add(column)
        if untyped and set(map(type, values)) == {str}:
            plain = typed.plain_type(values)
            # A column with any text is text, whatever its other values are.
            if "text" not in types:
                types.update([plain] if plain else map(_type_of_text, typed.distinct(values)))
            self.scores[column] += (
                typed.NUMBER * len(values) if plain else typed.number_score(values)
            )
            return
        for value in values:
            if isinstance(value, list):
                self.lists.add(column)
                types.update(_type(item, untyped) for item in value if item is not None)
            else:
                types.add(_type(value, untyped))

    def add_floats(self, rows: RowBatch, named: Sequence[str], delimiter: str | None) -> None:
        """Adds how floats are written, in the columns that a schema names, or in those found."""
        numbers = (n for n, t in self.seen.items() if t & {"int", "float"} and "text" not in t)
        for column in named or numbers:
            values, forms = rows.column(column), self.floats.setdefault(column, set())
            if "rounded" not in forms and typed.are_rounded(values):
                forms.add("rounded")
            if delimiter == ";":  # of tables with decimal commas
                forms.update(typed.number_form(v) for v in values if v and isinstance(v, str))

    def doubtful_values(self) -> Iterator[Finding]:
        """Yields findings of text that may be numbers, changed floats, and missing values."""
        kinds = {name: _kind(types, name in self.untyped) for name, types in self.seen.items()}
        found = {n: f for n, f in sorted(self.floats.items()) if kinds.get(n) in (None, Kind.FLOAT)}
        texts = sorted(n for n, k in kinds.items() if k is Kind.BYTES and self.scores[n] > 0)
        if texts:
            text = f"most values of {some(texts)} may be numbers, and all are stored as text"
            hint = "write them as 1234.5, without other marks, and leave missing ones empty"
            yield finding("warning", "numbers_as_text", text, hint, examples=texts)
        if names := [n for n, f in found.items() if "grouped" in f and "decimal" not in f]:
            text = f"numbers of {some(names)} such as 1.234 are read as decimal, and may be 1234"
            hint = "if they are, read the table with pandas and thousands='.'"
            yield finding("warning", "doubtful_points", text, hint, examples=names)
        if names := [n for n, f in found.items() if "rounded" in f]:
            text = f"numbers of {some(names)} are rounded to float32 (20231205 would be 20231204)"
            hint = 'write integers as such, as pandas does with astype("Int64"), or as text'
            yield finding("warning", "rounded_numbers", text, hint, examples=names)
        if names := [n for n, f in self.features().items() if f.missing is Missing.EMPTY]:
            text = f"rows without a value of {some(names)} have an empty list there"
            hint = "default: VALUE in the schema of recordmill schema --infer TABLE fills it"
            yield finding("note", "missing_values", text, hint, examples=names)

    def features(self) -> dict[str, Feature]:
        """Returns the feature of each column, sorted by name."""
        return {column: self._feature(column) for column in sorted(self.seen)}

    def _feature(self, column: str) -> Feature:
        types = self.seen[column]
        kind = _kind(types, column in self.untyped)
        # Empty text is a valid value for a bytes feature, but a missing value for a number.
        optional = self.filled[column] < self.rows or ("empty" in types and kind is not Kind.BYTES)
        return Feature(
            kind=kind,
            sources=(Source(origin=Origin.COLUMN, name=column),),
            shape=() if column in self.lists else None,
            missing=Missing.EMPTY if optional else Missing.REQUIRED,
        )


def _single(value: Any) -> Any:
    """Returns the value that all items of `Items` are equal to; other values unchanged."""
    if isinstance(value, Items) and all(item == value[0] for item in value):
        return value[0] if value else None
    return value


def _kind(types: set[str], untyped: bool) -> Kind:
    """Returns the most specific kind that can represent values of all these types."""
    values = types - {"empty"}
    # In a CSV file, "true" and "1.5" in one column are text: as floats, "true" would become 1.0.
    if not values or "text" in values or (untyped and values >= {"bool", "float"}):
        return Kind.BYTES
    return Kind.FLOAT if "float" in values else Kind.INT64


def _type(value: Any, is_text: bool) -> str:
    if is_text and isinstance(value, str):
        return _type_of_text(value)
    return _TYPES.get(type(value), "text")


def _type_of_text(text: str) -> str:
    if not text.strip():
        return "empty"
    if typed.looks_boolean(text):
        return "bool"
    if typed.looks_integer(text, True):
        return "int" if -(2**63) <= int(text) < 2**63 else "text"
    return "float" if typed.looks_number(text) and typed.number_form(text) != "integer" else "text"
