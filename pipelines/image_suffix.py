"""Finds how image paths of a table differ from their files: a missing suffix, and Unicode forms.

`1a2b` stands for `1a2b.jpg`. Only the first rows are tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from recordmill.pipelines.first_rows import TABLES
from recordmill.pipelines.input_tables import InputTables
from recordmill.schemas.config import ConvertConfig
from recordmill.schemas.layout import is_web
from recordmill.schemas.records import Row
from recordmill.schemas.rejects import RecordError
from recordmill.schemas.tables import Projection, SourceSplit
from recordmill.transforms.functional.images.sniffing import has_image_suffix
from recordmill.transforms.functional.rows.image_paths import resolve_path
from recordmill.transforms.functional.rows.row_batch import one_by_one
from recordmill.transforms.storage.files import exists, is_local
from recordmill.transforms.storage.formats import FORMATS
from recordmill.transforms.storage.local_files import ImageRootGuard, existing_form

# Enough to see whether files have several suffixes, and few requests to a store.
_ROWS = 20

_SUFFIXES = (
    *(".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG"),
    *(".webp", ".bmp", ".gif", ".tif", ".tiff"),
)


def missing_suffix(config: ConvertConfig, tables: InputTables) -> str:
    """Returns the suffix of the files that the first rows of a table name; "" if there is none.

    No path may have a suffix of images or be that of a file, and all files must have one suffix.
    """
    if config.image_suffix is not None:
        return ""
    try:
        found = [_suffixes_of(address) for address in _addresses(config, tables)]
    except (OSError, ValueError, RecordError):  # reported when the images are read
        return ""
    several = {suffix for suffixes in found for suffix in suffixes}
    return several.pop() if len(several) == 1 else ""


def has_other_form(config: ConvertConfig, tables: InputTables) -> bool:
    """Returns whether a file of the first rows exists in another Unicode form than in the table."""
    if not (tables.has_rows and is_local(tables.files[0].path)):
        return False
    suffix = config.image_suffix or ""
    try:
        addresses = (a.removesuffix(suffix) + suffix for a in _addresses(config, tables))
        return any(is_local(a) and existing_form(a) != a for a in addresses)
    except (OSError, ValueError, RecordError):  # reported when the images are read
        return False


def _suffixes_of(address: str) -> list[str]:
    """Returns the suffixes with which files exist; "" stands for the file without a suffix."""
    if has_image_suffix(address) or is_web(address):
        return [""]
    form = existing_form if is_local(address) else str
    return [suffix for suffix in ("", *_SUFFIXES) if exists(form(address + suffix))]


def _addresses(config: ConvertConfig, tables: InputTables) -> Iterator[str]:
    """Yields the addresses of the images of the first rows, as written; none without paths."""
    schema = config.dataset_schema
    column = config.column(schema.image.column)
    has_paths = column in tables.columns and column not in tables.embedded
    of_tables = all(file.format in TABLES for file in tables.files)
    if not (schema.has_image and has_paths and of_tables):
        return
    file = tables.files[0]
    splits = (s for s in FORMATS[file.format].split(file) if isinstance(s, SourceSplit))
    projection, guard = Projection((column,)), ImageRootGuard(config.guard)
    rows = chain.from_iterable(FORMATS[file.format].read(s, projection) for s in splits)
    for row in islice(one_by_one(rows), _ROWS):
        value = row.values.get(column) if isinstance(row, Row) else None
        if isinstance(value, str | int) and str(value):
            address = resolve_path(str(value), file.path, config.image_root)
            guard.check(address)
            yield address
