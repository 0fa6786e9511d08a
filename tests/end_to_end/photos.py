"""A small folder of images with known properties."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.images import jpeg, png


@dataclass(frozen=True)
class Photo:
    """An image on disk."""

    path: str
    data: bytes
    format: str
    height: int
    width: int
    channels: int
    label: str
    labels: list[str]
    landmark: int
    id: str

    @property
    def sha256(self) -> str:
        """Hex digest of the file."""
        return hashlib.sha256(self.data).hexdigest()


_FORMS: tuple[tuple[Callable[..., bytes], str, int, dict[str, bool]], ...] = (
    (jpeg, "RGB", 3, {}),
    (png, "RGB", 3, {}),
    (jpeg, "L", 1, {}),
    (png, "RGBA", 4, {}),
    (jpeg, "RGB", 3, {"progressive": True}),
    (png, "L", 1, {}),
)
_CLASSES = ("horse", "cat", "Übermut")


def draw_photos(folder: Path, number: int = 12) -> list[Photo]:
    """Draws images of every form and class into a folder."""
    return [_draw_photo(folder, i) for i in range(number)]


def _draw_photo(folder: Path, i: int) -> Photo:
    encode, mode, channels, options = _FORMS[i % len(_FORMS)]
    width, height = 8 + i, 20 - i % 7
    data = encode(width, height, i, mode, **options)
    suffix = "jpg" if encode is jpeg else "png"
    path = f"{'ab'[i % 2]}/picture {i:02d}.{suffix}"  # codespell:ignore picture
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_bytes(data)
    label = _CLASSES[i % 3]
    labels = sorted(_CLASSES)[: i % 4]
    return Photo(
        path,
        data,
        encode.__name__,
        height,
        width,
        channels,
        label,
        labels,
        203_000 + i % 5,
        f"{i:016x}",
    )
