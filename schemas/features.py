"""What an example consists of: features, where their values come from, and schemas of them."""

from __future__ import annotations

from enum import Enum
from functools import cached_property
from typing import Annotated, Any

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

from schemas.image_settings import ImageSettings


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


class ImageFact(str, Enum):
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


_TEXT_FACTS = frozenset(
    {
        ImageFact.BYTES,
        ImageFact.FORMAT,
        ImageFact.SHA256,
        ImageFact.SOURCE_FORMAT,
        ImageFact.MODE,
    }
)
KIND_OF_FACT = {fact: Kind.BYTES if fact in _TEXT_FACTS else Kind.INT64 for fact in ImageFact}


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
            raise ValueError(
                f"{text!r} is no source; write column:NAME, class_name:COLUMN, image:FACT or key"
            )
        if origin == Origin.IMAGE.value and name not in {f.value for f in ImageFact}:
            facts = ", ".join(f.value for f in ImageFact)
            raise ValueError(f"{name!r} is no fact of an image; expected one of: {facts}")
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
        shape: None for one value, (n,) for exactly n, () for any number.
        classes: whether values are class labels: names become ids, integers stay.
        missing: what becomes of a row without a value.
        default: the value of a row without one.
        separator: what parts a list's items within one CSV or TSV field.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    kind: Kind
    sources: Annotated[tuple[Source, ...], BeforeValidator(_sources), Field(min_length=1)] = Field(
        alias="from"
    )
    shape: tuple[Annotated[int, Field(gt=0)], ...] | None = Field(default=None, max_length=1)
    classes: bool = False
    missing: Missing = Missing.REQUIRED
    default: StrictBool | StrictInt | StrictFloat | StrictStr | None = None
    separator: str = Field(default="|", min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Feature:
        fact = self.image_fact
        if fact and self.kind is not KIND_OF_FACT[fact]:
            raise ValueError(f"image:{fact.value} is of kind {KIND_OF_FACT[fact].value}")
        if self.classes and self.kind is not Kind.INT64:
            raise ValueError("a feature with classes holds their ids: its kind is int64")
        if self.default is not None and (self.shape is not None or self.classes):
            raise ValueError("only a single value that is no class can have a default")
        if self.default is not None and not self._holds(self.default):
            raise ValueError(f"the default {self.default!r} is no {self.kind.value}")
        return self

    def _holds(self, value: bool | int | float | str) -> bool:
        """Whether the feature's kind can hold a value as it is."""
        if self.kind is Kind.BYTES:
            return isinstance(value, str)
        if self.kind is Kind.INT64:
            return isinstance(value, int) and -(2**63) <= value < 2**63
        return isinstance(value, int | float) and not isinstance(value, bool)

    @property
    def source(self) -> Source:
        """The one source, once a table has settled which."""
        return self.sources[0]

    @property
    def image_fact(self) -> ImageFact | None:
        """The fact of the image that this feature holds, if it holds one."""
        if self.source.origin is not Origin.IMAGE:
            return None
        return ImageFact(self.source.name)

    @property
    def optional(self) -> bool:
        """Whether an example may hold an empty list for this feature."""
        return self.shape == () or (self.missing is Missing.EMPTY and self.default is None)

    @property
    def column(self) -> str | None:
        """The schema's name of the column that the value comes from, if from a column."""
        if self.source.origin in (Origin.COLUMN, Origin.CLASS_NAME):
            return self.source.name
        return None


class Schema(BaseModel):
    """Which features an example has. A preset, or a YAML file of the same form.

    Attributes:
        name: for messages and sidecars.
        description: one line for people.
        features: Example key to feature.
        every_column: take every column of the table as a feature, by its type.
        image: how images are found and checked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "custom"
    description: str = ""
    features: dict[str, Feature] = Field(default_factory=dict)
    every_column: bool = False
    image: ImageSettings = ImageSettings()

    @model_validator(mode="after")
    def _check(self) -> Schema:
        if not self.features and not self.every_column:
            raise ValueError("a schema needs features, or every_column: true")
        return self

    @cached_property
    def has_image(self) -> bool:
        """Whether any feature is a fact of an image, so that images have to be read."""
        return any(f.image_fact for f in self.features.values())

    @cached_property
    def class_features(self) -> tuple[str, ...]:
        """The Example keys of the features that hold class labels, in order."""
        return tuple(key for key, feature in self.features.items() if feature.classes)

    @property
    def image_feature(self) -> str | None:
        """The Example key of the image's bytes, if the schema stores them."""
        facts = ((key, f.image_fact) for key, f in self.features.items())
        return next((key for key, fact in facts if fact is ImageFact.BYTES), None)

    @property
    def encoded_image(self) -> str | None:
        """The Example key of the image's bytes, if they are JPEG or PNG."""
        return None if self.image.format == "raw" else self.image_feature
