"""Tables with one row per box: their columns, and the rows of each image as one.

The table may not fit in memory, and the rows of an image may be anywhere in it: rows are spooled by
a hash of their image, and joined spool by spool. An image without boxes has a row without numbers.
"""

from __future__ import annotations

import pickle
import re
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

from recordmill.schemas.origins import BOX_SIDES
from recordmill.schemas.records import MORE_BOXES, Embedded, Items, Row, SkippedInput
from recordmill.schemas.rejects import Reject
from recordmill.transforms.functional.images.sniffing import has_image_suffix
from recordmill.transforms.functional.rows.batches import RowBatch, one_by_one
from recordmill.transforms.functional.values.typed import looks_number

_SPOOLS, _SPOOL_BYTES = 128, 2**18

# Names of columns, in lower case without separators.
_IMAGES = ("image", "filename", "imageid", "path", "imagepath", "filepath", "imagename", "img")
_LABELS = ("labels", "label", "class", "classname", "labelname", "category", "categoryname")
_CORNERS = (BOX_SIDES, ("x1", "y1", "x2", "y2"))

_Found: TypeAlias = Row | Embedded | Reject | SkippedInput


def columns_of_boxes(columns: Iterable[str]) -> dict[str, str] | None:
    """Returns the table column of each column of object detection; None without one for each.

    >>> columns_of_boxes(["ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax"])["xmax"]
    'XMax'
    """
    names = {re.sub(r"[\W_]", "", name).casefold(): name for name in columns}
    images, labels = ([names[n] for n in known if n in names] for known in (_IMAGES, _LABELS))
    corners = [known for known in _CORNERS if all(name in names for name in known)]
    if not len(images) == len(labels) == len(corners) == 1:
        return None
    sides = zip(BOX_SIDES, (names[name] for name in corners[0]), strict=True)
    return {"image": images[0], "labels": labels[0], **dict(sides)}


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
    """Returns whether rows have a number in each column of the sides of a box, or in none."""
    boxes = [[row.get(side) for side in sides] for row in rows]
    full = [box for box in boxes if any(value not in (None, "") for value in box)]
    return bool(full) and all(_is_number(value) for box in full for value in box)


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number or (isinstance(value, str) and looks_number(value))


def grouped(rows: Iterable[RowBatch | _Found], image: str) -> Iterator[_Found]:
    """Yields the rows of each image as one, with lists of their values, and the number of others.

    `image` is the column of images. Rows without an image are yielded as they are.
    """
    with ExitStack() as stack:
        spools = [
            stack.enter_context(tempfile.SpooledTemporaryFile(_SPOOL_BYTES)) for _ in range(_SPOOLS)
        ]
        for row in one_by_one(rows):
            name = row.values.get(image) if isinstance(row, Row) else None
            if isinstance(name, str | int) and name != "":
                number = zlib.crc32(str(name).encode("utf-8", "surrogatepass")) % _SPOOLS
                pickle.dump(row, spools[number], pickle.HIGHEST_PROTOCOL)
            else:
                yield row
        more = 0
        for spool in spools:
            spool.seek(0)
            found = dict[Any, list[Row]]()
            for row in _rows(spool):
                found.setdefault(row.values[image], []).append(row)
            for name, of_image in found.items():
                more += len(of_image) - 1
                yield _joined(of_image, image, name)
        if more:
            yield SkippedInput(MORE_BOXES, more)


def _rows(spool: Any) -> Iterator[Row]:
    while True:
        try:
            yield pickle.load(spool)  # noqa: S301 - a file that this function wrote
        except EOFError:
            return


def _joined(rows: Sequence[Row], image: str, name: Any) -> Row:
    """Returns the rows of an image as one row, whose values are the items of lists."""
    columns = dict.fromkeys(column for row in rows for column in row.values)
    values = {column: Items(row.values.get(column) for row in rows) for column in columns}
    untyped = frozenset(column for row in rows for column in row.values if row.untyped(column))
    return rows[0]._replace(values={**values, image: name}, is_text=untyped)
