"""Binds single rows, which the package binds in batches."""

from __future__ import annotations

from typing import NamedTuple

from recordmill.schemas.records import ImageRef, Row
from recordmill.transforms.functional.rows.binding import Binding, bind_rows, identities_of


def bind(row: Row, binding: Binding) -> ImageRef:
    """Returns the reference of a row."""
    (ref,) = bind_rows([row], binding)
    return ref


class Identity(NamedTuple):
    """What identifies a row."""

    key: str
    uri: str
    split: str
    group: str


def identity_of(row: Row, binding: Binding) -> Identity:
    """Returns what identifies a row, and decides where it goes."""
    (ref,) = identities_of([row], binding)
    return Identity(ref.key, ref.uri, ref.split, ref.group)
