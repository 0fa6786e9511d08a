"""What an example consists of: features, where their values come from, and schemas of them."""

from __future__ import annotations

import struct
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from recordmill.schemas.errors import SchemaError, did_you_mean
from recordmill.schemas.layout import labels_name
from recordmill.schemas.settings import BoxSettings, ImageSettings, MaskSettings, SequenceSettings

_MAX_FILE_NAME = 255
"""Bytes, on almost every file system."""


class Kind(str, Enum):
    """The three kinds of list that a `tf.train.Feature` can hold."""

    INT64 = "int64"
    FLOAT = "float"
    BYTES = "bytes"


class Origin(str, Enum):
    """What a feature's value is taken from."""

    COLUMN = "column"
    CLASS_NAME = "class_name"  # of the label in a column: its text, whatever the label's own form
    IMAGE = "image"  # a fact of the image
    KEY = "key"
    BOX = "box"  # of each box: a side, or all four in some order, as fractions of the image
    AREA = "area"  # of each object, in a column: in pixels of the image as it is stored
    MASK = "mask"  # the class of each pixel: from an image of them, whose path is in a column
    SEGMENTATION = "segmentation"  # the same, drawn from the objects' outlines in a column
    FLAT = "flat"  # the values of a list of lists, one after the other
    ROW_LENGTHS = "row_lengths"  # and how many of them each list has


class ImageAttribute(str, Enum):
    """What can be said of an image: as it is stored, and, from `source_format` on, as it was."""

    BYTES = "bytes"
    FORMAT = "format"
    HEIGHT = "height"
    WIDTH = "width"
    CHANNELS = "channels"
    SHA256 = "sha256"
    SOURCE_FORMAT = "source_format"
    MODE = "mode"
    BIT_DEPTH = "bit_depth"
    FRAMES = "frames"
    ORIENTATION = "orientation"
    TRANSCODED = "transcoded"


_TEXT_ATTRIBUTES = frozenset(
    {
        ImageAttribute.BYTES,
        ImageAttribute.FORMAT,
        ImageAttribute.SHA256,
        ImageAttribute.SOURCE_FORMAT,
        ImageAttribute.MODE,
    }
)
KIND_OF_ATTRIBUTE = {
    fact: Kind.BYTES if fact in _TEXT_ATTRIBUTES else Kind.INT64 for fact in ImageAttribute
}


BOX_SIDES = ("xmin", "ymin", "xmax", "ymax")
BOX_ORDERS = ("xyxy", "yxyx", "xywh", "cxcywh")

_KIND_OF_ORIGIN = {
    Origin.BOX: Kind.FLOAT,
    Origin.AREA: Kind.FLOAT,
    Origin.MASK: Kind.BYTES,
    Origin.SEGMENTATION: Kind.BYTES,
    Origin.ROW_LENGTHS: Kind.INT64,
}
NO_COLUMN = (Origin.IMAGE, Origin.KEY, Origin.BOX)
"""Sources that name no column: boxes have theirs in the schema's `boxes:` block."""

_OF_A_IMAGE = (Origin.IMAGE, Origin.BOX, Origin.AREA, Origin.MASK, Origin.SEGMENTATION)
"""Sources that only a frame of a sequence has."""

_SORTS = (
    "column:NAME, class_name:COLUMN, image:FACT, key, box:SIDE, area:COLUMN, mask:COLUMN, "
    "segmentation:COLUMN, flat:COLUMN or row_lengths:COLUMN"
)


class Missing(str, Enum):
    """What becomes of a row without a value for a feature that has no default."""

    REQUIRED = "required"  # the row is rejected
    EMPTY = "empty"  # the feature is an empty list


class Source(BaseModel):
    """One place that a value can come from, written `column:label`, `image:height` or `key`.

    Attributes:
        origin: the sort of place.
        name: the column or image fact; "" for the key.
    """

    model_config = ConfigDict(frozen=True)

    origin: Origin
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> Source:
        """Returns the source that `text` names.

        Raises:
            ValueError: if it names none.

        >>> Source.parse("column:label").name
        'label'
        """
        origin, _, name = text.partition(":")
        if origin not in {o.value for o in Origin} or bool(name) == (origin == Origin.KEY.value):
            guess = did_you_mean(origin, [o.value for o in Origin])
            raise ValueError(f"{text!r} is no source{guess}; write {_SORTS}")
        if origin == Origin.IMAGE.value and name not in {f.value for f in ImageAttribute}:
            expected = ", ".join(f.value for f in ImageAttribute)
            guess = did_you_mean(name, [f.value for f in ImageAttribute])
            raise ValueError(
                f"{name!r} is not an image attribute{guess}; expected one of: {expected}"
            )
        if origin == Origin.BOX.value and name not in BOX_SIDES + BOX_ORDERS:
            expected = ", ".join(BOX_SIDES + BOX_ORDERS)
            guess = did_you_mean(name, BOX_SIDES + BOX_ORDERS)
            raise ValueError(f"{name!r} is nothing of a box{guess}; expected one of: {expected}")
        return cls(origin=Origin(origin), name=name)

    def __str__(self) -> str:
        return f"{self.origin.value}:{self.name}" if self.name else self.origin.value


def _sources(value: Any) -> Any:
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, list | tuple):
        return tuple(Source.parse(t) if isinstance(t, str) else t for t in texts)
    return value


class Feature(BaseModel):
    """One feature of an example.

    Attributes:
        kind: which list of `tf.train.Feature` holds it.
        sources: where the value comes from; of several, the first that the table has.
        shape: None for one value, (n,) for exactly n, () for any number; (n, m) for n lists of m,
            one after the other; (None, m) for any number of lists of m.
        classes: whether values are class labels: names become ids, integers stay. Of a mask: that
            its ids have names.
        label_offset: what is added to every label, so that 0 is left for the background.
        per: "record"; or "frame", of those that make a sequence.
        per_box: whether there is one item for each box, which goes when its box is dropped.
        single: whether one value in place of a list is a list of one.
        missing: what becomes of a row without a value.
        default: the value of a row without one.
        separator: what parts a list's items within one CSV or TSV field.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    kind: Kind
    sources: Annotated[tuple[Source, ...], BeforeValidator(_sources), Field(min_length=1)] = Field(
        alias="from"
    )
    shape: tuple[Annotated[int, Field(gt=0)] | None, ...] | None = None
    classes: bool = False
    label_offset: Literal[0, 1] = 0
    per: Literal["record", "frame"] = "record"
    per_box: bool = False
    single: bool = False
    missing: Missing = Missing.REQUIRED
    default: StrictBool | StrictInt | StrictFloat | StrictStr | None = None
    separator: str = Field(default="|", min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Feature:
        self._check_kind()
        self._check_shape()
        if self.is_mask and self.missing is not Missing.REQUIRED:
            raise ValueError("an image without a mask is rejected: a mask cannot be empty")
        if self.label_offset and not self.classes:
            raise ValueError("label_offset is that of class labels: it goes with classes: true")
        if self.single and self.shape != ():
            raise ValueError("single: true is for lists of any length: for shape: []")
        if self.default is not None and (self.shape is not None or self.classes):
            raise ValueError("only a single value that is no class can have a default")
        if self.default is not None and not self._holds(self.default):
            raise ValueError(f"the default {self.default!r} is no {self.kind.value}")
        return self

    def _check_kind(self) -> None:
        fact = self.image_attribute
        fixed = KIND_OF_ATTRIBUTE[fact] if fact else _KIND_OF_ORIGIN.get(self.source.origin)
        if fixed and self.kind is not fixed:
            raise ValueError(f"{self.source} is of kind {fixed.value}")
        if self.classes and self.kind is not Kind.INT64 and not self.is_mask:
            raise ValueError("a feature with classes holds their ids: its kind is int64")

    def _check_shape(self) -> None:
        if self.shape and (None in self.shape[1:] or self.shape == (None,)):
            raise ValueError("only the first of several sizes can be open, as in [null, 4]")
        fixed: tuple[int | None, ...] | None = ()
        if self.is_mask:
            fixed = None
        elif self.source.origin is Origin.BOX and self.source.name in BOX_ORDERS:
            fixed = (None, 4)
        elif not self.of_boxes and self.source.origin not in (Origin.FLAT, Origin.ROW_LENGTHS):
            return
        if self.shape != fixed:
            expected = "[null, 4]" if fixed else "not said" if fixed is None else "[]"
            raise ValueError(f"the shape of {self.source} has to be {expected}")

    def _holds(self, value: bool | int | float | str) -> bool:
        """Whether the feature's kind can hold a value as it is."""
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
    def source(self) -> Source:
        """The one source, once the columns of a table have resolved it."""
        return self.sources[0]

    @property
    def image_attribute(self) -> ImageAttribute | None:
        """The fact of the image that this feature holds, if it holds one."""
        if self.source.origin is not Origin.IMAGE:
            return None
        return ImageAttribute(self.source.name)

    @property
    def optional(self) -> bool:
        """Whether an example may hold any number of values for this feature."""
        if self.has_open_rows:
            return False
        return self.shape == () or (self.missing is Missing.EMPTY and self.default is None)

    @property
    def has_open_rows(self) -> bool:
        """Whether it is any number of lists, all of one length."""
        return bool(self.shape) and self.shape[0] is None  # type: ignore[index]

    @property
    def is_mask(self) -> bool:
        """Whether it is a mask: an image of class ids."""
        return self.source.origin in (Origin.MASK, Origin.SEGMENTATION)

    @property
    def of_boxes(self) -> bool:
        """Whether it has one item for each box."""
        return self.per_box or self.source.origin in (Origin.BOX, Origin.AREA)

    @property
    def of_image(self) -> bool:
        """Whether it cannot be had without an image."""
        return self.per_box or any(source.origin in _OF_A_IMAGE for source in self.sources)

    @property
    def column(self) -> str | None:
        """The schema's name of the column that the value comes from, if from a column."""
        return None if self.source.origin in NO_COLUMN else self.source.name


class Schema(BaseModel):
    """Which features an example has. A preset, or a YAML file of the same form.

    Attributes:
        name: for messages and sidecars.
        description: one line for people.
        features: Example key to feature.
        every_column: take every column of the table as a feature, by its type.
        image: how images are found and checked.
        boxes: how the table writes boxes, and what becomes of bad ones.
        masks: what masks are drawn on, and how they are stored.
        sequence: which rows make one record, a `tf.train.SequenceExample`; None for one a row.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "custom"
    description: str = ""
    features: dict[str, Feature] = Field(default_factory=dict)
    every_column: bool = False
    image: ImageSettings = ImageSettings()
    boxes: BoxSettings = BoxSettings()
    masks: MaskSettings = MaskSettings()
    sequence: SequenceSettings | None = None

    @model_validator(mode="after")
    def _check(self) -> Schema:
        if not self.features and not self.every_column:
            raise ValueError("a schema needs features, or every_column: true")
        if any(f.per_box or f.source.origin is Origin.AREA for f in self.features.values()):
            self._need(
                self.has_boxes, "a feature for each box needs boxes: add one from box:xmin, …"
            )
        if self.has_boxes or self.mask_feature:
            self._need(self.has_image, "boxes and masks need their image: add one from image:…")
        self._need(
            sum(f.is_mask for f in self.features.values()) <= 1, "a schema has one mask at most"
        )
        self._check_sequence()
        self._check_names()
        return self

    def _check_names(self) -> None:
        """Rejects names that no file of class names can have."""
        files: dict[str, str] = {}
        for name in self.named_features:
            size = len(labels_name(name).encode())
            if size > _MAX_FILE_NAME:
                what = f"the name is too long for the file of its class names: {size} bytes"
                raise SchemaError(f"{what}, expected {_MAX_FILE_NAME}", "features", name)
            other = files.setdefault(labels_name(name), name)
            if other != name:
                what = f"the class names of {other!r} and {name!r} would be one file; rename one"
                raise SchemaError(what, "features", name)

    def _check_sequence(self) -> None:
        frames = [name for name, feature in self.features.items() if feature.per == "frame"]
        if self.sequence is None:
            if frames:
                what = "per: frame is for sequences: add a block sequence: {group: C, order: C}"
                raise SchemaError(what, "features", frames[0], "per")
            return
        if self.every_column:
            what = "a sequence needs to know which features are per: frame: name them"
            raise SchemaError(what, "every_column")
        if not frames:
            what = "a sequence needs a feature of its frames: mark it per: frame"
            raise SchemaError(what, "sequence")
        for name, feature in self.features.items():
            if feature.has_open_rows:
                what = "a sequence holds no shape [null, n]; write [] for any number"
                raise SchemaError(what, "features", name, "shape")
            if feature.per == "record" and feature.of_image:
                what = "a sequence has an image for each frame: mark the feature per: frame"
                raise SchemaError(what, "features", name)

    def _need(self, given: bool, what: str) -> None:
        if not given:
            raise ValueError(what)

    @cached_property
    def has_image(self) -> bool:
        """Whether any feature is a fact of an image, so that images have to be read."""
        return any(f.image_attribute for f in self.features.values())

    @cached_property
    def frame_features(self) -> dict[str, Feature]:
        """The features of each frame of a sequence."""
        return {name: f for name, f in self.features.items() if f.per == "frame"}

    @cached_property
    def context_features(self) -> dict[str, Feature]:
        """The features that a record has once: all, where it is no sequence."""
        return {name: f for name, f in self.features.items() if f.per == "record"}

    @cached_property
    def has_boxes(self) -> bool:
        """Whether any feature is taken from boxes."""
        return any(f.source.origin is Origin.BOX for f in self.features.values())

    @cached_property
    def mask_feature(self) -> str | None:
        """The Example key of the mask, if there is one."""
        return next((key for key, feature in self.features.items() if feature.is_mask), None)

    @cached_property
    def class_features(self) -> tuple[str, ...]:
        """The Example keys of the features that hold class labels, in order."""
        return tuple(k for k, f in self.features.items() if f.classes and not f.is_mask)

    @cached_property
    def named_features(self) -> tuple[str, ...]:
        """The Example keys of the features whose ids have names: labels, and those of a mask."""
        return tuple(key for key, feature in self.features.items() if feature.classes)

    def labels_of(self, name: str) -> Feature | None:
        """Returns the feature that takes a named feature's labels from the table.

        Of a mask that is drawn, those of its objects; None for a mask that is a file.
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
        """The Example key of the image's bytes, if the schema stores them."""
        attributes = ((key, f.image_attribute) for key, f in self.features.items())
        return next((key for key, fact in attributes if fact is ImageAttribute.BYTES), None)

    @property
    def encoded_image(self) -> str | None:
        """The Example key of the image's bytes, if they are JPEG or PNG."""
        return None if self.image.format == "raw" else self.image_feature
