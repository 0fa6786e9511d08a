"""A contact sheet: many images on one page, each with a caption."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from PIL import Image, ImageDraw

from recordmill.transforms.functional.rendering.captions import fitted

TILE_SIDE = 240
_GAP = 16
_TEXT = 14
_LINE = 19
_INK, _PALE, _GROUND, _EMPTY = (32, 33, 36), (95, 99, 104), (255, 255, 255), (241, 243, 244)


class Tile(NamedTuple):
    """One image and what stands below it.

    Attributes:
        image: in RGB; None if there is none, or it cannot be decoded.
        title: the label.
        note: the key.
        fault: why there is no image.
    """

    image: Image.Image | None
    title: str
    note: str
    fault: str = ""


def contact_sheet(tiles: Sequence[Tile]) -> Image.Image:
    """Returns one image of all tiles, in rows of a width that makes the sheet about square."""
    columns = max(1, math.ceil(math.sqrt(len(tiles) * 1.2)))
    rows = max(1, math.ceil(len(tiles) / columns))
    step = (TILE_SIDE + _GAP, TILE_SIDE + 2 * _LINE + _GAP)
    sheet = Image.new("RGB", (columns * step[0] + _GAP, rows * step[1] + _GAP), _GROUND)
    for i, tile in enumerate(tiles):
        row, column = divmod(i, columns)
        _place(sheet, tile, (_GAP + column * step[0], _GAP + row * step[1]))
    return sheet


def _place(sheet: Image.Image, tile: Tile, corner: tuple[int, int]) -> None:
    left, top = corner
    canvas = ImageDraw.Draw(sheet)
    if tile.image is None:
        canvas.rectangle((left, top, left + TILE_SIDE - 1, top + TILE_SIDE - 1), fill=_EMPTY)
        why = fitted(tile.fault, TILE_SIDE - _GAP, _TEXT)
        middle = (left + TILE_SIDE // 2, top + TILE_SIDE // 2)
        why.draw(canvas, middle, _PALE, anchor="mm")
    else:
        x = left + (TILE_SIDE - tile.image.width) // 2
        sheet.paste(tile.image, (x, top + TILE_SIDE - tile.image.height))
    below = top + TILE_SIDE + 4
    for line, (text, ink) in enumerate(((tile.title, _INK), (tile.note, _PALE))):
        fitted(text, TILE_SIDE, _TEXT).draw(canvas, (left, below + line * _LINE), ink)
