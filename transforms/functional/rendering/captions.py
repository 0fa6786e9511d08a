"""Text in images: by Pillow's own font, or one of the system's for what that one lacks.

Pillow's own knows little beyond English. What no font here has a glyph for is spelled out.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import NamedTuple

from PIL import ImageDraw, ImageFont

from recordmill.transforms.functional.rendering.visible_text import escaped

SYSTEM_FONTS = (
    "DejaVuSans.ttf",
    "NotoSans-Regular.ttf",
    "LiberationSans-Regular.ttf",
    "NotoSansCJK-Regular.ttc",
    "Arial.ttf",
    "Arial Unicode.ttf",
    "segoeui.ttf",
)
"""Where there are any, Pillow finds them by these names on Linux, macOS and Windows."""

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

_OWN = ""
_MISSING = "\U0010ffff"
"""No character, so that a font draws its sign for what it lacks."""


_LONGEST = 2_000
"""Characters of a text that are looked at: no line has room for more."""


class CaptionFont(NamedTuple):
    """A text that can be drawn.

    Attributes:
        text: what the font lacks in it is spelled out.
        font: draws it.
    """

    text: str
    font: Font

    @property
    def width(self) -> float:
        """In pixels."""
        return self.font.getlength(self.text)

    def draw(
        self,
        canvas: ImageDraw.ImageDraw,
        at: tuple[float, float],
        fill: tuple[int, int, int],
        anchor: str = "la",
    ) -> None:
        """Draws it onto an image."""
        canvas.text(at, self.text, fill=fill, font=self.font, anchor=anchor)


def caption_font(text: str, size: int) -> CaptionFont:
    """Returns a text in letters of this height, by the first font that has the most of it."""
    best, missing = _OWN, len(text) + 1
    for name in (_OWN, *SYSTEM_FONTS):
        if (lacks := _lacks(name, text)) < missing:
            best, missing = name, lacks
        if not missing:
            break
    shown = "".join(c if _has_glyph(best, c) else escaped(c) for c in text)
    return CaptionFont(shown, _font(best, size) or ImageFont.load_default(size))


def fitted(text: str, width: float, size: int) -> CaptionFont:
    """Returns as much of a text as fits a width in pixels, with an ellipsis for the rest."""
    whole = caption_font(text[:_LONGEST], size)
    if whole.width <= width:
        return whole
    lengths = range(1, len(whole.text) + 1)
    kept = bisect_right(lengths, width, key=lambda n: whole.font.getlength(whole.text[:n] + "…"))
    return whole._replace(text=whole.text[:kept] + "…")


def _lacks(name: str, text: str) -> int:
    """Returns how many characters of a text a font lacks; all, if there is no such font."""
    if _font(name, 16) is None:
        return len(text) + 1
    return sum(not _has_glyph(name, character) for character in text)


@lru_cache
def _font(name: str, size: int) -> Font | None:
    """Returns Pillow's own font, or one of the system's; None if it has no such font."""
    if name == _OWN:
        return ImageFont.load_default(size)
    try:
        return ImageFont.truetype(name, size)
    except OSError:
        return None


@lru_cache(maxsize=8192)
def _has_glyph(name: str, character: str) -> bool:
    face = _font(name, 16)
    if character == " ":
        return True
    if not character.isprintable() or not isinstance(face, ImageFont.FreeTypeFont):
        return character.isascii() and character.isprintable()
    drawn, missing = face.getmask(character), face.getmask(_MISSING)
    return drawn.size != missing.size or bytes(drawn) != bytes(missing)
