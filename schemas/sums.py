"""Sums of what workers have counted: parts of a result that add up in any order.

A class of counts is added up field by field, each by its type, so that it needs no code of its own.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

if TYPE_CHECKING:
    from typing_extensions import Self


class Summed:
    """Counts of a part of a whole, as a dataclass or a model whose defaults are those of nothing.

    >>> @dataclasses.dataclass
    ... class Words(Summed):
    ...     lines: int = 0
    ...     words: Counter[str] = dataclasses.field(default_factory=Counter)
    >>> Words.sum_of([Words(1, Counter(a=2)), Words(2, Counter(a=1, b=1))])
    Words(lines=3, words=Counter({'a': 3, 'b': 1}))
    """

    # Examples that are kept of a list or tuple: the smallest ones; None for all.
    kept: ClassVar[int | None] = 5

    @classmethod
    def sum_of(cls, parts: Iterable[Self]) -> Self:
        """Returns the sum of parts; without parts, that of nothing."""
        found = list(parts)
        values = {name: [getattr(part, name) for part in found] for name in _fields(cls)}
        return cls(**{name: cls.sum_field(name, each) for name, each in values.items() if found})

    @classmethod
    def sum_field(cls, name: str, values: Sequence[Any]) -> Any:
        """Returns the sum of the values of a field, one at least."""
        return _sum(values, cls.kept)

    @property
    def sum_key(self) -> Any:
        """What parts in a list or tuple have in common that are added up."""
        raise NotImplementedError


def _fields(cls: type) -> Iterable[str]:
    if issubclass(cls, BaseModel):
        return cls.model_fields
    return [field.name for field in dataclasses.fields(cls) if field.init]  # type: ignore[arg-type]


def _sum(values: Sequence[Any], kept: int | None) -> Any:
    """Returns the sum of values of one type: the largest of floats, and the first of texts."""
    values = [value for value in values if value is not None]
    if not values or isinstance(values[0], str):
        return values[0] if values else None
    first = values[0]
    if isinstance(first, Summed):
        return type(first).sum_of(values)
    if isinstance(first, float):
        return max(values)
    if isinstance(first, int):
        return any(values) if isinstance(first, bool) else sum(values)
    if isinstance(first, Counter):
        total = Counter[Any]()
        for value in values:  # unlike with +, counts of zero stay
            total.update(value)
        return total
    if isinstance(first, dict):
        return {key: _sum(each, kept) for key, each in _by_key(values).items()}
    if isinstance(first, set | frozenset):
        # Most parts add nothing to what many others have.
        is_known = isinstance(first, frozenset) and all(value <= first for value in values)
        return first if is_known else first.union(*values)
    found = list(chain.from_iterable(values))
    if found and isinstance(found[0], Summed):
        by_key: dict[Any, list[Any]] = {}
        for part in found:
            by_key.setdefault(part.sum_key, []).append(part)
        return type(first)(_sum(by_key[key], kept) for key in sorted(by_key))
    return type(first)(sorted(found)[:kept])


def _by_key(values: Iterable[dict[Any, Any]]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for value in values:
        for key, each in value.items():
            found.setdefault(key, []).append(each)
    return found
