"""Paths of images in tables: joined to the image root, with a suffix if they lack it."""

from __future__ import annotations

import posixpath

from recordmill.schemas.layout import is_url, is_web


def resolve_path(path: str, table: str, image_root: str | None) -> str:
    """Joins the path of an image to the image root.

    `path` is the path or address in the table. `table` is the path or address of the table.
    `image_root` is the base of relative paths; None for the folder of the table.

    >>> resolve_path("photos/1.jpg", "s3://bucket/birds/labels.csv", None)
    's3://bucket/birds/photos/1.jpg'
    >>> resolve_path("photo #1.jpg", "https://host/birds/labels.csv?page=a/b", None)
    'https://host/birds/photo %231.jpg'
    """
    if not path or path.startswith("/") or is_url(path):
        return path
    root = _folder_of(table) if image_root is None else image_root
    if is_web(root):
        path = path.replace("#", "%23")  # valid in a file name; in a URL it begins a fragment
    return posixpath.join(root, path)


def with_suffix(path: str, suffix: str) -> str:
    """Returns a path with a suffix, which is added if the path does not have it.

    >>> with_suffix("1a2b", ".jpg"), with_suffix("1a2b.JPG", ".jpg")
    ('1a2b.jpg', '1a2b.JPG')
    """
    has_suffix = not path or path.lower().endswith(suffix.lower())
    return path if has_suffix else path + suffix


def _folder_of(table: str) -> str:
    path = table.partition("?")[0] if is_web(table) else table  # a query may contain slashes
    return path[: path.rfind("/") + 1]
