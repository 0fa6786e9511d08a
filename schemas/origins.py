"""Sources: where the value of a feature comes from, and its kind."""

from __future__ import annotations

from enum import Enum

from pydantic import BaseModel, ConfigDict

from recordmill.schemas.errors import did_you_mean


class Kind(str, Enum):
    """The three kinds of list that a `tf.train.Feature` can hold."""

    INT64 = "int64"
    FLOAT = "float"
    BYTES = "bytes"


class Origin(str, Enum):
    """The kind of source of a feature's value."""

    COLUMN = "column"
    CLASS_NAME = "class_name"  # the name of the class whose name or id is in a column
    IMAGE = "image"  # an attribute of the image
    KEY = "key"
    BOX = "box"  # a side of each box, or all four, as fractions of the image
    AREA = "area"  # the area of each object in a column, in pixels of the stored image
    MASK = "mask"  # a mask, an image of class ids, whose path is in a column
    SEGMENTATION = "segmentation"  # a mask that is drawn from the outlines in a column
    INSTANCE_PNG = "instance_png"  # the mask of each object in a column of outlines, as a PNG
    INSTANCE_RLE = "instance_rle"  # the same as COCO's run lengths, in JSON
    INSTANCE_IDS = "instance_ids"  # one mask, whose pixels are the numbers of objects, from 1
    CORNERS = "corners"  # the four corners of each oriented box in a column
    KEYPOINT_X = "keypoint_x"  # the keypoints of all objects in a column, one after the other
    KEYPOINT_Y = "keypoint_y"
    KEYPOINT_VISIBILITY = "keypoint_visibility"
    KEYPOINT_COUNT = "keypoint_count"  # the number of labeled keypoints of each object
    KEYPOINT_NAME = "keypoint_name"  # the names of the keypoints of all objects
    FLAT = "flat"  # the concatenated values of a list of lists
    ROW_LENGTHS = "row_lengths"  # the length of each list in a list of lists
    FRAME = "frame"  # the position of a frame in its sequence


class ImageAttribute(str, Enum):
    """Attributes of an image: as stored, and from `source_format` on, of its source file."""

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


KIND_OF_ATTRIBUTE = {
    **dict.fromkeys(ImageAttribute, Kind.INT64),
    **dict.fromkeys((ImageAttribute.BYTES, ImageAttribute.FORMAT), Kind.BYTES),
    **dict.fromkeys((ImageAttribute.SHA256, ImageAttribute.SOURCE_FORMAT), Kind.BYTES),
    ImageAttribute.MODE: Kind.BYTES,
}

BOX_SIDES = ("xmin", "ymin", "xmax", "ymax")
BOX_ORDERS = ("xyxy", "yxyx", "xywh", "cxcywh")

# The sources of keypoints, of oriented boxes, and of masks that are drawn from outlines.
KEYPOINTS = (
    Origin.KEYPOINT_X, Origin.KEYPOINT_Y, Origin.KEYPOINT_VISIBILITY, Origin.KEYPOINT_COUNT,
)  # fmt: skip
POINTS = (*KEYPOINTS, Origin.KEYPOINT_NAME, Origin.CORNERS)
INSTANCES = (Origin.INSTANCE_PNG, Origin.INSTANCE_RLE, Origin.INSTANCE_IDS)
OUTLINES = (Origin.SEGMENTATION, *INSTANCES)

KIND_OF_ORIGIN = {
    **dict.fromkeys((Origin.BOX, Origin.AREA, Origin.CORNERS, *KEYPOINTS), Kind.FLOAT),
    **dict.fromkeys((Origin.KEYPOINT_VISIBILITY, Origin.KEYPOINT_COUNT), Kind.INT64),
    **dict.fromkeys((Origin.ROW_LENGTHS, Origin.FRAME), Kind.INT64),
    **dict.fromkeys((Origin.KEYPOINT_NAME, Origin.MASK, *OUTLINES), Kind.BYTES),
}

# The number of a frame, from 0, and whether it is the first and the last one.
FRAME_POSITIONS = ("index", "first", "last")

# What the names of sources without a column are, and all of them.
_KNOWN_NAMES: dict[Origin, tuple[str, tuple[str, ...]]] = {
    Origin.IMAGE: ("an image attribute", tuple(one.value for one in ImageAttribute)),
    Origin.BOX: ("a side of a box", BOX_SIDES + BOX_ORDERS),
    Origin.FRAME: ("a position of a frame", FRAME_POSITIONS),
}

# Sources without a column; the columns of boxes are in the schema's `boxes:` block.
NO_COLUMN = (Origin.IMAGE, Origin.KEY, Origin.BOX, Origin.FRAME)

# Sources that belong to an image; in sequences, only frames have them.
IMAGE_ORIGINS = (Origin.IMAGE, Origin.BOX, Origin.AREA, Origin.MASK, *OUTLINES, *POINTS)

_NAMES = {
    Origin.COLUMN: "NAME",
    Origin.IMAGE: "ATTRIBUTE, image:NAME/ATTRIBUTE",
    Origin.BOX: "SIDE",
    Origin.FRAME: "POSITION",
}
_FORMS = [f"{o.value}:{_NAMES.get(o, 'COLUMN')}" if o != Origin.KEY else "key" for o in Origin]
_SOURCE_SYNTAX = f"{', '.join(_FORMS[:-1])} or {_FORMS[-1]}"


class Source(BaseModel):
    """A source of a feature's value, written as in `column:label`, `image:height` or `key`.

    Attributes:
        origin: the kind of source.
        name: the column or attribute; "" for the key. Attributes of other images than the first
            begin with the name of the image: `right/bytes`.
    """

    model_config = ConfigDict(frozen=True)

    origin: Origin
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> Source:
        """Parses a source; raises ValueError if the text is not one.

        >>> Source.parse("column:label").name
        'label'
        """
        origin, _, name = text.partition(":")
        if origin not in {o.value for o in Origin} or bool(name) == (origin == Origin.KEY.value):
            guess = did_you_mean(origin, [o.value for o in Origin])
            raise ValueError(f"{text!r} is not a source{guess}; expected {_SOURCE_SYNTAX}")
        what, known = _KNOWN_NAMES.get(Origin(origin), ("", ()))
        part = name.rpartition("/")[2] if origin == Origin.IMAGE.value else name
        if known and part not in known:
            guess, expected = did_you_mean(part, known), ", ".join(known)
            raise ValueError(f"{name!r} is not {what}{guess}; expected one of: {expected}")
        return cls(origin=Origin(origin), name=name)

    def __str__(self) -> str:
        return f"{self.origin.value}:{self.name}" if self.name else self.origin.value
