"""Tables with one row per box: their columns, and the rows of each image as one.

The rows of an image may be anywhere in the table. An image without boxes has a row without numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from recordmill.schemas.origins import BOX_SIDES
from recordmill.schemas.records import MORE_BOXES, Items, Row, SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.schemas.settings import Order
from recordmill.transforms.functional.images.sniffing import has_image_suffix
from recordmill.transforms.functional.rows.batches import RowBatch, one_by_one
from recordmill.transforms.functional.spools import Spools
from recordmill.transforms.functional.values.typed import looks_number

_SEPARATOR = re.compile(r"[,;\s]+")

# Names of columns, in lower case without separators.
_IMAGES = ("image", "filename", "imageid", "path", "imagepath", "filepath", "imagename", "img")
_LABELS = ("labels", "label", "class", "classname", "labelname", "category", "categoryname")
_CORNERS = (
    BOX_SIDES, ("x1", "y1", "x2", "y2"), ("x0", "y0", "x1", "y1"), ("xtl", "ytl", "xbr", "ybr"),
    ("left", "top", "right", "bottom"), ("left", "upper", "right", "lower"),
    ("startx", "starty", "endx", "endy"),
)  # fmt: skip
_SIZES = (("width", "height"), ("w", "h"))

# The orders of boxes in other columns, by the first two; those of x and y have to be stated.
_SIZED: dict[tuple[str, str], tuple[Order, ...]] = {
    **dict.fromkeys((("xmin", "ymin"), ("left", "top"), ("x1", "y1")), ("xywh",)),
    **dict.fromkeys((("xcenter", "ycenter"), ("centerx", "centery"), ("cx", "cy")), ("cxcywh",)),
    ("x", "y"): ("xywh", "cxcywh"),
}
# Those of the numbers in one column, whatever its name.
OPEN_ORDERS: tuple[Order, ...] = ("xywh", "xyxy", "cxcywh", "yxyx")
_FORMS: tuple[dict[tuple[str, ...], tuple[Order, ...]], ...] = (
    dict.fromkeys(_CORNERS, ("xyxy",)),  # width and height beside corners are those of the image
    {(*point, *size): orders for point, orders in _SIZED.items() for size in _SIZES},
    dict.fromkeys((("bbox",), ("boundingbox",), ("boxes",), ("bboxes",)), OPEN_ORDERS),
)

# The first number of a box in several columns.
_FIRST = {sides[0] for form in _FORMS[:2] for sides in form}

_Found: TypeAlias = Row | Reject | SkippedInput


class BoxColumns(NamedTuple):
    """The columns of a table with a row per box."""

    names: dict[str, str]  # the table column of each schema column; sides only of one form
    orders: tuple[Order, ...]  # those that the numbers of a box may have, by the names

    @property
    def sides(self) -> list[str]:
        """The table columns of the numbers of a box."""
        return [name for role, name in self.names.items() if role not in ("image", "labels")]


def columns_of_boxes(
    columns: Iterable[str], stated: Mapping[str, str] = MappingProxyType({})
) -> BoxColumns | None:
    """Returns the columns of images, labels and boxes of a table; None without one of each.

    Only that of labels may be missing. `stated` is table columns by schema column.

    >>> columns_of_boxes(["ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax"]).names["xmax"]
    'XMax'
    """
    names = {re.sub(r"[\W_]", "", name).casefold(): name for name in columns}
    images, labels = (
        [stated[role]] if role in stated else [names[n] for n in known if n in names]
        for role, known in (("image", _IMAGES), ("labels", _LABELS))
    )
    # In Roi.X1, Roi.Y1, Roi.X2 and Roi.Y2, the names of one box begin alike.
    alike = {name.removesuffix(end) for name in names for end in _FIRST if name.endswith(end)}
    short = (
        {n.removeprefix(start): c for n, c in names.items() if n.startswith(start)}
        for start in alike
    )
    forms = _forms_in(names) or [form for own in short for form in _forms_in(own)]
    if not len(images) == len(forms) == 1 or len(labels) > 1:
        return None
    sides, orders = forms[0]
    roles = BOX_SIDES if len(sides) > 1 else ("bbox",)
    named = {"image": images[0], **({"labels": labels[0]} if labels else {})}
    return BoxColumns({**named, **dict(zip(roles, sides, strict=True))}, orders)


def _forms_in(names: Mapping[str, str]) -> list[tuple[list[str], tuple[Order, ...]]]:
    if {"x3", "y3"} <= names.keys():  # four corners, as of oriented boxes
        return []
    found = [[one for one in form.items() if {*one[0]} <= names.keys()] for form in _FORMS]
    has_corner = bool({"xmax", "ymax"} & names.keys())  # width and height are of the image
    forms = found[0] if has_corner else next(filter(None, found), [])
    return [([names[side] for side in sides], orders) for sides, orders in forms]


def header_of_boxes(first: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns of a table without a header, by its first row, as of RetinaNet; or ().

    >>> header_of_boxes(["a/1.jpg", "0", "0", "50", "60", "cat"])
    ('image', 'xmin', 'ymin', 'xmax', 'ymax', 'labels')
    """
    if len(first) != 6 or not has_image_suffix(first[0]):
        return ()
    *sides, label = first[1:]
    has_box = all(map(_is_number, sides)) and bool(label) and not looks_number(label)
    return ("image", *BOX_SIDES, "labels") if has_box or not any(first[1:]) else ()


def has_row_per_box(rows: Iterable[Mapping[str, Any]], sides: Sequence[str]) -> bool:
    """Returns whether rows have a number in each column of the sides of a box, or in none.

    A single column has the four numbers of a box as a list, or as text.
    """
    boxes = (
        _numbers_in(row.get(sides[0])) if len(sides) == 1 else [row.get(side) for side in sides]
        for row in rows
    )
    full = [box for box in boxes if any(value not in (None, "") for value in box)]
    return bool(full) and all(len(box) == 4 and all(map(_is_number, box)) for box in full)


def _numbers_in(box: Any) -> Sequence[Any]:
    """Returns the items of a box.

    >>> _numbers_in("[834.0, 222.0, 56.0, 36.0]")
    ['834.0', '222.0', '56.0', '36.0']
    """
    if isinstance(box, str):
        text = box.strip()
        return [n for n in _SEPARATOR.split(text[1:-1] if text[:1] in ("[", "(") else text) if n]
    return box if isinstance(box, list | tuple) else [] if box is None else [box]


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number or (isinstance(value, str) and looks_number(value))


def grouped(rows: Iterable[RowBatch | _Found], image: str, box: str = "") -> Iterator[_Found]:
    """Yields the rows of each image as one, with lists of their values, and the number of others.

    `box` is a column with all numbers of a box. Rows without an image are yielded as they are.
    """
    with Spools() as spools:
        for row in one_by_one(rows):
            is_embedded = isinstance(row, Row) and isinstance(row.image, bytes)
            name = row.values.get(image) if isinstance(row, Row) and not is_embedded else None
            if isinstance(name, str | int) and name != "":
                spools.add(repr(name), row)
            else:
                yield row
        more = 0
        for of_image in spools.groups():
            more += len(of_image) - 1
            yield _joined(of_image, image, box)
        if more:
            yield SkippedInput(MORE_BOXES, more)


def _joined(rows: Sequence[Row], image: str, box: str) -> Row:
    columns = dict.fromkeys(column for row in rows for column in row.values)
    values = {column: Items(row.values.get(column) for row in rows) for column in columns}
    if box in values:
        values[box] = Items([[*found]] for one in values[box] if (found := _numbers_in(one)))
    untyped = frozenset(column for row in rows for column in row.values if row.untyped(column))
    return rows[0]._replace(values={**values, image: rows[0].values[image]}, is_text=untyped)
