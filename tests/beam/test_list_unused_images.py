"""ListUnusedImages: the images below a folder that no row names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.schemas.plan import ResolvedSchema
from recordmill.schemas.records import UNUSED_IMAGES, Location, Row, SkippedInput
from recordmill.schemas.tables import Exclusion
from recordmill.schemas.yaml_files import preset
from recordmill.transforms.functional.rows.binding import Binding
from recordmill.transforms.join_labels import ListUnusedImages
from tests.beam.direct import direct_pipeline


def row(image: Location | None = None, **values: Any) -> Row:
    return Row(values, "labels.csv", 1, is_text=True, image=image)


@pytest.mark.parametrize(
    ("patterns", "unused"),
    [((), ("b/c.JPG", "f.png")), (("/b/",), ("f.png",)), (("*.JPG", "f.png"), ())],
)
def test_images_that_no_row_names(
    patterns: tuple[str, ...],
    unused: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("a.png", "b/c.JPG", "b/d.png", "e.png", "f.png", "mask.png", ".g.png", "notes.txt")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path.parent)
    root = tmp_path.name  # relative, and some rows have absolute paths
    binding = Binding(ResolvedSchema(preset("segmentation")), {"image": "file"}, image_root=root)
    rows = [
        row(file="./b/../a.png", mask="mask.png"),
        row(file=str(tmp_path / "e.png")),
        row(file="none.png", mask=""),
        row(file=""),
        row(Location(str(tmp_path / "b" / "d.png"))),
    ]
    exclusions = {Exclusion(str(tmp_path), patterns)} if patterns else frozenset()
    listing = ListUnusedImages(f"{root}/", binding, exclusions)
    with direct_pipeline() as p:
        found = p | beam.Create([rows[:2], rows[2:]]) | listing
        expected = [("", f"{root}/{name}", "") for name in unused]
        assert_that(found.images, equal_to(expected), label="Images")
        assert_that(
            found.skipped,
            equal_to([(UNUSED_IMAGES, SkippedInput(UNUSED_IMAGES))] * len(unused)),
            label="Skipped",
        )
