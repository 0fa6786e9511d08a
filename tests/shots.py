"""Labeled images in the formats of annotations, each of which the unit test of the format writes.

Such a test has `FORMS = {"NAME": Form(write)}`. Every schema is tested with them, the fuzz targets
and seeds are made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from recordmill.transforms.functional.images.sniffing import has_image_suffix
from tests.images import jpeg, png

UNIT_TESTS = "unit/transforms/functional/sources"


@dataclass(frozen=True)
class Shot:
    """An image with its label and boxes in pixels, as (label, xmin, ymin, xmax, ymax)."""

    name: str
    data: bytes
    width: int
    height: int
    label: str
    boxes: tuple[tuple[str, int, int, int, int], ...]
    captions: tuple[str, ...]

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[0]


LABELS = ("cat", "dog", "새")


def shots(number: int = 9) -> list[Shot]:
    """Returns some small images of three classes, with none to two boxes each."""
    return [_shot(i) for i in range(number)]


def _shot(i: int) -> Shot:
    width, height = 16 + 4 * i, 40 - 2 * i
    name = f"{i:03d}.{'png' if i % 3 == 1 else 'jpg'}"
    data = (png if i % 3 == 1 else jpeg)(width, height, i)
    boxes = tuple((LABELS[(i + k) % 3], k, 2, 8 + k, 10) for k in range(i % 3))
    return Shot(name, data, width, height, LABELS[i % 3], boxes, (f"shot | {i}", "second"))


Write: TypeAlias = "Callable[[Path, Sequence[Shot]], Path]"


@dataclass(frozen=True)
class Form:
    """A source format: how to write images to a folder, and the flags to read the returned path."""

    write: Write
    flags: tuple[str, ...] = ()
    holds: str = "boxes"  # or "captions", or a "label" for each image
    in_fractions: bool = False  # whether boxes are fractions of the image

    def files(self, given: Sequence[Shot]) -> dict[str, bytes]:
        """Returns the content of each file below the path that is read."""
        with TemporaryDirectory() as folder:
            path = self.write(Path(folder), given)
            path = path if path.is_dir() else path.parent
            found = [one for one in sorted(path.rglob("*")) if one.is_file()]
            return {one.relative_to(path).as_posix(): one.read_bytes() for one in found}


def annotation_of(files: dict[str, bytes]) -> str:
    """Returns the largest of some files that are no images."""
    return max((n for n in files if not has_image_suffix(n)), key=lambda name: len(files[name]))


def write_images(folder: Path, given: Sequence[Shot]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for shot in given:
        (folder / shot.name).write_bytes(shot.data)


@cache
def forms() -> dict[str, Form]:
    """Returns the forms of formats of annotations, by their names: the format, and which one."""
    tests, found = Path(__file__).parent, dict[str, Form]()
    for path in sorted((tests / UNIT_TESTS).glob("test_*.py")):
        if "\nFORMS = {" in path.read_text("utf-8"):
            name = path.relative_to(tests.parent).with_suffix("").as_posix().replace("/", ".")
            found |= import_module(name).FORMS
    return found
