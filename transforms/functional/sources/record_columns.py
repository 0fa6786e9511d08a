"""The columns of records that were written by a schema: its inverse.

A schema makes `image/object/class/label` of the column `labels`; these columns make `labels` of
`image/object/class/label`, with the names of classes in place of their ids, so that records are
read by the schema that wrote them, or by another one. The keys of the presets are also those of
TF-Slim and of the Object Detection API. Boxes in records are fractions of the image.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, TypeAlias, TypeVar

from recordmill.schemas.features import Feature, Missing, Schema
from recordmill.schemas.origins import BOX_ORDERS, BOX_SIDES, ImageAttribute, Origin
from recordmill.schemas.records import Items
from recordmill.schemas.settings import BoxSettings, Order
from recordmill.schemas.tables import DeclaredClasses
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.values.boxes import (
    BOX_COLUMNS,
    NORMALIZED,
    TO_CORNERS,
    box_columns,
)

_T = TypeVar("_T")

# The presets whose keys are recognized, from the most specific one.
_PRESETS = (
    "object_detection", "captioning", "tf_slim", "multi_label",
    "landmark", "tf_tutorial", "image_classification",
)  # fmt: skip

# The values of a record by feature: a list, or `Items` for fewer than two values.
Values = Mapping[str, Any]


class Labels(NamedTuple):
    """The features with the labels of a column."""

    ids: str
    text: str = ""

    def present(self, features: Collection[str]) -> bool:
        """Returns whether a record has one of the features."""
        return self.ids in features or self.text in features


# The name of each class id, and the id of each name, by the features that have both.
Seen: TypeAlias = "dict[tuple[Labels, int | str], int | str]"


@dataclass(frozen=True)
class RecordColumns:
    """How the features of records become the columns of a schema."""

    image: str = "image"
    images: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    described: tuple[str, ...] = ()  # the features that follow from the image, such as its height
    # The features of other columns, of which the first that a record has is used.
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # The features of columns with labels; also the first.
    labels: Mapping[str, tuple[Labels, ...]] = field(default_factory=dict)
    # The four features of the sides of boxes, or the feature with all four; () if none.
    boxes: tuple[str, ...] = ()
    order: Order = "xyxy"  # the order of the numbers in a single feature
    # The feature of each column of areas, in pixels.
    areas: Mapping[str, str] = field(default_factory=dict)
    size: tuple[str, str] = ("", "")  # the features with the height and the width of the image
    shapes: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    # Class names by id, of each feature with ids.
    classes: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    schema: Schema | None = None  # the schema of the records; None if it is not known

    def reads(self, features: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Returns the columns of records with these features, and the features that each reads."""
        image, others = first(self.images, features), dict.fromkeys((*self.paths, *self.described))
        found = {self.image: (image, *filter(features.__contains__, others))} if image else {}
        found |= {n: (key,) for n, keys in self.columns.items() if (key := first(keys, features))}
        labels = ((n, one) for n, known in self.labels.items() for one in known[::-1])
        found |= {name: one for name, one in labels if one.present(features)}
        if self._has_boxes(features):
            found |= dict.fromkeys(BOX_COLUMNS, self.boxes)
            if {*self.size} <= {*features}:
                found |= {name: (key,) for name, key in self.areas.items() if key in features}
        return found

    def values(
        self, record: Values, columns: Collection[str], named: Collection[str], seen: Seen
    ) -> dict[str, Any]:
        """Returns the values of columns, besides those that features have as they are.

        `seen`: collects the names and ids of the records before. Raises ValueError if a class id
        has no name, or another one than in a record before.
        """
        found = dict[str, Any]()
        for column in columns:
            if column in self.columns and (feature := first(self.columns[column], record)):
                found[column] = self._shaped(feature, record[feature])
            elif column in self.areas and {*self.size, self.areas[column]} <= record.keys():
                found[column] = self._area(record, self.areas[column])
            elif column in named and (labels := self._labels_of(column, record)):
                found[column] = self._named(labels, record, seen)
            elif column in self.labels and (labels := self._labels_of(column, record)):
                found[column] = record.get(labels.ids, record.get(labels.text))
            elif column in self.shapes and column in record:
                found[column] = self._shaped(column, record[column])
        if not {*BOX_COLUMNS}.isdisjoint(columns) and self._has_boxes(record):
            boxes = self._boxes(record)
            found |= {n: v for n, v in boxes.items() if n in columns}
            largest = max((side for name in BOX_SIDES for side in boxes[name]), default=0)
            if BOX_COLUMNS[-1] in found and largest > 2:  # far beyond the image
                what = f"boxes: expected fractions of the image, got {largest:g}"
                raise ValueError(f"{what}; for pixels, set --boxes units=pixel,units_column=none")
        return found

    def declared(self, records: Sequence[Values]) -> dict[str, DeclaredClasses]:
        """Returns the classes of the columns of labels, by the metadata or the first records."""
        features = {name for record in records for name in record}
        columns = {**{name: (Labels(name),) for name in self.classes}, **self.labels}
        declared = dict[str, DeclaredClasses]()
        for column, found in columns.items():
            labels = next((one for one in found if one.present(features) or not records), None)
            if labels is None:
                continue
            names = self.classes.get(labels.ids) or _names_in(labels, records)
            if names:
                declared[column] = DeclaredClasses(tuple(sorted(names.items())), by_name=True)
            elif any(isinstance(id_, int) for r in records for id_ in r.get(labels.ids, ())):
                declared[column] = DeclaredClasses((), unnamed=labels.ids, by_name=True)
        return declared

    def _labels_of(self, column: str, record: Values) -> Labels | None:
        candidates = self.labels.get(column, ())
        if not candidates and column in self.classes:
            candidates = (Labels(column),)
        return next((found for found in candidates if found.present(record)), None)

    def _named(self, labels: Labels, record: Values, seen: Seen) -> Any:
        """Returns labels with names in place of ids, where they are known."""
        ids, texts = record.get(labels.ids, Items()), record.get(labels.text, Items())
        if names := self.classes.get(labels.ids):
            unlabeled = self.schema.features[labels.ids].default if self.schema else None
            ids = type(ids)(id_ for id_ in ids if unlabeled is None or id_ != unlabeled)
            for id_ in ids:
                if id_ not in names:
                    raise ValueError(
                        f"class id {id_!r} in {labels.ids!r} has no name; expected one of the "
                        f"{len(names)} classes of the dataset"
                    )
            return type(ids)(names[id_] for id_ in ids)
        if [str(id_) for id_ in ids] == [_text(text) for text in texts]:
            return ids  # an id as text is no name
        filled = [text for text in texts if text]
        one_of_them = f"Use one of them: --columns COLUMN={labels.text}"
        if ids and filled and len(ids) != len(filled):
            raise ValueError(
                f"{len(ids)} ids in {labels.ids!r}, and {len(filled)} names in {labels.text!r}; "
                f"expected as many. {one_of_them}"
            )
        if ids and seen.setdefault((labels, ""), bool(filled)) != bool(filled):
            raise ValueError(
                f"{ids[0]!r} in {labels.ids!r} has {'a' if filled else 'no'} name in "
                f"{labels.text!r}, unlike those of a record before. Name ids in label_map.pbtxt "
                "beside the file"
            )
        for id_, name in _pairs(labels, record):
            for one, other in ((id_, name), (name, id_)):
                if (known := seen.setdefault((labels, one), other)) != other:
                    raise ValueError(
                        f"{one!r} is {other!r} in {labels.ids!r} and {labels.text!r}, and "
                        f"{known!r} in a record before. {one_of_them}"
                    )
        return texts if filled else ids

    def _has_boxes(self, features: Collection[str]) -> bool:
        return bool(self.boxes) and all(name in features for name in self.boxes)

    def _boxes(self, record: Values) -> dict[str, Any]:
        if len(self.boxes) == len(BOX_SIDES):
            sides = zip(BOX_SIDES, (list(record[name]) for name in self.boxes), strict=True)
            return {**dict(sides), BOX_COLUMNS[-1]: NORMALIZED}
        numbers = list(record[self.boxes[0]])
        if len(numbers) % 4:
            what = f"expected four numbers per box, got {len(numbers)}"
            raise ValueError(f"feature {self.boxes[0]!r}: {what}")
        fours = [numbers[at : at + 4] for at in range(0, len(numbers), 4)]
        return box_columns([TO_CORNERS[self.order](*four) for four in fours], NORMALIZED)

    def _area(self, record: Values, feature: str) -> list[float]:
        """Returns areas as fractions of the image, as boxes are."""
        pixels = math.prod(record[name][0] if record[name] else 0 for name in self.size)
        if not pixels and record[feature]:
            raise ValueError(f"feature {feature!r} needs {self.size[0]!r} and {self.size[1]!r}")
        return [area / pixels for area in record[feature]]

    def _shaped(self, feature: str, values: Any) -> Any:
        shape = self.shapes.get(feature)
        return _nested(list(values), shape[1:], feature) if shape else values


def first(names: Sequence[str], present: Collection[str]) -> str:
    """Returns the first name that is present, or ""."""
    return next((name for name in names if name in present), "")


def _pairs(labels: Labels, record: Values) -> Iterator[tuple[int, str]]:
    ids, texts = record.get(labels.ids, ()), record.get(labels.text, ())
    for id_, text in zip(ids, texts, strict=False):
        if isinstance(id_, int) and (name := _text(text)) and name != str(id_):
            yield id_, name


def _names_in(labels: Labels, records: Sequence[Values]) -> dict[int, str]:
    names = dict[int, str]()
    for record in records:
        for id_, name in _pairs(labels, record):
            names.setdefault(id_, name)
    return names


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _nested(values: list[Any], sizes: Sequence[int | None], feature: str) -> list[Any]:
    if not sizes:
        return values
    size = math.prod(n or 1 for n in sizes)
    if len(values) % size:
        raise ValueError(f"feature {feature!r}: expected lists of {size}, got {len(values)} values")
    parts = (values[at : at + size] for at in range(0, len(values), size))
    return [_nested(part, sizes[1:], feature) for part in parts]


def columns_of(schema: Schema, classes: Mapping[str, Sequence[str]]) -> RecordColumns:
    """Returns the columns of records that a schema wrote; class names are in order of their ids."""
    readable = _canonical(schema, classes)
    found = _inverse(readable)
    names = {key: dict(enumerate(listed)) for key, listed in classes.items() if listed}
    return replace(found, classes=names, schema=readable)


def _canonical(schema: Schema, classes: Mapping[str, Sequence[str]]) -> Schema:
    """Returns the schema by which records that a schema wrote are read again.

    Its columns are those of a preset with its features; a resolved schema lacks those that its
    table lacked.
    """
    # Labels without names are the ids that are stored.
    first = {n: 0 if classes.get(n) else one.label_offset for n, one in schema.features.items()}
    features = {n: schema.features[n].model_copy(update={"first_label": first[n]}) for n in first}
    known = next((preset(n) for n in _PRESETS if n == schema.name), None)
    if known and known.features.keys() == features.keys():
        features = {
            name: one.model_copy(update={"sources": known.features[name].sources})
            for name, one in features.items()
        }
    boxes = schema.boxes
    if schema.has_boxes:
        frame = "displayed" if schema.image.orientation == "apply" else "stored"
        boxes = BoxSettings(frame=frame, out_of_bounds=boxes.out_of_bounds, invalid=boxes.invalid)
    return schema.model_copy(update={"features": features, "boxes": boxes})


def _inverse(schema: Schema) -> RecordColumns:
    features, image = schema.features.items(), schema.image.column
    found = [(s.origin, s.name, key, f) for key, f in features for s in f.sources]
    of_columns = [(name, key, f) for origin, name, key, f in found if origin is Origin.COLUMN]
    sides = {name: key for origin, name, key, _ in found if origin is Origin.BOX}
    ids = {name: key for name, key, f in of_columns if f.classes and name != image}
    texts = {name: key for origin, name, key, _ in found if origin is Origin.CLASS_NAME}
    columns = dict[str, tuple[str, ...]]()
    for origin, name, key, f in found:
        if origin is Origin.IMAGE and key in schema.stored_images and f.image_name:
            name = schema.image_settings[f.image_name].column
        elif origin is not Origin.COLUMN or f.classes or name == image:
            continue
        columns[name] = (*columns.get(name, ()), key)
    keys = {attribute: key for key, attribute in schema.image_attributes.items()}
    order = next((order for order in BOX_ORDERS if order in sides), "xyxy")
    one_by_one = tuple(sides[name] for name in BOX_SIDES if name in sides)
    return RecordColumns(
        image=schema.image.column,
        images=(schema.image_feature,) if schema.image_feature else (),
        paths=tuple(key for name, key, _ in of_columns if name == image),
        described=tuple(key for one, key in keys.items() if one is not ImageAttribute.BYTES),
        columns=columns,
        labels={
            n: (Labels(ids.get(n, ""), texts.get(n, "")),)
            for _, n, _, _ in found
            if n in ids or n in texts
        },
        boxes=(sides[order],) if order in sides else one_by_one if len(one_by_one) == 4 else (),
        order=order,  # type: ignore[arg-type]
        areas={name: key for origin, name, key, _ in found if origin is Origin.AREA},
        size=(keys.get(ImageAttribute.HEIGHT, ""), keys.get(ImageAttribute.WIDTH, "")),
        shapes={key: f.shape for key, f in features if f.shape and len(f.shape) > 1},
    )


@cache
def conventional_columns() -> RecordColumns:
    """Returns the columns of records whose schema is not known, by the keys of the presets."""
    all_ = [_inverse(preset(name)) for name in _PRESETS]
    # A feature with the name of a column comes first.
    columns = [{n: (n, *found) for n, found in one.columns.items()} for one in all_]
    labels = [{n: (Labels(n), *found) for n, found in one.labels.items()} for one in all_]
    return replace(
        all_[0],
        images=_unique([(all_[0].image,), *(one.images for one in all_)]),
        paths=_unique(one.paths for one in all_),
        described=_unique(one.described for one in all_),
        columns={n: _unique(one.get(n, ()) for one in columns) for n in _unique(columns)},
        labels={n: _unique(one.get(n, ()) for one in labels) for n in _unique(labels)},
    )


def _unique(several: Iterable[Iterable[_T]]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(several)))


def preset_of(features: Collection[str]) -> str:
    """Returns the preset whose keys records have; "" if there is none, or it is the default."""
    for name in _PRESETS:
        found = preset(name)
        if found.image_feature in features and all(
            _has(key, feature, found, features) for key, feature in found.features.items()
        ):
            return name if name != "image_classification" else ""
    return ""


def _has(key: str, feature: Feature, schema: Schema, features: Collection[str]) -> bool:
    """Returns whether records have what a feature of a preset needs, besides the image."""
    origins = {source.origin for source in feature.sources}
    is_optional = feature.missing is Missing.EMPTY or feature.column == schema.image.column
    if is_optional or origins & {Origin.IMAGE, Origin.KEY}:
        return True
    if feature.column is None:
        return key in features
    # The names of classes, or their ids.
    same = (name for name, other in schema.features.items() if other.column == feature.column)
    return any(name in features for name in same)
