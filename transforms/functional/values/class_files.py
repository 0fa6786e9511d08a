"""Reads the names of classes from files: lines of text, JSON, and label maps of TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from recordmill.transforms.functional.values.bounded_json import parse_json
from recordmill.transforms.functional.values.typed import short_repr

_ITEM = re.compile(r"item\s*\{(.*?)\}", re.DOTALL)
_ID = re.compile(r"\bid\s*:\s*(\d+)")
_WITH_ID = re.compile(r"(\d+)[\s,;:](.*)|(.*)[,;:\t] ?(\d+)")
_NAME = re.compile(r"""\b(?:name|display_name)\s*:\s*(?:'([^'\\]*)'|"([^"\\]*)")""")


def label_map(text: str) -> dict[int, str]:
    """Returns the names in a label map of the Object Detection API by id.

    >>> label_map("item { id: 1 name: 'cat' }")
    {1: 'cat'}
    """
    names = dict[int, str]()
    for item in _ITEM.findall(text):
        id_, name = _ID.search(item), _NAME.search(item)
        if id_ and name:
            names[int(id_[1])] = name[1] or name[2] or ""
    return names


def names_in(text: str, path: str) -> tuple[list[str], int]:
    """Returns the names in a file by id, and the first id, 0 or 1; raises ValueError for gaps."""
    kind = path.lower().partition("?")[0].rpartition(".")[2]
    if kind in ("yaml", "yml"):
        raise ValueError("is YAML")
    if kind not in ("pbtxt", "json"):
        # Empty lines at the end of a file are no class; elsewhere they are an error.
        lines = text.rstrip("\r\n").splitlines()
        matches = [match for match in map(_WITH_ID.fullmatch, lines) if match]
        ids, names = sorted(int(m[1] or m[4]) for m in matches), {m[2] or m[3] for m in matches}
        if len(names) == len(ids) >= max(2, len(lines) - 1) and ids == [
            *range(ids[0], ids[-1] + 1)
        ]:
            raise ValueError("has an id in each line. Order the names by id, and remove the ids")
        return lines, 0
    found = label_map(text) if kind == "pbtxt" else _names_of_json(parse_json(text))
    ids = sorted(found)
    if ids and (ids[0] > 1 or ids[-1] != ids[0] + len(ids) - 1):
        raise ValueError(f"expected ids from 0 or 1 without gaps, got {short_repr(ids)}")
    return [found[id_] for id_ in ids], ids[0] if ids else 0


def _names_of_json(found: Any) -> Mapping[int, str]:
    """Returns names by id: of a list, or of an object from ids to names or from names to ids."""
    items = list(enumerate(found) if isinstance(found, list) else _items(found))
    names = {id_: name for id_, name in items if isinstance(name, str)}
    if not items or len(names) < len(items):
        expected = "a list of names, or an object with an id for each"
        raise ValueError(f"expected {expected}, got {short_repr(found)}")
    return names


def _items(found: Any) -> list[tuple[int, Any]]:
    pairs = found.items() if isinstance(found, dict) else ()
    if pairs and all(type(value) is int and value >= 0 for _, value in pairs):
        return [(id_, name) for name, id_ in pairs]
    return [(int(id_), name) for id_, name in pairs if id_.isascii() and id_.isdigit()]
