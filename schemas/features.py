"""Schemas: the features of a record."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, Literal

import pydantic

from recordmill.schemas.document import Document, unwritten_if_empty
from recordmill.schemas.errors import SchemaError
from recordmill.schemas.layout import labels_name
from recordmill.schemas.origins import (
    BOX_ORDERS,
    IMAGE_ORIGINS,
    INSTANCES,
    KIND_OF_ATTRIBUTE,
    KIND_OF_ORIGIN,
    NO_COLUMN,
    OUTLINES,
    POINTS,
    ImageAttribute,
    Kind,
    Origin,
    Source,
)
from recordmill.schemas.settings import (
    AnnotationSettings,
    BoxSettings,
    ImageSettings,
    MaskSettings,
    SequenceSettings,
)

# Bytes, on almost every file system.
_MAX_FILE_NAME = 255


# The shape that features of a source must have, as in `Feature`.
_SHAPES: dict[Origin, tuple[int | None, ...] | None] = {
    **dict.fromkeys((Origin.FLAT, Origin.ROW_LENGTHS, Origin.BOX, Origin.AREA), ()),
    **dict.fromkeys((*POINTS, *INSTANCES), ()),
    **dict.fromkeys((Origin.MASK, Origin.SEGMENTATION, Origin.INSTANCE_IDS)),
    Origin.CORNERS: (None, 8),
}

# The class label of a row without one, as in TFDS and Hugging Face Datasets.
NO_LABEL = -1

# What to do about labels that are no classes.
AS_NUMBERS = "recordmill schema --infer TABLE prints a schema with kind: float, for --schema"


class Missing(str, Enum):
    """The treatment of a row without a value, for a feature without a default."""

    REQUIRED = "required"  # the row is rejected
    EMPTY = "empty"  # the feature is an empty list


def _sources(value: Any) -> Any:
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, list | tuple):
        return tuple(Source.parse(t) if isinstance(t, str) else t for t in texts)
    return value


class Feature(Document):
    """A feature of an example.

    Attributes:
        kind: the list type in `tf.train.Feature`.
        sources: the source of the value; if there are several, the first that the table has.
        shape: None for a single value, (n,) for n values, () for any number of values; (n, m) for
            n concatenated lists of m values, (None, m) for any number of them.
        classes: whether values are class labels, whose names are converted to ids; for a mask,
            whether its ids have names.
        label_offset: a number added to each class id, to reserve 0 for the background.
        first_label: the first class in labels that are integers, as in a label map from 1.
        per: "record", or "frame" for a feature of each frame of a sequence.
        per_box: whether there is one value per box, which is dropped with its box.
        single: whether a single value is accepted as a list of one.
        missing: the treatment of a row without a value.
        default: the value for a row without a value; of class labels, `NO_LABEL` or None.
        separator: the text between the items of a list in a CSV or TSV field.
    """

    model_config = pydantic.ConfigDict(populate_by_name=True)

    kind: Kind
    sources: Annotated[
        tuple[Source, ...], pydantic.BeforeValidator(_sources), pydantic.Field(min_length=1)
    ] = pydantic.Field(alias="from")
    shape: tuple[Annotated[int, pydantic.Field(gt=0)] | None, ...] | None = None
    classes: bool = False
    label_offset: Literal[0, 1] = 0
    first_label: Literal[0, 1] = unwritten_if_empty(0)
    per: Literal["record", "frame"] = "record"
    per_box: bool = False
    single: bool = False
    missing: Missing = Missing.REQUIRED
    default: (
        pydantic.StrictBool | pydantic.StrictInt | pydantic.StrictFloat | pydantic.StrictStr | None
    ) = None
    separator: str = pydantic.Field(default="|", min_length=1)

    @pydantic.model_validator(mode="after")
    def _check(self) -> Feature:
        self._check_kind()
        self._check_shape()
        if self.is_encoded_mask and self.missing is not Missing.REQUIRED:
            raise ValueError("a mask cannot be empty. Remove missing: empty.")
        if self.label_offset and not self.classes:
            raise ValueError("label_offset applies only to class labels. Add classes: true.")
        if self.single and self.shape != ():
            raise ValueError("single: true applies only to lists of any length. Add shape: [].")
        if self.default is not None and (self.shape is not None or self.is_mask):
            raise ValueError("only a single value can have a default")
        if self.classes and self.default not in (None, NO_LABEL):
            raise ValueError(f"the default of a class label must be {NO_LABEL}, for no label")
        if self.default is not None and not self._holds(self.default):
            raise ValueError(f"the default {self.default!r} is not a valid {self.kind.value}")
        return self

    def _check_kind(self) -> None:
        attribute = self.image_attribute
        fixed = (
            KIND_OF_ATTRIBUTE[attribute] if attribute else KIND_OF_ORIGIN.get(self.source.origin)
        )
        if fixed and self.kind is not fixed:
            raise ValueError(f"the kind of {self.source} must be {fixed.value}")
        if self.classes and self.kind is not Kind.INT64 and not self.is_mask:
            raise ValueError("the kind of a feature with classes must be int64")

    def _check_shape(self) -> None:
        if self.shape and (None in self.shape[1:] or self.shape == (None,)):
            raise ValueError("only the first of several sizes can be null, as in [null, 4]")
        fixed = _SHAPES.get(self.source.origin, () if self.per_box else self.shape)
        if self.source.origin is Origin.BOX and self.source.name in BOX_ORDERS:
            fixed = (None, 4)
        if self.shape != fixed:
            expected = "omitted" if fixed is None else "[]"
            if fixed:
                expected = f"[null, {fixed[1]}]"
            raise ValueError(f"the shape of {self.source} must be {expected}")

    def _holds(self, value: bool | int | float | str) -> bool:
        """Returns whether a value is valid for the kind without conversion."""
        if self.kind is Kind.BYTES:
            return isinstance(value, str)
        if self.kind is Kind.INT64:
            return isinstance(value, int) and -(2**63) <= value < 2**63
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        try:
            struct.pack("<f", float(value))
        except OverflowError:
            return False
        return True

    @property
    def no_label(self) -> int | None:
        """The value of a row without a label, which is not a class; None if each row has one."""
        return NO_LABEL if self.classes and self.default is not None else None

    @property
    def source(self) -> Source:
        """The source of a resolved feature, which has only one."""
        return self.sources[0]

    @property
    def image_attribute(self) -> ImageAttribute | None:
        """The attribute of the image that is the source, or None."""
        if self.source.origin is not Origin.IMAGE:
            return None
        return ImageAttribute(self.source.name.rpartition("/")[2])

    @property
    def image_name(self) -> str:
        """The name of the image that the feature is an attribute of; "" for the first image."""
        return self.source.name.rpartition("/")[0] if self.source.origin is Origin.IMAGE else ""

    @property
    def optional(self) -> bool:
        """Whether examples can have any number of values for the feature, including none."""
        if self.has_open_rows:
            return False
        return self.shape == () or (self.missing is Missing.EMPTY and self.default is None)

    @property
    def has_open_rows(self) -> bool:
        """Whether the values are any number of lists of the same length."""
        return bool(self.shape) and self.shape[0] is None  # type: ignore[index]

    @property
    def is_mask(self) -> bool:
        """Whether the feature is a mask: an image of class ids."""
        return self.source.origin in (Origin.MASK, Origin.SEGMENTATION)

    @property
    def is_encoded_mask(self) -> bool:
        """Whether the feature is one PNG with the pixels of the image: of classes or of objects."""
        return self.is_mask or self.source.origin is Origin.INSTANCE_IDS

    @property
    def has_positions(self) -> bool:
        """Whether the values are where something is in the image: boxes, points or masks."""
        return self.source.origin in (Origin.BOX, *POINTS, *INSTANCES)

    @property
    def of_boxes(self) -> bool:
        """Whether the feature has one value per box."""
        return self.per_box or self.source.origin in (Origin.BOX, Origin.AREA)

    @property
    def of_objects(self) -> bool:
        """Whether the values are those of objects, and are known when boxes are transformed."""
        return self.of_boxes or self.source.origin in POINTS

    @property
    def of_image(self) -> bool:
        """Whether the feature belongs to an image."""
        return self.per_box or any(source.origin in IMAGE_ORIGINS for source in self.sources)

    @property
    def column(self) -> str | None:
        """The schema column of the value; None if its source is not a column."""
        return None if self.source.origin in NO_COLUMN else self.source.name


# The name of the file of a mask among those of a record.
MASK = "mask"


def _with_columns(images: Any) -> Any:
    if not isinstance(images, dict):
        return images
    return {
        name: {"column": name, **one} if isinstance(one, dict) else one
        for name, one in images.items()
    }


class Schema(Document):
    """A schema of records, from a preset or a YAML file.

    Attributes:
        name: the name in messages and sidecars.
        description: a one-line description.
        features: features by their key in an Example.
        every_column: whether each column of the table is a feature of the column's type.
        image: how images are read, checked and stored.
        images: the settings of other images of a record, by name; of those that it lacks, the
            defaults. Their column is their name, if it is not set.
        boxes: the format of boxes in the table, and the treatment of invalid boxes.
        masks: the format of masks.
        sequence: the columns that combine rows into a `tf.train.SequenceExample`; None for one
            record per row.
    """

    name: str = "custom"
    description: str = ""
    features: dict[str, Feature] = pydantic.Field(default_factory=dict)
    every_column: bool = False
    image: ImageSettings = ImageSettings()
    images: Annotated[dict[str, ImageSettings], pydantic.BeforeValidator(_with_columns)] = (
        unwritten_if_empty({})
    )
    boxes: BoxSettings = BoxSettings()
    masks: MaskSettings = MaskSettings()
    sequence: SequenceSettings | None = None

    @pydantic.model_validator(mode="after")
    def _check(self) -> Schema:
        if not self.features and not self.every_column:
            raise ValueError("a schema needs features, or every_column: true")
        if any(f.per_box or f.source.origin is Origin.AREA for f in self.features.values()):
            self._require(
                self.has_boxes or self.has_points or self.has_instances,
                "a feature per box needs boxes. Add a feature from box:xmin, …",
            )
        if self.has_annotations:
            self._require(
                self.has_image, "boxes and masks need an image. Add a feature from image:…"
            )
        named = {f.source.name for f in self.features.values() if f.source.origin in OUTLINES}
        self._require(len(named) <= 1, "all outlines of a schema must be in one column")
        self._require(
            sum(f.is_mask for f in self.features.values()) <= 1, "a schema can have only one mask"
        )
        self._check_sequence()
        self._check_names()
        self._check_images()
        return self

    def _check_images(self) -> None:
        for name in self.images:
            if name not in self.image_names:
                used = ", ".join(self.image_names) or "none"
                what = f"no feature is from image:{name}/…; images of features: {used}"
                raise SchemaError(what, "images", name)
        for name in self.image_names:
            self._require(self.has_image, f"image:{name}/… needs a first image, from image:…")
            if self.image_settings[name].format == "raw":
                raise SchemaError("format: raw applies only to the first image", "images", name)
            if name == MASK and MASK in self.other_columns:
                what = f"the name {MASK!r} is that of the mask. Rename the image."
                raise SchemaError(what, "images", name)

    def _check_names(self) -> None:
        """Rejects feature names for which no file of class names can be written."""
        files: dict[str, str] = {}
        for name in self.named_features:
            size = len(labels_name(name).encode())
            if size > _MAX_FILE_NAME:
                what = "the file name of its class names is too long"
                expected = f"expected at most {_MAX_FILE_NAME} bytes, got {size}"
                raise SchemaError(f"{what}; {expected}", "features", name)
            other = files.setdefault(labels_name(name), name)
            if other != name:
                what = f"the class names of {other!r} and {name!r} have the same file. Rename one."
                raise SchemaError(what, "features", name)

    def _check_sequence(self) -> None:
        frames = [name for name, feature in self.features.items() if feature.per == "frame"]
        if self.sequence is None:
            if frames:
                what = "per: frame needs a sequence. Add sequence: {group: C, order: C}."
                raise SchemaError(what, "features", frames[0], "per")
            return
        if self.every_column:
            what = "cannot be combined with sequence. Declare the features."
            raise SchemaError(what, "every_column")
        if not frames:
            what = "a sequence needs a feature with per: frame. Add one."
            raise SchemaError(what, "sequence")
        for name, feature in self.features.items():
            if feature.has_open_rows:
                what = "a sequence cannot have shape [null, n]. Write [] for any number."
                raise SchemaError(what, "features", name, "shape")
            is_of_frame = feature.of_image or feature.source.origin is Origin.FRAME
            if feature.per == "record" and is_of_frame:
                what = "a sequence has an image per frame. Add per: frame."
                raise SchemaError(what, "features", name)
            if self.has_steps:
                self._check_step(name, feature)

    def _check_step(self, name: str, feature: Feature) -> None:
        """Checks that `tfds.features.Dataset` can store a feature."""
        if name.startswith(f"{self.steps}/") != (feature.per == "frame"):
            what = "record: example needs features of frames, and only these, in one group; "
            what += f"expected names that begin with {self.steps}/. Rename it."
            raise SchemaError(what, "features", name)
        if feature.per == "frame" and feature.optional:
            what = "record: example needs as many values in each frame. Add a shape."
            raise SchemaError(what, "features", name)

    def _require(self, condition: bool, message: str) -> None:
        if not condition:
            raise ValueError(message)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Schema:
        """Returns a copy, without the cached properties, which may depend on what is updated."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - Schema.model_fields.keys():
            del copied.__dict__[name]
        return copied

    @cached_property
    def has_image(self) -> bool:
        """Whether any feature is an attribute of an image, so that images are read."""
        return bool(self.image_attributes)

    @property
    def image_attributes(self) -> dict[str, ImageAttribute]:
        """The attribute of each feature that is one of the first image."""
        return self.attributes[""]

    @cached_property
    def attributes(self) -> dict[str, dict[str, ImageAttribute]]:
        """The attribute of each feature that is one of an image, by the name of the image."""
        found: dict[str, dict[str, ImageAttribute]] = {"": {}}
        for name, feature in self.features.items():
            if attribute := feature.image_attribute:
                found.setdefault(feature.image_name, {})[name] = attribute
        return found

    @cached_property
    def image_names(self) -> tuple[str, ...]:
        """The names of the images of a record besides the first one, in order."""
        names = dict.fromkeys(feature.image_name for feature in self.features.values())
        return tuple(filter(None, names))

    @cached_property
    def image_settings(self) -> dict[str, ImageSettings]:
        """The settings of each image of a record by its name; "" is the first one."""
        others = {name: self.images.get(name) for name in self.image_names}
        return {"": self.image} | {n: one or ImageSettings(column=n) for n, one in others.items()}

    @cached_property
    def other_columns(self) -> dict[str, str]:
        """The schema column of each file of a record besides the first image, by name."""
        columns = {name: self.image_settings[name].column for name in self.image_names}
        mask = self.features[self.mask_feature].source if self.mask_feature else None
        if mask is not None and mask.origin is Origin.MASK:
            columns[MASK] = mask.name
        return columns

    @cached_property
    def stored_images(self) -> dict[str, str]:
        """The name of the image in each feature that stores an image, by Example key."""
        return {
            key: feature.image_name
            for key, feature in self.features.items()
            if feature.image_attribute is ImageAttribute.BYTES
        }

    @cached_property
    def frame_features(self) -> dict[str, Feature]:
        """The features of each frame of a sequence."""
        return {name: f for name, f in self.features.items() if f.per == "frame"}

    @cached_property
    def context_features(self) -> dict[str, Feature]:
        """The features that a record has once; all features if records are not sequences."""
        return {name: f for name, f in self.features.items() if f.per == "record"}

    @property
    def message(self) -> str:
        """The type of the messages that are records."""
        return "SequenceExample" if self.sequence is not None and not self.has_steps else "Example"

    @property
    def has_steps(self) -> bool:
        """Whether a sequence is one Example, with the values of all frames in each feature."""
        return self.sequence is not None and self.sequence.record == "example"

    @property
    def steps(self) -> str:
        """The part of the names of features that those of frames have in common."""
        return next(iter(self.frame_features), "").partition("/")[0]

    @cached_property
    def features_of_record(self) -> dict[str, Feature]:
        """The features of an Example: those of frames have any number of rows of values."""
        if not self.has_steps:
            return self.features
        return {
            name: feature.model_copy(update={"shape": (None, *(feature.shape or ()))})
            if feature.per == "frame"
            else feature
            for name, feature in self.features.items()
        }

    @cached_property
    def has_boxes(self) -> bool:
        """Whether the source of any feature is a box."""
        return any(f.source.origin is Origin.BOX for f in self.features.values())

    @cached_property
    def has_points(self) -> bool:
        """Whether objects have keypoints or oriented boxes."""
        return bool(self.columns_from(POINTS))

    @cached_property
    def has_instances(self) -> bool:
        """Whether objects have masks of their own."""
        return bool(self.columns_from(INSTANCES))

    @cached_property
    def has_outlines(self) -> bool:
        """Whether a mask can be drawn from outlines."""
        return bool(self.columns_from(OUTLINES))

    @property
    def annotations(self) -> dict[str, AnnotationSettings]:
        """The settings of what is drawn on images, by their block."""
        boxes = {"boxes": self.boxes} if self.has_boxes or self.has_points else {}
        return {**boxes, **({"masks": self.masks} if self.has_outlines else {})}

    @cached_property
    def draws_classes(self) -> bool:
        """Whether the mask of classes is drawn from outlines."""
        return bool(self.columns_from((Origin.SEGMENTATION,)))

    @property
    def has_annotations(self) -> bool:
        """Whether records have annotations that follow the geometry of their image."""
        return bool(self.has_boxes or self.has_points or self.has_instances or self.mask_feature)

    def columns_from(self, origins: tuple[Origin, ...]) -> dict[str, Feature]:
        """Returns the schema columns of sources, each with its feature."""
        features = self.features.values()
        return {s.name: f for f in features for s in f.sources if s.origin in origins}

    @cached_property
    def mask_feature(self) -> str | None:
        """The Example key of the mask, or None."""
        return next((key for key, feature in self.features.items() if feature.is_mask), None)

    @cached_property
    def class_features(self) -> tuple[str, ...]:
        """The Example keys of the features with class labels, in order."""
        return tuple(k for k, f in self.features.items() if f.classes and not f.is_mask)

    @cached_property
    def named_features(self) -> tuple[str, ...]:
        """The Example keys of the features whose ids have names: class labels and masks."""
        return tuple(key for key, feature in self.features.items() if feature.classes)

    @cached_property
    def label_features(self) -> dict[str, Feature]:
        """The feature with the labels of each feature with class names."""
        found = {name: self.labels_of(name) for name in self.named_features}
        return {name: feature for name, feature in found.items() if feature is not None}

    @cached_property
    def label_columns(self) -> frozenset[str]:
        """The schema columns with class labels, as names or ids."""
        labels = self.label_features.values()
        names = (f for f in self.features.values() if f.source.origin is Origin.CLASS_NAME)
        sources = (source for feature in (*labels, *names) for source in feature.sources)
        return frozenset(source.name for source in sources)

    @property
    def supervised(self) -> tuple[str, str] | None:
        """The Example keys of the image and its label, or else its mask, for training; or None."""
        label = next(iter(self.class_features), self.mask_feature)
        return (self.image_feature, label) if self.image_feature and label else None

    def labels_of(self, name: str) -> Feature | None:
        """Returns the feature with the labels of a named feature in the table.

        For a mask that is drawn, these are the labels of the objects. A mask in a file has none.
        """
        feature = self.features[name]
        if not feature.is_mask:
            return feature
        if feature.source.origin is Origin.MASK:
            return None
        source = Source(origin=Origin.COLUMN, name=self.masks.labels)
        return Feature(kind=Kind.INT64, sources=(source,), shape=(), classes=True)

    @cached_property
    def image_feature(self) -> str | None:
        """The Example key of the first image, or None if the schema does not store it."""
        attributes = self.image_attributes.items()
        return next((key for key, found in attributes if found is ImageAttribute.BYTES), None)

    @cached_property
    def encoded_images(self) -> dict[str, str]:
        """The name of the image in each feature that stores one as JPEG or PNG, by Example key."""
        stored, settings = self.stored_images.items(), self.image_settings
        return {key: image for key, image in stored if settings[image].format != "raw"}

    def is_deep(self, feature: str) -> bool:
        """Returns whether the image that a feature stores is gray of 16 bits, such as depth."""
        return self.image_settings[self.stored_images[feature]].bit_depth == 16

    @property
    def encoded_image(self) -> str | None:
        """The Example key of the first image, if it is stored as JPEG or PNG; or None."""
        return None if self.image.format == "raw" else self.image_feature
