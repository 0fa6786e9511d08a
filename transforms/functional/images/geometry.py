"""What happens to an image's plane on its way into a record: turned, cropped, scaled, padded.

One value, worked out from sizes alone. The pixels are resampled by it, and what is annotated on
them, boxes and masks, goes the same way by the same value.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from recordmill.schemas.settings import ImageSettings, Resize

Size: TypeAlias = tuple[int, int]
"""Width and height, in pixels."""

Point: TypeAlias = tuple[float, float]
"""x and y, in pixels from the left and from the top: 0 is the edge of the first pixel."""

Box: TypeAlias = tuple[float, float, float, float]
"""xmin, ymin, xmax and ymax: two corners, in pixels, or as fractions of the image."""


class Geometry(NamedTuple):
    """What was done to an image's plane, in this order.

    Attributes:
        stored: the size as the file stores the image.
        orientation: EXIF's, 1 to 8, by which viewers show it.
        turned: whether it was turned upright by it.
        crop: left, top, right and bottom of what is kept of it, then; exact, hence fractions.
        content: the size that this was scaled to.
        offset: where its left and top come to lie in the record's image.
        size: that image's size.
    """

    stored: Size
    orientation: int
    turned: bool
    crop: tuple[Fraction, Fraction, Fraction, Fraction]
    content: Size
    offset: tuple[int, int]
    size: Size

    @property
    def displayed(self) -> Size:
        """The size as viewers show the image."""
        return turned_size(self.stored, self.orientation)

    @property
    def upright(self) -> Size:
        """The size after turning, if it was turned, and before all else."""
        return self.displayed if self.turned else self.stored

    @property
    def scale(self) -> tuple[float, float]:
        """How many pixels of the record's image one pixel became, across and down."""
        left, top, right, bottom = self.crop
        return float(self.content[0] / (right - left)), float(self.content[1] / (bottom - top))


@lru_cache(1024)  # asked for the image, its boxes and its mask; 40 µs of fractions each time
def geometry_of(stored: Size, orientation: int, settings: ImageSettings) -> Geometry:
    """Returns what the settings do to an image of a size and EXIF orientation.

    >>> geometry_of((400, 300), 6, ImageSettings(max_side=200)).size
    (150, 200)
    """
    turned = settings.orientation == "apply"
    whole = turned_size(stored, orientation) if turned else stored
    size = target_size(whole, settings)
    mode = settings.resize.mode if settings.resize else "exact"
    content = _contained(whole, size) if mode == "pad" else size
    return Geometry(
        stored=stored,
        orientation=orientation,
        turned=turned,
        crop=_crop(whole, size if mode == "crop" else whole),
        content=content,
        offset=(round((size[0] - content[0]) / 2), round((size[1] - content[1]) / 2)),
        size=size,
    )


def turned_size(size: Size, orientation: int) -> Size:
    """Returns the size of an image after it was turned by an EXIF orientation."""
    return (size[1], size[0]) if orientation >= 5 else size


def target_size(size: Size, settings: ImageSettings) -> Size:
    """Returns the width and height that an upright image gets.

    >>> target_size((400, 300), ImageSettings(max_side=200))
    (200, 150)
    """
    width, height = size
    if settings.max_side is not None and max(size) > settings.max_side:
        return _scaled(size, settings.max_side / max(size))
    if settings.resize is None:
        return width, height
    resize: Resize = settings.resize
    if resize.mode == "fit":
        return _scaled(size, min(resize.width / width, resize.height / height))
    return resize.width, resize.height


def turned_point(point: Point, size: Size, orientation: int) -> Point:
    """Returns where a point of an image comes to lie when it is turned by an EXIF orientation.

    Args:
        point: on the image.
        size: the image's, before it is turned.
        orientation: 1 to 8.

    >>> turned_point((10, 0), (400, 300), 6)  # the top edge becomes the right one
    (300, 10)
    """
    x, y = point
    right, bottom = size[0] - x, size[1] - y
    turned = {
        2: (right, y),
        3: (right, bottom),
        4: (x, bottom),
        5: (y, x),
        6: (bottom, x),
        7: (bottom, right),
        8: (y, right),
    }
    return turned.get(orientation, point)


def turned_back_by(orientation: int) -> int:
    """Returns the EXIF orientation that undoes another."""
    return {6: 8, 8: 6}.get(orientation, orientation)


def turned_box(box: Box, geometry: Geometry, frame: str) -> Box:
    """Returns where a box lies once the image is turned, as far as it is.

    Args:
        box: in pixels of the image that it was drawn on.
        geometry: what was done to the image.
        frame: which image that was: "displayed", or "stored".
    """
    if frame == "displayed" and not geometry.turned:
        size, orientation = geometry.displayed, turned_back_by(geometry.orientation)
    elif frame == "stored" and geometry.turned:
        size, orientation = geometry.stored, geometry.orientation
    else:
        return box
    one = turned_point(box[:2], size, orientation)
    other = turned_point(box[2:], size, orientation)
    return (*map(min, one, other), *map(max, one, other))  # type: ignore[return-value]


def _crop(size: Size, ratio: Size) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """Returns the largest part, in the middle, that has a width and height of this ratio."""
    width, height = map(Fraction, size)
    kept_width = min(width, height * ratio[0] / ratio[1])
    kept_height = min(height, width * ratio[1] / ratio[0])
    left, top = (width - kept_width) / 2, (height - kept_height) / 2
    return left, top, left + kept_width, top + kept_height


def _contained(size: Size, within: Size) -> Size:
    """Returns the size that an image is scaled to so that it just fits within another."""
    width, height = size
    if width * within[1] > within[0] * height:
        return within[0], max(1, round(height / width * within[0]))
    return max(1, round(width / height * within[1])), within[1]


def _scaled(size: Size, factor: float) -> Size:
    width, height = size
    return max(1, round(width * factor)), max(1, round(height * factor))
